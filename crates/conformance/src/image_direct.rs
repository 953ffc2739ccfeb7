//! `--direct-io`: an image or a block device that is read and written past the host's page cache, judged by Linux.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, Judge, LoopDevice, LoopMount, Run, btrfs_check};

use crate::support::{
    JUDGED, MOUNTED, expect_failure, expect_refusal, inside, judge_mount, mkfs_empty, sparse_file, stats,
    torture_source,
};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("image-direct/block-device", &JUDGED, block_device),
        Case::new("image-direct/file", &JUDGED, file),
        Case::new("image-direct/mount", &MOUNTED, mount),
        Case::new("image-direct/file-without-it", &[Judge::Program], without_it),
        Case::new("image-direct/words", &[Judge::Program], words),
    ]
}

/// Fills the empty filesystem on `image` past the cache, and reads it past the cache.
fn fill_and_read(bench: &Bench, image: &Path) -> Result<Walk> {
    let (source, want) = torture_source(bench)?;
    bench.creamery().run(["cp", "-a", "--direct-io"]).arg(&source).arg(inside(image, "/tree")).ok()?;
    for (name, options) in [("past", &["--direct-io"][..]), ("through", &[])] {
        let to = bench.scratch.file(name);
        bench.creamery().run(["cp", "-a"]).args(options).arg(inside(image, "/tree")).arg(&to).ok()?;
        expect_same(name, &want, &Walk::take(&to)?, &Compare::default())?;
    }
    for command in [&["check", "--check-data-csum"][..], &["scrub", "start", "-B", "-r"], &["history"]] {
        bench.creamery().run(command).arg("--direct-io").arg(image).ok()?;
    }
    Ok(want)
}

/// `btrfs check --check-data-csum`, and what the kernel reads.
fn judge(bench: &Bench, image: &Path, want: &Walk) -> Result<()> {
    btrfs_check(image)?;
    let mount = LoopMount::mount(image, &bench.scratch.file("judge"), "ro,noatime")?;
    expect_same("the kernel's view", want, &Walk::take(&mount.dir().join("tree"))?, &Compare::default())?;
    mount.unmount()
}

fn block_device(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let device = LoopDevice::attach(&image, false)?;
    let want = fill_and_read(bench, device.path())?;
    device.detach()?;
    judge(bench, &image, &want)
}

/// An image on the Btrfs of Linux, which has direct I/O and does not say what it asks of it.
fn file(bench: &Bench) -> Result<()> {
    let host = bench.scratch.file("host.img");
    sparse_file(&host, 1 << 30)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&host).ok()?;
    let mount = LoopMount::mount(&host, &bench.scratch.file("host"), "")?;
    let image = mount.dir().join("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let want = fill_and_read(bench, &image)?;
    judge(bench, &image, &want)?;
    mount.unmount()?;
    btrfs_check(&host)
}

fn mount(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let device = LoopDevice::attach(&image, false)?;
    let dir = bench.scratch.file("fuse");
    let mount = FuseMount::mount(bench.creamery(), device.path(), &dir, "directio")?;
    std::fs::write(mount.dir().join("file"), vec![7; 3 << 20])?;
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    let said = stats(bench, mount.dir())?;
    let count = |name: &str| {
        let at = format!("/filesystem/volume/device_direct{name}");
        said.pointer(&at).and_then(serde_json::Value::as_u64).with_context(|| format!("no number at {at}"))
    };
    ensure!(count("")? > 5 && count("_cached")? == 0, "not past the cache: {said:#}");
    judge_mount(bench, device.path(), mount)?;
    device.detach()
}

/// A file in memory has no direct I/O.
fn without_it(bench: &Bench) -> Result<()> {
    const TMPFS: u64 = 0x0102_1994;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let here = u64::try_from(rustix::fs::statfs(&image)?.f_type)?;
    if here != TMPFS {
        println!("skipped: scratch folders are not in memory");
        return Ok(());
    }
    let new = inside(&image, "/new");
    for (command, place) in [("ls", image.as_os_str()), ("check", image.as_os_str()), ("mkdir", &new)] {
        let run = bench.creamery().run([command, "--direct-io"]).arg(place);
        expect_failure(run, &["direct I/O", "tmpfs", "leave out --direct-io"])?;
    }
    let mount = bench.creamery().run(["mount", "-o", "directio"]).arg(&image).arg(bench.scratch.dir("dir")?);
    expect_failure(mount, &["tmpfs", "leave out -o directio"])?;
    bench.creamery().run(["mkdir"]).arg(&new).ok().map(drop)
}

fn words(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let dir = bench.scratch.dir("mounted")?;
    let mount = |option: &str| bench.creamery().run(["mount", "-o", option]).arg(&image).arg(&dir);
    expect_refusal(mount("direct_io"), &["direct_io", "use directio"])?;
    expect_failure(bench.creamery().run(["stats", "--direct-io"]).arg(&image), &["--direct-io"])?;
    Ok(())
}
