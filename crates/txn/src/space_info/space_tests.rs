use super::*;

use std::sync::atomic::AtomicBool;

const MIB: u64 = 1 << 20;
const ROUNDS: usize = 2_000;

/// One group from 1 to 2 MiB, of which the first half is used.
fn space() -> Space {
    let space = Space::new(MIB / 2);
    let (start, flags) = (Logical::new(MIB), BlockGroupFlags::DATA);
    let group = BlockGroup::new(start, MIB, flags, 4096, MIB / 2, Vec::new());
    assert!(group.give_back(Logical::new(MIB + MIB / 2), MIB / 2));
    space.add_group(group);
    space
}

fn is_damage(outcome: Result<()>) -> bool {
    outcome.is_err_and(|error| error.kind() == ErrorKind::Corrupt)
}

/// The sum over all groups, for comparison.
fn counted(space: &Space) -> u64 {
    space.groups.read().values().map(|group| group.available()).sum()
}

#[test]
fn extents_outside_block_groups_are_damage() {
    let space = space();
    for (at, len) in [(0, 4096), (2 * MIB, 4096), (MIB - 4096, 8192), (2 * MIB - 4096, 8192), (MIB, u64::MAX)]
        .into_iter()
        .chain([(MIB, 0), (MIB + 2048, 4096), (MIB, 6144)])
    {
        let at = Logical::new(at);
        assert!(is_damage(space.count_used(at, len, false)), "{at} of {len}");
        assert!(is_damage(space.pin(at, len)), "{at} of {len}");
        assert!(is_damage(space.give_back(at, len)), "{at} of {len}");
    }
}

#[test]
fn counts_that_cannot_be_are_damage_and_change_nothing() {
    let space = space();
    let start = Logical::new(MIB);
    assert!(is_damage(space.count_used(start, MIB, false)), "more than is used");
    assert!(is_damage(space.count_used(start, MIB, true)), "more than the group has");
    assert_eq!(space.bytes_used(), MIB / 2);
    assert!(space.count_used(start, MIB / 2, false).is_ok());
    assert_eq!(space.bytes_used(), 0);
}

#[test]
fn space_that_is_free_cannot_be_freed() {
    let space = space();
    let (used, free) = (Logical::new(MIB), Logical::new(MIB + MIB / 2));
    assert!(is_damage(space.pin(free, 4096)));
    // Two extents that overlap: the second one's space is free when its turn comes.
    assert!(space.pin(used, 8192).is_ok() && space.pin(used, 4096).is_ok());
    assert!(space.unpin(used, 8192).is_ok());
    assert!(is_damage(space.unpin(used, 4096)));
}

/// SPACE-1: after any change of an extent, the sums are those of the groups.
#[test]
fn sums_follow_an_extent_through_its_life() {
    let space = space();
    let figures = |used, free, pinned| Figures { total: MIB, used, free, pinned, ..Figures::default() };
    let now = || space.figures(SpaceKind::Data);
    assert_eq!(now(), figures(MIB / 2, MIB / 2, 0));
    let (group, at, len) = space.allocate_data(8192, 8192, None).expect("room");
    let on_the_way = Figures { handed_out: 8192, ..figures(MIB / 2, MIB / 2 - 8192, 0) };
    assert_eq!((now(), now().reserved(0)), (on_the_way, 8192));
    group.complete_data(len);
    space.count_used(at, len, true).expect("room");
    assert_eq!((now(), now().reserved(0)), (figures(MIB / 2 + 8192, MIB / 2 - 8192, 0), 0));
    space.count_used(at, len, false).expect("it is used");
    space.pin(at, len).expect("it is not free");
    assert_eq!(now(), figures(MIB / 2, MIB / 2 - 8192, 8192));
    space.unpin(at, len).expect("it is not free");
    assert_eq!((now(), counted(&space)), (figures(MIB / 2, MIB / 2, 0), MIB / 2));
    assert_eq!(space.available(SpaceKind::Metadata), 0);
}

#[test]
fn groups_of_both_sorts_serve_data_and_metadata() {
    let space = space();
    let (start, flags) = (Logical::new(4 * MIB), BlockGroupFlags::DATA | BlockGroupFlags::METADATA);
    let group = BlockGroup::new(start, MIB, flags, 4096, 0, Vec::new());
    assert!(group.give_back(start, MIB));
    space.add_group(group);
    assert_eq!((space.available(SpaceKind::Data), space.available(SpaceKind::Metadata)), (3 * MIB / 2, MIB));
    assert_eq!(space.last_flags(SpaceKind::Data), Some(flags));
    let (_, at, len) = space.allocate_data(MIB, 4096, None).expect("room");
    assert_eq!((at, len), (start, MIB), "the other one has half of that");
    assert_eq!(space.allocate_block(SpaceKind::Metadata, 4096, start), None);
    space.group_at(start).expect("the group").abandon_data(at, len);
    assert_eq!(space.allocate_block(SpaceKind::Metadata, 4096, Logical::new(0)), Some(start));
}

#[test]
fn data_goes_behind_what_it_belongs_to() {
    let space = space();
    let taken =
        |near| space.allocate_data(8192, 4096, near).map(|(_, at, len)| (at.get(), len)).expect("room");
    let (first, len) = taken(None);
    let (behind, between) = (Logical::new(first + len + 8192), Logical::new(first + len));
    assert_eq!(taken(Some(behind)), (behind.get(), 8192));
    assert_eq!(taken(Some(behind)), (between.get(), 8192), "somebody else was there first");
    let nowhere = [Logical::new(0), Logical::new(u64::MAX), Logical::new(MIB - 1)];
    nowhere.into_iter().for_each(|near| assert_eq!(taken(Some(near)).1, 8192));
}

#[test]
fn a_group_that_is_gone_offers_nothing() {
    let space = space();
    space.count_used(Logical::new(MIB), MIB / 2, false).expect("it is used");
    space.give_back(Logical::new(MIB), MIB / 2).expect("it is not free");
    let group = space.group_at(Logical::new(MIB)).expect("the group");
    assert_eq!(group.take_change(), Some(0));
    assert_eq!(space.removable()[0].idle(), [group.start]);
    assert!(group.leave());
    assert_eq!(space.allocate_data(4096, 4096, None).map(|(_, at, _)| at), None);
    space.remove_group(group.start);
    assert_eq!((space.figures(SpaceKind::Data), space.removable()[0].groups()), (Figures::default(), 0));
    assert_eq!(space.last_flags(SpaceKind::Data), Some(BlockGroupFlags::DATA), "the next one is like it");
}

#[test]
fn a_group_that_became_read_only_hands_nothing_out() {
    let space = space();
    let group = space.group_at(Logical::new(MIB)).expect("the group");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if let Some((group, at, len)) = space.allocate_data(8192, 4096, None) {
                    group.abandon_data(at, len);
                }
            }
        });
        for _ in 0..ROUNDS {
            group.set_read_only(true);
            let before = group.handed_out();
            let handed_out = (0..10).any(|_| {
                std::thread::yield_now();
                group.handed_out() > before
            });
            group.set_read_only(false);
            if handed_out {
                done.store(true, Ordering::Relaxed);
                panic!("something was handed out of a read-only group");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
