//! All packages, in one folder, with their sums.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::Run;

use super::parts::{Parts, VERSION};
use super::{container, debian, tarball};

pub(super) const SUMS: &str = "SHA256SUMS";

/// Makes the packages in `out`. What an earlier run left there is replaced.
pub(super) fn make(parts: &Parts, out: &Path) -> Result<()> {
    if out.exists() {
        let ours = std::fs::read_dir(out)?.next().is_none() || out.join(SUMS).is_file();
        ensure!(ours, "{} holds something else than a release: name another folder", out.display());
        std::fs::remove_dir_all(out)?;
    }
    std::fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
    let out = out.canonicalize()?;
    let alone = out.join(format!("creamery-{VERSION}-x86_64-linux-musl"));
    std::fs::copy(&parts.program, &alone).context("copying the program")?;
    debian::make(parts, &out)?;
    tarball::make(parts, &out)?;
    container::make(parts, &out)?;
    write_sums(&out)?;
    println!("{}:", out.display());
    for (name, len) in listed(&out)? {
        println!("  {len:>9}  {name}");
    }
    Ok(())
}

fn write_sums(out: &Path) -> Result<()> {
    let names = listed(out)?.into_iter().map(|(name, _)| name);
    let sums = Run::new("sha256sum").args(names).within(out).ok()?;
    std::fs::write(out.join(SUMS), sums.stdout).with_context(|| format!("writing {SUMS}"))
}

/// The files of a folder by name, with their lengths.
fn listed(out: &Path) -> Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(out)? {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len()));
    }
    files.sort();
    Ok(files)
}
