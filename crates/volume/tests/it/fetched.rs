//! Devices that read ahead by themselves, like files: a read of several stripes makes all of them begin before it waits for one.

use std::sync::{Arc, Mutex};

use creamery_base::{Result, Wait};
use creamery_device::{BlockDevice, Completion, DeviceId, MemoryDevice, Request};
use creamery_format::BlockGroupFlags;
use creamery_volume::{DeviceSet, Mode, Verdict, Volume};

use crate::images::*;

/// A request to a device, with the device's number and the offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    WillRead(usize, u64),
    Read(usize, u64),
}

/// A device that notes its requests.
struct Noting {
    number: usize,
    inner: Arc<MemoryDevice>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Whether it reads ahead.
    fetches: bool,
}

impl BlockDevice for Noting {
    fn submit(&self, request: Request, done: Completion) {
        self.inner.submit(request, done);
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.asked.lock().unwrap().push(Asked::Read(self.number, offset));
        self.inner.read_at(offset, out)
    }

    fn will_read(&self, offset: u64, _: u64) -> bool {
        self.asked.lock().unwrap().push(Asked::WillRead(self.number, offset));
        self.fetches
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn id(&self) -> DeviceId {
        self.inner.id()
    }

    fn describe(&self) -> String {
        self.number.to_string()
    }
}

/// Returns the requests to the devices of a RAID0 for a read of four of its stripes, and the bytes.
fn read_four_stripes(devices: &[Arc<MemoryDevice>], fetches: [bool; 2]) -> (Vec<Asked>, Vec<u8>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noting = |(number, inner): (usize, &Arc<MemoryDevice>)| {
        let (inner, asked) = (Arc::clone(inner), Arc::clone(&asked));
        Arc::new(Noting { number, inner, asked, fetches: fetches[number] }) as Arc<dyn BlockDevice>
    };
    let set: DeviceSet = devices.iter().enumerate().map(noting).collect();
    let volume = Volume::open(set, Mode::ReadOnly).unwrap();
    push_all_chunks(&volume);
    let chunks = volume.chunks();
    let data = chunks.iter().find(|chunk| chunk.flags.contains(BlockGroupFlags::DATA)).unwrap();
    asked.lock().unwrap().clear();
    let mut out = vec![0; 4 * 65536];
    volume.read_data(data.start, &mut out, &|_, _| Verdict::Unknown, Wait::Yes).unwrap();
    let asked = asked.lock().unwrap().clone();
    (asked, out)
}

#[test]
fn all_stripes_begin_to_be_fetched_before_one_is_read() {
    let options = ["-q", "-m", "raid1", "-d", "raid0"];
    let Some(pair) = made_by("mkfs.btrfs", &options, &[256 << 20, 256 << 20]) else { return };
    let (asked, in_place) = read_four_stripes(&pair, [true, true]);
    let begun = asked.iter().take_while(|asked| matches!(asked, Asked::WillRead(..))).count();
    // Two stripes of each device follow one another there.
    let of_device = |number: usize| {
        let on = |asked: &&Asked| matches!(asked, Asked::WillRead(on, _) if *on == number);
        asked.iter().filter(on).count()
    };
    assert!(begun >= 2 && of_device(0) > 0 && of_device(1) > 0, "{asked:?}");
    assert!(asked[begun..].iter().all(|asked| matches!(asked, Asked::Read(..))), "{asked:?}");
    assert!(asked.len() > begun, "{asked:?}");
    // If one of them does not, requests are submitted to both at once, and nothing is read in place.
    let (asked, submitted) = read_four_stripes(&pair, [true, false]);
    assert!(asked.iter().all(|asked| matches!(asked, Asked::WillRead(..))), "{asked:?}");
    assert_eq!(in_place, submitted);
}
