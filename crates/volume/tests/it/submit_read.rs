//! Reads without a waiting thread, on sets that Linux made.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use creamery_base::{Error, ErrorKind, Logical, Wait};
use creamery_device::{AlignedBuffer, BlockDevice, Completion, DeviceId, MemoryDevice, Reply, Request};
use creamery_volume::{DeviceSet, Mode, ReadBatch, ReadReport, Verdict, Volume};

use crate::images::*;
use crate::profiles::{made, open_set, read_everything};

/// The outcome of requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Answered at once.
    AtOnce,
    /// Answered by threads of their own.
    ByThreads,
    /// Dropped without an answer.
    Dropped,
    /// Answered with half of the bytes.
    Short,
    /// Kept until there are this many, and then answered, the last one first.
    Kept(usize),
}

type Kept = Arc<Mutex<Vec<(Arc<MemoryDevice>, Request, Completion)>>>;

struct Odd {
    device: Arc<MemoryDevice>,
    manner: Arc<Mutex<Manner>>,
    kept: Kept,
}

impl BlockDevice for Odd {
    fn submit(&self, request: Request, done: Completion) {
        let device = Arc::clone(&self.device);
        match *self.manner.lock().unwrap() {
            Manner::AtOnce => device.submit(request, done),
            Manner::ByThreads => drop(std::thread::spawn(move || device.submit(request, done))),
            Manner::Dropped => {}
            Manner::Short => {
                let Request::Read { buffer, .. } = request else { unreachable!("it is only read") };
                done(Ok(Reply::Read(AlignedBuffer::zeroed(buffer.len() / 2))));
            }
            Manner::Kept(count) => {
                let mut kept = self.kept.lock().unwrap();
                kept.push((device, request, done));
                if kept.len() == count {
                    let all: Vec<_> = kept.drain(..).collect();
                    drop(kept);
                    all.into_iter().rev().for_each(|(device, request, done)| device.submit(request, done));
                }
            }
        }
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    fn id(&self) -> DeviceId {
        self.device.id()
    }

    fn describe(&self) -> String {
        self.device.describe()
    }
}

/// Opens a volume on these devices, with a manner of answering for each of them.
fn odd_volume(devices: &[Arc<MemoryDevice>]) -> (Arc<Volume>, Vec<Arc<Mutex<Manner>>>) {
    let kept = Kept::default();
    let manners: Vec<_> = devices.iter().map(|_| Arc::new(Mutex::new(Manner::AtOnce))).collect();
    let odd = devices.iter().zip(&manners).map(|(device, manner)| {
        let (device, manner, kept) = (Arc::clone(device), Arc::clone(manner), Arc::clone(&kept));
        Arc::new(Odd { device, manner, kept }) as Arc<dyn BlockDevice>
    });
    let volume = Volume::open(odd.collect::<DeviceSet>(), Mode::ReadOnly).unwrap();
    push_all_chunks(&volume);
    (Arc::new(volume), manners)
}

fn set_all(manners: &[Arc<Mutex<Manner>>], manner: Manner) {
    manners.iter().for_each(|each| *each.lock().unwrap() = manner);
}

/// The leaves of a set, with their bytes.
fn truth(devices: &[Arc<MemoryDevice>], count: usize) -> Vec<(Logical, Vec<u8>)> {
    let whole = open_set(devices);
    let bytes = |leaf: Logical| {
        let mut out = vec![0; 4096];
        whole.read_data(leaf, &mut out, &|_, _| Verdict::Unknown, Wait::Yes).unwrap();
        (leaf, out)
    };
    read_everything(&whole).into_iter().step_by(7).take(count).map(bytes).collect()
}

/// Reads the leaves in one batch; the expected bytes serve as checksums.
fn read(volume: &Arc<Volume>, leaves: &[(Logical, Vec<u8>)]) -> Vec<ReadReport> {
    let mut batch = ReadBatch::default();
    for (at, bytes) in leaves.iter().cloned() {
        batch.add(at, AlignedBuffer::zeroed(bytes.len()), move |_, sector| {
            Verdict::of_checksum(sector == bytes)
        });
    }
    let (send, receive) = channel();
    volume.submit_read(batch, Wait::Yes, Box::new(move |reports| send.send(reports).unwrap()));
    let reports = receive.recv().unwrap();
    assert!(receive.recv().is_err(), "the completion ran once");
    reports
}

fn expect_good(reports: &[ReadReport], leaves: &[(Logical, Vec<u8>)]) {
    assert_eq!(reports.len(), leaves.len());
    for (report, (at, bytes)) in reports.iter().zip(leaves) {
        assert!(
            report.is_good() && report.at == *at && report.buffer[..] == bytes[..],
            "{at}: {:?}",
            report.bad
        );
    }
}

#[test]
fn all_first_requests_of_a_batch_are_started_before_one_is_answered() {
    for (profile, count) in [("raid1", 2), ("raid0", 3), ("raid10", 4), ("raid5", 3)] {
        let Some(devices) = made(profile, count) else { return };
        let leaves = truth(&devices, 24);
        let (volume, manners) = odd_volume(&devices);
        set_all(&manners, Manner::Kept(leaves.len()));
        expect_good(&read(&volume, &leaves), &leaves);
    }
}

/// Nothing is copied: the caller gets the buffer back that the device has filled, or one of the same length if no device has answered.
#[test]
fn a_device_fills_the_buffer_of_the_caller_where_all_of_it_lies_in_one_place() {
    let Some(devices) = made("raid1", 2) else { return };
    let leaves = truth(&devices, 1);
    let (at, bytes) = &leaves[0];
    let (volume, manners) = odd_volume(&devices);
    for (manner, is_good) in [(Manner::AtOnce, true), (Manner::Dropped, false), (Manner::Short, false)] {
        set_all(&manners, manner);
        let buffer = AlignedBuffer::from_slice(&vec![0xaa; bytes.len()]);
        let (place, wanted) = (buffer.as_ptr(), bytes.clone());
        let mut batch = ReadBatch::default();
        batch.add(*at, buffer, move |_, sector| Verdict::of_checksum(sector == wanted));
        let (send, receive) = channel();
        volume.submit_read(batch, Wait::Yes, Box::new(move |reports| send.send(reports).unwrap()));
        let [report] = <[ReadReport; 1]>::try_from(receive.recv().unwrap()).expect("one range");
        assert_eq!((report.is_good(), report.buffer.len()), (is_good, bytes.len()));
        assert!(!is_good || report.buffer.as_ptr() == place, "it is the caller's own");
        assert_eq!(report.buffer[..] == bytes[..], is_good);
    }
}

#[test]
fn a_batch_is_answered_once_whatever_the_devices_do() {
    for (profile, count, borne) in [("raid1", 2, 1), ("raid5", 3, 1), ("raid6", 4, 2)] {
        let Some(devices) = made(profile, count) else { return };
        let leaves = truth(&devices, 40);
        let (volume, manners) = odd_volume(&devices);
        for manner in [Manner::AtOnce, Manner::ByThreads] {
            set_all(&manners, manner);
            let reports = read(&volume, &leaves);
            expect_good(&reports, &leaves);
            assert!(reports.iter().all(|report| report.mended == 0));
            // As many devices as the profile allows answer nothing, or too little, and then one more.
            for (bad, silent) in
                (1..=borne + 1).flat_map(|silent| [(Manner::Dropped, silent), (Manner::Short, silent)])
            {
                manners[..silent].iter().for_each(|each| *each.lock().unwrap() = bad);
                let reports = read(&volume, &leaves);
                if silent <= borne {
                    expect_good(&reports, &leaves);
                    assert!(reports.iter().any(|report| report.mended > 0), "{profile}");
                } else {
                    assert_eq!(reports.len(), leaves.len());
                    assert!(reports.iter().any(|report| !report.is_good()), "{profile}");
                }
                set_all(&manners, manner);
            }
        }
    }
    let Some(devices) = made("raid1", 2) else { return };
    let (volume, _) = odd_volume(&devices);
    assert!(read(&volume, &[]).is_empty(), "of nothing it is told, too");
    let nowhere = read(&volume, &[(Logical::new(1 << 60), vec![0; 4096])]);
    assert!(nowhere[0].error.is_some() && !nowhere[0].is_good());
}

#[test]
fn what_is_rotten_comes_from_elsewhere() {
    for (profile, count) in [("raid1", 2), ("raid1c3", 3), ("raid5", 3), ("raid6", 4)] {
        let Some(devices) = made(profile, count) else { return };
        let leaves = truth(&devices, 40);
        // Everything but the superblocks of the second device.
        devices[1].zero((64 << 10) + 4096, (64 << 20) - (64 << 10) - 4096).unwrap();
        devices[1].zero((64 << 20) + 4096, (192 << 20) - 4096).unwrap();
        let (volume, manners) = odd_volume(&devices);
        set_all(&manners, Manner::ByThreads);
        let reports = read(&volume, &leaves);
        expect_good(&reports, &leaves);
        let mended: u64 = reports.iter().map(|report| report.mended).sum();
        assert_eq!(volume.counters().mirror_fallbacks, mended, "{profile}");
        let has_parity = volume.counters().parity_read_bytes > 0;
        assert_eq!(has_parity, profile.starts_with("raid5") || profile.starts_with("raid6"), "{profile}");
    }
}

#[test]
fn a_volume_that_is_dropped_lets_go_of_devices_that_read() {
    let Some(devices) = made("raid1", 2) else { return };
    let leaves = truth(&devices, 2);
    for answered in [true, false] {
        let (kept, manner) = (Kept::default(), Arc::new(Mutex::new(Manner::AtOnce)));
        let odd = devices.iter().map(|device| {
            let (device, manner, kept) = (Arc::clone(device), Arc::clone(&manner), Arc::clone(&kept));
            Arc::new(Odd { device, manner, kept }) as Arc<dyn BlockDevice>
        });
        let odd: Vec<_> = odd.collect();
        let lives: Vec<_> = odd.iter().map(Arc::downgrade).collect();
        let volume = Arc::new(Volume::open(odd.into_iter().collect::<DeviceSet>(), Mode::ReadOnly).unwrap());
        push_all_chunks(&volume);
        *manner.lock().unwrap() = Manner::Kept(usize::MAX);
        let mut batch = ReadBatch::default();
        for (at, _) in &leaves {
            batch.add(*at, AlignedBuffer::zeroed(4096), |_, _| Verdict::Good);
        }
        let (send, receive) = channel();
        volume.submit_read(batch, Wait::Yes, Box::new(move |reports| send.send(reports).unwrap()));
        drop(volume);
        assert!(lives.iter().all(|device| device.upgrade().is_none()), "READ-BATCH-3");
        assert!(receive.try_recv().is_err(), "devices have the buffers");
        let kept: Vec<_> = kept.lock().unwrap().drain(..).collect();
        assert_eq!(kept.len(), 2);
        for (device, request, done) in kept {
            if answered {
                device.submit(request, done);
            }
        }
        let reports = receive.recv().unwrap();
        for report in reports {
            assert_eq!(report.error.as_ref().map(Error::kind), Some(ErrorKind::Stale));
            assert_eq!((report.is_good(), report.buffer.len()), (false, 4096), "READ-BATCH-1");
        }
    }
}
