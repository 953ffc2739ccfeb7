//! Data written from buffers that the caller hands over.

use std::sync::Arc;

use creamery_base::{InodeId, ObjectId, TreeId, Wait};
use creamery_device::{AlignedBuffer, Parts};
use creamery_txn::{DataCsums, Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

use crate::neighbours::empty_image;

const MIB: usize = 1 << 20;

fn open() -> Option<Arc<Engine>> {
    let volume = Volume::open(vec![empty_image()?], Mode::ReadWrite).expect("a filesystem");
    Some(Engine::open(volume, Options::default()).expect("writable"))
}

/// Buffers of 1 MiB, each with bytes of its own.
fn buffers(from: u8, count: u8) -> Vec<Arc<AlignedBuffer>> {
    (from..from + count).map(|byte| Arc::new(AlignedBuffer::from_slice(&vec![byte; MIB]))).collect()
}

#[test]
fn buffers_that_are_handed_over_lie_one_after_another() {
    let Some(engine) = open() else { return };
    let extent = engine.allocate_data(TreeId::FS, 4 << 20, 4 << 20, None).expect("space");
    let start = extent.start();
    let mut written = engine.volume().nothing_written();
    let parts = buffers(1, 4);
    for (at, part) in [(2, &parts[2..]), (0, &parts[..2])] {
        let parts = Parts::from_iter(part.iter().cloned());
        written.add(engine.data().write_parts(start + (at << 20), parts).expect("memory takes it"));
    }
    assert!(
        parts.into_iter().all(|buffer| Arc::into_inner(buffer).is_some()),
        "whose they are has them back"
    );
    let handle = engine.start(ReserveItems::items(2)).expect("room");
    let owner = InodeId { subvolume: TreeId::FS, ino: ObjectId::new(1000) };
    handle.complete_data(extent, written, owner, 0, None).expect("room");
    handle.end();
    engine.commit().expect("a commit");
    let mut out = vec![0; 4 * MIB];
    engine.data().read(start, &mut out, DataCsums::Absent, Wait::Yes).expect("it is read");
    assert!(out.chunks(MIB).zip(1..).all(|(bytes, number)| bytes.iter().all(|byte| *byte == number)));
}

/// Checksums without an extent, left by a log that was given up: more items than one handle may remove.
#[test]
fn data_space_has_no_checksums_when_it_is_handed_out() {
    const SECTOR: u64 = 4096;
    const LEN: u64 = 32 * SECTOR;
    let Some(engine) = open() else { return };
    let allocate = || engine.allocate_data(TreeId::FS, LEN, LEN, None).expect("space");
    let start = allocate().start();
    // They reach beyond the space at both ends.
    for sector in (0..=LEN / SECTOR).step_by(4) {
        let at = start.get() + sector * SECTOR - SECTOR;
        let handle = engine.start(ReserveItems::items(2)).expect("room");
        let nothing = engine.volume().nothing_written();
        handle.complete_in_place(at.into(), nothing, Some(&[1; 8])).expect("room");
        handle.end();
    }
    let has = |at: u64, len: u64| engine.data().has_csums(at.into(), len, Wait::Yes).expect("memory is read");
    assert!(has(start.get(), LEN));
    let extent = allocate();
    assert_eq!(extent.start(), start);
    assert!(!has(start.get(), LEN));
    let ends = [start.get() - SECTOR, start.get() + LEN];
    assert!(ends.iter().all(|at| has(*at, SECTOR)), "those beside it stay");
    let data = vec![7; LEN as usize];
    let written = engine.data().write(&extent, &data).expect("memory takes it");
    let csums = vec![2; LEN as usize / SECTOR as usize * 4];
    let handle = engine.start(ReserveItems::items(4)).expect("room");
    let owner = InodeId { subvolume: TreeId::FS, ino: ObjectId::new(1000) };
    handle.complete_data(extent, written, owner, 0, Some(&csums)).expect("room");
    handle.end();
    assert!(has(start.get(), LEN));
}
