//! Damage of a set, and its predicted outcome: the scrub finds exactly what was predicted. Restored sectors have their old
//! bytes; nothing else is written, also no error counter of a device.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery::Image;
use creamery::check::scrub::{Counts, FindingKind, NoProgress, Outcome, Report, Scrub};

use crate::content::{ContentKind, NOCOW, files_of};
use crate::disk::{SECTOR, Set};
use crate::geometry::{MemberSpot, parity_of};
use crate::predict::{Prediction, Scrubs};
use crate::world::{ScrubWorld, Use};

/// The kind of damage of a sector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Hurt {
    Rotten,
    Unreadable,
}

/// The bad sectors.
pub(crate) type BadSectors = BTreeMap<MemberSpot, Hurt>;

/// A finding, by a name that can be ordered, and its place.
pub(crate) type FoundDamage = (&'static str, MemberSpot);

/// Runs a scrub that repairs.
pub(crate) fn scrub(set: &Set) -> Result<Report> {
    Ok(Scrub::default().run_on(set.devices(), &NoProgress)?)
}

/// Runs a scrub that writes nothing.
pub(crate) fn scrub_read_only(set: &Set) -> Result<Report> {
    Ok(Scrub::default().read_only().run_on(set.devices(), &NoProgress)?)
}

pub(crate) fn apply(set: &Set, damage: &BadSectors) {
    for (spot, hurt) in damage {
        let disk = &set.disks[spot.member];
        match hurt {
            Hurt::Rotten => disk.rot(spot.offset),
            Hurt::Unreadable => disk.faults(|faults| {
                faults.unreadable.insert(spot.offset);
            }),
        }
    }
}

const fn name(what: FindingKind) -> &'static str {
    match what {
        FindingKind::Superblock => "Superblock",
        FindingKind::Tree => "Tree",
        FindingKind::Data => "Data",
        FindingKind::Parity | FindingKind::UnsummedParity => "Parity",
        FindingKind::Differing => "Differing",
        FindingKind::NotScrubbed => "NotScrubbed",
    }
}

/// The findings of a report, the worst of each place.
pub(crate) fn findings_of(report: &Report) -> BTreeMap<FoundDamage, Outcome> {
    let mut findings = BTreeMap::new();
    for damage in &report.damages {
        let at = damage.finding.at;
        let member = usize::try_from(at.dev.get() - 1).expect("few members");
        let found = (name(damage.finding.what), MemberSpot { member, offset: at.offset });
        let worst = findings.entry(found).or_insert(damage.finding.outcome);
        *worst = damage.finding.outcome.max(*worst);
    }
    findings
}

/// Damages the set, scrubs it, and expects the prediction: findings and counters, each byte afterwards, all files, and the findings of a
/// second scrub.
pub(crate) fn judge(world: &ScrubWorld, damage: &BadSectors) -> Result<Counts> {
    let to_read = Prediction::of(world, damage, Scrubs::ToRead);
    let mut prediction = Prediction::of(world, damage, Scrubs::ToMend);
    if !to_read.lost_trees.is_empty() || !prediction.lost_trees.is_empty() {
        return lost_trees(world, damage, &prediction);
    }
    let set = world.set.fork();
    apply(&set, damage);
    let found = scrub_read_only(&set).context("to read")?;
    ensure!(set.writes().is_empty(), "to read writes nothing");
    let would = |(found, outcome): (FoundDamage, Outcome)| match outcome {
        Outcome::Mendable => (found, Outcome::Mended),
        outcome => (found, outcome),
    };
    expect(&to_read, &findings_of(&found).into_iter().map(would).collect()).context("to read")?;
    expect_numbers(&to_read, &found.counts()).context("to read")?;
    let report = scrub(&set)?;
    expect(&prediction, &findings_of(&report))?;
    names(world, &report)?;
    let counts = report.counts();
    expect_numbers(&prediction, &counts)?;
    bytes(world, damage, &prediction, &set)?;
    files(world, &prediction, &set).context("afterwards")?;
    let again = scrub_read_only(&set).context("a second scrub")?;
    prediction.findings.retain(|_, outcome| *outcome != Outcome::Mended);
    expect(&prediction, &findings_of(&again)).context("a second scrub")?;
    Ok(counts)
}

/// With a lost tree block the filesystem may not open, or groups may not be scrubbed. Good sectors stay good.
fn lost_trees(world: &ScrubWorld, damage: &BadSectors, prediction: &Prediction) -> Result<Counts> {
    let set = world.set.fork();
    apply(&set, damage);
    let counts = match (scrub_read_only(&set), scrub(&set)) {
        (Ok(read), Ok(mended)) => {
            ensure!(read.counts().uncorrectable_errors > 0, "to read finds what is lost");
            let lost = &prediction.lost_trees;
            let is_left = findings_of(&mended).into_iter().any(|((what, _), outcome)| {
                matches!(what, "Tree" | "NotScrubbed") && outcome == Outcome::Lost
            });
            // An unreadable sector of zeros may be guessed: the block's checksum shows whether it is right.
            let is_back = damage.keys().all(|spot| {
                let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
                now.is_readable(spot.offset)
                    && now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR)
            });
            ensure!(is_left != lost.is_empty() || is_back, "blocks {lost:?} are lost: {:#?}", mended.damages);
            mended.counts()
        }
        (Err(error), Err(_)) => {
            ensure!(!error.to_string().contains('\n'), "{error}");
            Counts::default()
        }
        (read, mended) => anyhow::bail!("to read is {read:?}, to mend is {mended:?}"),
    };
    for (spot, used) in &world.uses {
        let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
        // Parity follows unused data.
        let is_same = prediction.follows.contains(spot)
            || damage.contains_key(spot)
            || now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR);
        ensure!(is_same, "{spot:?} ({used:?}) was good");
    }
    nothing_wrong(world, &set)?;
    Ok(counts)
}

/// Expects the findings to equal the prediction.
fn expect(prediction: &Prediction, found: &BTreeMap<FoundDamage, Outcome>) -> Result<()> {
    for (place, outcome) in &prediction.findings {
        let have = found.get(place);
        ensure!(have == Some(outcome), "{place:?}: expected {outcome:?}, found {have:?}; all: {found:?}");
    }
    for (place, outcome) in found {
        let is_known = prediction.findings.contains_key(place);
        ensure!(is_known, "{place:?}: {outcome:?}, and nothing is wrong with it");
    }
    Ok(())
}

/// Expects that a lost piece of data has its file named, and the byte in it.
fn names(world: &ScrubWorld, report: &Report) -> Result<()> {
    let is_lost = |what, outcome| what == FindingKind::Data && outcome != Outcome::Mended;
    for damage in report.damages.iter().filter(|damage| is_lost(damage.finding.what, damage.finding.outcome))
    {
        let at = damage.finding.logical.context("data has an address")?.get();
        let mut of = world.sectors.iter().filter_map(|(path, sectors)| {
            let number = sectors.iter().position(|sector| *sector == at)?;
            Some((path.to_str()?.to_owned(), number as u64 * SECTOR))
        });
        let wanted = of.next().context("a file has it")?;
        let named = damage.files.iter().map(|file| (file.path.clone().unwrap_or_default(), file.offset));
        let named: Vec<_> = named.collect();
        ensure!(named == [wanted.clone()], "{at} is of {wanted:?}, and named is {named:?}");
    }
    Ok(())
}

fn expect_numbers(prediction: &Prediction, counts: &Counts) -> Result<()> {
    let become_of = counts.corrected_errors + counts.unverified_errors + counts.uncorrectable_errors;
    ensure!(counts.errors() == become_of, "each error has an outcome: {counts:?}");
    let Prediction { unreadable, wrong, differing, .. } = prediction;
    ensure!(counts.read_errors == *unreadable, "{unreadable} reads fail: {counts:?}");
    let found = counts.csum_errors + counts.verify_errors + counts.super_errors;
    ensure!(found == *wrong, "{wrong} places are wrong: {counts:?}");
    ensure!(counts.differing == *differing, "{differing} copies differ: {counts:?}");
    Ok(())
}

/// Expects each sector to have its bytes from before the damage if it was repaired or never bad, else those from after it.
fn bytes(world: &ScrubWorld, damage: &BadSectors, prediction: &Prediction, set: &Set) -> Result<()> {
    let hurt = world.set.fork();
    apply(&hurt, damage);
    for (member, (disk, whole)) in set.disks.iter().zip(&world.set.disks).enumerate() {
        let mut offsets: BTreeSet<u64> = disk.pages().keys().chain(whole.pages().keys()).copied().collect();
        offsets.extend(damage.keys().filter(|spot| spot.member == member).map(|spot| spot.offset));
        for offset in offsets {
            let spot = MemberSpot { member, offset };
            let is_mended = world.uses.contains_key(&spot) && !prediction.left.contains(&spot);
            let want = match prediction.follows.contains(&spot) {
                true => parity_at(world, set, spot).context("it is parity")?,
                false if is_mended => whole.peek(offset, SECTOR),
                false => hurt.disks[member].peek(offset, SECTOR),
            };
            ensure!(
                disk.peek(offset, SECTOR) == want,
                "{spot:?} ({:?}) has other bytes",
                world.uses.get(&spot)
            );
            ensure!(!is_mended || disk.is_readable(offset), "{spot:?} cannot be read afterwards");
        }
    }
    Ok(())
}

/// The correct parity for the current data of its place.
fn parity_at(world: &ScrubWorld, set: &Set, spot: MemberSpot) -> Option<Vec<u8>> {
    let Some(&Use::Parity { group, row, within }) = world.uses.get(&spot) else { return None };
    let group = &world.groups[group];
    let place = group.place(row, within);
    let (data, parity) = place.split_at(usize::try_from(group.columns()).ok()?);
    let now = |spot: &MemberSpot| set.disks[spot.member].peek(spot.offset, SECTOR);
    let right = parity_of(&data.iter().map(now).collect::<Vec<_>>());
    parity.iter().zip(right).find(|(its, _)| **its == spot).map(|(_, right)| right)
}

/// Expects all files to be unchanged, except for lost data, and for changed data without checksums.
pub(crate) fn files(world: &ScrubWorld, prediction: &Prediction, set: &Set) -> Result<()> {
    let fs = Image::options().open_devices(set.devices())?;
    let read = files_of(&fs)?;
    ensure!(read.keys().eq(world.content.files.keys()), "all names are there");
    for (path, content) in &read {
        let (sectors, whole) = (&world.sectors[path], &world.content.files[path]);
        let is_lost = sectors.iter().any(|at| prediction.lost.contains(at));
        let Some(content) = content else {
            ensure!(is_lost, "{} cannot be read", path.display());
            continue;
        };
        ensure!(!is_lost, "{} is read, and some of it is lost", path.display());
        ensure!(content.len() == whole.len(), "{} has {} bytes", path.display(), content.len());
        let both = content.chunks(SECTOR as usize).zip(whole.chunks(SECTOR as usize));
        for (number, (now, whole)) in both.enumerate() {
            let is_unknown = sectors.get(number).is_some_and(|at| prediction.unknown.contains(at));
            ensure!((now == whole) != is_unknown, "sector {number} of {}: {is_unknown}", path.display());
        }
    }
    Ok(())
}

/// Checks that all readable data is unchanged.
fn nothing_wrong(world: &ScrubWorld, set: &Set) -> Result<()> {
    let Ok(fs) = Image::options().open_devices(set.devices()) else { return Ok(()) };
    let Ok(read) = files_of(&fs) else { return Ok(()) };
    for (path, content) in read {
        let is_right = content.is_none_or(|content| world.content.files.get(&path) == Some(&content));
        ensure!(is_right || path == Path::new(NOCOW), "{} has other bytes", path.display());
    }
    Ok(())
}

/// The sectors in use of one kind.
pub(crate) fn extents(world: &ScrubWorld, kind: ContentKind) -> Vec<u64> {
    let of = world.content.extents.iter().filter(|(_, (is, _))| *is == kind);
    of.map(|(at, _)| *at).collect()
}
