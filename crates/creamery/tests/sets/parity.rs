//! Rot in parity alone: all reads are correct, and the check names the device and the row.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery::Image;

use crate::checked;
use crate::oracle::{Oracle, OracleSpot, SECTOR, extents, read_sector, sectors};
use crate::rot::is_nocow;
use crate::seen::{Seen, expect_same};

/// The finding.
const PARITY: u16 = 314;

/// Puts rot into P and into Q of some rows: of data, and of the root tree.
pub(crate) fn each(files: &[PathBuf], oracle: &Oracle, truth: &Seen) -> Result<()> {
    let mut nocow = Vec::new();
    for (path, _) in truth.files().filter(|(path, _)| is_nocow(path)) {
        for extent in extents(files, path)? {
            nocow.extend(sectors(&extent).map(|(_, logical)| logical));
        }
    }
    let raw = extents(files, Path::new("/raw4"))?;
    let first = raw.first().context("a file has extents")?;
    // The correctness of data without checksums is unknown.
    let is_judged = |&logical: &u64| {
        let row = oracle.row(logical).map(|(_, columns)| columns).unwrap_or_default();
        !row.iter().any(|at| nocow.contains(at))
    };
    let judged: Vec<u64> = sectors(first).map(|(_, logical)| logical).filter(is_judged).collect();
    ensure!(!judged.is_empty(), "rows with checksums");
    for logical in [judged[0], judged[judged.len() / 2], oracle.root] {
        for which in 0..oracle.parity() {
            let spot = oracle.parity_spot(logical, which)?;
            planted(files, oracle, truth, logical, (which, spot))
                .with_context(|| format!("{} of the row of {logical}, at {spot:?}", ["P", "Q"][which]))?;
        }
    }
    Ok(())
}

fn planted(
    files: &[PathBuf],
    oracle: &Oracle,
    truth: &Seen,
    logical: u64,
    (which, spot): (usize, OracleSpot),
) -> Result<()> {
    let before = read_sector(&files[spot.member], spot.offset)?;
    let rotten: Vec<u8> = before.iter().map(|byte| byte ^ 0x5a).collect();
    let file = File::options().write(true).open(&files[spot.member])?;
    file.write_all_at(&rotten, spot.offset)?;
    let report = checked(files)?;
    let [found] = &report.findings[..] else { anyhow::bail!("found: {:#?}", report.findings) };
    ensure!(found.number == PARITY && report.is_clean(), "{found:?}");
    let start = oracle.row(logical)?.0;
    let wanted = format!("{} of the row at logical {start}", ["P", "Q"][which]);
    ensure!(found.message.contains(&wanted), "{} does not say {wanted:?}", found.message);
    let sector = found.place.sector.as_ref().context("the finding names a place")?;
    let place = (sector.devid, sector.device_offset);
    ensure!(place == (Some(spot.member as u64 + 1), Some(spot.offset / SECTOR * SECTOR)), "{place:?}");
    let fs = Image::open(&files[0])?;
    expect_same("rot in parity", truth, &Seen::by_us(&fs)?)?;
    ensure!(fs.statistics().volume.parity_read_bytes == 0, "nothing is rebuilt in vain");
    fs.close()?;
    Ok(file.write_all_at(&before, spot.offset)?)
}
