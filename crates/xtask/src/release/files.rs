//! Files for packages: written, packed and archived so that nothing of this machine is in them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use creamery_testkit::Run;

use super::parts::Parts;

/// Writes a file, and makes the folders that it lies in.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<()> {
    make_parent(path)?;
    fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}

pub(super) fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a file lies in a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))
}

/// Packs a file, without its name and time; it gets the ending `.gz`.
pub(super) fn gzip(path: &Path) -> Result<()> {
    Run::new("gzip").args(["-9n", "--force", "--"]).arg(path).ok().map(drop)
}

/// Everything below `place` gets the mode that it is to have, whatever the umask was.
pub(super) fn set_modes(place: &Path) -> Result<()> {
    fs::set_permissions(place, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            set_modes(&entry.path())?;
        } else if kind.is_file() {
            let is_program = entry.metadata()?.permissions().mode() & 0o100 != 0;
            let mode = if is_program { 0o755 } else { 0o644 };
            fs::set_permissions(entry.path(), Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

/// What `folder` has under `names` as an archive at `to`, which ends in `.tar.gz`.
pub(super) fn archive(parts: &Parts, folder: &Path, names: &[&str], to: &Path) -> Result<()> {
    let plain = to.with_extension("");
    let time = format!("--mtime=@{}", parts.epoch);
    let form = ["--sort=name", "--format=ustar", "--owner=0", "--group=0", "--numeric-owner", &time];
    let tar = Run::new("tar").args(form).arg("--create").arg("--file").arg(&plain);
    tar.arg("--directory").arg(folder).args(names).ok()?;
    gzip(&plain)
}
