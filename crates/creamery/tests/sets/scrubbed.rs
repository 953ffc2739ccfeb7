//! Scrubs: a whole set has no findings, and rot in one stripe is repaired if the profile tolerates it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery::check::scrub::{FindingKind, NoProgress, Outcome, Report, Scrub};
use creamery::{Image, NamedSet};

use crate::checked;
use crate::oracle::Oracle;
use crate::rot::{is_nocow, turn};
use crate::seen::{Seen, expect_same};

/// Findings of the check that a repaired set must not have: rot in a copy, in data, in parity.
const ROT: [u16; 5] = [215, 606, 605, 608, 314];

/// Scrubs the whole set, then with rot in the stripe `rotten` of all chunks. Leaves it repaired.
pub(crate) fn each(files: &[PathBuf], oracle: &Oracle, truth: &Seen, rotten: usize) -> Result<()> {
    let before = bytes(files)?;
    let whole = Scrub::default().read_only().run(&files[0], &NoProgress)?;
    ensure!(whole.damages.is_empty() && whole.counts().errors() == 0, "a whole set: {:#?}", whole.damages);
    ensure!(whole.devices.len() == files.len(), "all devices are scrubbed");
    ensure!((whole.counts().parity_bytes_scrubbed > 0) == (oracle.parity() > 0), "{:?}", whole.counts());
    let mended = mend(files)?;
    ensure!(
        mended.counts().errors() == 0 && bytes(files)? == before,
        "nothing to mend, and nothing is changed"
    );
    let without = Scrub::default().read_only().without_read_ahead().run(&files[0], &NoProgress)?;
    ensure!(without.devices == whole.devices, "readahead changes what is found");
    turn(files, oracle, &[rotten])?;
    let seen = Scrub::default().read_only().run(&files[0], &NoProgress)?;
    let mended = mend(files)?;
    let (seen, mended) = (seen.counts(), mended.counts());
    ensure!(
        seen.errors() == mended.errors() && seen.errors() > 0,
        "to read finds what to mend finds: {seen:?}, {mended:?}"
    );
    if oracle.borne() == 0 {
        ensure!(mended.uncorrectable_errors > 0 && mended.corrected_errors == 0, "{mended:?}");
        return Ok(());
    }
    ensure!(mended.uncorrectable_errors == 0 && mended.corrected_errors > 0, "{mended:?}");
    let again = Scrub::default().read_only().run(&files[0], &NoProgress)?;
    ensure!(again.damages.iter().all(is_undecided), "mended: {:#?}", again.damages);
    let report = checked(files)?;
    let rot = report.findings.iter().filter(|finding| ROT.contains(&finding.number));
    ensure!(rot.count() == 0, "the check of what was mended: {:#?}", report.findings);
    let fs = Image::open(&files[0])?;
    let mut want = truth.copy();
    let now = Seen::by_us(&fs)?;
    for (path, _) in truth.files().filter(|(path, _)| is_nocow(path)) {
        want = want.with_content(path, now.content(path).context("it is read")?.to_vec())?;
    }
    expect_same("what was mended", &want, &now)?;
    fs.close().map_err(Into::into)
}

/// Whether the correct one of two is unknown: copies of data without checksums, and parity of such data.
fn is_undecided(damage: &creamery::check::scrub::Damage) -> bool {
    let what = matches!(
        damage.finding.what,
        FindingKind::Differing | FindingKind::Parity | FindingKind::UnsummedParity
    );
    what && damage.finding.outcome == Outcome::Undecided
}

/// Repairs the set, with all members named.
fn mend(files: &[PathBuf]) -> Result<Report> {
    let set = NamedSet::new(&files[0]).devices(&files[1..]);
    Ok(Scrub::default().run(set, &NoProgress)?)
}

/// A checksum of each member's bytes, to detect changes.
fn bytes(files: &[PathBuf]) -> Result<Vec<u64>> {
    use std::hash::{Hash, Hasher};
    let sum = |file: &Path| -> Result<u64> {
        let mut hasher = std::hash::DefaultHasher::new();
        std::fs::read(file)?.hash(&mut hasher);
        Ok(hasher.finish())
    };
    files.iter().map(|file| sum(file)).collect()
}
