//! What is laid beside the program, below a prefix: links, manual pages, completions, documents.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use creamery_testkit::Run;

use super::files::{make_parent, write};
use super::parts::Parts;
use crate::workspace::root;

/// Links below the prefix, and where each leads. mount(8) and umount(8) call the first two. The others have a folder of their own,
/// beside which btrfs-progs can be installed; who wants them puts it first in PATH.
pub(super) const LINKS: [(&str, &str); 5] = [
    ("sbin/mount.fuse.creamery", "../bin/creamery"),
    ("sbin/umount.fuse.creamery", "../bin/creamery"),
    ("lib/creamery/bin/btrfs", "../../../bin/creamery"),
    ("lib/creamery/bin/mkfs.btrfs", "../../../bin/creamery"),
    ("lib/creamery/bin/fsck.btrfs", "../../../bin/creamery"),
];
/// Shells, and where each looks below a prefix.
const COMPLETIONS: [(&str, &str); 2] = [
    ("bash", "share/bash-completion/completions/creamery"),
    ("fish", "share/fish/vendor_completions.d/creamery.fish"),
];
pub(super) const MANUAL: &str = "share/man/man1";
pub(super) const DOCUMENTS: &str = "share/doc/creamery";

/// Lays all below `prefix`, which is made. Where zsh looks is another place for what a distribution brings: `zsh`.
pub(super) fn lay(parts: &Parts, prefix: &Path, zsh: &str) -> Result<()> {
    let program = prefix.join("bin/creamery");
    make_parent(&program)?;
    fs::copy(&parts.program, &program).context("copying the program")?;
    for (link, leads) in LINKS {
        let link = prefix.join(link);
        make_parent(&link)?;
        symlink(leads, &link).with_context(|| format!("linking {}", link.display()))?;
    }
    for (shell, place) in COMPLETIONS.into_iter().chain([("zsh", zsh)]) {
        let script = Run::new(&program).args(["generate", "completions", shell]).ok()?;
        write(&prefix.join(place), &script.stdout)?;
    }
    let manual = prefix.join(MANUAL);
    fs::create_dir_all(&manual)?;
    Run::new(&program).args(["generate", "man"]).arg(&manual).ok().map(drop)
}

/// Documents of the source tree by name, and what the authors of others' work want to be told.
pub(super) fn lay_documents(parts: &Parts, place: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        let text = fs::read(root().join(name)).with_context(|| format!("reading {name}"))?;
        write(&place.join(name), &text)?;
    }
    write(&place.join("THIRD-PARTY"), parts.third_party.as_bytes())
}
