//! The files beside the program, below a prefix: links, manual pages, completions, documents.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use creamery_testkit::{Run, Scratch};

use super::files::{make_parent, write};
use super::parts::Parts;
use creamery_workspace::root;

/// Links below the prefix, and their targets. mount(8) and umount(8) call the first two. The others have a folder of their own, so
/// btrfs-progs can be installed beside it; put that folder first in PATH to use them.
pub(super) const LINKS: [(&str, &str); 5] = [
    ("sbin/mount.fuse.creamery", "../bin/creamery"),
    ("sbin/umount.fuse.creamery", "../bin/creamery"),
    ("lib/creamery/bin/btrfs", "../../../bin/creamery"),
    ("lib/creamery/bin/mkfs.btrfs", "../../../bin/creamery"),
    ("lib/creamery/bin/fsck.btrfs", "../../../bin/creamery"),
];
/// Shells, and the folder below a prefix where each looks for completions.
const COMPLETIONS: [(&str, &str); 2] = [
    ("bash", "share/bash-completion/completions/creamery"),
    ("fish", "share/fish/vendor_completions.d/creamery.fish"),
];
/// The sections of the manual with pages of ours; each has its own folder, below this one.
pub(super) const SECTIONS: [&str; 2] = ["share/man/man1", "share/man/man5"];
/// Units of systemd, none of which is enabled: their paths in the source tree, and below the prefix.
const UNITS: [(&str, &str); 2] = [
    ("packaging/creamery-scrub@.service", "lib/systemd/system/creamery-scrub@.service"),
    ("packaging/creamery-scrub@.timer", "lib/systemd/system/creamery-scrub@.timer"),
];
/// The pages for users in the source tree.
const PAGES: &str = "docs/use";
pub(super) const DOCUMENTS: &str = "share/doc/creamery";

/// Creates `prefix` and lays all files below it. `zsh` is the folder for zsh's completions, which differs for files of a distribution.
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
    for (from, place) in UNITS {
        let unit = fs::read(root().join(from)).with_context(|| format!("reading {from}"))?;
        write(&prefix.join(place), &unit)?;
    }
    lay_manual(&program, prefix)
}

/// Lays each page into the folder of its section.
fn lay_manual(program: &Path, prefix: &Path) -> Result<()> {
    let scratch = Scratch::new("manual")?;
    Run::new(program).args(["generate", "man"]).arg(scratch.path()).ok()?;
    for page in fs::read_dir(scratch.path())? {
        let page = page?;
        let name = page.file_name();
        let section = Path::new(&name).extension().context("a page has its section as its ending")?;
        let folder = SECTIONS.iter().find(|folder| folder.as_bytes().ends_with(section.as_encoded_bytes()));
        let folder = prefix.join(folder.with_context(|| format!("no folder for {name:?}"))?);
        fs::create_dir_all(&folder)?;
        fs::copy(page.path(), folder.join(&name)).with_context(|| format!("laying {name:?}"))?;
    }
    Ok(())
}

/// Lays documents of the source tree by name, the pages for users, and the licences of dependencies.
pub(super) fn lay_documents(parts: &Parts, place: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        let text = fs::read(root().join(name)).with_context(|| format!("reading {name}"))?;
        write(&place.join(name), &text)?;
    }
    for page in fs::read_dir(root().join(PAGES))? {
        let page = page?;
        write(&place.join(page.file_name()), &fs::read(page.path())?)?;
    }
    write(&place.join("THIRD-PARTY"), parts.third_party.as_bytes())
}
