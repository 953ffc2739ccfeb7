//! Quotas beside everything else: a part of all runs has them, and what they say has to be what a count of everything says.

use anyhow::{Context, Result, ensure};
use creamery_fs::Filesystem;
use creamery_txn::{Qgroup, QuotaMode, QuotaStatus};

/// Begins to count in the run of `seed`: nothing, what is referred to, or what is made.
pub(crate) fn enable(fs: &Filesystem, seed: u64) -> Result<()> {
    let engine = fs.engine();
    match seed % 3 {
        1 => engine.enable_quotas(QuotaMode::Full)?,
        2 => engine.enable_quotas(QuotaMode::Simple)?,
        _ => return Ok(()),
    }
    while engine.quota_rescan_step()? {}
    engine.commit()?;
    Ok(())
}

/// Counts everything anew, and compares. Nothing, where quotas are off, simple, or say themselves that they may be wrong.
///
/// # Errors
/// With the first group that is something else.
pub(crate) fn ensure_counted(fs: &Filesystem) -> Result<()> {
    let engine = fs.engine();
    // What is counted is in the numbers when it is committed.
    engine.commit()?;
    let Some(QuotaStatus { mode: QuotaMode::Full, inconsistent: false, rescan: None }) =
        engine.quota_status()
    else {
        return Ok(());
    };
    let counted = engine.qgroups()?;
    engine.begin_quota_rescan()?;
    while engine.quota_rescan_step()? {}
    engine.commit()?;
    let anew = engine.qgroups()?;
    ensure!(counted.len() == anew.len(), "{} groups, and then {}", counted.len(), anew.len());
    for (Qgroup { id, usage, .. }, found) in counted.iter().zip(&anew) {
        let same = *id == found.id && *usage == found.usage;
        ensure!(same, "quota group {id}: counted {usage:?}, and all over again {:?}", found.usage);
    }
    let status = engine.quota_status().context("quotas are on")?;
    ensure!(!status.inconsistent && status.rescan.is_none(), "after a rescan: {status:?}");
    Ok(())
}
