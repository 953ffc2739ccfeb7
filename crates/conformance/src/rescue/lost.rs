//! The first leaf of a subvolume is lost, with its root's inode and names: files in other leaves are rescued, by names or by inodes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, LoopMount, Run, btrfs_check};

use crate::support::{MOUNTED, expect_refusal, expect_untouched, flip_byte, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let tools = [&MOUNTED[..], &[Judge::Tool("setfattr"), Judge::Tool("tar")]].concat();
    vec![
        Case::new("restore/first-leaf-is-lost", &MOUNTED, first_leaf_is_lost),
        Case::new("rescue/names-found-by-inodes", &tools, names_found_by_inodes),
        Case::new("rescue/listed-past-damage", &MOUNTED, listed_past_damage),
    ]
}

const FILES: usize = 300;

pub(crate) fn made(bench: &Bench, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let image = bench.scratch.file(name);
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "nodiscard,commit=300")?;
    fill(mount.dir())?;
    mount.unmount()?;
    Ok(image)
}

pub(crate) fn write_files(dir: &Path, count: usize) -> Result<()> {
    (0..count)
        .try_for_each(|number| Ok(fs::write(dir.join(number.to_string()), format!("content {number}"))?))
}

/// Counts the first `count` files of a directory that exist and are whole.
pub(crate) fn whole(dir: &Path, count: usize) -> usize {
    let is_whole = |number: &usize| {
        fs::read(dir.join(number.to_string()))
            .is_ok_and(|found| found == format!("content {number}").as_bytes())
    };
    (0..count).filter(is_whole).count()
}

/// Damages the first leaf of the top level: metadata has one copy, at its logical addresses.
pub(crate) fn lose_first_leaf(image: &Path) -> Result<()> {
    let tree = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(image).ok()?;
    let tree = tree.stdout_text();
    let mut leaves =
        tree.lines().filter_map(|line| line.strip_prefix("leaf ")?.split(' ').next()?.parse().ok());
    flip_byte(image, leaves.next().context("a leaf")?)?;
    ensure!(leaves.next().is_some(), "that was all");
    Ok(())
}

/// A damaged leaf has inodes of some files: they are listed as ls(1) lists them on the kernel's mount, and the others completely.
fn listed_past_damage(bench: &Bench) -> Result<()> {
    let image = made(bench, "disk.img", |dir| write_files(dir, FILES))?;
    let tree = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(&image).ok()?;
    let tree = tree.stdout_text();
    let mut leaves: Vec<u64> =
        tree.lines().filter_map(|line| line.strip_prefix("leaf ")?.split(' ').next()?.parse().ok()).collect();
    leaves.dedup();
    // The last leaf stays whole: Linux looks for orphans in it when it mounts.
    flip_byte(&image, leaves[leaves.len() - 2])?;
    let unknown = |text: &str| text.lines().filter(|line| line.starts_with("-?????????")).count();
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    let theirs = Run::new("ls").args(["-l", "-U"]).arg(mount.dir()).output()?;
    let lost = unknown(&theirs.stdout_text());
    // It complains of the damage.
    let _said = mount.unmount();
    ensure!(lost > 0 && lost < FILES, "{lost} inodes are lost");
    let ours = bench.creamery().run(["ls", "-l"]).arg(inside(&image, "/")).output()?;
    let listed = ours.stdout_text();
    ensure!(ours.code == Some(1) && ours.stderr_text().contains("content is damaged"), "{ours}");
    ensure!(listed.lines().count() == FILES && unknown(&listed) == lost, "{lost} on Linux: {ours}");
    let json = bench.creamery().run(["ls", "--json"]).arg(inside(&image, "/")).output()?;
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&json.stdout)?;
    ensure!(json.code == Some(1) && rows.len() == FILES - lost, "{} rows", rows.len());
    Ok(())
}

/// The names of many files in the root are in other leaves, too.
fn first_leaf_is_lost(bench: &Bench) -> Result<()> {
    let image = made(bench, "disk.img", |dir| write_files(dir, FILES))?;
    lose_first_leaf(&image)?;
    let (theirs, ours) = (bench.scratch.dir("theirs")?, bench.scratch.dir("ours")?);
    let restore = |words: &[&str]| bench.creamery().run(["restore"]).args(words).args([&image, &ours]);
    expect_refusal(restore(&[]), &["disk.img", "content is damaged"])?;
    Run::new("btrfs").args(["restore", "-i"]).args([&image, &theirs]).output()?;
    expect_untouched(&image, || {
        let said = restore(&["-i"]).output()?;
        ensure!(said.code == Some(1), "{said}");
        ensure!(said.stderr_text().contains(":/: its attributes are lost"), "{said}");
        Ok(())
    })?;
    let (ours, theirs) = (whole(&ours, FILES), whole(&theirs, FILES));
    ensure!(theirs > 0 && ours >= theirs, "{ours} files, and btrfs restore has {theirs}");
    Ok(())
}

/// All names of the root are lost, and a directory besides: inodes show where the files were. `btrfs restore` rescues none of them.
fn names_found_by_inodes(bench: &Bench) -> Result<()> {
    let image = made(bench, "disk.img", |dir| {
        for name in ["first", "second"] {
            fs::create_dir(dir.join(name))?;
            write_files(&dir.join(name), FILES)?;
        }
        fs::write(dir.join("top"), "at the top")?;
        fs::hard_link(dir.join("second/7"), dir.join("seven"))?;
        Run::new("btrfs").args(["subvolume", "create"]).arg(dir.join("below")).ok()?;
        Ok(fs::write(dir.join("below/file"), "in a subvolume")?)
    })?;
    lose_first_leaf(&image)?;
    let (ours, out) = (bench.scratch.dir("ours")?, bench.scratch.dir("out")?);
    let said = bench.creamery().run(["restore", "-i"]).args([&image, &ours]).output()?;
    ensure!(
        said.code == Some(1) && said.stderr_text().contains(":/: some of its entries are lost"),
        "{said}"
    );
    let cp = |words: &[&str]| bench.creamery().run(["cp", "-a"]).args(words).arg(inside(&image, "/."));
    let past_damage = ["--ignore-errors", "--rescue=ibadroots"];
    expect_refusal(cp(&[]).arg(&out), &["content is damaged"])?;
    let copied = cp(&past_damage).arg(&out).output()?;
    ensure!(copied.code == Some(1), "{copied}");
    // The inode of the first directory was in the leaf behind that of the root.
    let is_there = |dir: &Path| -> Result<()> {
        for name in ["second", "lost+found-257"] {
            let found = whole(&dir.join(name), FILES);
            ensure!(found == FILES, "{}/{name} has {found} files", dir.display());
        }
        ensure!(!dir.join("first").exists(), "there is nothing that says so");
        ensure!(fs::read(dir.join("top"))? == b"at the top", "another file");
        ensure!(fs::read(dir.join("seven"))? == b"content 7", "another file");
        ensure!(fs::read(dir.join("below/file"))? == b"in a subvolume", "another file");
        Ok(())
    };
    is_there(&ours)?;
    is_there(&out)?;
    let (other, unpacked) = (bench.scratch.file("other.img"), bench.scratch.dir("unpacked")?);
    mkfs_empty(bench.creamery(), &[], "256M", &other)?;
    let between = cp(&past_damage).arg(inside(&other, "/")).output()?;
    ensure!(between.code == Some(1), "{between}");
    btrfs_check(&other)?;
    let mount = LoopMount::mount(&other, &bench.scratch.file("kernel"), "ro")?;
    is_there(mount.dir())?;
    mount.unmount()?;
    let archive = bench.scratch.file("archive.tar");
    let tar = bench.creamery().run(["tar", "-c", "--ignore-errors", "-f"]).arg(&archive);
    let tar = tar.arg(inside(&image, "/")).output()?;
    ensure!(tar.code == Some(1), "{tar}");
    Run::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&unpacked).ok()?;
    is_there(&unpacked)
}
