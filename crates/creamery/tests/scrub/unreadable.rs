//! Unreadable sectors: each is one error, and does not cause reports, losses or doubts about sectors beside it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery::Image;
use creamery::check::scrub::Outcome;
use creamery_testkit::harness::{Bench, Case};

use crate::content::{Content, ContentKind, NOCOW};
use crate::damage::{BadSectors, FoundDamage, Hurt, apply, extents, findings_of, judge, scrub};
use crate::disk::SECTOR;
use crate::geometry::{ELEMENT, Group, MemberSpot, Profile};
use crate::predict::{Prediction, Scrubs};
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout, Use};

type Body = fn(&Bench) -> Result<()>;

pub(crate) fn cases() -> Vec<Case> {
    let cases: [(&str, Body); 13] = [
        ("one-unreadable-sector-of-parity-is-one-error", |_| parity_sector(Beside::Summed)),
        ("parity-is-not-undecided-by-a-sector-beside-it", |_| parity_sector(Beside::Unsummed)),
        ("parity-of-what-is-not-in-use-is-not-scrubbed", |_| unused_parity()),
        ("an-unreadable-sector-hides-no-difference-beside-it", |_| differing(0)),
        ("an-unreadable-sector-of-the-other-copy-hides-no-difference", |_| differing(1)),
        ("what-cannot-be-read-and-has-no-other-copy-is-lost", |_| lost_without_checksum()),
        ("what-cannot-be-read-makes-no-parity-wrong", |_| parity_of_unreadable()),
        ("what-is-not-in-use-and-cannot-be-read-makes-no-parity-wrong", |_| unused_data()),
        ("few-unreadable-sectors-make-no-failed-device", |_| no_failed_device()),
        ("a-device-with-a-bad-area-is-believed-elsewhere", |_| believed()),
        ("a-tree-block-is-brought-back-sector-by-sector", |_| by_sector()),
        ("a-tree-block-is-brought-back-from-copies-that-are-all-bad", |_| by_copies()),
        ("a-block-that-is-mended-makes-no-other-one-worse", |_| mended_beside()),
    ];
    cases.into_iter().map(|(name, body)| Case::new(format!("scrub-matrix/{name}"), &[], body)).collect()
}

fn world(profile: &str, members: usize) -> Result<ScrubWorld> {
    let shape =
        SetLayout { profile: Profile::named(profile), members, shift: 0, ends: DataGroupEnd::InFreeSpace };
    ScrubWorld::new(Content::small(16 << 10)?, shape)
}

/// The content of a row beside the bad sector.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Summed,
    Unsummed,
}

/// Whether data without checksums is at this place of a row.
fn is_unsummed(world: &ScrubWorld, group: &Group, row: u64, within: u64) -> bool {
    (0..group.columns() as usize).any(|column| {
        let element = group.element(row, column);
        let spot = MemberSpot { offset: element.offset + within, ..element };
        matches!(world.uses.get(&spot), Some(Use::Data { logical }) if !world.content.summed.contains(logical))
    })
}

/// P of one place of a row in which all places are in use with checksums, or some are not.
fn parity_sector(beside: Beside) -> Result<()> {
    let world = world("raid5", 3)?;
    let wanted = world.uses.iter().find(|(_, used)| {
        let Use::Parity { group, row, within } = **used else { return false };
        let group = &world.groups[group];
        let others = (0..ELEMENT).step_by(SECTOR as usize).any(|at| is_unsummed(&world, group, row, at));
        !is_unsummed(&world, group, row, within) && others == (beside == Beside::Unsummed)
    });
    let (spot, _) = wanted.context("such a row")?;
    judge(&world, &BadSectors::from([(*spot, Hurt::Unreadable)])).map(drop)
}

/// P of an unused place, in a row that is partly in use: a second scrub would find it again.
fn unused_parity() -> Result<()> {
    let world = world("raid5", 3)?;
    let element = |spot: &MemberSpot, used: &Use| match used {
        Use::Parity { within, .. } => Some(MemberSpot { offset: spot.offset - within, ..*spot }),
        _ => None,
    };
    let unused = world.uses.iter().filter_map(|(spot, used)| element(spot, used)).find_map(|start| {
        let places = (0..ELEMENT).step_by(SECTOR as usize);
        let mut spots = places.map(|within| MemberSpot { offset: start.offset + within, ..start });
        spots.find(|spot| !world.uses.contains_key(spot))
    });
    let damage = BadSectors::from([(unused.context("such a place")?, Hurt::Unreadable)]);
    judge(&world, &damage).map(drop)
}

/// In data without checksums one sector differs between copies, and another one, of this copy, is unreadable.
fn differing(unreadable: usize) -> Result<()> {
    let world = world("raid1", 2)?;
    let sectors = &world.sectors[Path::new(NOCOW)];
    let copies = |number: usize| world.group_of(sectors[number]).copies(sectors[number]);
    let damage = BadSectors::from([(copies(3)[unreadable], Hurt::Unreadable), (copies(5)[1], Hurt::Rotten)]);
    let set = world.set.fork();
    apply(&set, &damage);
    let found = findings_of(&scrub(&set)?);
    ensure!(found.contains_key(&("Differing", copies(5)[0])), "the difference is not told: {found:?}");
    Ok(())
}

/// A sector of a file without checksums is unreadable; the file is read nevertheless, rebuilt from parity. So parity is not lost.
fn parity_of_unreadable() -> Result<()> {
    let world = world("raid5", 3)?;
    let path = Path::new(NOCOW);
    let at = world.sectors[path][3];
    let set = world.set.fork();
    apply(&set, &BadSectors::from([(world.group_of(at).copies(at)[0], Hurt::Unreadable)]));
    let read = Image::options().open_devices(set.devices())?.read(path)?;
    ensure!(read == world.content.files[path], "it is rebuilt");
    no_parity(&findings_of(&scrub(&set)?))
}

fn no_parity(found: &BTreeMap<FoundDamage, Outcome>) -> Result<()> {
    let parity = found.iter().find(|((what, _), _)| *what == "Parity");
    ensure!(parity.is_none(), "parity is what it has to be, and told is {parity:?}");
    Ok(())
}

/// Each unused sector, in columns beside used ones.
fn unused_data() -> Result<()> {
    let world = world("raid5", 5)?;
    for (spot, used) in &world.uses {
        let Use::Parity { group, row, within } = *used else { continue };
        let group = &world.groups[group];
        let columns = (0..group.columns() as usize).map(|column| group.element(row, column));
        let mut spots = columns.map(|element| MemberSpot { offset: element.offset + within, ..element });
        let Some(unused) = spots.find(|spot| !world.uses.contains_key(spot)) else { continue };
        let set = world.set.fork();
        apply(&set, &BadSectors::from([(unused, Hurt::Unreadable)]));
        no_parity(&findings_of(&scrub(&set)?))
            .with_context(|| format!("P at {spot:?}, {unused:?} is not read"))?;
    }
    Ok(())
}

fn lost_without_checksum() -> Result<()> {
    let world = world("single", 1)?;
    let at = world.sectors[Path::new(NOCOW)][3];
    let set = world.set.fork();
    apply(&set, &BadSectors::from([(world.group_of(at).copies(at)[0], Hurt::Unreadable)]));
    let report = scrub(&set)?;
    let outcomes: Vec<Outcome> = report.damages.iter().map(|damage| damage.finding.outcome).collect();
    ensure!(outcomes == [Outcome::Lost], "there is nothing good: {:?}", report.damages);
    Ok(())
}

/// A sector of a block, and another one of its parity, are unreadable: each place of the row has one bad column.
fn by_sector() -> Result<()> {
    for (profile, members) in [("raid5", 3), ("raid6", 4)] {
        let world = world(profile, members)?;
        for block in extents(&world, ContentKind::Tree) {
            let group = world.group_of(block);
            let next = block + SECTOR;
            let p = group.place(group.row_of(next), group.within(next))[group.columns() as usize];
            let damage =
                BadSectors::from([(group.copies(block)[0], Hurt::Unreadable), (p, Hurt::Unreadable)]);
            ensure!(Prediction::of(&world, &damage, Scrubs::ToMend).is_all_mended(), "the profile bears it");
            judge(&world, &damage).with_context(|| format!("{profile}, the block at {block}"))?;
        }
    }
    Ok(())
}

/// One copy is rotten in one sector of a block, and each other one in the next.
fn by_copies() -> Result<()> {
    for (profile, members) in [("dup", 1), ("raid1", 2), ("raid1c3", 3), ("raid10", 4)] {
        let world = world(profile, members)?;
        for block in extents(&world, ContentKind::Tree) {
            let group = world.group_of(block);
            let next = |copy: usize| block + (copy as u64 + 1) * SECTOR;
            let copies = 0..group.copies(block).len();
            let damage = copies.map(|copy| (group.copies(next(copy))[copy], Hurt::Rotten)).collect();
            ensure!(Prediction::of(&world, &damage, Scrubs::ToMend).is_all_mended(), "the profile bears it");
            judge(&world, &damage).with_context(|| format!("{profile}, the block at {block}"))?;
        }
    }
    Ok(())
}

/// Two columns and parity are bad at one place, and two others at the next: the repair of one block makes no other one worse.
fn mended_beside() -> Result<()> {
    let world = world("raid6", 6)?;
    let mut tried = 0;
    for block in extents(&world, ContentKind::Tree) {
        let group = world.group_of(block);
        let place = |at: u64| group.place(group.row_of(at), group.within(at));
        let (own, columns) = (group.column_of(block), group.columns() as usize);
        let (second, first) = ((own + 1) % columns, (own + 2) % columns);
        let (here, next) = (place(block), place(block + SECTOR));
        let damage = BadSectors::from([
            (here[own], Hurt::Rotten),
            (here[second], Hurt::Unreadable),
            (next[first], Hurt::Unreadable),
            (next[columns + 1], Hurt::Rotten),
        ]);
        for scrubs in [Scrubs::ToRead, Scrubs::ToMend] {
            ensure!(Prediction::of(&world, &damage, scrubs).lost_trees.is_empty(), "the profile bears it");
        }
        judge(&world, &damage).with_context(|| format!("the block at {block}"))?;
        tried += 1;
    }
    ensure!(tried > 1, "{tried} blocks were tried");
    Ok(())
}

/// Two columns of one place of a tree block of RAID6 are unreadable: it is rebuilt, and parity of other rows stays good.
fn no_failed_device() -> Result<()> {
    let shape = SetLayout {
        profile: Profile::named("raid6"),
        members: 6,
        shift: 4096,
        ends: DataGroupEnd::InFreeSpace,
    };
    let world = ScrubWorld::new(Content::small(16 << 10)?, shape)?;
    for block in extents(&world, ContentKind::Tree) {
        for at in (block..block + (16 << 10)).step_by(SECTOR as usize) {
            for pair in [[0, 1], [1, 2], [2, 3], [2, 4], [3, 5]] {
                one_row(&world, at, pair)?;
            }
        }
    }
    Ok(())
}

fn one_row(world: &ScrubWorld, at: u64, pair: [usize; 2]) -> Result<()> {
    let group = world.group_of(at);
    let (row, within) = (group.row_of(at), (at - group.start) % ELEMENT);
    let spots = pair.map(|column| group.element(row, column)).into_iter();
    let spots = spots.map(|spot| (MemberSpot { offset: spot.offset + within, ..spot }, Hurt::Unreadable));
    let set = world.set.fork();
    apply(&set, &spots.collect());
    let report = scrub(&set)?;
    for (what, spot) in findings_of(&report).into_keys().filter(|(what, _)| *what == "Parity") {
        let is_of_row = (0..6).any(|column| group.element(row, column) == spot);
        ensure!(is_of_row, "{what} at {spot:?}, not in row {row} of {at}, {pair:?}: {:?}", report.counts());
    }
    Ok(())
}

/// A device can read everything except 40 sectors of files with checksums. A file without checksums lies there unchanged; its rotten parity
/// does not make it doubtful.
fn believed() -> Result<()> {
    let world = world("raid5", 3)?;
    let nocow = Path::new(NOCOW);
    let mut damage = BadSectors::new();
    for &at in &world.sectors[nocow] {
        let group = world.group_of(at);
        let p = group.element(group.row_of(at), group.columns() as usize);
        damage.insert(MemberSpot { offset: p.offset + (at - group.start) % ELEMENT, ..p }, Hurt::Rotten);
    }
    for member in 0..3 {
        let is_summed =
            |used: &Use| matches!(used, Use::Data { logical } if world.content.summed.contains(logical));
        let of = world.uses.iter().filter(|(spot, used)| spot.member == member && is_summed(used));
        let set = world.set.fork();
        apply(&set, &damage);
        apply(&set, &of.take(40).map(|(spot, _)| (*spot, Hurt::Unreadable)).collect());
        let fs = Image::options().open_devices(set.devices())?;
        for path in world.content.files.keys().filter(|path| *path != nocow) {
            let _ = fs.read(path); // some of it may be lost
        }
        let read = fs.read(nocow).context("it can be read where it lies")?;
        ensure!(read == world.content.files[nocow], "it has other bytes, with a bad area on member {member}");
    }
    Ok(())
}
