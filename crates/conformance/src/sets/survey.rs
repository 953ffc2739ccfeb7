//! `device survey` beside the kernel, with members taken away.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{LoopDevice, LoopMount, Run};
use serde_json::Value;

use crate::support::{JUDGED, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("sets/survey", &JUDGED, survey)]
}

const FILES: usize = 40;
const FILE_BYTES: usize = 4 << 20;

/// Three members with all metadata twice and data once, filled by the kernel.
fn filled(bench: &Bench) -> Result<Vec<PathBuf>> {
    let files: Vec<PathBuf> =
        (1..=3).map(|number| bench.scratch.file(&format!("member-{number}.img"))).collect();
    files.iter().try_for_each(|file| sparse_file(file, 256 << 20))?;
    Run::new("mkfs.btrfs").args(["-q", "-m", "raid1", "-d", "single"]).args(&files).ok()?;
    with_mount(bench, &files, "rw", |dir| {
        std::fs::create_dir(dir.join("small"))?;
        std::fs::write(dir.join("small/inline"), "in the tree")?;
        for number in 0..FILES {
            std::fs::write(dir.join(format!("file-{number}")), vec![u8::try_from(number)?; FILE_BYTES])?;
        }
        Ok(())
    })?;
    Ok(files)
}

/// What `work` makes of the kernel's mount of these members.
fn with_mount<T>(
    bench: &Bench,
    files: &[PathBuf],
    options: &str,
    work: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    let Some((first, others)) = files.split_first() else { anyhow::bail!("no member") };
    let read_only = options.contains("ro");
    let loops = others.iter().map(|file| LoopDevice::attach(file, read_only)).collect::<Result<Vec<_>>>()?;
    let paths = || loops.iter().map(LoopDevice::path);
    if !loops.is_empty() {
        Run::new("btrfs").args(["device", "scan"]).args(paths()).ok()?;
    }
    let mut mount = LoopMount::mount(first, &bench.scratch.file("kernel"), options)?;
    let made = work(mount.dir());
    mount.unmount_and_tell()?;
    if !loops.is_empty() {
        Run::new("btrfs").args(["device", "scan", "--forget"]).args(paths()).ok()?;
    }
    loops.into_iter().try_for_each(LoopDevice::detach)?;
    made
}

/// Files that the kernel cannot read.
fn unreadable(dir: &Path) -> Result<u64> {
    let bad = (0..FILES).filter(|number| std::fs::read(dir.join(format!("file-{number}"))).is_err()).count();
    ensure!(std::fs::read(dir.join("small/inline"))? == b"in the tree", "what is in the tree is there");
    Ok(bad as u64)
}

/// As many files are lost with a member as the kernel cannot read without it; two members take the metadata with them.
fn survey(bench: &Bench) -> Result<()> {
    let files = filled(bench)?;
    let said = bench.creamery().run(["device", "survey", "--files", "--json"]).arg(&files[1]).ok()?;
    let said: Value = serde_json::from_slice(&said.stdout)?;
    ensure!(said["files"] == FILES as u64 + 1, "{said}");
    let losses = said["losses"].as_array().context("losses")?;
    let of = |devices: &[u64]| -> Result<&Value> {
        losses
            .iter()
            .find(|loss| loss["devices"] == Value::from(devices))
            .with_context(|| format!("{devices:?}"))
    };
    ensure!(of(&[])?["files"] == 0 && losses.len() == 7, "{said}");
    let mut lost_once = 0;
    for (number, device) in (1..=3_u64).enumerate() {
        let left: Vec<PathBuf> = files
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number)
            .map(|(_, file)| file.clone())
            .collect();
        let without = with_mount(bench, &left, "degraded,ro", unreadable)?;
        let loss = of(&[device])?;
        ensure!(
            loss["files"] == without && loss["trees"] == false,
            "{loss}, and the kernel misses {without}"
        );
        lost_once += without;
        // The names are those that cannot be read.
        let named = said["lost"].as_array().context("names")?.iter();
        let named = named.filter(|file| {
            file["with"].as_array().is_some_and(|with| with.contains(&Value::from(vec![device])))
        });
        ensure!(named.count() as u64 == without, "the names of device {device}");
    }
    ensure!(lost_once >= FILES as u64, "each file lies somewhere");
    for pair in [[1, 2], [1, 3], [2, 3]] {
        let loss = of(&pair)?;
        let all = loss["trees"] == true && loss["files"] == FILES as u64 + 1;
        ensure!(all || loss["trees"] == false, "{loss}");
    }
    let text = bench.creamery().run(["device", "survey"]).args(&files).ok()?;
    let text = String::from_utf8(text.stdout)?;
    ensure!(text.contains("nothing more") && text.contains("devices 2 and 3"), "{text}");
    Ok(())
}
