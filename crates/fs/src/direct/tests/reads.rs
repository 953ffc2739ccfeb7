//! Direct reads.

use std::sync::Arc;

use creamery_base::{ErrorKind, Result, Wait};
use creamery_device::{AlignedBuffer, BlockDevice, Hook, Request};
use creamery_txn::ReserveItems;

use super::{MIB, content, direct, open_named, put, sectors};
use crate::data::tests::support::*;
use crate::direct::{DirectDone, DirectPart};
use crate::fallocate::Fallocate;
use crate::inode::InodeFlags;
use crate::open_file::OpenFile;
use crate::operation::in_handle;

/// Reads the existing bytes directly; the buffer keeps its length.
fn read(file: &OpenFile, offset: u64, len: u64) -> Vec<u8> {
    let len = usize::try_from(len).expect("small");
    let mut buffer = AlignedBuffer::zeroed(len);
    buffer.fill(0xaa);
    let DirectDone { buffer, outcome } = file.read_direct(offset, buffer);
    let part = outcome.expect("a read");
    assert_eq!((part.offset, buffer.len()), (offset, len));
    buffer[..part.len].to_vec()
}

/// Reads directly, and reads: reads, bytes, misaligned ones.
fn counted(file: &OpenFile) -> (u64, u64, u64) {
    let counters = file.inode().context().counters().direct.counters();
    (counters.reads, counters.read_bytes, counters.buffered_misaligned)
}

#[test]
fn a_direct_read_gets_what_the_file_has() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(fixture) = fixture(kind) else { return };
        let file = open_named(&fixture, "f0", InodeFlags::empty());
        assert_eq!(read(&file, 0, SECTOR), [], "an empty file");
        file.write_at(0, b"small").expect("room");
        assert_eq!(read(&file, 0, SECTOR), b"small", "in memory");
        file.inode().flush().expect("room");
        assert_eq!(read(&file, 0, SECTOR), b"small", "in the tree itself");
        let mut wanted = b"small".to_vec();
        direct(&file, 3 * SECTOR, &sectors(2, 2));
        put(&mut wanted, 3 * SECTOR, &sectors(2, 2));
        file.fallocate(Fallocate::Allocate { keep_size: false }, 6 * SECTOR, SECTOR).expect("room");
        file.write_at(4 * SECTOR + 100, &[3; 50]).expect("room");
        put(&mut wanted, 4 * SECTOR + 100, &[3; 50]);
        file.write_at(7 * SECTOR, &[4; 1000]).expect("room");
        put(&mut wanted, 7 * SECTOR, &[4; 1000]);
        let size = wanted.len() as u64;
        for round in ["with delayed data", "of what is in the tree"] {
            let (reads, bytes, misaligned) = counted(&file);
            assert!(read(&file, 0, 16 * SECTOR) == wanted, "{round}: all, and what would be behind it");
            assert_eq!(counted(&file), (reads + 1, bytes + size, misaligned), "{round}");
            let places = [
                (SECTOR, SECTOR),
                (3 * SECTOR, 3 * SECTOR),
                (7 * SECTOR, SECTOR),
                (10, 20),
                (0, 5000),
                (4097, 9000),
            ];
            for (at, len) in places {
                let end = size.min(at + len);
                let range = usize::try_from(at).expect("small")..usize::try_from(end).expect("small");
                assert!(read(&file, at, len) == wanted[range], "{round}: {len} bytes at {at}");
            }
            for at in [size, 8 * SECTOR, u64::MAX - SECTOR] {
                assert_eq!(read(&file, at, SECTOR), [], "{round}: {at} is behind the end");
            }
            assert_eq!(read(&file, SECTOR, 0), [], "{round}: nothing");
            assert_eq!(counted(&file).2 - misaligned, 5, "{round}");
            file.inode().flush().expect("room");
        }
        fixture.judge(|root| assert!(std::fs::read(root.join("f0")).expect("a read") == wanted));
    }
}

/// The last sector has more bytes on the device than in the file, as other writers may leave it.
#[test]
fn what_lies_behind_the_end_is_not_in_the_buffer() {
    const SIZE: u64 = 100_000;
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = open_named(&fixture, "f0", InodeFlags::empty());
    direct(&file, 0, &sectors(SIZE.div_ceil(SECTOR), 1));
    in_handle(&fixture, ReserveItems::items(1), |handle| {
        file.inode().update(handle, |item| item.size = SIZE).map(drop)
    })
    .expect("room");
    for (offset, len) in [(0, 200_000), (10, 200_000), (0, SIZE + 1), (10, SIZE + 1), (SECTOR, 16_384)] {
        let mut buffer = AlignedBuffer::zeroed(usize::try_from(len).expect("small"));
        buffer.fill(0xaa);
        let DirectDone { buffer, outcome } = file.read_direct(offset, buffer);
        let part = outcome.expect("a read");
        assert_eq!(part.len as u64, len.min(SIZE - offset), "{len} bytes at {offset}");
        let (read, behind) = buffer.split_at(part.len);
        assert!(read.iter().all(|byte| *byte == 1), "{len} bytes at {offset}");
        assert!(!behind.contains(&1), "DATAREAD-1: {len} bytes at {offset}");
    }
}

#[test]
fn what_linux_wrote_is_read_directly() {
    let Some(mut fixture) = fixture(Kind::DEFAULT) else { return };
    let text: Vec<u8> = (0_u32..60_000).flat_map(|number| (number / 9).to_le_bytes()).collect();
    let made = fixture.with_kernel("rw,compress=zstd", |root| {
        std::fs::write(root.join("packed"), &text).expect("room");
        std::fs::write(root.join("small"), &text[..100]).expect("room");
    }) && fixture.with_kernel("rw", |root| {
        std::fs::write(root.join("plain"), &text).expect("room");
    });
    if !made {
        return;
    }
    for (name, len) in [("packed", text.len()), ("plain", text.len()), ("small", 100)] {
        let file = open_named(&fixture, name, InodeFlags::empty());
        assert!(read(&file, 0, MIB) == text[..len], "{name}");
        if len > 100 {
            assert!(
                read(&file, 8 * SECTOR, 3 * SECTOR) == text[8 * SECTOR as usize..][..3 * SECTOR as usize]
            );
        }
    }
}

/// Lets everything pass.
pub(super) struct Passing;

impl Hook for Passing {
    fn before(&self, _: &Request) -> Result<()> {
        Ok(())
    }
}

/// The places of this sector on a device.
pub(super) fn copies(device: &dyn BlockDevice, sector: &[u8]) -> Vec<u64> {
    let mut found = vec![0; sector.len()];
    let places = (0..device.len()).step_by(sector.len());
    places.filter(|at| device.read_at(*at, &mut found).is_ok() && found == sector).collect()
}

#[test]
fn a_rotten_copy_is_mended_and_of_two_nothing_is_told() {
    let Some(fixture) = fixture(Kind("-d dup --nodesize 16384")) else { return };
    let file = open_named(&fixture, "f0", InodeFlags::empty());
    let mut wanted = sectors(3, 0x51);
    put(&mut wanted, SECTOR, &sectors(1, 0x77));
    direct(&file, 0, &wanted);
    drop(file);
    let (engine, device) = fixture.again(Passing);
    let both = copies(&*device, &sectors(1, 0x77));
    assert_eq!(both.len(), 2, "each copy is written from the caller's buffer");
    let file = opened(Arc::new(named_in(&engine, "f0", 0)));
    // A volume without any write so far keeps its repairs in memory.
    set_flags(file.inode(), InodeFlags::NODUMP);
    engine.commit().expect("a commit");
    // The first copy that is read is good, or else repaired; the other one is not looked at.
    let mended = both.iter().filter(|copy| {
        device.write_at(**copy, &sectors(1, 0x78)).expect("a write");
        assert!(read(&file, 0, 3 * SECTOR) == wanted);
        let is_mended = copies(&*device, &sectors(1, 0x77)) == both;
        device.write_at(**copy, &sectors(1, 0x77)).expect("a write");
        is_mended
    });
    assert!(mended.count() > 0, "what is found rotten is mended");
    for copy in &both {
        device.write_at(*copy, &sectors(1, 0x78)).expect("a write");
    }
    let mut buffer = AlignedBuffer::zeroed(3 * SECTOR as usize);
    buffer.fill(0xaa);
    let DirectDone { buffer, outcome } = file.read_direct(0, buffer);
    assert_eq!(outcome.expect_err("both are rotten").kind(), ErrorKind::Unreadable);
    assert!(buffer[..] == sectors(3, 0), "nothing of it is told");
    let DirectDone { outcome, .. } = file.read_direct(2 * SECTOR, buffer);
    assert_eq!(outcome.expect("it is not rotten"), DirectPart { offset: 2 * SECTOR, len: SECTOR as usize });
    // A sector that was written anew can be read.
    direct(&file, SECTOR, &sectors(1, 0x79));
    put(&mut wanted, SECTOR, &sectors(1, 0x79));
    assert!(content(&file) == wanted && read(&file, 0, 3 * SECTOR) == wanted);
    file.stat(Wait::Yes).expect("it lives");
}
