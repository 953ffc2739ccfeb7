//! Quotas beside everything else: a part of all runs has them, and their numbers must agree with a complete count.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use creamery_base::{ErrorKind, QgroupId};
use creamery_fs::{Cleaning, Filesystem, QuotaChange};
use creamery_testkit::Random;
use creamery_txn::{Qgroup, QgroupUsage, QuotaMode, QuotaStatus};

/// Maximum steps of a cleaner in a row: they drop a part of a subvolume, or all.
const CLEAN_STEPS: u64 = 40;
/// Levels of groups of groups, and groups of each level: enough for several paths from one to another.
const LEVELS: u64 = 3;
const PER_LEVEL: u64 = 2;

/// Turns quotas on in the run of `seed`: none, full, or simple ones.
pub(crate) fn enable(fs: &Filesystem, seed: u64) -> Result<()> {
    let engine = fs.engine();
    match seed % 3 {
        1 => engine.quotas().enable(QuotaMode::Full)?,
        2 => engine.quotas().enable(QuotaMode::Simple)?,
        _ => return Ok(()),
    }
    while engine.quotas().rescan_step()? {}
    engine.commit()?;
    Ok(())
}

/// Changes the groups: they are created and destroyed, become members of others by several paths, and groups of subvolumes just dropped are
/// destroyed before any commit.
///
/// # Errors
/// Errors other than those of impossible changes.
pub fn meddle_with_groups(fs: &Filesystem, random: &mut Random) -> Result<()> {
    let engine = fs.engine();
    let Some(status) = engine.quotas().status() else { return Ok(()) };
    let groups = engine.quotas().list()?;
    let mut pick = |from: &[QgroupId]| from[random.below(from.len() as u64) as usize];
    let there: Vec<_> = groups.iter().map(|group| group.id).collect();
    let of_groups = (1..=LEVELS).flat_map(|level| (1..=PER_LEVEL).map(move |number| (level, number)));
    let of_groups: Vec<_> = of_groups
        .map(|(level, number)| QgroupId::new(level.try_into().expect("small"), number).expect("small"))
        .collect();
    let (any, group) = (pick(&there), pick(&of_groups));
    let done = match random.below(10) {
        0 | 1 => engine.quotas().create(group),
        2..=4 => engine.quotas().assign(any, group, true),
        5 => match groups.iter().find(|group| group.id >= any && !group.parents.is_empty()) {
            Some(member) => engine.quotas().assign(member.id, member.parents[0], false),
            None => Ok(()),
        },
        6 => engine.quotas().remove(any),
        7 | 8 => {
            let steps = random.below(CLEAN_STEPS);
            let mut clean = (0..steps).map(|_| fs.clean_step());
            let cleaned = clean.find(|step| !matches!(step, Ok(Cleaning::More))).transpose();
            cleaned
                .and_then(|_| fs.change_quotas(&QuotaChange::ClearStale, any.subvolume().unwrap_or_default()))
        }
        _ if status.inconsistent => engine.quotas().begin_rescan().and_then(|()| {
            while engine.quotas().rescan_step()? {}
            Ok(())
        }),
        _ => Ok(()),
    };
    match done {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Busy
                    | ErrorKind::NotFound
                    | ErrorKind::AlreadyExists
                    | ErrorKind::InvalidInput
                    | ErrorKind::NoSpace
            ) =>
        {
            Ok(())
        }
        done => Ok(done?),
    }
}

/// Checks that with simple quotas the numbers of a group are the sum of its subvolumes.
fn ensure_summed(groups: &[Qgroup]) -> Result<()> {
    let of = |id: QgroupId| groups.iter().find(|group| group.id == id);
    for group in groups {
        let (mut found, mut left) = (BTreeSet::new(), vec![group.id]);
        let mut sum = QgroupUsage::default();
        while let Some(below) = left.pop().and_then(of) {
            if found.insert(below.id) {
                left.extend(&below.members);
                if below.id.level() == 0 {
                    sum.referenced += below.usage.referenced;
                    sum.exclusive += below.usage.exclusive;
                }
            }
        }
        ensure!(group.usage == sum, "quota group {}: {:?}, and {sum:?} in it", group.id, group.usage);
    }
    Ok(())
}

/// Counts everything anew, and compares; with simple quotas, the sums of groups of groups. Does nothing if quotas are off or marked as
/// inconsistent.
///
/// # Errors
/// The first group that differs.
pub fn ensure_counted(fs: &Filesystem) -> Result<()> {
    let engine = fs.engine();
    // A commit brings the count into the numbers.
    engine.commit()?;
    if matches!(engine.quotas().status(), Some(QuotaStatus { mode: QuotaMode::Simple, .. })) {
        return ensure_summed(&engine.quotas().list()?);
    }
    let Some(QuotaStatus { mode: QuotaMode::Full, inconsistent: false, rescan: None }) =
        engine.quotas().status()
    else {
        return Ok(());
    };
    let counted = engine.quotas().list()?;
    engine.quotas().begin_rescan()?;
    while engine.quotas().rescan_step()? {}
    engine.commit()?;
    let anew = engine.quotas().list()?;
    ensure!(counted.len() == anew.len(), "{} groups, and then {}", counted.len(), anew.len());
    for (Qgroup { id, usage, .. }, found) in counted.iter().zip(&anew) {
        let same = *id == found.id && *usage == found.usage;
        ensure!(same, "quota group {id}: counted {usage:?}, and all over again {:?}", found.usage);
    }
    let status = engine.quotas().status().context("quotas are on")?;
    ensure!(!status.inconsistent && status.rescan.is_none(), "after a rescan: {status:?}");
    Ok(())
}
