//! A device whose flush fails: a finding names only that device, if it had repairs, and no status counts it as done.

use anyhow::{Context, Result, ensure};
use creamery::check::scrub::{FindingKind, NoProgress, Outcome, Scrub};
use creamery_testkit::harness::{Bench, Case};

use crate::content::Content;
use crate::damage::{BadSectors, Hurt, apply, scrub};
use crate::disk::Set;
use crate::geometry::{MemberSpot, Profile};
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("scrub-matrix/a-flush-that-fails-is-told-of-its-device", &[], |_| of_its_device()),
        Case::new("scrub-matrix/a-flush-that-fails-where-nothing-was-mended-is-not-told", &[], |_| {
            of_nothing()
        }),
        Case::new("scrub-matrix/a-flush-that-fails-hides-nothing-that-was-found", &[], |_| hides_nothing()),
        Case::new("scrub-matrix/a-status-calls-nothing-done-that-is-not-durable", &[], status),
    ]
}

/// A mirror whose second member fails to flush.
fn without_flush(damage: &BadSectors) -> Result<Set> {
    let shape =
        SetLayout { profile: Profile::named("raid1"), members: 2, shift: 0, ends: DataGroupEnd::InFreeSpace };
    let set = ScrubWorld::new(Content::small(16 << 10)?, shape)?.set.fork();
    apply(&set, damage);
    set.disks[1].faults(|faults| faults.flush = true);
    Ok(set)
}

fn rotten_superblock() -> BadSectors {
    BadSectors::from([(MemberSpot { member: 1, offset: 64 << 20 }, Hurt::Rotten)])
}

fn of_its_device() -> Result<()> {
    let report = scrub(&without_flush(&rotten_superblock())?)?;
    let told = report.damages.iter().find(|damage| damage.finding.what == FindingKind::NotScrubbed);
    let told = &told.context("a finding names the device")?.finding;
    ensure!(told.at.dev.get() == 2, "device 2 did not flush, and this is said: {told:?}");
    Ok(())
}

fn of_nothing() -> Result<()> {
    let report = scrub(&without_flush(&BadSectors::new())?)?;
    ensure!(report.damages.is_empty(), "nothing was mended: {:?}", report.damages);
    Ok(())
}

/// Data is lost, and repairs elsewhere are not flushed: the report names both, each with its own reason and number.
fn hides_nothing() -> Result<()> {
    let shape =
        SetLayout { profile: Profile::named("raid1"), members: 2, shift: 0, ends: DataGroupEnd::InFreeSpace };
    let world = ScrubWorld::new(Content::small(16 << 10)?, shape)?;
    let at = *world.content.summed.first().context("data with checksums")?;
    let copies = world.group_of(at).copies(at);
    let mut damage = rotten_superblock();
    damage.extend(copies.iter().map(|spot| (*spot, Hurt::Rotten)));
    let set = world.set.fork();
    apply(&set, &damage);
    set.disks[1].faults(|faults| faults.flush = true);
    let report = scrub(&set)?;
    for spot in &copies {
        let of = report.damages.iter().filter(|damage| damage.finding.at.offset == spot.offset);
        let told: Vec<_> =
            of.filter(|damage| damage.finding.at.dev.get() == spot.member as u64 + 1).collect();
        let [told] = &told[..] else { anyhow::bail!("{spot:?} has one finding: {told:?}") };
        ensure!(told.finding.why == "checksum mismatch", "{told:?}");
        ensure!(told.finding.outcome == Outcome::Lost && !told.files.is_empty(), "{told:?}");
    }
    let flush = report.damages.iter().filter(|damage| damage.finding.why.contains("this flush fails"));
    ensure!(flush.count() == 1, "{:?}", report.damages);
    let counts = report.counts();
    ensure!((counts.csum_errors, counts.super_errors) == (2, 1), "{counts:?}");
    ensure!(counts.uncorrectable_errors == 3, "two sectors, and the device: {counts:?}");
    Ok(())
}

/// Everything that a status counts as done is durable.
fn status(bench: &Bench) -> Result<()> {
    let (set, dir) = (without_flush(&rotten_superblock())?, bench.scratch.dir("status")?);
    Scrub::default().kept_in(&dir).run_on(set.devices(), &NoProgress)?;
    set.disks[1].faults(|faults| faults.flush = false);
    let again = Scrub::default().resuming(&dir).run_on(set.devices(), &NoProgress);
    again.map(drop).context("it says that all is done, and what it mended may be gone")
}
