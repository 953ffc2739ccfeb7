//! The Debian package: installed, used under all its names, and removed without a trace.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::{Run, btrfs_check};

use super::super::debian::{NAME, path};
use super::super::parts::Parts;
use super::super::tree::LINKS;
use super::bare::Bare;

const PROGRAM: &str = "/usr/bin/creamery";
const BESIDE: &str = "/usr/lib/creamery/bin";
/// What else a user looks for.
const FILES: [&str; 9] = [
    "/usr/share/man/man1/creamery-mkfs.1.gz",
    "/usr/share/man/man5/creamery.5.gz",
    "/usr/share/doc/creamery/mount-options.md",
    "/usr/share/bash-completion/completions/creamery",
    "/usr/share/zsh/vendor-completions/_creamery",
    "/usr/share/fish/vendor_completions.d/creamery.fish",
    "/usr/share/doc/creamery/copyright",
    "/usr/share/doc/creamery/changelog.gz",
    "/usr/lib/systemd/system/creamery-scrub@.timer",
];

pub(super) fn tried(_: &Parts, out: &Path) -> Result<()> {
    let bare = Bare::new("debian-root")?;
    // All that dpkg asks of a system that has no package.
    for folder in ["/var/lib/dpkg/updates", "/var/lib/dpkg/info"] {
        fs::create_dir_all(bare.outside(folder))?;
    }
    fs::write(bare.outside("/var/lib/dpkg/status"), "")?;
    let root = format!("--root={}", bare.dir().display());
    let dpkg = |words: &[&str]| Run::new("dpkg").args([&root, "--log=/dev/null"]).args(words).ok();
    dpkg(&["--install", path(out).to_str().context("a name of plain letters")?])?;
    bare.work(PROGRAM)?;
    as_btrfs_progs(&bare)?;
    for file in FILES {
        let len = fs::metadata(bare.outside(file)).with_context(|| file)?.len();
        ensure!(len > 0, "{file} is empty");
    }
    let page = Run::new("gzip").args(["-dc"]).arg(bare.outside(FILES[0])).ok()?.stdout_text();
    ensure!(page.contains("rootdir"), "the manual page of mkfs does not tell of its options:\n{page}");
    for (link, _) in LINKS {
        let leads = bare.outside("/usr").join(link).canonicalize().with_context(|| link)?;
        ensure!(leads == bare.outside(PROGRAM).canonicalize()?, "{link} leads to {}", leads.display());
    }
    fs::remove_dir_all(bare.outside("/tried"))?;
    dpkg(&["--remove", NAME])?;
    let of_dpkg = bare.outside("/var/lib/dpkg");
    let left = bare.files_below(&bare.dir())?.into_iter().filter(|file| !file.starts_with(&of_dpkg));
    let left: Vec<_> = left.collect();
    ensure!(left.is_empty(), "left behind: {left:?}");
    ensure!(!bare.outside("/usr").exists(), "folders are left behind");
    Ok(())
}

/// By the names of btrfs-progs' programs.
fn as_btrfs_progs(bare: &Bare) -> Result<()> {
    let (mkfs, btrfs, fsck) =
        (format!("{BESIDE}/mkfs.btrfs"), format!("{BESIDE}/btrfs"), format!("{BESIDE}/fsck.btrfs"));
    bare.says(&mkfs, "-q -L linked -b 200M /tried/linked.img")?;
    btrfs_check(&bare.outside("/tried/linked.img"))?;
    let label = bare.says(&btrfs, "filesystem label /tried/linked.img")?;
    ensure!(label == "linked\n", "the label is {label:?}");
    bare.says(&btrfs, "check /tried/linked.img")?;
    bare.says(&fsck, "-a /tried/linked.img").map(drop)
}
