//! Discarding free space on the host.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, until};

use crate::support::{JUDGED, MOUNTED, expect_refusal, judge, judge_mount, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let with_users = [&MOUNTED[..], &[Judge::Tool("setpriv")]].concat();
    vec![
        Case::new("discard/what-the-kernel-left-free", &JUDGED, trim_of_the_kernels),
        Case::new("discard/a-trimmed-image-takes-what-is-used", &MOUNTED, trim_of_ours),
        Case::new("discard/a-mount-gives-back-what-is-removed", &MOUNTED, by_option),
        Case::new("discard/trimming-is-for-the-mounter", &with_users, refused),
    ]
}

const MIB: u64 = 1 << 20;
/// Bytes of the large files.
const LARGE: u64 = 24 * MIB;

/// Bytes that an image occupies on the host.
fn taken(image: &Path) -> Result<u64> {
    Ok(std::fs::metadata(image)?.blocks() * 512)
}

/// Makes large files, every other one of which `remove_some` removes, and small ones that stay.
fn fill(dir: &Path) -> Result<()> {
    let mut random = Random::new(1);
    for number in 0..4 {
        std::fs::write(dir.join(format!("large-{number}")), random.bytes(LARGE as usize))?;
        for small in 0..200 {
            std::fs::write(dir.join(format!("small-{number}-{small}")), random.bytes(3000 + 40 * small))?;
        }
    }
    sync(dir)
}

fn sync(dir: &Path) -> Result<()> {
    Run::new("sync").arg("-f").arg(dir).ok().map(drop)
}

fn remove_some(dir: &Path) -> Result<()> {
    for number in [0, 2] {
        std::fs::remove_file(dir.join(format!("large-{number}")))?;
        for small in (0..200).step_by(2) {
            std::fs::remove_file(dir.join(format!("small-{number}-{small}")))?;
        }
    }
    Ok(())
}

/// The output of `creamery filesystem trim --json`.
fn trim(bench: &Bench, place: &Path) -> Result<u64> {
    let said = bench.creamery().run(["filesystem", "trim", "--json"]).arg(place).ok()?.stdout_text();
    let said: serde_json::Value = serde_json::from_str(&said)?;
    said["trimmed_bytes"].as_u64().context("a number")
}

fn trim_of_the_kernels(bench: &Bench) -> Result<()> {
    for options in [&["-m", "dup"][..], &["--mixed"], &["-n", "4096", "-O", "^no-holes", "-m", "single"]] {
        let image = bench.scratch.file(&format!("disk{}.img", options.concat()));
        File::create(&image)?.set_len(400 * MIB)?;
        Run::new("mkfs.btrfs").arg("-q").args(options).arg(&image).ok()?;
        // A loop device passes discards on; this kernel mount makes none.
        let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "nodiscard")?;
        fill(mount.dir())?;
        remove_some(mount.dir())?;
        let want = Walk::take(mount.dir())?;
        mount.unmount()?;
        let before = taken(&image)?;
        let told = trim(bench, &image)?;
        let after = taken(&image)?;
        ensure!(told > 2 * LARGE, "{options:?}: {told} bytes were trimmed");
        ensure!(after + 2 * LARGE <= before, "{options:?}: {before} bytes of the host before, {after} after");
        judge(bench, &image, &want, &Compare { atime: false, ..Compare::default() })?;
        ensure!(trim(bench, &image)? > 0, "trimmed once more");
        judge(bench, &image, &want, &Compare { atime: false, ..Compare::default() })?;
    }
    Ok(())
}

fn trim_of_ours(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "commit=3600")?;
    fill(mount.dir())?;
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    let full = taken(&image)?;
    remove_some(mount.dir())?;
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    ensure!(taken(&image)? + MIB > full, "nobody asked for anything");
    // While other files are written.
    let dir = mount.dir().to_owned();
    let writes = thread::spawn(move || {
        (0..300).try_for_each(|number| std::fs::write(dir.join(format!("beside-{number}")), [7; 20_000]))
    });
    for _ in 0..5 {
        trim(bench, mount.dir())?;
    }
    writes.join().expect("no panic")?;
    trim(bench, mount.dir())?;
    let after = taken(&image)?;
    ensure!(after + 2 * LARGE <= full + 8 * MIB, "{full} bytes of the host before, {after} after");
    let minimum =
        bench.creamery().run(["filesystem", "trim", "-m", "1T"]).arg(mount.dir()).ok()?.stdout_text();
    ensure!(minimum.contains("(0 bytes) trimmed"), "{minimum}");
    // With the request of util-linux.
    let said = Run::new("fstrim").arg("-v").arg(mount.dir()).ok()?.stdout_text();
    ensure!(said.contains("bytes) trimmed") && !said.contains("(0 bytes)"), "{said}");
    judge_mount(bench, &image, mount)
}

fn by_option(bench: &Bench) -> Result<()> {
    for option in ["discard=async", "discard=sync", "discard"] {
        let image = bench.scratch.file(&format!("{option}.img"));
        mkfs_empty(bench.creamery(), &[], "512M", &image)?;
        let options = format!("commit=3600,{option}");
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), &options)?;
        fill(mount.dir())?;
        bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
        let full = taken(&image)?;
        remove_some(mount.dir())?;
        bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
        until(&format!("{option} to give back {} of {full} bytes", 2 * LARGE), || {
            Ok(taken(&image)? + 2 * LARGE <= full + MIB)
        })?;
        // The space that the last commit frees is discarded before the server ends.
        std::fs::remove_file(mount.dir().join("large-1"))?;
        judge_mount(bench, &image, mount)?;
        ensure!(taken(&image)? + 3 * LARGE <= full + 2 * MIB, "{option}: {} bytes are left", taken(&image)?);
    }
    Ok(())
}

fn refused(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    expect_refusal(
        bench.creamery().run(["filesystem", "trim"]).arg(bench.scratch.path()),
        &["not", "mount"],
    )?;
    expect_refusal(bench.creamery().run(["filesystem", "trim", "-m", "1X"]).arg(&image), &["1X"])?;
    let options =
        bench.creamery().run(["mount", "-o", "discard=later"]).arg(&image).arg(bench.scratch.path());
    expect_refusal(options, &["discard=later", "sync or async"])?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "allow_other")?;
    // The image is in use.
    expect_refusal(bench.creamery().run(["filesystem", "trim"]).arg(&image), &["disk.img"])?;
    let nobody = Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    let open = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
    };
    open(bench.scratch.path())?;
    let copy = bench.scratch.file("creamery");
    bench.creamery().copy_to(&copy)?;
    let fstrim =
        Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "fstrim"]);
    expect_refusal(fstrim.arg(mount.dir()), &["not permitted"])?;
    expect_refusal(nobody.arg(&copy).args(["filesystem", "trim"]).arg(mount.dir()), &["not permitted"])?;
    mount.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "ro,discard=async")?;
    expect_refusal(bench.creamery().run(["filesystem", "trim"]).arg(mount.dir()), &["read"])?;
    mount.unmount()
}
