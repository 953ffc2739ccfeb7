//! What somebody names in a damaged image is had, whatever became of the rest: a subvolume, a path. And what is not there is said, by name.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::Run;

use crate::rescue_lost::{made, whole, write_files};
use crate::support::{MOUNTED, expect_refusal, flip_byte, inside};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("restore/top-level-is-lost", &MOUNTED, top_level_is_lost),
    ]
}

const FILES: usize = 300;

fn subvolume(dir: &Path) -> Result<()> {
    Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(dir).ok().map(drop)
}

/// The tree of a subvolume is whole, and that of the top level has no root any more.
fn top_level_is_lost(bench: &Bench) -> Result<()> {
    let image = made(bench, "disk.img", |dir| {
        subvolume(&dir.join("below"))?;
        subvolume(&dir.join("below/deeper"))?;
        write_files(&dir.join("below"), FILES)?;
        Ok(fs::write(dir.join("below/deeper/file"), "in both")?)
    })?;
    let tree = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(&image).ok()?;
    let tree = tree.stdout_text();
    let root = tree.lines().find_map(|line| line.strip_prefix("leaf ").or(line.strip_prefix("node ")));
    let root = root.and_then(|line| line.split(' ').next()?.parse().ok()).context("no root")?;
    let (theirs, ours) = (bench.scratch.dir("theirs")?, bench.scratch.dir("ours")?);
    let btrfs = || Run::new("btrfs").args(["restore", "-r", "256", "-m"]).args([&image, &theirs]);
    btrfs().ok()?;
    // Metadata lies once, and where its addresses say.
    flip_byte(&image, root)?;
    ensure!(btrfs().output()?.code == Some(1), "btrfs restore can do without, too");
    let restore = |words: &[&str]| bench.creamery().run(["restore"]).args(words).args([&image, &ours]);
    expect_refusal(restore(&[]), &["disk.img", "content is damaged"])?;
    restore(&["-r", "256", "-m"]).ok()?;
    ensure!(whole(&ours, FILES) == FILES, "not all of it");
    ensure!(fs::read(ours.join("deeper/file"))? == b"in both", "not what is below");
    // As btrfs restore before.
    expect_same("-r", &Walk::take(&theirs)?, &Walk::take(&ours)?, &Compare::default())?;
    let out = bench.scratch.file("out");
    let copied = bench.creamery().run(["cp", "-a", "--subvolid", "256"]);
    copied.arg(inside(&image, "/deeper")).arg(&out).ok()?;
    ensure!(fs::read(out.join("file"))? == b"in both", "not what is below");
    Ok(())
}
