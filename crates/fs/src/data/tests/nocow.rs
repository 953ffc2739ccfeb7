//! Writing over existing data: the extents that stay in place, and those that must not be written.

use creamery_base::{ErrorKind, Logical, Wait};

use super::clones::live;
use super::support::{Fixture, Kind, SECTOR, audit, fixture, has, items, run, set_flags};
use crate::data::nocow::{FrontTarget, NocowWalk};
use crate::data::{CloneRange, clone_range, extents_of, prealloc, read, truncate, write};
use crate::in_flight::GivesUp;
use crate::inode::{Inode, InodeFlags};

const IN_PLACE: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);

fn put(inode: &Inode, at: u64, data: &[u8]) {
    let mut locked = inode.lock_exclusive().expect("it lives");
    assert_eq!(write(&inode.file(), locked.item_mut(), at, data).expect("room"), data.len());
}

fn sectors(inode: &Inode, at: u64, count: u64, byte: u8) {
    put(inode, at * SECTOR, &vec![byte; usize::try_from(count * SECTOR).expect("small")]);
}

fn content(inode: &Inode) -> Vec<u8> {
    let item = inode.item(Wait::Yes).expect("it lives");
    let mut out = vec![0xaa; usize::try_from(item.size).expect("small")];
    read(inode, &item, 0, &mut out, Wait::Yes).expect("a read");
    out
}

/// The address of each item's data.
fn places(inode: &Inode) -> Vec<Logical> {
    let extents = extents_of(inode).expect("a readable tree");
    extents.iter().map(|(_, extent)| extent.disk_bytenr + extent.offset).collect()
}

fn counters(inode: &Inode) -> (u64, u64, u64, u64) {
    let counters = inode.context().counters().nocow.counters();
    (counters.written, counters.shared, counters.with_csums, counters.barred)
}

/// An empty file of the root directory that is overwritten in place.
fn in_place(fixture: &Fixture, name: &str) -> Inode {
    let inode = fixture.named(name);
    set_flags(&inode, IN_PLACE);
    inode
}

#[test]
fn what_is_overwritten_in_place_stays_where_it_is() {
    for kind in [Kind::DEFAULT, Kind::OLD, Kind("--mixed --nodesize 4096")] {
        let Some(mut fixture) = fixture(kind) else { return };
        let mut inode = in_place(&fixture, "f0");
        let mut wanted = vec![1; 40 * 4096];
        put(&inode, 0, &wanted);
        let (text, at) = (items(&inode), places(&inode));
        for (number, (start, len)) in (2..).zip([
            (0, 4096),
            (5, 1),
            (4095, 2),
            (3 * 4096, 37 * 4096),
            (39 * 4096 + 7, 4089),
            (0, 40 * 4096),
            (4096, 4096),
        ]) {
            wanted[start..start + len].fill(number);
            put(&inode, start as u64, &wanted[start..start + len]);
            assert_eq!((items(&inode), places(&inode)), (text.clone(), at.clone()), "after {number}");
            assert!(content(&inode) == wanted);
            audit(&fixture, &inode, &inode.item(Wait::Yes).expect("it lives"));
            if number % 3 == 0 {
                fixture.reopen();
                inode = fixture.named("f0");
            }
        }
        fixture.judge(|root| assert!(std::fs::read(root.join("f0")).expect("a read") == wanted));
    }
}

/// Data between two extents goes to new space, and nothing else: holes, and data past the end.
#[test]
fn what_is_between_goes_to_new_space_and_nothing_else() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = in_place(&fixture, "f0");
    sectors(&inode, 1, 2, 1);
    sectors(&inode, 5, 1, 1);
    assert_eq!(items(&inode), "1+2 a@0, 5+1 b@0");
    let before = places(&inode);
    sectors(&inode, 0, 9, 2);
    assert_eq!(items(&inode), "0+1 a@0, 1+2 b@0, 3+2 c@0, 5+1 d@0, 6+3 e@0");
    let after = places(&inode);
    assert_eq!([after[1], after[3]], before[..]);
    assert_eq!(counters(&inode), (2, 0, 0, 0));
    fixture.judge(|root| assert!(std::fs::read(root.join("f0")).expect("a read") == [2; 9 * 4096]));
}

/// Extents that are the file's alone, and extents shared with a clone, in turn.
#[test]
fn what_a_clone_shares_goes_to_new_space_and_what_lies_between_stays() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(fixture) = fixture(kind) else { return };
        let (inode, clone) = (in_place(&fixture, "f0"), in_place(&fixture, "f1"));
        (0..4).for_each(|sector| sectors(&inode, sector, 1, 1));
        for sector in [1, 3] {
            let at = sector * SECTOR;
            let range = CloneRange { from: at, to: at, len: SECTOR, keep_times: false };
            let source = inode.item(Wait::Yes).expect("it lives");
            let mut target = clone.item(Wait::Yes).expect("it lives");
            clone_range(&inode, &source, &clone.file(), &mut target, range, &mut 0).expect("room");
        }
        for committed in [false, true] {
            let before = places(&inode);
            let (written, shared, ..) = counters(&inode);
            sectors(&inode, 0, 4, 2);
            let after = places(&inode);
            assert_eq!(items(&inode), "0+1 a@0, 1+1 b@0, 2+1 c@0, 3+1 d@0");
            assert_eq!((after[0], after[2]), (before[0], before[2]), "committed: {committed}");
            let moved = before[1] != after[1] && before[3] != after[3];
            assert_eq!(moved, !committed, "the second time nobody shares them any more");
            let (in_place, refused) = if committed { (4, 0) } else { (2, 2) };
            assert_eq!(counters(&inode), (written + in_place, shared + refused, 0, 0));
            let more = inode.context().counters().nocow.counters();
            // Behind the first that is shared; the last one has nothing behind it.
            assert_eq!((more.searched_again, more.looks_with_leaf), (1, 0), "committed: {committed}");
            fixture.commit().expect("a commit");
        }
        assert_eq!(content(&clone)[4096..8192], [1; 4096], "a clone keeps what it had");
        fixture.judge(|root| {
            assert!(std::fs::read(root.join("f0")).expect("a read") == [2; 4 * 4096]);
            let clone = std::fs::read(root.join("f1")).expect("a read");
            assert!(clone[4096..8192] == [1; 4096] && clone[3 * 4096..] == [1; 4096]);
        });
    }
}

/// Data in a snapshot of Linux goes to new space the first time, and stays there from then on.
#[test]
fn what_a_snapshot_has_goes_to_new_space_once() {
    let Some(mut fixture) = fixture(Kind::DEFAULT) else { return };
    let made = has(&["btrfs", "chattr"])
        && fixture.with_kernel("rw", |root| {
            let path = |name: &str| root.join(name).to_str().expect("a plain name").to_owned();
            run("touch", &[&path("file")]);
            run("chattr", &["+C", &path("file")]);
            std::fs::OpenOptions::new()
                .write(true)
                .open(path("file"))
                .and_then(|mut file| std::io::Write::write_all(&mut file, &[1; 4 * 4096]))
                .expect("room");
            run("btrfs", &["subvolume", "snapshot", &path(""), &path("snapshot")]);
        });
    if !made {
        return;
    }
    let inode = fixture.named("file");
    let first = places(&inode);
    sectors(&inode, 0, 4, 2);
    let second = places(&inode);
    assert_ne!(first, second);
    sectors(&inode, 0, 4, 3);
    fixture.commit().expect("a commit");
    sectors(&inode, 1, 1, 4);
    assert_eq!(places(&inode), second);
    fixture.judge(|root| {
        assert!(std::fs::read(root.join("snapshot/file")).expect("a read") == [1; 4 * 4096]);
        let file = std::fs::read(root.join("file")).expect("a read");
        assert!(file[..4096] == [3; 4096] && file[4096..8192] == [4; 4096]);
    });
}

#[test]
fn nothing_is_written_in_place_while_a_snapshot_is_taken() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = in_place(&fixture, "f0");
    sectors(&inode, 0, 2, 1);
    let before = places(&inode);
    let barred = inode.subvolume().bar_writes_in_place(GivesUp::Never).expect("it waits");
    let item = inode.item(Wait::Yes).expect("it lives");
    let mut walk = NocowWalk::new(&inode, &item, (0, 2 * SECTOR));
    assert!(matches!(walk.piece(0, Wait::Yes), Ok(FrontTarget::New(stop)) if stop == 2 * SECTOR));
    drop((walk, barred));
    assert_eq!(counters(&inode), (0, 0, 0, 1));
    sectors(&inode, 0, 2, 2);
    assert_eq!(places(&inode), before);
}

/// The flags of a file with data changed: its checksums would be wrong.
#[test]
fn what_has_checksums_goes_to_new_space() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = fixture.named("f0");
    sectors(&inode, 0, 3, 1);
    set_flags(&inode, IN_PLACE);
    let before = places(&inode);
    sectors(&inode, 1, 1, 2);
    assert_eq!(items(&inode), "0+1 a@0, 1+1 b@0, 2+1 a@2");
    assert_eq!(places(&inode)[0], before[0]);
    assert_eq!(counters(&inode), (0, 0, 1, 0));
    // And the other way round: no checksums, where the flags say that there are some.
    let other = fixture.named("f1");
    set_flags(&other, InodeFlags::NODATACOW);
    sectors(&other, 0, 1, 1);
    sectors(&other, 0, 1, 2);
    assert_eq!((items(&other).as_str(), counters(&other).0), ("0+1 a@0", 0));
    assert_eq!(content(&other), [2; 4096]);
}

#[test]
fn a_full_filesystem_takes_what_is_overwritten_in_place() {
    for kind in [Kind::DEFAULT, Kind("--mixed --nodesize 4096")] {
        let Some(mut fixture) = fixture(kind) else { return };
        let (inode, filler) = (in_place(&fixture, "f0"), fixture.named("f1"));
        put(&inode, 0, &vec![1; 4 << 20]);
        let chunk = vec![5; 8 << 20];
        let error = loop {
            let mut locked = filler.lock_exclusive().expect("it lives");
            let item = locked.item_mut();
            let at = item.size;
            if let Err(error) = write(&filler.file(), item, at, &chunk) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        let data = vec![6; 4 << 20];
        data.chunks(1 << 18).zip(0..).for_each(|(part, number)| put(&inode, number << 18, part));
        assert!(content(&inode) == data);
        fixture.reopen();
        fixture.judge(|root| assert!(std::fs::read(root.join("f0")).expect("a read") == data));
    }
}

/// Inline data and holes past the end only make the data go to new space.
#[test]
fn small_and_cut_files_are_as_any_others() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = in_place(&fixture, "f0");
    put(&inode, 0, &[1; 100]);
    put(&inode, 50, &[2; 100]);
    assert_eq!(items(&inode), "0+1 inline 150");
    sectors(&inode, 0, 3, 3);
    let mut item = inode.item(Wait::Yes).expect("it lives");
    truncate(&inode.file(), &mut item, 5000).expect("room");
    assert_eq!(items(&inode), "0+1 a@0, 1+1 b@0");
    let at = places(&inode);
    put(&inode, 4990, &[4; 100]);
    assert_eq!(places(&inode), at);
    let mut wanted = vec![3; 4990];
    wanted.extend([4; 100]);
    assert!(content(&inode) == wanted);
    let mut item = inode.item(Wait::Yes).expect("it lives");
    prealloc(&inode.file(), &mut item, (2 * SECTOR, 4 * SECTOR), 4 * SECTOR).expect("room");
    put(&inode, 6000, &[5; 4000]);
    assert_eq!(items(&inode), "0+1 a@0, 1+1 b@0, 2+1 c@0, 3+1 ~c@1");
    wanted.resize(6000, 0);
    wanted.extend([5; 4000]);
    wanted.resize(4 * 4096, 0);
    assert!(content(&inode) == wanted);
    fixture.judge(|root| assert!(std::fs::read(root.join("f0")).expect("a read") == wanted));
}

#[test]
fn random_changes_and_clones_of_files_in_place_read_back_as_vectors_of_bytes() {
    for (seed, kind) in [(31, Kind::DEFAULT), (32, Kind::OLD), (34, Kind::DEFAULT), (35, Kind::DEFAULT)] {
        let Some(mut fixture) = fixture(kind) else { return };
        let (models, in_place) = live(&mut fixture, seed, IN_PLACE);
        assert!(in_place > 1, "{in_place} extents written in place are no test");
        fixture.judge(|root| {
            for (name, model) in ["f0", "f1", "f2"].iter().zip(&models) {
                model.compare_mounted(&root.join(name));
            }
        });
    }
}

/// A decision that would have to wait fails with `WouldBlock` and changes nothing; a decision that is known at once succeeds.
#[test]
fn who_may_not_wait_for_a_decision_is_told() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = in_place(&fixture, "f0");
    sectors(&inode, 0, 2, 1);
    let item = inode.item(Wait::Yes).expect("it lives");
    let mut walk = NocowWalk::new(&inode, &item, (0, 2 * SECTOR));
    inode.forge(|_| {
        std::thread::scope(|scope| {
            let (inode, item) = (&inode, &item);
            let asked = scope
                .spawn(move || NocowWalk::new(inode, item, (0, 2 * SECTOR)).piece(0, Wait::No).map(drop));
            let told = asked.join().expect("it ends well").expect_err("somebody changes the file");
            assert_eq!(told.kind(), ErrorKind::WouldBlock, "{told}");
        });
    });
    assert_eq!(counters(&inode), (0, 0, 0, 0));
    assert!(
        matches!(walk.piece(0, Wait::No), Ok(FrontTarget::InPlace(extent)) if extent.range == (0, 2 * SECTOR))
    );
}
