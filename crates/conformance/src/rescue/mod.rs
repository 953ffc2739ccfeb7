//! Data out of a damaged image: what can be read comes, what cannot is named, and nothing else is missing.

pub(crate) mod commands;
pub(crate) mod lost;
pub(crate) mod named;
pub(crate) mod next;
pub(crate) mod options;
pub(crate) mod tools;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Judge, LoopMount, Random, Run, btrfs_check};

use crate::support::{JUDGED, flip_byte, inside, mkfs_empty, mkfs_from};

pub(crate) fn cases() -> Vec<Case> {
    let program = [Judge::Program];
    vec![
        Case::new("rescue/ignore-errors", &JUDGED, ignore_errors),
        Case::new("rescue/ignore-errors-of-the-target", &program, errors_of_the_target),
        Case::new("rescue/ignore-errors-without-damage", &program, without_damage),
    ]
}

pub(crate) const FILES: usize = 3_000;
/// Its name is in three leaves: of the directory by order and by hash, and of the inode.
const HIT: usize = 1_500;
pub(crate) const SECTOR: usize = 4_096;

fn name(number: usize) -> String {
    format!("one-of-many-files-with-a-rather-long-name-{number:04}")
}

fn content(number: usize) -> String {
    format!("what is in file {number}")
}

/// A directory of many files, and a large file.
pub(crate) fn source(bench: &Bench) -> Result<(PathBuf, Vec<u8>)> {
    let source = bench.scratch.dir("source")?;
    let many = source.join("many");
    fs::create_dir_all(&many)?;
    fs::create_dir_all(source.join("below/deeper"))?;
    for number in 0..FILES {
        fs::write(many.join(name(number)), content(number))?;
    }
    let large = Random::new(5).bytes(300 * SECTOR + 100);
    fs::write(source.join("below/large"), &large)?;
    fs::write(source.join("below/deeper/last"), "the last one")?;
    Ok((source, large))
}

/// Where an image has these bytes.
fn places(image: &[u8], wanted: &[u8]) -> Vec<u64> {
    let first = wanted[0];
    let begins = image.iter().enumerate().filter(|(_, byte)| **byte == first).map(|(at, _)| at);
    begins.filter(|at| image[*at..].starts_with(wanted)).map(|at| at as u64).collect()
}

/// The image without three leaves and four sectors of the large file, two of them neighbours.
pub(crate) fn damaged(bench: &Bench, source: &Path, large: &[u8]) -> Result<PathBuf> {
    let image = bench.scratch.file("disk.img");
    mkfs_from(bench.creamery(), &["-m", "single"], source, &image)?;
    let bytes = fs::read(&image)?;
    let leaves = places(&bytes, name(HIT).as_bytes());
    ensure!(leaves.len() == 3, "the name is at {leaves:?}");
    for at in leaves {
        flip_byte(&image, at)?;
    }
    for sector in [0, 100, 101, 300] {
        let data = &large[sector * SECTOR..large.len().min((sector + 1) * SECTOR)];
        let at = places(&bytes, &data[..64]);
        ensure!(at.len() == 1, "sector {sector} is at {at:?}");
        flip_byte(&image, at[0])?;
    }
    Ok(image)
}

fn ignore_errors(bench: &Bench) -> Result<()> {
    let (source, mut large) = source(bench)?;
    let image = damaged(bench, &source, &large)?;
    let out = bench.scratch.dir("out")?;
    let cp = |words: &[&str]| bench.creamery().run(["cp", "-a"]).args(words).arg(inside(&image, "/."));
    let alone = cp(&[]).arg(&out).output()?;
    ensure!(
        alone.code == Some(1) && alone.stderr_text().contains("use --ignore-errors"),
        "the next step: {alone}"
    );
    ensure!(!out.join("below/large").exists(), "a file that is not whole came");
    ensure!(fs::read_to_string(out.join("below/deeper/last"))? == "the last one", "the next file: {alone}");
    fs::remove_dir_all(&out)?;
    fs::create_dir(&out)?;

    let copied = cp(&["--ignore-errors"]).arg(&out).output()?;
    ensure!(copied.code == Some(1), "{copied}");
    let said = copied.stderr_text();
    for words in [
        "/many: some of its entries are lost\n",
        "/below/large: 12388 bytes in 3 places are lost, the first from 0 on\n",
        "1 file lacks 12388 bytes",
    ] {
        ensure!(said.contains(words), "nothing says {words:?}: {copied}");
    }
    for sector in [0, 100, 101, 300] {
        let end = large.len().min((sector + 1) * SECTOR);
        large[sector * SECTOR..end].fill(0);
    }
    ensure!(fs::read(out.join("below/large"))? == large, "other bytes than those of the source and zeros");
    ensure!(fs::read_to_string(out.join("below/deeper/last"))? == "the last one", "behind the damage");
    let mut missing = 0;
    for number in 0..FILES {
        let path = out.join("many").join(name(number));
        let left_out = said.contains(&format!("/many/{}: left out", name(number)));
        match fs::read_to_string(&path) {
            Ok(text) => ensure!(text == content(number) && !left_out, "{} is {text:?}", path.display()),
            Err(_) => missing += 1,
        }
    }
    // A leaf of 16 KiB has fewer than three hundred of these entries.
    ensure!((1..600).contains(&missing), "{missing} files are missing");

    // Into another image comes the same.
    let other = bench.scratch.file("other.img");
    mkfs_empty(bench.creamery(), &[], "256M", &other)?;
    let between = cp(&["--ignore-errors"]).arg(inside(&other, "/")).output()?;
    ensure!(between.code == Some(1), "{between}");
    btrfs_check(&other)?;
    let kernel = LoopMount::mount(&other, &bench.scratch.file("kernel"), "ro")?;
    let compare = Compare { holes: false, ..Compare::default() };
    expect_same("the copy in another image", &Walk::take(&out)?, &Walk::take(kernel.dir())?, &compare)?;
    kernel.unmount()?;

    let cat =
        bench.creamery().run(["cat", "--ignore-errors"]).arg(inside(&image, "/below/large")).output()?;
    ensure!(cat.code == Some(1) && cat.stdout == large, "cat: {}", cat.stderr_text());
    ensure!(cat.stderr_text().contains("12388 bytes in 3 places are lost"), "{}", cat.stderr_text());
    Ok(())
}

/// What one copy cannot be made for ends nothing; a full target does.
fn errors_of_the_target(bench: &Bench) -> Result<()> {
    let (source, large) = source(bench)?;
    let image = damaged(bench, &source, &large)?;
    let out = bench.scratch.dir("out")?;
    fs::create_dir(out.join("below"))?;
    // Something else has the name of a directory.
    fs::write(out.join("below/deeper"), "in the way")?;
    let copied = bench.creamery().run(["cp", "-a", "--ignore-errors"]).arg(inside(&image, "/.")).arg(&out);
    let copied = copied.output()?;
    let said = copied.stderr_text();
    ensure!(copied.code == Some(1) && said.contains("deeper: left out: "), "{copied}");
    ensure!(said.contains("cannot replace it with a directory"), "{copied}");
    let alone = bench.creamery().run(["cp", "-r"]).arg(inside(&image, "/below")).arg(&out).output()?;
    ensure!(!alone.stderr_text().contains("--force"), "a directory replaces no file: {alone}");
    ensure!(out.join("below/large").exists() && out.join("many").join(name(0)).exists(), "{copied}");

    let small = bench.scratch.file("small.img");
    mkfs_empty(bench.creamery(), &["-M"], "16M", &small)?;
    fs::write(bench.scratch.file("filler"), Random::new(3).bytes(512 << 10))?;
    // Until one does not fit, of which nothing is left.
    for number in 0..32 {
        let place = inside(&small, &format!("/filler-{number}"));
        if bench.creamery().run(["cp"]).arg(bench.scratch.file("filler")).arg(place).output()?.code != Some(0)
        {
            break;
        }
    }
    let full = bench.creamery().run(["cp", "-a", "--ignore-errors"]).arg(inside(&image, "/."));
    let full = full.arg(inside(&small, "/")).output()?;
    let last = full.stderr_text().lines().last().context("it says nothing")?.to_owned();
    ensure!(full.code == Some(1) && last.contains("no space left on device"), "{full}");
    Ok(())
}

fn without_damage(bench: &Bench) -> Result<()> {
    let (source, _) = source(bench)?;
    let image = bench.scratch.file("disk.img");
    mkfs_from(bench.creamery(), &[], &source, &image)?;
    let out = bench.scratch.dir("out")?;
    let cp = bench.creamery().run(["cp", "-a", "--ignore-errors"]).arg(inside(&image, "/.")).arg(&out);
    let copied = cp.ok()?;
    ensure!(copied.stderr_text().is_empty(), "{copied}");
    // What cannot be written to is the host's, whichever way the file is read.
    for words in ["cat", "cat --ignore-errors"] {
        let script = format!("exec \"$0\" {words} \"$1\" > /dev/full");
        let full = Run::new("sh").args(["-c", &script]).arg(bench.creamery().path());
        let full = full.arg(inside(&image, "/below/large")).output()?;
        let said = full.stderr_text();
        ensure!(
            full.code == Some(1) && said.starts_with("creamery: cat: writing to standard output: "),
            "{full}"
        );
    }
    expect_same("the copy", &Walk::take(&source)?, &Walk::take(&out)?, &Compare::default())
}
