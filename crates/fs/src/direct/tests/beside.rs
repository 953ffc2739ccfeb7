//! Direct writes beside others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use creamery_base::Wait;

use super::{IN_PLACE, content, direct, open_named, put, sectors, try_direct};
use crate::data::tests::support::*;
use crate::direct::DirectAt;
use crate::fallocate::Fallocate;
use crate::inode::InodeFlags;
use crate::ops::{SetAttributes, set_attributes};

/// Another thread shares the inode all the while: a write that wanted it alone would never get it.
#[test]
fn direct_overwrites_share_the_inode() {
    for flags in [InodeFlags::empty(), IN_PLACE] {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let file = open_named(&fixture, "f0", flags);
        direct(&file, 0, &sectors(8, 1));
        file.write_at(7 * SECTOR, &sectors(1, 2)).expect("room");
        thread::scope(|scope| {
            let ((shares, is_shared), (end, may_end)) = (channel(), channel::<()>());
            let inode = file.inode();
            scope.spawn(move || {
                let _shared = inode.lock_shared(Wait::Yes).expect("it lives");
                shares.send(()).expect("somebody waits");
                let _ = may_end.recv();
            });
            is_shared.recv().expect("it is shared");
            direct(&file, 0, &sectors(4, 3));
            direct(&file, 6 * SECTOR, &sectors(2, 4));
            drop(end);
        });
        let mut wanted = sectors(8, 1);
        put(&mut wanted, 0, &sectors(4, 3));
        put(&mut wanted, 6 * SECTOR, &sectors(2, 4));
        assert!(content(&file) == wanted);
    }
}

/// A write that grows a file fills gaps and rewrites its old last sector, and has its extents alone meanwhile (DATA-5).
#[test]
fn a_file_grows_beside_direct_writes_of_its_front() {
    const ROUNDS: u64 = 120;
    for (kind, flags) in [(Kind::OLD, InodeFlags::empty()), (Kind::DEFAULT, IN_PLACE), (Kind::OLD, IN_PLACE)]
    {
        let Some(fixture) = fixture(kind) else { return };
        let file = open_named(&fixture, "f0", flags);
        direct(&file, 0, &sectors(16, 1));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (file, is_over) = (&file, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    file.inode().context().writeback().step();
                    thread::yield_now();
                }
            });
            let writers = [2, 10].map(|first| {
                scope.spawn(move || {
                    let mut byte = 1_u8;
                    while !is_over.load(Ordering::Acquire) {
                        byte = byte % 100 + 1;
                        direct(file, first * SECTOR, &sectors(2, byte));
                        direct(file, (first + 1) * SECTOR, &sectors(3, byte));
                    }
                })
            });
            // Behind gaps, with ends within sectors.
            let mut size = 16 * SECTOR;
            for round in 0..ROUNDS {
                size += 100 + round % 3 * SECTOR;
                file.write_at(size, &[9; 100]).expect("room");
                size += 100;
                if round % 16 == 0 {
                    try_direct(file, DirectAt::End, &sectors(1, 9)).expect("room");
                    size = file.stat(Wait::Yes).expect("it lives").size;
                } else if round % 16 == 8 {
                    size = size.next_multiple_of(SECTOR) + 2 * SECTOR;
                    direct(file, size - SECTOR, &sectors(1, 9));
                }
            }
            is_over.store(true, Ordering::Release);
            for writer in writers {
                writer.join().expect("it ends well");
            }
        });
        let found = content(&file);
        for first in [2, 10_usize] {
            let at = |sector: usize| found[(first + sector) * SECTOR as usize];
            assert!(
                found[first * SECTOR as usize..(first + 1) * SECTOR as usize].iter().all(|b| *b == at(0))
            );
            assert!((1..4).all(|sector| at(sector) == at(0)), "each writer's last writes are whole");
        }
        file.inode().flush().expect("room");
        assert!(content(&file) == found);
        file.inode().write_overwritten_times().expect("room is kept");
        audit(&fixture, file.inode(), &file.inode().item(Wait::Yes).expect("it lives"));
        fixture.judge(|root| assert!(std::fs::read(root.join("f0")).expect("a read") == found));
    }
}

/// Beside many small writes in place a long plan would have to be made anew again and again.
#[test]
fn what_leaves_the_extents_as_they_are_spoils_no_plan() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = open_named(&fixture, "f0", IN_PLACE);
    direct(&file, 0, &sectors(8, 1));
    let seen = || file.inode().file().extents_seen();
    let before = seen();
    direct(&file, SECTOR, &sectors(2, 2));
    assert_eq!(seen(), before, "over what is there");
    file.write_at(100, &[3; 100]).expect("room");
    file.sync().expect("room");
    assert_eq!(seen(), before, "the same through memory");
    file.fallocate(Fallocate::Allocate { keep_size: true }, 8 * SECTOR, 8 * SECTOR).expect("room");
    let prealloc = seen();
    assert_ne!(prealloc, before, "an item more");
    file.fallocate(Fallocate::Allocate { keep_size: false }, 8 * SECTOR, 4 * SECTOR).expect("room");
    assert_eq!(seen(), prealloc, "a size");
    direct(&file, 9 * SECTOR, &sectors(1, 4));
    let converted = seen();
    assert_ne!(converted, prealloc, "into prealloc");
    set_attributes(file.inode(), &SetAttributes::truncate(4 * SECTOR)).expect("room");
    assert_ne!(seen(), converted, "a cut");
}

/// A run of many extents is completed in several handles. Its front is in the tree then, and must not be replaced yet: the next
/// handle makes the item longer that shows it.
#[test]
fn a_run_that_is_half_complete_is_waited_for_by_who_writes_over_its_front() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = open_named(&fixture, "f0", InodeFlags::empty());
    for round in 0..60 {
        (0..48).for_each(|sector| direct(&file, sector * SECTOR, &sectors(1, 1)));
        file.write_at(0, &sectors(48, 2)).expect("room");
        std::thread::scope(|scope| {
            let flushes = scope.spawn(|| file.inode().flush().expect("room"));
            // Where the front may be written over, a thread does so at once.
            while !flushes.is_finished() {
                if file.inode().file().delalloc().touches(0, SECTOR) {
                    std::thread::yield_now();
                } else {
                    direct(&file, 0, &sectors(1, 3));
                }
            }
        });
        direct(&file, 0, &sectors(1, 3));
        let wanted = [sectors(1, 3), sectors(47, 2)].concat();
        super::check(&fixture, &file, &wanted, &format!("round {round}"));
    }
}
