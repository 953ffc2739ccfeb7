//! Tables of the items of a file before and after making room.

use std::fmt::Write as _;

use creamery_base::{Generation, Logical};
use creamery_format::file_extent::{Extent, encode_hole};
use creamery_txn::ReserveItems;

use super::support::{Kind, SECTOR, audit, fixture, items, new_file, put};
use crate::data::drop_extents::DropPlan;
use crate::data::ordered_extent::OrderedExtent;
use crate::data::{recount, reserve, update};
use crate::inode::{Inode, InodeFlags};
use crate::keys::extent_data;
use crate::operation::in_handle;

/// Makes a file from a sketch, one character per sector: `.` no item, `-` hole item, a letter an extent of data, a
/// capital letter one that is preallocated.
fn sketch(engine: &std::sync::Arc<creamery_txn::Engine>, ino: u64, text: &str) -> Inode {
    let inode = new_file(engine, ino, InodeFlags::empty());
    let mut locked = inode.lock_exclusive().expect("it lives");
    let item = locked.item_mut();
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let len = chars[at..].iter().take_while(|c| **c == chars[at]).count();
        let (start, bytes) = (at as u64 * SECTOR, len as u64 * SECTOR);
        match chars[at] {
            '.' => {}
            '-' => {
                put(engine, &inode, start, &encode_hole(Generation::new(1), bytes));
                inode.forge(|item| item.size = start + bytes);
            }
            letter => {
                let mut ordered = OrderedExtent::allocate(
                    &mut crate::data::ReserveSource::Operation,
                    &inode.file(),
                    item,
                    start,
                    bytes,
                )
                .expect("space");
                assert_eq!(ordered.end() - start, bytes);
                ordered.write(engine, &vec![letter as u8; len * 4096]).expect("a write");
                in_handle(engine, ReserveItems::items(8), |handle| {
                    let shown = ordered.item(handle, bytes);
                    let at = ordered.hand_over(handle, inode.id)?;
                    let extent = Extent::whole(handle.generation(), at, bytes);
                    let data = if letter.is_uppercase() { extent.encode_prealloc() } else { shown };
                    inode.tree().insert(handle, &extent_data(inode.id.ino, start), &data)?;
                    inode.file().change_extents(handle, |locked| {
                        update(locked, (start, start + bytes), item, |item| {
                            item.nbytes += bytes;
                            item.size = start + bytes;
                        })
                    })
                })
                .expect("an extent");
            }
        }
        at += len;
    }
    drop(locked);
    inode
}

#[test]
fn a_range_is_removed_trimmed_or_split_and_the_rest_stays() {
    // File, range, remaining items.
    let rows: &[(&str, (u64, u64), &str)] = &[
        ("aaaa", (0, 4), ""),
        ("aaaa", (0, 1), "1+3 a@1"),
        ("aaaa", (3, 4), "0+3 a@0"),
        ("aaaa", (1, 3), "0+1 a@0, 3+1 a@3"),
        ("aaaa", (4, 9), "0+4 a@0"),
        ("..aa", (0, 2), "2+2 a@0"),
        ("..aa", (1, 3), "3+1 a@1"),
        ("aabb", (1, 3), "0+1 a@0, 3+1 b@1"),
        ("aabbcc", (1, 5), "0+1 a@0, 5+1 b@1"),
        ("aa..cc", (2, 4), "0+2 a@0, 4+2 b@0"),
        ("----", (1, 2), "0+1 hole, 2+2 hole"),
        ("----", (0, 2), "2+2 hole"),
        ("----", (2, 4), "0+2 hole"),
        ("AAAA", (1, 2), "0+1 ~a@0, 2+2 ~a@2"),
        ("AAbb--", (1, 5), "0+1 ~a@0, 5+1 hole"),
        ("abcdefgh", (2, 6), "0+1 a@0, 1+1 b@0, 6+1 c@0, 7+1 d@0"),
        ("", (0, 9), ""),
    ];
    let Some(engine) = fixture(Kind::DEFAULT) else { return };
    for (index, (file, range, want)) in rows.iter().enumerate() {
        let inode = sketch(&engine, 300 + index as u64, file);
        let mut locked = inode.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        let range = (range.0 * SECTOR, range.1 * SECTOR);
        let plan = DropPlan::from_front(inode.tree(), inode.id.ino, range, 16, SECTOR).expect("a plan");
        assert_eq!(plan.stop, range.1);
        in_handle(&engine, ReserveItems::items(reserve::drop_units(&plan) + 1), |handle| {
            plan.apply(handle, inode.tree(), inode.id, None)?;
            inode.file().change_extents(handle, |locked| {
                update(locked, range, item, |item| item.nbytes = recount(item.nbytes, plan.bytes, 0))
            })
        })
        .expect("a change");
        assert_eq!(items(&inode), *want, "{file} {range:?}");
        audit(&engine, &inode, item);
    }
}

#[test]
fn a_plan_stops_at_its_bound_and_says_where() {
    let Some(engine) = fixture(Kind::DEFAULT) else { return };
    let inode = sketch(&engine, 400, "abcd..ef");
    let all = (0, 8 * SECTOR);
    let plan = |max| DropPlan::from_front(inode.tree(), inode.id.ino, all, max, SECTOR).expect("a plan");
    let stops: Vec<u64> = (1..=6).map(|max| plan(max).stop / SECTOR).collect();
    assert_eq!(stops, [1, 2, 3, 6, 7, 8]);
    let plan = |max| DropPlan::from_back(inode.tree(), inode.id.ino, SECTOR, max, SECTOR).expect("a plan");
    let starts: Vec<u64> = (1..=5).map(|max| plan(max).start / SECTOR).collect();
    assert_eq!(starts, [7, 4, 3, 2, 1]);
}

#[test]
fn a_split_extent_is_freed_with_its_last_part() {
    let Some(engine) = fixture(Kind::DEFAULT) else { return };
    let inode = sketch(&engine, 400, "aaaaaa");
    let mut locked = inode.lock_exclusive().expect("it lives");
    let item = locked.item_mut();
    let mut log = String::new();
    for (start, end) in [(2, 3), (0, 1), (3, 6), (1, 2)] {
        let range = (start * SECTOR, end * SECTOR);
        let plan = DropPlan::from_front(inode.tree(), inode.id.ino, range, 16, SECTOR).expect("a plan");
        in_handle(&engine, ReserveItems::items(reserve::drop_units(&plan) + 1), |handle| {
            plan.apply(handle, inode.tree(), inode.id, None)?;
            inode.file().change_extents(handle, |locked| {
                update(locked, range, item, |item| item.nbytes = recount(item.nbytes, plan.bytes, 0))
            })
        })
        .expect("a change");
        writeln!(log, "{} changes: {}", plan.changes().1, items(&inode)).expect("text");
    }
    assert_eq!(
        log,
        "1 changes: 0+2 a@0, 3+3 a@3\n\
         0 changes: 1+1 a@1, 3+3 a@3\n\
         1 changes: 1+1 a@1\n\
         1 changes: \n"
    );
    assert_eq!(item.nbytes, 0);
}

#[test]
fn items_that_overlap_are_damage_and_change_nothing() {
    let Some(engine) = fixture(Kind::DEFAULT) else { return };
    let inode = new_file(&engine, 400, InodeFlags::empty());
    let extent = Extent::whole(Generation::new(1), Logical::new(1 << 20), 4 * SECTOR);
    put(&engine, &inode, 0, &extent.encode());
    put(&engine, &inode, 2 * SECTOR, &extent.encode());
    let front = DropPlan::from_front(inode.tree(), inode.id.ino, (0, 8 * SECTOR), 16, SECTOR);
    let back = DropPlan::from_back(inode.tree(), inode.id.ino, 0, 16, SECTOR);
    for error in [front.unwrap_err(), back.unwrap_err()] {
        assert_eq!(error.kind(), creamery_base::ErrorKind::Corrupt, "{error}");
    }
}
