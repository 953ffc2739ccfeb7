//! Operations on one file at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::sync::{Condvar, Mutex};
use creamery_base::{Result, Wait};
use creamery_device::{Hook, Request};
use creamery_testkit::until;

use super::support::*;
use crate::data::completion::{Completion, CompletionStep};
use crate::data::reserve_source::ReserveSource;
use crate::fallocate::Fallocate;
use crate::inode::InodeFlags;
use crate::inode::xattr::{self, XattrMode};
use crate::open_file::OpenFile;
use crate::ops::{SetAttributes, set_attributes};
use crate::{Compress, FsOptions};

/// Holds writes of these bytes back.
#[derive(Default)]
struct HoldsWrites {
    closed: Mutex<bool>,
    changed: Condvar,
    /// A thread waits for it.
    waits: AtomicBool,
}

/// The byte with which a held-back write begins, repeated.
const HELD_BACK: u8 = 0xee;
const HELD_BACK_LEN: usize = 16;

impl Hook for HoldsWrites {
    fn before(&self, request: &Request) -> Result<()> {
        if let Request::Write { data, .. } = request
            && data.iter().flatten().take(HELD_BACK_LEN).all(|byte| *byte == HELD_BACK)
        {
            let closed = self.closed.lock();
            self.waits.store(*closed, Ordering::Release);
            drop(self.changed.wait_while(closed, |closed| *closed));
        }
        Ok(())
    }
}

/// Runs `work` on a thread of its own, which does not wait for the writes that the device holds back.
fn soon<T: Send>(what: &str, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let works = scope.spawn(work);
        if let Err(error) = until(what, || Ok(works.is_finished())) {
            // The scope waits for a thread that does not end.
            eprintln!("{error}: it waits for the device");
            std::process::abort();
        }
        works.join().expect("no panic")
    })
}

#[test]
fn a_stat_and_a_read_of_another_range_end_while_the_device_keeps_a_write() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (engine, device) = fixture.behind(HoldsWrites::default());
    let file = opened(Arc::new(new_file(&engine, 300, InodeFlags::empty())));
    let old = vec![1; 1 << 20];
    file.write_at(0, &old).expect("room");
    let held = vec![HELD_BACK; 64 << 10];
    // Over existing data, and past the end.
    for (at, size) in [(256 << 10, 1 << 20), (1 << 20, (1 << 20) + (64 << 10))] {
        let before = file.stat(Wait::Yes).expect("it lives").size;
        *device.closed.lock() = true;
        device.waits.store(false, Ordering::Release);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| file.write_at(at, &held));
            while !device.waits.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let stat = soon("a stat", || file.stat(Wait::Yes)).expect("it lives");
            assert_eq!(stat.size, before);
            let mut out = [0; 8192];
            assert_eq!(soon("a read", || file.read_at(4096, &mut out, Wait::Yes)).expect("data"), 8192);
            assert!(out.iter().all(|byte| *byte == 1));
            if at < before {
                let written = soon("another write", || file.write_at(512 << 10, &old[..4096]));
                assert_eq!(written.expect("room"), 4096);
            }
            *device.closed.lock() = false;
            device.changed.notify_all();
            assert_eq!(writer.join().expect("no panic").expect("room"), held.len());
        });
        assert_eq!(file.stat(Wait::Yes).expect("it lives").size, size);
        let mut out = vec![0; held.len()];
        file.read_at(at, &mut out, Wait::Yes).expect("data");
        assert_eq!(out, held);
    }
    audit(&engine, file.inode(), &file.inode().item(Wait::Yes).expect("it lives"));
}

/// Another thread that shares the inode is faster, again and again.
#[test]
fn a_step_that_is_planned_anew_loses_no_room() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = fixture.named("f0");
    let (file, mut item) = (inode.file(), inode.item(Wait::Yes).expect("it lives"));
    let room = crate::data::reserve::keep(&fixture, inode.id.subvolume, 8 * SECTOR);
    let mut room = room.expect("no limits").expect("room");
    let (kept, of_all) = (room.metadata_bytes(), fixture.delalloc_metadata_bytes());
    let planned = file.extents_seen();
    crate::data::write(&file, &mut item, 0, &[7; SECTOR as usize]).expect("room");
    let mut step = |mut behalf: ReserveSource<'_>, seen| {
        let step = CompletionStep { units: 3, stop: SECTOR, changed: (0, SECTOR), seen: Some(seen) };
        let mut reached = 0;
        let mut completion = Completion::new(&mut behalf, &file, &mut item, &mut reached);
        completion.step(step, |_| Ok(()), |_| {}).expect("room")
    };
    for _ in 0..20 {
        assert!(!step(ReserveSource::Writeback(&mut room), planned));
        assert!(!step(ReserveSource::BeforeRun(&mut room), planned));
        assert_eq!((room.metadata_bytes(), fixture.delalloc_metadata_bytes()), (kept, of_all));
    }
    assert!(step(ReserveSource::BeforeRun(&mut room), file.extents_seen()));
    let (left, left_of_all) = (room.metadata_bytes(), fixture.delalloc_metadata_bytes());
    assert!(left < kept, "what is done takes its part");
    assert_eq!(of_all - left_of_all, kept - left);
    drop(room);
    fixture.judge(|_| {});
}

/// A property change while the file's incompressible data is on its way, and the file's flags afterwards.
#[test]
fn what_is_said_of_compression_while_data_is_packed_is_not_undone() {
    type Say = fn(&OpenFile) -> Result<()>;
    fn give(file: &OpenFile, flags: InodeFlags) -> Result<()> {
        set_attributes(file.inode(), &SetAttributes { flags: Some(flags), ..SetAttributes::default() })
            .map(drop)
    }
    let property = xattr::COMPRESSION;
    let rows: [(Say, InodeFlags, Option<&[u8]>); 6] = [
        (|_| Ok(()), InodeFlags::NOCOMPRESS, None),
        (|file| give(file, InodeFlags::NODUMP), InodeFlags::NOCOMPRESS | InodeFlags::NODUMP, None),
        (|file| give(file, InodeFlags::COMPRESS), InodeFlags::COMPRESS, Some(b"zstd")),
        (
            |file| file.inode().set_xattr(xattr::COMPRESSION, b"lzo", XattrMode::Any),
            InodeFlags::COMPRESS,
            Some(b"lzo"),
        ),
        (|file| give(file, InodeFlags::NOCOMPRESS), InodeFlags::NOCOMPRESS, None),
        (
            |file| file.inode().set_xattr(xattr::COMPRESSION, b"none", XattrMode::Any),
            InodeFlags::NOCOMPRESS,
            Some(b"none"),
        ),
    ];
    // It looks compressible.
    let mut random = Random(7);
    let mut data: Vec<u8> = (0..128 << 10).map(|_| (random.next() >> 32) as u8).collect();
    data.chunks_mut(1024).for_each(|part| part[..HELD_BACK_LEN].fill(HELD_BACK));
    let compress = Some(Compress { method: "zstd".parse().expect("one of three"), force: false });
    for (row, (say, flags, value)) in rows.into_iter().enumerate() {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let (engine, device) = fixture.behind(HoldsWrites::default());
        let options = FsOptions { compress, delayed_bytes: 1 << 20, ..FsOptions::default() };
        let file = opened(Arc::new(new_file_with(&engine, 300, InodeFlags::empty(), &options)));
        file.write_at(0, &data).expect("room");
        *device.closed.lock() = true;
        std::thread::scope(|scope| {
            let flushing = scope.spawn(|| file.inode().flush());
            while !device.waits.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let said = soon("a word", || say(&file));
            *device.closed.lock() = false;
            device.changed.notify_all();
            said.expect("room");
            flushing.join().expect("no panic").expect("room");
        });
        assert_eq!(file.stat(Wait::Yes).expect("it lives").flags, flags, "row {row}");
        let found = file.inode().get_xattr(property, Wait::Yes).ok();
        assert_eq!(found.as_deref(), value, "row {row}");
        give(&file, flags | InodeFlags::NODUMP).expect("one more flag is no contradiction");
        audit(&engine, file.inode(), &file.inode().item(Wait::Yes).expect("it lives"));
    }
}

/// Writes data of `file` back until `done`.
fn write_back_until(file: &OpenFile, done: &AtomicBool) {
    while !done.load(Ordering::Acquire) {
        if !file.inode().context().writeback().step() {
            std::thread::yield_now();
        }
    }
}

/// Bytes of data that may be delayed: none, or less than is written.
const DELAYED: [u64; 2] = [0, 64 << 10];

/// Pieces of the file that threads write to, each by itself; ragged ones too.
const PIECES: u64 = 24;
const PIECE: u64 = 5 * 1024;

#[test]
fn writes_to_parts_of_one_extent_at_once_are_all_there() {
    let rows = [
        (Kind::DEFAULT, InodeFlags::empty(), false),
        (Kind::OLD, InodeFlags::empty(), false),
        (Kind::DEFAULT, InodeFlags::NODATASUM, false),
        (Kind::DEFAULT, InodeFlags::empty(), true),
        (Kind::OLD, InodeFlags::NODATASUM, true),
    ];
    for ((kind, flags, preallocated), delayed) in
        rows.into_iter().flat_map(|row| DELAYED.map(|delayed| (row, delayed)))
    {
        let Some(fixture) = fixture(kind) else { return };
        let file = opened(Arc::new(new_delayed_file(&fixture, 300, flags, delayed)));
        let size = PIECES * PIECE;
        if preallocated {
            file.fallocate(Fallocate::Allocate { keep_size: false }, 0, size).expect("room");
        } else {
            file.write_at(0, &vec![0; size as usize]).expect("room");
        }
        let wanted: Vec<Mutex<u8>> = (0..PIECES).map(|_| Mutex::new(0)).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| write_back_until(&file, &done));
            let writers = [0, 1, 2, 3_u64].map(|thread| {
                let (file, wanted) = (&file, &wanted);
                scope.spawn(move || {
                    let mut random = Random(thread);
                    let mut out = vec![0; PIECE as usize];
                    for round in 0..150_u64 {
                        // The holder of the piece's lock knows its content; its sectors it shares with the neighbours.
                        let piece = random.below(PIECES);
                        let mut byte = wanted[piece as usize].lock();
                        file.read_at(piece * PIECE, &mut out, Wait::Yes).expect("data");
                        assert!(
                            out.iter().all(|found| *found == *byte),
                            "piece {piece} before round {round}"
                        );
                        *byte = (1 + round % 200) as u8;
                        out.fill(*byte);
                        assert_eq!(file.write_at(piece * PIECE, &out).expect("room"), out.len());
                    }
                })
            });
            let joined = writers.map(std::thread::ScopedJoinHandle::join);
            done.store(true, Ordering::Release);
            joined.into_iter().for_each(|joined| joined.expect("all pieces are right"));
        });
        let mut out = vec![0; size as usize];
        file.read_at(0, &mut out, Wait::Yes).expect("data");
        for (piece, wanted) in out.chunks(PIECE as usize).zip(wanted) {
            let wanted = wanted.into_inner();
            assert!(piece.iter().all(|found| *found == wanted));
        }
        file.inode().flush().expect("room");
        audit(&fixture, file.inode(), &file.inode().item(Wait::Yes).expect("it lives"));
        drop(file);
    }
}

#[test]
fn a_file_that_is_cut_is_never_seen_half_cut() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_file(&fixture, 300, InodeFlags::NODATASUM)));
    let sectors = 20_000;
    for sector in 0..sectors {
        file.write_at(sector * SECTOR, &[7; SECTOR as usize]).expect("room");
    }
    let (looks, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (file, looks, done) = (&file, &looks, &done);
        let looking = scope.spawn(move || {
            looks.store(true, Ordering::Release);
            while !done.load(Ordering::Acquire) {
                let size = file.stat(Wait::Yes).expect("it lives").size;
                assert!(size == sectors * SECTOR || size == 5, "{size} bytes");
            }
        });
        while !looks.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        set_attributes(file.inode(), &SetAttributes::truncate(5)).expect("room");
        done.store(true, Ordering::Release);
        looking.join().expect("no size in between");
    });
    audit(&fixture, file.inode(), &file.inode().item(Wait::Yes).expect("it lives"));
}

#[test]
fn who_reads_beside_a_write_never_sees_it_half_done() {
    DELAYED.into_iter().for_each(read_beside_a_write);
}

fn read_beside_a_write(delayed: u64) {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::NODATASUM, delayed)));
    let whole = vec![7; 64 * SECTOR as usize];
    file.write_at(0, &whole).expect("room");
    let done = AtomicBool::new(false);
    let bad = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (file, done, bad) = (&file, &done, &bad);
        scope.spawn(move || write_back_until(file, done));
        for at in [63, 62] {
            scope.spawn(move || {
                let mut out = [0; SECTOR as usize];
                let mut n = 0_u64;
                while !done.load(Ordering::Acquire) {
                    n += 1;
                    match file.read_at(at * SECTOR, &mut out, Wait::Yes) {
                        Ok(_) if out.iter().all(|b| *b == 7) => {}
                        Ok(_) => bad.lock().push(format!("read {n}: byte {}", out[0])),
                        Err(error) => bad.lock().push(format!("read {n}: {error}")),
                    }
                }
                eprintln!("{n} reads");
            });
        }
        for _ in 0..1500 {
            file.write_at(0, &whole).expect("room");
            for sector in [8, 16, 24, 32, 40, 48] {
                file.write_at(sector * SECTOR, &whole[..SECTOR as usize]).expect("room");
            }
        }
        done.store(true, Ordering::Release);
    });
    let bad = bad.lock();
    assert!(bad.is_empty(), "{} bad reads: {:?}", bad.len(), &bad[..bad.len().min(5)]);
}

#[test]
fn writes_into_one_preallocated_extent_at_once_succeed() {
    DELAYED.into_iter().for_each(write_into_one_preallocated_extent);
}

fn write_into_one_preallocated_extent(delayed: u64) {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let mut bad = Vec::new();
    let file = opened(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::NODATASUM, delayed)));
    for round in 0..600 {
        set_attributes(file.inode(), &SetAttributes::truncate(0)).expect("room");
        file.fallocate(Fallocate::Allocate { keep_size: false }, 0, 64 * SECTOR).expect("room");
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let (file, done) = (&file, &done);
            for from in [0, 1, 2, 3] {
                scope.spawn(move || {
                    for sector in (from..64).step_by(4) {
                        if let Err(error) = file.write_at(sector * SECTOR, &[7; SECTOR as usize]) {
                            done.lock().push(format!("round {round}, sector {sector}: {error}"));
                        }
                    }
                });
            }
        });
        bad.extend(done.into_inner());
    }
    assert!(bad.is_empty(), "{} failed writes: {:?}", bad.len(), &bad[..bad.len().min(5)]);
}
