//! Changes of a file that fail half way: the next holder of its item knows.

use std::sync::Arc;

use creamery_base::sync::Mutex;
use creamery_base::{Error, ErrorKind, Result, Wait, panics};
use creamery_txn::ReserveItems;

use super::support::{Fixture, Kind, SECTOR, fixture, set_flags};
use crate::access_time::{Atime, AtimeOptions};
use crate::data::{CloneRange, clone_range, drop_last, prealloc, punch_hole, truncate, write, zero_range};
use crate::inode::{Inode, InodeFlags, InodeItem};
use crate::keys;
use crate::operation::in_handle;

const IN_PLACE: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);

/// A change of a file and of its item.
type FileChange = fn(&Fixture, &Arc<Inode>, &mut InodeItem) -> Result<()>;

fn data(sectors: u64) -> Vec<u8> {
    vec![7; usize::try_from(sectors * SECTOR).expect("small")]
}

fn write_sectors(_: &Fixture, inode: &Arc<Inode>, item: &mut InodeItem) -> Result<()> {
    write(&inode.file(), item, 0, &data(4)).map(drop)
}

fn prealloc_sectors(_: &Fixture, inode: &Arc<Inode>, item: &mut InodeItem) -> Result<()> {
    prealloc(&inode.file(), item, (0, 4 * SECTOR), 0)
}

fn clone_another(fixture: &Fixture, inode: &Arc<Inode>, item: &mut InodeItem) -> Result<()> {
    let source = fixture.named("f1");
    let mut source_item = source.item(Wait::Yes)?;
    write(&source.file(), &mut source_item, 0, &data(4))?;
    let range = CloneRange { from: 0, to: 0, len: 4 * SECTOR, keep_times: false };
    clone_range(&source, &source_item, &inode.file(), item, range, &mut 0)
}

fn write_access_time(fixture: &Fixture, inode: &Arc<Inode>, _: &mut InodeItem) -> Result<()> {
    let strict = AtimeOptions { atime: Atime::Strict, ..AtimeOptions::default() };
    inode.context().access_times().set_options(strict);
    inode.accessed();
    inode.context().access_times().write_all(fixture)
}

fn delete_items(fixture: &Fixture, inode: &Arc<Inode>, _: &mut InodeItem) -> Result<()> {
    in_handle(fixture, ReserveItems::items(1), |handle| {
        inode.delete_items(handle, || Err(Error::new(ErrorKind::Io, "no items")))
    })
}

fn die(fixture: &Fixture, inode: &Arc<Inode>, _: &mut InodeItem) -> Result<()> {
    let died = panics::catch(|| {
        in_handle(fixture, ReserveItems::items(1), |handle| {
            inode.update(handle, |_| panic!("in the middle")).map(drop)
        })
    });
    died.unwrap_or_else(|panic| Err(Error::new(ErrorKind::Aborted, panic.to_string())))
}

/// The name of the change, the flags of the file, a change before, and the change.
type Row = (&'static str, InodeFlags, Option<FileChange>, FileChange);

/// A missing inode item ends each change in its middle.
const ROWS: &[Row] = &[
    ("new data", InodeFlags::empty(), None, write_sectors),
    ("inline data", InodeFlags::empty(), None, |_, inode, item| {
        write(&inode.file(), item, 0, &[7; 9]).map(drop)
    }),
    ("growing", InodeFlags::empty(), None, |_, inode, item| truncate(&inode.file(), item, 4 * SECTOR)),
    ("cutting", InodeFlags::empty(), Some(write_sectors), |_, inode, item| {
        truncate(&inode.file(), item, SECTOR)
    }),
    ("cutting a sector", InodeFlags::empty(), Some(write_sectors), |_, inode, item| {
        truncate(&inode.file(), item, 4 * SECTOR - 1)
    }),
    ("dropping all", InodeFlags::empty(), Some(write_sectors), |_, inode, item| {
        drop_last(&inode.file(), item, 8).map(drop)
    }),
    ("a hole", InodeFlags::empty(), Some(write_sectors), |_, inode, item| {
        punch_hole(&inode.file(), item, (SECTOR, 2 * SECTOR))
    }),
    ("zeros", InodeFlags::empty(), Some(write_sectors), |_, inode, item| {
        zero_range(&inode.file(), item, (SECTOR, 2 * SECTOR), 0)
    }),
    ("preallocating", InodeFlags::empty(), None, prealloc_sectors),
    ("growing over prealloc", InodeFlags::empty(), Some(prealloc_sectors), |_, inode, item| {
        prealloc(&inode.file(), item, (0, 4 * SECTOR), 4 * SECTOR)
    }),
    ("writing into prealloc", InodeFlags::empty(), Some(prealloc_sectors), write_sectors),
    ("writing in place", IN_PLACE, Some(write_sectors), write_sectors),
    ("a clone", InodeFlags::empty(), None, clone_another),
    ("the item alone", InodeFlags::empty(), None, |fixture, inode, _| {
        in_handle(fixture, ReserveItems::items(1), |handle| {
            inode.update(handle, |item| item.mode = 0).map(drop)
        })
    }),
    ("an access time", InodeFlags::empty(), None, write_access_time),
    ("deleting", InodeFlags::empty(), None, delete_items),
    ("a thread that dies", InodeFlags::empty(), None, die),
];

/// Whether the item was locked when the change made the engine abort.
fn is_locked_at_abort(kind: Kind, (name, flags, before, change): Row) -> Option<bool> {
    let fixture = fixture(kind)?;
    let inode = Arc::new(fixture.named("f0"));
    set_flags(&inode, flags);
    let mut item = inode.item(Wait::Yes).expect("it lives");
    if let Some(before) = before {
        before(&fixture, &inode, &mut item).expect("room");
    }
    in_handle(&fixture, ReserveItems::items(1), |handle| {
        inode.tree().remove(handle, &keys::inode_item(inode.id.ino))
    })
    .expect("room");
    let seen = Arc::new(Mutex::new(None));
    let (other, told) = (Arc::clone(&inode), Arc::clone(&seen));
    fixture.tell_abort(move |_| {
        let locked = std::thread::scope(|scope| {
            scope.spawn(|| other.hold_extents(Wait::No).is_err()).join().expect("it ends well")
        });
        *told.lock() = Some(locked);
    });
    change(&fixture, &inode, &mut item).expect_err(name);
    let seen = *seen.lock();
    Some(seen.unwrap_or_else(|| panic!("{name}: what fails half way aborts")))
}

#[test]
fn who_has_the_item_behind_a_change_that_failed_finds_the_abort() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let too_early = ROWS.iter().filter(|row| is_locked_at_abort(kind, **row) == Some(false));
        let too_early: Vec<&str> = too_early.map(|row| row.0).collect();
        assert!(too_early.is_empty(), "unlocked before the abort, {kind:?}: {too_early:?}");
    }
}
