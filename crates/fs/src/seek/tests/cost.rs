//! The cost of searches, in steps.

use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::{Error, Result};
use creamery_device::{Hook, Request};
use creamery_format::{Key, KeyType};
use creamery_txn::ReserveItems;

use super::*;
use crate::counters::SeekCounters;
use crate::inode::Inode;
use crate::names::NewInode;
use crate::operation::in_handle;
use crate::ops::SetAttributes;
use crate::options::FsOptions;

fn counters(file: &OpenFile) -> SeekCounters {
    file.seek_cursor().tell(&file.inode().context().counters().seeks);
    file.inode().context().counters().seeks.counters()
}

#[test]
fn a_scan_of_scattered_pages_descends_seldom() {
    const COUNT: u64 = 5000;
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = scattered(&fixture, 300, COUNT);
    let ranges = partition(&file, 2 * COUNT * SECTOR);
    assert_eq!(ranges.len() as u64, COUNT);
    let cost = counters(&file);
    assert!(cost.calls >= 2 * COUNT && cost.tree_searches <= cost.calls);
    assert!(cost.map_descents <= COUNT / 64 + 8, "{cost:?}");
    assert_eq!(cost.pieces, COUNT, "each is looked at once");
    let looks = cost.cursor_hits + cost.cursor_misses;
    assert!(
        cost.cursor_hits * 100 >= looks * 99 && cost.cursor_stale + cost.cursor_contended == 0,
        "{cost:?}"
    );
    assert!(cost.in_flight_lookups <= 2 * cost.calls, "{cost:?}");
    // Without a memory each call descends.
    let mut at = 0;
    while let Some(start) = ask_forgetful(&file, at, SeekTarget::Data) {
        at = ask_forgetful(&file, start, SeekTarget::Hole).expect("the end is a hole");
    }
    let without = counters(&file);
    assert!(without.map_descents - cost.map_descents >= 2 * COUNT - 1);
    assert_eq!((without.cursor_hits, without.cursor_misses), (cost.cursor_hits, cost.cursor_misses));
}

#[test]
fn what_lies_behind_an_answer_costs_nothing() {
    let cost = [1000, 20_000].map(|count| {
        let fixture = fixture(Kind::DEFAULT)?;
        let file = scattered(&fixture, 300, count);
        assert_eq!(ask(&file, 0, SeekTarget::Data), Some(0));
        assert_eq!(ask(&file, 0, SeekTarget::Hole), Some(SECTOR));
        assert_eq!(ask(&file, SECTOR, SeekTarget::Data), Some(2 * SECTOR));
        Some(counters(&file))
    });
    assert_eq!(cost[0], cost[1]);
    assert!(cost[0].is_none_or(|cost| cost.pieces < 10 && cost.items <= 2), "{cost:?}");
}

#[test]
fn data_that_is_dirty_is_found_without_the_tree_and_data_in_the_tree_without_pages() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::empty(), 64 * MIB)));
    file.write_at(0, &[MARK; 3 * SECTOR as usize]).expect("room");
    assert_eq!(ask(&file, SECTOR + 5, SeekTarget::Data), Some(SECTOR + 5));
    assert_eq!(ask(&file, 7, SeekTarget::Hole), Some(3 * SECTOR), "all of it is delayed");
    let dirty = counters(&file);
    assert_eq!((dirty.calls, dirty.tree_searches, dirty.items), (2, 0, 0));
    file.sync().expect("room");
    assert_eq!(ask(&file, SECTOR + 5, SeekTarget::Data), Some(SECTOR + 5));
    let clean = counters(&file);
    assert_eq!((clean.tree_searches, clean.leaves, clean.items), (1, 1, 1));
    assert_eq!(clean, SeekCounters { calls: 3, tree_searches: 1, leaves: 1, items: 1, ..dirty });
}

/// A file of so many extents of a sector, side by side.
fn many_extents(engine: &Arc<creamery_txn::Engine>, count: u64) -> OpenFile {
    let file = opened(Arc::new(new_file(engine, 300, InodeFlags::empty())));
    for number in 0..count {
        file.write_at(number * SECTOR, &[MARK; SECTOR as usize]).expect("room");
    }
    file
}

#[test]
fn each_leaf_is_visited_once() {
    const COUNT: u64 = 600;
    let Some(fixture) = fixture(Kind::OLD) else { return };
    let file = many_extents(&fixture, COUNT);
    assert_eq!(ask(&file, 0, SeekTarget::Hole), Some(COUNT * SECTOR));
    let cost = counters(&file);
    // A leaf of 4096 bytes has room for 50 of them, and is half full at least but for the last.
    assert_eq!((cost.calls, cost.tree_searches, cost.items), (1, 1, COUNT));
    assert!((COUNT / 52..=COUNT / 25 + 2).contains(&cost.leaves), "{cost:?}");
}

#[test]
fn a_scan_goes_on_in_the_leaf_where_it_was() {
    const COUNT: u64 = 600;
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = scattered(&fixture, 300, COUNT);
    file.sync().expect("room");
    let before = counters(&file);
    assert_eq!(partition(&file, 2 * COUNT * SECTOR).len() as u64, COUNT);
    let flushed = counters(&file);
    let (calls, searches) = (flushed.calls - before.calls, flushed.tree_searches - before.tree_searches);
    assert!(calls >= 2 * COUNT && searches * 10 <= calls, "{searches} searches of the tree in {calls} calls");
    assert_eq!(searches + flushed.bookmarks_used - before.bookmarks_used, calls);
    // A change of one extent ends the memory of all.
    file.write_at(SECTOR, &[MARK; SECTOR as usize]).expect("room");
    file.sync().expect("room");
    assert_eq!(ask(&file, 0, SeekTarget::Hole), Some(3 * SECTOR));
    assert_eq!(counters(&file).tree_searches, flushed.tree_searches + 1);
}

#[test]
fn who_gives_up_is_let_go_and_may_ask_again() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = many_extents(&fixture, 600);
    let found = file.seek(0, SeekTarget::Hole, &|| true).map_err(|error| error.kind());
    assert_eq!(found, Err(ErrorKind::Interrupted));
    assert!(counters(&file).items <= 256);
    assert_eq!(file.seek(0, SeekTarget::Data, &|| panic!("nobody is asked for a step")).expect("data"), 0);
    assert_eq!(ask(&file, 0, SeekTarget::Hole), Some(600 * SECTOR));
    let scattered = scattered(&fixture, 301, 1);
    scattered.write_at(0, &vec![MARK; 40 * MIB as usize]).expect("room");
    assert_eq!(
        scattered.seek(0, SeekTarget::Hole, &|| true).expect("few ranges, as they lie side by side"),
        40 * MIB
    );
}

/// Lets nothing be read.
#[derive(Default)]
struct Broken(AtomicBool);

impl Hook for Broken {
    fn before(&self, request: &Request) -> Result<()> {
        match request {
            Request::Read { .. } if self.0.load(Ordering::Acquire) => {
                Err(Error::new(ErrorKind::Io, "the device fails"))
            }
            _ => Ok(()),
        }
    }
}

#[test]
fn a_leaf_that_cannot_be_read_is_an_error_and_the_file_stays_usable() {
    let Some(mut fixture) = fixture(Kind::DEFAULT) else { return };
    drop(many_extents(&fixture, 600));
    fixture.reopen();
    let item = fixture
        .tree(creamery_base::TreeId::FS)
        .and_then(|tree| {
            tree.get(&crate::keys::inode_item(300_u64.into()), Wait::Yes, crate::inode::InodeItem::decode)
        })
        .expect("a readable tree")
        .expect("an inode")
        .expect("a valid item");
    let (engine, device) = fixture.behind(Broken::default());
    let file = opened(Arc::new(stored(&engine, 300, item)));
    device.0.store(true, Ordering::Release);
    assert!(file.seek_hole(0).is_err());
    device.0.store(false, Ordering::Release);
    assert_eq!(ask(&file, 0, SeekTarget::Hole), Some(600 * SECTOR));
    file.write_at(700 * SECTOR, b"more").expect("nothing was aborted");
    assert_eq!(ask(&file, 600 * SECTOR, SeekTarget::Data), Some(700 * SECTOR));
}

#[test]
fn who_reads_and_seeks_in_a_sparse_file_leaves_nothing_behind() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs =
        crate::filesystem::Filesystem::open(Arc::clone(&fixture), FsOptions::default()).expect("it opens");
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let (made, file) = fs.create_open(root, b"sparse", &NewInode::file(0o644)).expect("room");
    fs.set_attributes(made.id, &SetAttributes::truncate(64 * MIB)).expect("room");
    file.write_at(32 * MIB, b"data").expect("room");
    file.sync().expect("room");
    let kept = || {
        let memory = fs.memory();
        (
            memory.inodes_bytes,
            memory.delayed_data_bytes,
            memory.subvolumes_bytes,
            file.inode().file().delalloc().memory(),
        )
    };
    let before = kept();
    let mut out = vec![1; MIB as usize];
    for at in (0..64 * MIB).step_by(MIB as usize) {
        file.read_at(at, &mut out, Wait::Yes).expect("zeros");
    }
    assert_eq!(partition(&file, 64 * MIB), [(32 * MIB, 32 * MIB + SECTOR)]);
    assert!(!file.inode().file().delalloc().any());
    assert_eq!(kept(), before);
    fs.shut_down().expect("it closes");
}

#[test]
fn who_finds_the_memory_in_use_does_without_it() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = scattered(&fixture, 300, 500);
    let in_use = file.seek_cursor().try_use().expect("nobody has it");
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| partition(&file, 1000 * SECTOR));
        assert_eq!(beside.join().expect("no panic").len(), 500);
    });
    drop(in_use);
    let cost = counters(&file);
    assert!(cost.cursor_contended == cost.calls && cost.cursor_hits == 0, "{cost:?}");
    // Two searches at once get equal answers, with or without the cursor.
    std::thread::scope(|scope| {
        let scans = [(); 2].map(|()| scope.spawn(|| partition(&file, 1000 * SECTOR)));
        let [one, other] = scans.map(|scan| scan.join().expect("no panic"));
        assert!(one.len() == 500 && one == other);
    });
}

#[test]
fn what_is_switched_off_remembers_nothing() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    for seek_cursors in [true, false] {
        let options = FsOptions { seek_cursors, ..FsOptions::default() };
        let fs = crate::filesystem::Filesystem::open(Arc::clone(&fixture), options).expect("it opens");
        let root = fs.root(fs.default_subvolume()).expect("a root");
        let name = format!("file {seek_cursors}");
        let (_, file) = fs.create_open(root, name.as_bytes(), &NewInode::file(0o644)).expect("room");
        (0..20).for_each(|number| drop(file.write_at(2 * number * SECTOR, &[MARK; SECTOR as usize])));
        assert_eq!(partition(&file, 39 * SECTOR).len(), 20);
        drop(file);
        let cost = fs.statistics().seek;
        assert_eq!(cost.cursor_hits > 0, seek_cursors, "{cost:?}");
        assert_eq!(cost.map_descents >= 39, !seek_cursors, "{cost:?}");
        fs.sync().expect("room");
    }
}

/// Neighbours' items come, and the file's own items move between leaves: the memory of open files stays true, or is given up.
#[test]
fn what_is_remembered_stays_true_while_neighbours_move_the_items() {
    for (first, count) in
        [12_u64, 20].into_iter().flat_map(|first| (30..54_u64).map(move |count| (first, count)))
    {
        let Some(fixture) = fixture(Kind::OLD) else { return };
        let engine: &Arc<creamery_txn::Engine> = &fixture;
        let before = new_file(engine, 299, InodeFlags::empty());
        let behind = new_file(engine, 301, InodeFlags::empty());
        let change = |inode: &Inode, number: u64, insert: bool| {
            let key = Key::new(inode.id.ino, KeyType::XATTR_ITEM, number);
            let changed = in_handle(engine, ReserveItems::items(1), |handle| {
                if insert {
                    inode.tree().insert(handle, &key, &[1; 40])
                } else {
                    inode.tree().remove(handle, &key).map(drop)
                }
            });
            changed.expect("room");
        };
        (0..first).for_each(|number| change(&before, number, true));
        let inode = Arc::new(new_file(engine, 300, InodeFlags::empty()));
        let file = opened(Arc::clone(&inode));
        for number in 0..count {
            file.write_at(number * SECTOR, &[MARK; SECTOR as usize]).expect("room");
        }
        (0..3).for_each(|number| change(&behind, 1000 + number, true));
        (0..first).for_each(|number| change(&before, number, false));
        let open: Vec<OpenFile> = (0..count).map(|_| opened(Arc::clone(&inode))).collect();
        for gone in 0..60 {
            for (number, file) in open.iter().enumerate() {
                assert_eq!(ask(file, number as u64 * SECTOR, SeekTarget::Data), Some(number as u64 * SECTOR));
            }
            change(&behind, 500 - gone, true);
            for (number, file) in open.iter().enumerate() {
                let found = ask(file, number as u64 * SECTOR, SeekTarget::Hole);
                assert_eq!(found, Some(count * SECTOR), "{first} before, {count} extents, from {number}");
            }
        }
    }
}
