//! Preallocated space: its allocation, its use, and its end.

use creamery_base::{ErrorKind, Wait};

use super::support::{Kind, SECTOR, audit, fixture, has, items, run, seek};
use crate::data::{prealloc, punch_hole, read, truncate, write, zero_range};
use crate::inode::{Inode, InodeFlags, InodeItem};
use crate::seek::SeekTarget;

const SIZE_KEPT: u64 = 0;

type PreallocChange = fn(&Inode, &mut InodeItem) -> creamery_base::Result<()>;

/// One sector of data, at `at`.
fn sector(inode: &Inode, item: &mut InodeItem, at: u64) {
    assert_eq!(
        write(&inode.file(), item, at * SECTOR, &[7; SECTOR as usize]).expect("room"),
        SECTOR as usize
    );
}

/// The name of the change, the change, the file's size after it, and its items with NO_HOLES and without.
type Case = (&'static str, PreallocChange, u64, &'static str, &'static str);

/// Changes of a file that has data in its second and in its fourth sector.
const CASES: [Case; 10] = [
    (
        "holes get space, data stays",
        |inode, item| prealloc(&inode.file(), item, (0, 5 * SECTOR), 5 * SECTOR),
        5 * SECTOR,
        "0+1 ~a@0, 1+1 b@0, 2+1 ~c@0, 3+1 d@0, 4+1 ~e@0",
        "0+1 ~a@0, 1+1 b@0, 2+1 ~c@0, 3+1 d@0, 4+1 ~e@0",
    ),
    (
        "a range is widened to sectors",
        |inode, item| prealloc(&inode.file(), item, (2 * SECTOR + 1, 2 * SECTOR + 2), 0),
        4 * SECTOR,
        "1+1 a@0, 2+1 ~b@0, 3+1 c@0",
        "0+1 hole, 1+1 a@0, 2+1 ~b@0, 3+1 c@0",
    ),
    (
        "behind the end, which stays",
        |inode, item| prealloc(&inode.file(), item, (6 * SECTOR, 8 * SECTOR), SIZE_KEPT),
        4 * SECTOR,
        "1+1 a@0, 3+1 b@0, 6+2 ~c@0",
        "0+1 hole, 1+1 a@0, 2+1 hole, 3+1 b@0, 6+2 ~c@0",
    ),
    (
        "behind the end, over a gap",
        |inode, item| prealloc(&inode.file(), item, (6 * SECTOR, 8 * SECTOR - 9), 8 * SECTOR - 9),
        8 * SECTOR - 9,
        "1+1 a@0, 3+1 b@0, 6+2 ~c@0",
        "0+1 hole, 1+1 a@0, 2+1 hole, 3+1 b@0, 4+2 hole, 6+2 ~c@0",
    ),
    (
        "whole sectors are punched out, parts of sectors are zeroed",
        |inode, item| punch_hole(&inode.file(), item, (SECTOR, 4 * SECTOR - 1)),
        4 * SECTOR,
        "3+1 a@0",
        "0+1 hole, 1+2 hole, 3+1 a@0",
    ),
    (
        "behind the end there is nothing to punch",
        |inode, item| punch_hole(&inode.file(), item, (4 * SECTOR, 40 * SECTOR)),
        4 * SECTOR,
        "1+1 a@0, 3+1 b@0",
        "0+1 hole, 1+1 a@0, 2+1 hole, 3+1 b@0",
    ),
    (
        "but for what was preallocated",
        |inode, item| {
            prealloc(&inode.file(), item, (0, 9 * SECTOR), SIZE_KEPT)?;
            punch_hole(&inode.file(), item, (3 * SECTOR, 8 * SECTOR))
        },
        4 * SECTOR,
        "0+1 ~a@0, 1+1 b@0, 2+1 ~c@0, 8+1 ~d@4",
        "0+1 ~a@0, 1+1 b@0, 2+1 ~c@0, 3+1 hole, 8+1 ~d@4",
    ),
    (
        "zeros have space in whole sectors",
        |inode, item| zero_range(&inode.file(), item, (0, 4 * SECTOR), SIZE_KEPT),
        4 * SECTOR,
        "0+4 ~a@0",
        "0+4 ~a@0",
    ),
    (
        "data in parts of sectors stays data, a hole does not stay a hole",
        |inode, item| zero_range(&inode.file(), item, (SECTOR + 1, 5 * SECTOR - 1), 5 * SECTOR - 1),
        5 * SECTOR - 1,
        "1+1 a@0, 2+3 ~b@0",
        "0+1 hole, 1+1 a@0, 2+3 ~b@0",
    ),
    (
        "truncating drops what is behind the end, also to the size that the file has",
        |inode, item| {
            prealloc(&inode.file(), item, (0, 9 * SECTOR), SIZE_KEPT)?;
            truncate(&inode.file(), item, 4 * SECTOR)
        },
        4 * SECTOR,
        "0+1 ~a@0, 1+1 b@0, 2+1 ~c@0, 3+1 d@0",
        "0+1 ~a@0, 1+1 b@0, 2+1 ~c@0, 3+1 d@0",
    ),
];

#[test]
fn each_change_leaves_the_items_that_it_should() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(mut fixture) = fixture(kind) else { return };
        for (what, change, size, now, explicit) in CASES {
            let inode = fixture.named("f0");
            let mut locked = inode.lock_exclusive().expect("it lives");
            let item = locked.item_mut();
            sector(&inode, item, 1);
            sector(&inode, item, 3);
            change(&inode, item).expect("room");
            assert_eq!(items(&inode), if kind == Kind::OLD { explicit } else { now }, "{what}");
            assert_eq!(item.size, size, "{what}");
            audit(&fixture, &inode, item);
            truncate(&inode.file(), item, 0).expect("room");
            assert_eq!(items(&inode), "", "{what}");
            drop(locked);
            fixture.reopen();
        }
        fixture.judge(|_| ());
    }
}

#[test]
fn what_was_preallocated_behind_the_end_shows_when_the_file_grows() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(fixture) = fixture(kind) else { return };
        let inode = fixture.named("f0");
        let mut locked = inode.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        write(&inode.file(), item, 0, b"short").expect("room");
        prealloc(&inode.file(), item, (2 * SECTOR, 4 * SECTOR), SIZE_KEPT).expect("room");
        assert!(item.flags.contains(InodeFlags::PREALLOC));
        truncate(&inode.file(), item, 6 * SECTOR).expect("room");
        let (first, last) = if kind == Kind::OLD { ("1+1 hole, ", ", 4+2 hole") } else { ("", "") };
        assert_eq!(items(&inode), format!("0+1 a@0, {first}2+2 ~b@0{last}"));
        audit(&fixture, &inode, item);
        drop(locked);
        fixture.judge(|mounted| {
            let mut wanted = b"short".to_vec();
            wanted.resize(6 * 4096, 0);
            assert_eq!(std::fs::read(mounted.join("f0")).expect("a read"), wanted);
        });
    }
}

/// Linux leaves the target in this state when it clones such space.
#[test]
fn space_that_is_set_aside_is_a_hole_whatever_the_flags_of_the_inode_say() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = fixture.named("f0");
    let mut locked = inode.lock_exclusive().expect("it lives");
    let item = locked.item_mut();
    prealloc(&inode.file(), item, (0, 3 * SECTOR), 3 * SECTOR).expect("room");
    item.flags.remove(InodeFlags::PREALLOC);
    let find = |item: &InodeItem, want| seek(&inode, item, 0, want).expect("a readable tree");
    assert_eq!((find(item, SeekTarget::Data), find(item, SeekTarget::Hole)), (None, Some(0)));
    sector(&inode, item, 1);
    assert_eq!((find(item, SeekTarget::Data), find(item, SeekTarget::Hole)), (Some(SECTOR), Some(0)));
}

#[test]
fn a_range_that_does_not_fit_changes_nothing_and_gives_all_space_back() {
    let Some(mut fixture) = fixture(Kind::DEFAULT) else { return };
    let used = fixture.space().data_used;
    let inode = fixture.named("f0");
    let mut locked = inode.lock_exclusive().expect("it lives");
    let item = locked.item_mut();
    for len in [250 << 20, 1 << 40, i64::MAX as u64] {
        let error = prealloc(&inode.file(), item, (0, len), len).expect_err("more than there is");
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert_eq!((item.size, item.nbytes, items(&inode)), (0, 0, String::new()));
    }
    prealloc(&inode.file(), item, (0, 150 << 20), SIZE_KEPT).expect("all space came back");
    audit(&fixture, &inode, item);
    punch_hole(&inode.file(), item, (0, 150 << 20)).expect("room");
    assert_eq!((item.nbytes, items(&inode)), (0, String::new()));
    drop(locked);
    fixture.reopen();
    assert_eq!(fixture.space().data_used, used);
    fixture.judge(|_| ());
}

#[test]
fn what_many_items_show_is_punched_out_and_zeroed_in_several_handles() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(fixture) = fixture(kind) else { return };
        let inode = fixture.named("f0");
        let mut locked = inode.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        for at in 0..100 {
            sector(&inode, item, at);
        }
        punch_hole(&inode.file(), item, (SECTOR, 50 * SECTOR)).expect("room");
        audit(&fixture, &inode, item);
        assert_eq!(item.nbytes, 51 * SECTOR);
        zero_range(&inode.file(), item, (0, 100 * SECTOR), SIZE_KEPT).expect("room");
        assert_eq!(items(&inode), "0+100 ~a@0");
        audit(&fixture, &inode, item);
        drop(locked);
        fixture.judge(|_| ());
    }
}

#[test]
fn data_in_preallocated_space_is_written_in_place_and_its_items_grow_together() {
    let steps = [
        ((2 * SECTOR, 2 * SECTOR), "0+2 ~a@0, 2+2 a@2, 4+4 ~a@4"),
        ((6 * SECTOR + 5, 9), "0+2 ~a@0, 2+2 a@2, 4+2 ~a@4, 6+1 a@6, 7+1 ~a@7"),
        ((4 * SECTOR, SECTOR), "0+2 ~a@0, 2+3 a@2, 5+1 ~a@5, 6+1 a@6, 7+1 ~a@7"),
        ((5 * SECTOR + 1, SECTOR - 1), "0+2 ~a@0, 2+5 a@2, 7+1 ~a@7"),
        ((0, SECTOR), "0+1 a@0, 1+1 ~a@1, 2+5 a@2, 7+1 ~a@7"),
        ((SECTOR, 1), "0+7 a@0, 7+1 ~a@7"),
        ((7 * SECTOR - 1, SECTOR + 1), "0+6 a@0, 6+1 b@0, 7+1 a@7"),
    ];
    for (kind, flags) in [
        (Kind::DEFAULT, InodeFlags::empty()),
        (Kind::DEFAULT, InodeFlags::NODATASUM),
        (Kind::OLD, InodeFlags::empty()),
    ] {
        let Some(mut fixture) = fixture(kind) else { return };
        let mut inode = fixture.named("f0");
        inode.forge(|item| item.flags |= flags);
        let mut wanted = vec![0; 8 * 4096];
        let mut locked = inode.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        prealloc(&inode.file(), item, (0, 8 * SECTOR), 8 * SECTOR).expect("room");
        drop(locked);
        for (number, ((at, count), now)) in (1..).zip(steps) {
            let mut locked = inode.lock_exclusive().expect("it lives");
            let item = locked.item_mut();
            let (at, count) = (usize::try_from(at).expect("small"), usize::try_from(count).expect("small"));
            wanted[at..at + count].fill(number);
            let written = write(&inode.file(), item, at as u64, &wanted[at..at + count]).expect("room");
            assert_eq!((written, items(&inode).as_str()), (count, now));
            audit(&fixture, &inode, item);
            let mut out = vec![0xaa; wanted.len()];
            read(&inode, item, 0, &mut out, Wait::Yes).expect("a read");
            assert!(out == wanted, "after {number} writes");
            drop(locked);
            if number % 3 == 0 {
                fixture.reopen();
                inode = fixture.named("f0");
            }
        }
        fixture.judge(|mounted| {
            assert!(std::fs::read(mounted.join("f0")).expect("a read") == wanted);
        });
    }
}

#[test]
fn a_full_filesystem_takes_what_it_has_space_set_aside_for() {
    for kind in [Kind::DEFAULT, Kind("--mixed --nodesize 4096")] {
        let Some(mut fixture) = fixture(kind) else { return };
        let (kept, other) = (fixture.named("f0"), fixture.named("f1"));
        let mut locked = kept.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        prealloc(&kept.file(), item, (0, 20 << 20), SIZE_KEPT).expect("room");
        drop(locked);
        let mut filling = other.lock_exclusive().expect("it lives");
        let filler = filling.item_mut();
        let data = vec![5; 8 << 20];
        let error = loop {
            let at = filler.size;
            if let Err(error) = write(&other.file(), filler, at, &data) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        drop(filling);
        let mut locked = kept.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        let data = vec![6; 20 << 20];
        for (number, part) in data.chunks(1 << 20).enumerate() {
            let at = (number << 20) as u64;
            assert_eq!(write(&kept.file(), item, at, part).expect("it has space"), part.len());
        }
        audit(&fixture, &kept, item);
        drop(locked);
        fixture.reopen();
        fixture.judge(|mounted| assert!(std::fs::read(mounted.join("f0")).expect("a read") == data));
    }
}

#[test]
fn prealloc_that_a_snapshot_or_a_clone_shares_is_not_written_in_place() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(mut fixture) = fixture(kind) else { return };
        let made = has(&["btrfs", "fallocate"])
            && fixture.with_kernel("rw", |root| {
                let path = |name: &str| root.join(name).to_str().expect("a plain name").to_owned();
                for name in ["in-snapshot", "in-part"] {
                    run("fallocate", &["-l", "16384", &path(name)]);
                }
                run("btrfs", &["subvolume", "snapshot", &path(""), &path("snapshot")]);
                let file = std::fs::File::options().write(true).open(path("in-part")).expect("the file");
                std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], 4096).expect("room");
                for name in ["alone", "cloned"] {
                    run("fallocate", &["-l", "16384", &path(name)]);
                }
                run("cp", &["--reflink=always", &path("cloned"), &path("clone")]);
            });
        if !made {
            return;
        }
        let new = |name: &str| {
            let inode = fixture.named(name);
            let mut locked = inode.lock_exclusive().expect("it lives");
            let item = locked.item_mut();
            assert_eq!(write(&inode.file(), item, 8192, &[2; 4096]).expect("room"), 4096);
            audit(&fixture, &inode, item);
            items(&inode)
        };
        assert_eq!(new("in-snapshot"), "0+2 ~a@0, 2+1 b@0, 3+1 ~a@3");
        assert_eq!(new("in-part"), "0+1 ~a@0, 1+1 b@0, 2+1 c@0, 3+1 ~a@3");
        assert_eq!(new("cloned"), "0+2 ~a@0, 2+1 b@0, 3+1 ~a@3");
        assert_eq!(new("alone"), "0+2 ~a@0, 2+1 a@2, 3+1 ~a@3");
        fixture.judge(|root| {
            for name in ["snapshot/in-snapshot", "snapshot/in-part", "clone"] {
                assert!(std::fs::read(root.join(name)).expect("a read") == [0; 16384], "{name} changed");
            }
        });
    }
}
