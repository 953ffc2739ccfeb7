//! The tarball: unpacked and used where it lies, then put where its note says.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::Run;

use super::super::parts::Parts;
use super::super::tarball::{name, path};
use super::bare::Bare;

/// What the note of how to install it copies.
const FOLDERS: [&str; 4] = ["bin", "lib", "sbin", "share"];

pub(super) fn tried(_: &Parts, out: &Path) -> Result<()> {
    let bare = Bare::new("tarball-root")?;
    Run::new("tar").arg("--extract").arg("--file").arg(path(out)).arg("--directory").arg(bare.dir()).ok()?;
    bare.work(&format!("/{}/bin/creamery", name()))?;
    let unpacked = bare.outside(&name());
    let note = fs::read_to_string(unpacked.join("INSTALL"))?;
    let copied = format!("cp -R {} /usr/local/", FOLDERS.join(" "));
    ensure!(note.contains(&copied), "the note does not say `{copied}`:\n{note}");
    let local = bare.outside("/usr/local");
    fs::create_dir_all(&local)?;
    Run::new("cp").arg("-R").args(FOLDERS).arg(&local).within(&unpacked).ok()?;
    let said = bare.says("/usr/local/lib/creamery/bin/mkfs.btrfs", "--version")?;
    ensure!(said.contains("creamery"), "mkfs.btrfs says it is {said:?}");
    Ok(())
}
