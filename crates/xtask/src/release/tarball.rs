//! The tarball, for all other distributions: a prefix that runs where it is unpacked.

use std::path::{Path, PathBuf};

use anyhow::Result;
use creamery_testkit::Scratch;

use super::files::{archive, set_modes, write};
use super::parts::{Parts, VERSION};
use super::tree::{DOCUMENTS, lay, lay_documents};
use creamery_workspace::read;

const ZSH: &str = "share/zsh/site-functions/_creamery";

/// What the archive is called, and the folder in it.
pub(super) fn name() -> String {
    format!("creamery-{VERSION}-x86_64-linux-musl")
}

/// Where it lies in a release.
pub(super) fn path(out: &Path) -> PathBuf {
    out.join(format!("{}.tar.gz", name()))
}

/// Makes it.
pub(super) fn make(parts: &Parts, out: &Path) -> Result<()> {
    let scratch = Scratch::new("tarball")?;
    let prefix = scratch.dir(&name())?;
    lay(parts, &prefix, ZSH)?;
    let names = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "NOTICE"];
    lay_documents(parts, &prefix.join(DOCUMENTS), &names)?;
    let note = read("packaging/INSTALL")?.replace("VERSION", VERSION);
    write(&prefix.join("INSTALL"), note.as_bytes())?;
    set_modes(&prefix)?;
    archive(parts, scratch.path(), &[&name()], &path(out))
}
