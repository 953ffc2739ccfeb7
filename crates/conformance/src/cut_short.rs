//! Images that end before their filesystem does, as a copy that was broken off leaves them: reading goes as far as the file does.

use std::fs::File;
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, LoopMount, Random, Run};

use crate::support::{MOUNTED, expect_refusal, expect_untouched, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("rescue/of-a-device-that-ends-early", &MOUNTED, ends_early),
        Case::new("rescue/of-a-partition-that-ends-early", &MOUNTED, partition_ends_early),
        Case::new("rescue/of-a-device-that-ends-in-data", &MOUNTED, ends_in_data),
    ]
}

const SIZE: u64 = 256 << 20;

/// An image with files, and their walk.
fn filled(bench: &Bench, image: &Path) -> Result<Walk> {
    mkfs_empty(bench.creamery(), &[], "256M", image)?;
    let mount = LoopMount::mount(image, &bench.scratch.file("kernel"), "noatime")?;
    let mut random = Random::new(17);
    std::fs::create_dir(mount.dir().join("folder"))?;
    for number in 0..40 {
        std::fs::write(mount.dir().join(format!("folder/file-{number}")), random.bytes(number * 7_000))?;
    }
    let walk = Walk::take(mount.dir())?;
    mount.unmount()?;
    Ok(walk)
}

/// A mebibyte without data is missing: every file can be read, as `btrfs restore` reads them; writing is refused with both sizes.
fn ends_early(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let want = filled(bench, &image)?;
    File::options().write(true).open(&image)?.set_len(SIZE - (1 << 20))?;
    let (creamery, compare) = (bench.creamery(), Compare::default());
    expect_untouched(&image, || {
        let (ours, theirs) = (bench.scratch.dir("ours")?, bench.scratch.dir("theirs")?);
        Run::new("btrfs").args(["restore", "-m"]).args([&image, &theirs]).ok()?;
        let said = creamery.run(["restore", "-m"]).args([&image, &ours]).ok()?.stderr_text();
        ensure!(said.contains("267386880") && said.contains("268435456"), "no note of both sizes: {said}");
        expect_same("what was restored", &Walk::take(&theirs)?, &Walk::take(&ours)?, &compare)?;
        let copied = bench.scratch.file("copied");
        creamery.run(["cp", "-a"]).arg(inside(&image, "/")).arg(&copied).ok()?;
        expect_same("what was copied", &want, &Walk::take(&copied)?, &compare)?;
        let mount = FuseMount::mount(creamery, &image, &bench.scratch.file("fuse"), "ro")?;
        expect_same("a mount", &want, &Walk::take(mount.dir())?, &compare)?;
        mount.unmount()?;
        let checked = creamery.run(["check"]).arg(&image).output()?;
        ensure!(checked.code == Some(4) && checked.stdout_text().contains("309"), "{checked}");
        let both = ["267386880", "268435456", "creamery restore"];
        expect_refusal(creamery.run(["mkdir"]).arg(inside(&image, "/new")), &both)?;
        expect_refusal(creamery.run(["mount"]).arg(&image).arg(bench.scratch.dir("point")?), &both)
    })
}

/// The disk that the partition lies in ends a mebibyte early.
fn partition_ends_early(bench: &Bench) -> Result<()> {
    let (image, disk) = (bench.scratch.file("disk.img"), bench.scratch.file("whole.img"));
    let want = filled(bench, &image)?;
    File::create_new(&disk)?.set_len(SIZE + (2 << 20))?;
    Run::new("sfdisk").arg("-q").arg(&disk).input("label: dos\nstart=2048, size=524288, type=83\n").ok()?;
    let (from, to) = (format!("if={}", image.display()), format!("of={}", disk.display()));
    Run::new("dd").args([&from, &to]).args(["bs=1M", "seek=1", "conv=notrunc,sparse", "status=none"]).ok()?;
    File::options().write(true).open(&disk)?.set_len(SIZE)?;
    let mut part = disk.clone().into_os_string();
    part.push("@1");
    let part = Path::new(&part);
    expect_untouched(&disk, || {
        let copied = bench.scratch.file("copied");
        let said = bench.creamery().run(["cp", "-a"]).arg(inside(part, "/")).arg(&copied).ok()?.stderr_text();
        ensure!(said.contains("expected at most 268435456"), "no note of the end: {said}");
        expect_same("what was copied", &want, &Walk::take(&copied)?, &Compare::default())?;
        expect_refusal(bench.creamery().run(["mkdir"]).arg(inside(part, "/new")), &["expected at most"])
    })
}

/// The end lies within the data: the files before it are whole, and each file behind it is named.
fn ends_in_data(bench: &Bench) -> Result<()> {
    const FILES: u64 = 20;
    let content = |number: u64| Random::new(number).bytes(8 << 20);
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
    for number in 0..FILES {
        std::fs::write(mount.dir().join(format!("file-{number}")), content(number))?;
        Run::new("sync").arg("-f").arg(mount.dir()).ok()?;
    }
    mount.unmount()?;
    File::options().write(true).open(&image)?.set_len(SIZE / 2)?;
    let copied = bench.scratch.file("copied");
    let said = bench.creamery().run(["cp", "-a", "--ignore-errors"]).arg(inside(&image, "/")).arg(&copied);
    let said = said.output()?;
    ensure!(said.code == Some(1), "{said}");
    let (mut whole, mut lost) = (0, 0);
    for number in 0..FILES {
        let name = format!("file-{number}");
        if std::fs::read(copied.join(&name)).is_ok_and(|read| read == content(number)) {
            whole += 1;
        } else {
            ensure!(said.stderr_text().contains(&name), "{name} is lost without a word: {said}");
            lost += 1;
        }
    }
    ensure!(whole > 2 && lost > 2, "{whole} files are whole, {lost} lost");
    Ok(())
}
