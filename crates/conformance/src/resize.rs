//! Filesystems that grow: all sizes in the filesystem agree, and Linux and we use the new space.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopDevice, LoopMount, Random, Run, btrfs_check, sync_filesystem};

use crate::support::{JUDGED, MOUNTED, expect_refusal, expect_untouched, inside, mkfs_empty, sparse_file};

const MIB: u64 = 1 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let with_partitions = [&JUDGED[..], &[Judge::Tool("sfdisk")]].concat();
    vec![
        Case::new("resize/image", &JUDGED, image),
        Case::new("resize/live-mount", &MOUNTED, live_mount),
        Case::new("resize/made-longer-by-others", &MOUNTED, by_others),
        Case::new("resize/at-once", &MOUNTED, at_once),
        Case::new("resize/label-of-a-live-mount", &MOUNTED, live_label),
        Case::new("resize/partition", &with_partitions, partition),
        Case::new("resize/block-device", &JUDGED, block_device),
        Case::new("resize/third-superblock", &JUDGED, third_superblock),
        Case::new("resize/refused", &[Judge::Program], refused),
    ]
}

/// A number in the output of `dump-super`.
fn told(image: &Path, field: &str) -> Result<u64> {
    let said = Run::new("btrfs").args(["inspect-internal", "dump-super"]).arg(image).ok()?.stdout_text();
    let line = said.lines().find_map(|line| line.strip_prefix(field)).context("a field that there is")?;
    Ok(line.trim().parse()?)
}

/// Checks that every program reports `bytes` as the size of the filesystem.
fn expect_size(bench: &Bench, image: &Path, bytes: u64) -> Result<()> {
    for field in ["total_bytes", "dev_item.total_bytes"] {
        let found = told(image, field)?;
        ensure!(found == bytes, "{field} is {found}, not {bytes}");
    }
    let dump = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "chunk"]).arg(image).ok()?;
    ensure!(dump.stdout_text().contains(&format!("devid 1 total_bytes {bytes} ")), "the device's item");
    for program in ["btrfs", bench.creamery().path().to_str().context("a path")?] {
        let said = Run::new(program).args(["filesystem", "show", "--raw"]).arg(image).ok()?.stdout_text();
        ensure!(said.contains(&format!(" size {bytes} used ")), "{program}: {said}");
    }
    bench.creamery().run(["check", "--check-data-csum"]).arg(image).ok()?;
    btrfs_check(image)
}

/// Writes files until `bytes` are written and durable.
fn fill(dir: &Path, name: &str, bytes: u64) -> Result<()> {
    let piece = Random::new(7).bytes(1 << 20);
    let mut file = File::create_new(dir.join(name))?;
    (0..bytes / MIB).try_for_each(|_| file.write_all(&piece))?;
    sync_filesystem(dir)
}

/// An image that was full; we fill its new space, then Linux does.
fn image(bench: &Bench) -> Result<()> {
    let creamery = bench.creamery();
    let (image, link) = (bench.scratch.file("disk.img"), bench.scratch.file("btrfs"));
    sparse_file(&image, 128 * MIB)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&image).ok()?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    let full = fill(mount.dir(), "full", 128 * MIB);
    ensure!(full.is_err(), "128 MiB of data fit into 128 MiB");
    mount.unmount()?;

    let resize = |size: &str| creamery.run(["filesystem", "resize", size]).arg(&image).ok();
    let said = resize("256M")?.stdout_text();
    ensure!(
        said == format!("Resize device id 1 ({}) from 128.00MiB to 256.00MiB\n", image.display()),
        "{said}"
    );
    ensure!(image.metadata()?.len() == 256 * MIB, "the file is as long");
    expect_size(bench, &image, 256 * MIB)?;
    let source = bench.scratch.file("source");
    std::fs::write(&source, Random::new(1).bytes(64 << 20))?;
    creamery.run(["cp"]).arg(&source).arg(inside(&image, "/ours")).ok()?;
    expect_size(bench, &image, 256 * MIB)?;

    // The state after a resize that was cut off: the file is longer, the filesystem is not. And the end is not on a sector boundary.
    File::options().write(true).open(&image)?.set_len(384 * MIB + 1000)?;
    expect_size(bench, &image, 256 * MIB)?;
    symlink(creamery.path(), &link)?;
    let run = Run::new(&link).args(["fi", "resi", "1:max"]).arg(&image).ok()?;
    ensure!(run.stdout_text().ends_with("from 256.00MiB to max\n"), "{run}");
    expect_size(bench, &image, 384 * MIB)?;
    resize("+1000")?;
    expect_size(bench, &image, 384 * MIB)?;
    resize("+1m")?;
    expect_size(bench, &image, 385 * MIB)?;

    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    fill(mount.dir(), "theirs", 64 * MIB)?;
    let usage = Run::new("btrfs").args(["filesystem", "usage", "-b"]).arg(mount.dir()).ok()?.stdout_text();
    let size = usage.lines().find_map(|line| line.trim().strip_prefix("Device size:"));
    ensure!(size.is_some_and(|size| size.trim() == (385 * MIB).to_string()), "{usage}");
    ensure!(std::fs::read(mount.dir().join("ours"))? == std::fs::read(&source)?, "what we wrote");
    mount.unmount()?;
    expect_size(bench, &image, 385 * MIB)
}

/// Resizes while files are written; the result is durable when the command ends.
fn live_mount(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    let free = || -> Result<u64> {
        let said = Run::new("stat").args(["-f", "-c", "%b %s"]).arg(mount.dir()).ok()?.stdout_text();
        let (blocks, size) = said.trim().split_once(' ').context("two numbers")?;
        Ok(blocks.parse::<u64>()? * size.parse::<u64>()?)
    };
    ensure!(free()? == 128 * MIB, "to begin with");
    ensure!(fill(mount.dir(), "full", 128 * MIB).is_err(), "128 MiB of data fit into 128 MiB");
    bench.creamery().run(["filesystem", "resize", "+128M"]).arg(mount.dir()).ok()?;
    expect_size_of_copy(bench, &image, 256 * MIB)?;
    ensure!(free()? == 256 * MIB, "the mount has {} bytes", free()?);
    fill(mount.dir(), "more", 64 * MIB)?;
    let shown = mount.dir().display().to_string();
    expect_refusal(
        bench.creamery().run(["filesystem", "resize", "-1M", &shown]),
        &[&shown, "cannot shrink"],
    )?;
    mount.unmount()?;
    expect_size(bench, &image, 256 * MIB)
}

/// The present length of a mounted image counts, and no image shrinks.
fn by_others(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    let resize = |size: &str| bench.creamery().run(["filesystem", "resize", size]).arg(mount.dir()).ok();
    let longer = |len: u64| std::fs::File::options().write(true).open(&image)?.set_len(len);
    longer(512 * MIB)?;
    resize("200M")?;
    expect_size_of_copy(bench, &image, 200 * MIB)?;
    ensure!(image.metadata()?.len() == 512 * MIB, "it was cut to {}", image.metadata()?.len());
    resize("max")?;
    expect_size_of_copy(bench, &image, 512 * MIB)?;
    mount.unmount()?;
    expect_size(bench, &image, 512 * MIB)
}

/// Several commands resize at once, and none takes away space that another one added.
fn at_once(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    for round in 0..10_u64 {
        let results: Vec<Result<_>> = std::thread::scope(|scope| {
            let one = |more: u64| {
                let size = format!("+{}M", 1 + (more * 7 + round) % 5);
                bench.creamery().run(["filesystem", "resize", &size]).arg(mount.dir()).ok()
            };
            let all: Vec<_> = (0..6).map(|more| scope.spawn(move || one(more))).collect();
            all.into_iter().map(|one| one.join().expect("it ends")).collect()
        });
        results.into_iter().collect::<Result<Vec<_>>>()?;
        std::fs::write(mount.dir().join(round.to_string()), vec![7; 300_000])?;
    }
    mount.unmount()?;
    let superblock = bench.creamery().run(["filesystem", "show", "--json"]).arg(&image).ok()?.stdout_text();
    let shown: serde_json::Value = serde_json::from_str(&superblock)?;
    let size = shown[0]["devices"][0]["size"].as_u64().context("a size")?;
    ensure!(size > 128 * MIB && size <= image.metadata()?.len(), "{size} of {}", image.metadata()?.len());
    btrfs_check(&image)
}

/// A user without permission to set the label can read it; a new label is durable when the command ends.
fn live_label(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-L", "first"], "128M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "allow_other")?;
    let label = |words: &[&str]| {
        bench
            .creamery()
            .run(["filesystem", "label"])
            .arg(mount.dir())
            .args(words)
            .ok()
            .map(|run| run.stdout_text())
    };
    ensure!(label(&[])? == "first\n", "to begin with");
    ensure!(label(&["second"])?.is_empty() && label(&[])? == "second\n", "after the change");
    let shown = mount.dir().display().to_string();
    expect_refusal(bench.creamery().run(["filesystem", "label", &shown, "a\nb"]), &["label"])?;
    let copy = bench.scratch.file("copy.img");
    Run::new("cp").arg("--sparse=always").arg(&image).arg(&copy).ok()?;
    let theirs = Run::new("btrfs").args(["filesystem", "label"]).arg(&copy).ok()?.stdout_text();
    ensure!(theirs == "second\n", "btrfs-progs: {theirs}");
    mount.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "ro")?;
    let shown = mount.dir().display().to_string();
    expect_refusal(bench.creamery().run(["filesystem", "label", &shown, "third"]), &["read-only"])?;
    mount.unmount()?;
    btrfs_check(&image)
}

/// A copy of the image is the state after a power cut.
fn expect_size_of_copy(bench: &Bench, image: &Path, bytes: u64) -> Result<()> {
    let copy = bench.scratch.file("copy.img");
    Run::new("cp").arg("--sparse=always").arg(image).arg(&copy).ok()?;
    expect_size(bench, &copy, bytes)
}

/// The filesystem fills its partition and never the space behind it.
fn partition(bench: &Bench) -> Result<()> {
    let (disk, part) = (bench.scratch.file("disk.raw"), bench.scratch.file("disk.raw@1"));
    sparse_file(&disk, 320 * MIB)?;
    let table = "label: gpt\nstart=1MiB, size=256MiB\nstart=257MiB, size=16MiB\n";
    Run::new("sfdisk").arg("-q").arg(&disk).input(table).ok()?;
    File::options().write(true).open(&disk)?.write_all_at(b"behind", 257 * MIB)?;
    bench.creamery().run(["mkfs", "-q", "-b", "128M"]).arg(&part).ok()?;
    let resize = |size: &str| bench.creamery().run(["filesystem", "resize", size]).arg(&part);
    expect_untouched(&disk, || expect_refusal(resize("257M"), &["256.00MiB", "257.00MiB", "partition"]))?;
    resize("max").ok()?;
    let said = bench.creamery().run(["filesystem", "show", "--raw"]).arg(&part).ok()?.stdout_text();
    ensure!(said.contains(&format!(" size {} used ", 256 * MIB)), "{said}");
    bench.creamery().run(["check"]).arg(&part).ok()?;
    let mut behind = [0; 6];
    File::open(&disk)?.read_exact_at(&mut behind, 257 * MIB)?;
    ensure!(&behind == b"behind" && disk.metadata()?.len() == 320 * MIB, "what is behind the partition");
    let device = LoopDevice::attach_disk(&disk)?;
    btrfs_check(&device.partition(1)?)?;
    device.detach()
}

fn block_device(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    File::options().write(true).open(&image)?.set_len(200 * MIB)?;
    let device = LoopDevice::attach(&image, false)?;
    let resize = |size: &str| bench.creamery().run(["filesystem", "resize", size]).arg(device.path());
    expect_refusal(resize("1G"), &["1.00GiB", "200.00MiB", "block device"])?;
    resize("max").ok()?;
    device.detach()?;
    expect_size(bench, &image, 200 * MIB)
}

/// Beyond 256 GiB there is a third superblock.
fn third_superblock(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    bench.creamery().run(["filesystem", "resize", "257G"]).arg(&image).ok()?;
    expect_size(bench, &image, 257 << 30)?;
    let dump = |copy| Run::new("btrfs").args(["inspect-internal", "dump-super", "-s", copy]).arg(&image).ok();
    let generation = |said: String| -> Option<String> {
        said.lines().find_map(|line| line.strip_prefix("generation").map(|number| number.trim().to_owned()))
    };
    let [first, third] = [generation(dump("0")?.stdout_text()), generation(dump("2")?.stdout_text())];
    ensure!(first.is_some() && first == third, "{first:?} and {third:?}");
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    std::fs::write(mount.dir().join("file"), "content")?;
    mount.unmount()
}

fn refused(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "200M", &image)?;
    expect_untouched(&image, || {
        for (size, words) in [
            ("-1M", &["disk.img", "199.00MiB", "cannot shrink"][..]),
            ("100M", &["100.00MiB", "cannot shrink"]),
            ("2:max", &["no device 2"]),
            ("+16E", &["size"]),
            ("cancel", &["cancel"]),
            ("x:1G", &["'x'"]),
        ] {
            let run = bench.creamery().run(["filesystem", "resize", size]).arg(&image).output()?;
            let said = run.stderr_text().to_lowercase();
            ensure!(run.code.is_some_and(|code| (1..=2).contains(&code)), "{size}: {run}");
            ensure!(words.iter().all(|word| said.contains(&word.to_lowercase())), "{size}: {run}");
        }
        Ok(())
    })
}
