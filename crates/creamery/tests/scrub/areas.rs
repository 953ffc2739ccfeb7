//! Bad areas: unreadable places do not make a device fail, and the rest of it is read as before.

use std::path::Path;

use anyhow::{Result, ensure};
use creamery::Image;
use creamery_testkit::harness::Case;

use crate::content::{Content, ContentKind, NOCOW};
use crate::damage::{BadSectors, Hurt, apply, extents, findings_of, scrub, scrub_read_only};
use crate::disk::SECTOR;
use crate::faults::all_mended;
use crate::geometry::{ELEMENT, MemberSpot, Profile};
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout, Use};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("scrub-matrix/a-bad-area-makes-no-failed-device", &[], |_| bad_area()),
        Case::new("scrub-matrix/what-is-lost-makes-no-failed-device", &[], |_| lost()),
        Case::new(
            "scrub-matrix/tree-blocks-side-by-side-that-are-bad-in-other-places-are-mended",
            &[],
            |_| side_by_side(),
        ),
        Case::new("scrub-matrix/one-bad-sector-makes-no-failed-device", &[], |_| one_sector()),
        Case::new("scrub-matrix/what-is-lost-makes-no-parity-wrong", &[], |_| parity_of_lost()),
        Case::new("scrub-matrix/copies-of-a-tree-block-with-bad-areas-are-mended", &[], |_| bad_copies()),
    ]
}

fn world(profile: &str, members: usize) -> Result<ScrubWorld> {
    let shape =
        SetLayout { profile: Profile::named(profile), members, shift: 0, ends: DataGroupEnd::InFreeSpace };
    ScrubWorld::new(Content::small(16 << 10)?, shape)
}

/// Three columns of one place of RAID6 are unreadable: that place is lost, and parity of other rows stays good.
fn lost() -> Result<()> {
    let world = world("raid6", 6)?;
    for at in extents(&world, ContentKind::Data) {
        let group = world.group_of(at);
        let (row, within) = (group.row_of(at), (at - group.start) % ELEMENT);
        for columns in [[0, 1, 2], [1, 2, 3], [0, 2, 4], [1, 3, 5]] {
            let spots = columns.map(|column| group.element(row, column)).into_iter();
            let spots = spots.map(|spot| MemberSpot { offset: spot.offset + within, ..spot });
            let damage: BadSectors = spots.map(|spot| (spot, Hurt::Unreadable)).collect();
            let set = world.set.fork();
            apply(&set, &damage);
            let report = scrub(&set)?;
            for (what, spot) in findings_of(&report).into_keys().filter(|(what, _)| *what == "Parity") {
                let is_of_row = (0..group.stripes.len()).any(|column| group.element(row, column) == spot);
                ensure!(
                    is_of_row,
                    "{what} at {spot:?}, another row than that of {damage:?}: {:?}",
                    report.counts()
                );
            }
        }
    }
    Ok(())
}

/// A bad area of one device is rebuilt completely, and the rest of the device is read as before.
fn bad_area() -> Result<()> {
    for (profile, members) in [("raid5", 3), ("raid6", 4), ("raid5", 5)] {
        let world = world(profile, members)?;
        let is_summed =
            |used: &Use| matches!(used, Use::Data { logical } if world.content.summed.contains(logical));
        for member in 0..members {
            let of = world.uses.iter().filter(|(spot, used)| spot.member == member && is_summed(used));
            let damage: BadSectors = of.take(40).map(|(spot, _)| (*spot, Hurt::Unreadable)).collect();
            let set = world.set.fork();
            apply(&set, &damage);
            for report in [scrub_read_only(&set)?, scrub(&set)?] {
                let (counts, errors) = (report.counts(), damage.len() as u64);
                let parity = findings_of(&report).into_keys().find(|(what, _)| *what == "Parity");
                ensure!(parity.is_none(), "{profile}, member {member}: {parity:?}, {counts:?}");
                let of = (counts.read_errors, counts.corrected_errors + counts.unverified_errors);
                ensure!(of == (errors, errors), "{counts:?}");
            }
        }
    }
    Ok(())
}

/// Two columns of one place of RAID5, one of them data, are bad: the correct P is unknown.
fn parity_of_lost() -> Result<()> {
    let world = world("raid5", 3)?;
    for at in extents(&world, ContentKind::Data).into_iter().filter(|at| world.content.summed.contains(at)) {
        let group = world.group_of(at);
        let (row, within) = (group.row_of(at), (at - group.start) % ELEMENT);
        for hurts in [[Hurt::Rotten; 2], [Hurt::Unreadable; 2], [Hurt::Rotten, Hurt::Unreadable]] {
            let spots = (0..2).map(|column| group.element(row, column)).zip(hurts);
            let spots = spots.map(|(spot, hurt)| (MemberSpot { offset: spot.offset + within, ..spot }, hurt));
            let set = world.set.fork();
            apply(&set, &spots.collect());
            let report = scrub(&set)?;
            ensure!(report.counts().uncorrectable_errors > 0, "{hurts:?} at {at}: {:?}", report.counts());
            let parity = findings_of(&report).into_iter().find(|((what, _), _)| *what == "Parity");
            ensure!(parity.is_none(), "{hurts:?} at {at}: told is {parity:?}");
        }
    }
    Ok(())
}

/// No copy of a tree block can be read as a whole, but each sector can be read in all copies except one.
fn bad_copies() -> Result<()> {
    for (profile, members) in [("dup", 1), ("raid1", 2), ("raid1c3", 3), ("raid10", 4)] {
        let world = world(profile, members)?;
        for block in extents(&world, ContentKind::Tree) {
            let sectors = (block..).step_by(SECTOR as usize);
            let spots = sectors.zip(0..world.shape.profile.copies).map(|(at, copy)| {
                let group = world.group_of(at);
                (group.copies(at)[copy], Hurt::Unreadable)
            });
            let (set, damage) = (world.set.fork(), spots.collect::<BadSectors>());
            apply(&set, &damage);
            all_mended(&scrub(&set)?)?;
            for spot in damage.keys() {
                let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
                let is_back = now.is_readable(spot.offset)
                    && now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR);
                ensure!(is_back, "{profile}, the block at {block}: {spot:?} is not mended");
            }
        }
    }
    Ok(())
}

/// The first sector of a file without checksums is unreadable in one copy, and another one is rotten in the other copy: as long as the
/// device has not failed, its copy is read where possible.
fn one_sector() -> Result<()> {
    let (world, path) = (world("raid1", 2)?, Path::new(NOCOW));
    let sectors = &world.sectors[path];
    let copy = |number: usize, copy: usize| world.group_of(sectors[number]).copies(sectors[number])[copy];
    let damage = BadSectors::from([(copy(0, 0), Hurt::Unreadable), (copy(11, 1), Hurt::Rotten)]);
    let set = world.set.fork();
    apply(&set, &damage);
    let read = Image::options().open_devices(set.devices())?.read(path)?;
    ensure!(read == world.content.files[path], "it is read from the other copy");
    Ok(())
}

/// Of two tree blocks in one row of RAID5 one is unreadable in one place, and the other is rotten in another: after one is restored, the
/// other one can be, too.
fn side_by_side() -> Result<()> {
    let world = world("raid5", 3)?;
    let blocks = extents(&world, ContentKind::Tree);
    let is_beside = |one: u64, other: u64| {
        let (group, is_same) = (world.group_of(one), world.group_of(one).has(other));
        let place = |at: u64| (group.row_of(at), group.within(at));
        is_same && one != other && place(one) == place(other)
    };
    let pairs = blocks.iter().flat_map(|one| blocks.iter().map(move |other| (*one, *other)));
    let pairs: Vec<(u64, u64)> = pairs.filter(|(one, other)| is_beside(*one, *other)).collect();
    ensure!(!pairs.is_empty(), "blocks lie side by side");
    for (one, other) in pairs {
        let spot = |at: u64| world.group_of(at).copies(at)[0];
        let damage = BadSectors::from([(spot(one), Hurt::Unreadable), (spot(other + SECTOR), Hurt::Rotten)]);
        let set = world.set.fork();
        apply(&set, &damage);
        let counts = scrub_read_only(&set)?.counts();
        ensure!((counts.unverified_errors, counts.uncorrectable_errors) == (2, 0), "{counts:?}");
        all_mended(&scrub(&set)?)?;
    }
    Ok(())
}
