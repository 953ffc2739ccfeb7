//! Tests of searches for data and holes.

mod cost;
mod states;

use std::sync::Arc;

use creamery_base::ErrorKind;

use super::SeekTarget;
use crate::data::tests::model::FileModel;
use crate::data::tests::support::*;
use crate::inode::{Inode, InodeFlags};
use crate::open_file::OpenFile;
use creamery_base::Wait;

const MIB: u64 = 1 << 20;
const WANTS: [SeekTarget; 2] = [SeekTarget::Data, SeekTarget::Hole];

/// The answer of an open file; `None` for "not found".
fn ask(file: &OpenFile, at: u64, want: SeekTarget) -> Option<u64> {
    let found = match want {
        SeekTarget::Data => file.seek_data(at),
        SeekTarget::Hole => file.seek_hole(at),
    };
    match found {
        Ok(at) => Some(at),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{want:?} at {at}: {error}"),
    }
}

/// The answer of a search without a memory.
fn ask_forgetful(file: &OpenFile, at: u64, want: SeekTarget) -> Option<u64> {
    let item = file.inode().item(Wait::Yes).expect("it lives");
    seek(file.inode(), &item, at, want).expect("a search")
}

/// Asks at and around every sector, with and without a memory, and in turn.
fn compare(file: &OpenFile, model: &FileModel, state: &str) {
    let size = model.size();
    let around = |at: u64| [at.saturating_sub(1), at, at + 1];
    let sectors = (0..=size.div_ceil(SECTOR)).flat_map(|sector| around(sector * SECTOR));
    for at in sectors.chain(around(size)).chain([size + SECTOR, i64::MAX as u64, u64::MAX]) {
        for want in WANTS {
            let wanted = model.seek(at, want);
            assert_eq!(ask(file, at, want), wanted, "{state}: {want:?} at {at} of {size}");
            assert_eq!(ask_forgetful(file, at, want), wanted, "{state}: {want:?} at {at}, anew");
        }
    }
    assert_eq!(partition(file, size), partition_of(model), "{state}");
}

/// The ranges of data, asked for in turn: with the holes between them they are the whole file.
fn partition(file: &OpenFile, size: u64) -> Vec<(u64, u64)> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < size {
        let Some(start) = ask(file, at, SeekTarget::Data) else { break };
        assert!(at == 0 || start > at, "two ranges of data without a hole between them");
        at = ask(file, start, SeekTarget::Hole).expect("the end is a hole");
        assert!(at > start && at <= size);
        ranges.push((start, at));
    }
    ranges
}

fn partition_of(model: &FileModel) -> Vec<(u64, u64)> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while let Some(start) = model.seek(at, SeekTarget::Data) {
        at = model.seek(start, SeekTarget::Hole).expect("the end is a hole");
        ranges.push((start, at));
    }
    ranges
}

fn write(file: &OpenFile, model: &mut FileModel, at: u64, len: u64) {
    let data = vec![MARK; usize::try_from(len).expect("small")];
    assert_eq!(file.write_at(at, &data).expect("room"), data.len());
    model.write(at, &data);
}

/// The byte that data is made of, so that a device recognises it.
const MARK: u8 = 0xee;

/// Makes a sector dirty and leaves one, so often, with room for nothing but the data: it is not to be written back.
fn scatter(inode: &Inode, count: u64) {
    let room = inode
        .engine()
        .reserve_delalloc(inode.id.subvolume, count * SECTOR, 1)
        .expect("no limit")
        .expect("room");
    let mut room = Some(room);
    inode.file().delalloc().begin(0, std::time::Duration::ZERO, |state| {
        for number in 0..count {
            let new =
                crate::delalloc::PageRanges::from_slice(&[(2 * number * SECTOR, (2 * number + 1) * SECTOR)]);
            state.insert(2 * number * SECTOR, &[MARK; SECTOR as usize], &new);
        }
        state.written(2 * count * SECTOR, creamery_base::Timespec::default(), room.take());
    });
    inode.context().writeback().count(count * SECTOR);
}

fn scattered(fixture: &Fixture, ino: u64, count: u64) -> OpenFile {
    let inode = Arc::new(new_delayed_file(fixture, ino, InodeFlags::empty(), 256 * MIB));
    scatter(&inode, count);
    opened(inode)
}
