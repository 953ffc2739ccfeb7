//! A damaged first superblock: only it leads to data synced after the last commit, so writing without it needs an explicit option.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Run, btrfs_check};

use crate::support::{MOUNTED, expect_refusal, expect_untouched, flip_byte, inside, mkfs_empty};
use crate::tree_log::{LOG_ROOT_AT, superblock_word};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("superblock/first-damaged", &MOUNTED, first_damaged)]
}

/// A byte of the first superblock's label, which a checksum covers.
const DAMAGED_AT: u64 = 0x10000 + 300;
const COMMITTED: &[u8] = b"committed";
const SYNCED: &[u8] = b"as synced";

/// An image in which a file was synced after the last commit; if a commit falls due meanwhile, it tries again.
pub(crate) fn with_a_log(bench: &Bench) -> Result<PathBuf> {
    let (image, cut) = (bench.scratch.file("disk.img"), bench.scratch.file("cut.img"));
    for _ in 0..10 {
        mkfs_empty(bench.creamery(), &[], "256M", &image)?;
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "commit=300")?;
        let path = mount.dir().join("file");
        std::fs::write(&path, COMMITTED)?;
        bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
        let file = File::options().write(true).open(&path)?;
        file.write_all_at(SYNCED, 0)?;
        file.sync_all()?;
        Run::new("cp").arg("--sparse=always").args([&image, &cut]).ok()?;
        drop(file);
        mount.unmount()?;
        if superblock_word(&cut, LOG_ROOT_AT)? != 0 {
            return Ok(cut);
        }
        std::fs::remove_file(&image)?;
    }
    bail!("an fsync left no log")
}

fn expect_content(bench: &Bench, image: &Path, want: &[u8]) -> Result<()> {
    let found = bench.creamery().run(["cat"]).arg(inside(image, "/file")).ok()?.stdout_text();
    ensure!(found.as_bytes() == want, "{}: {found}", image.display());
    Ok(())
}

fn expect_writers_refused(bench: &Bench, image: &Path) -> Result<()> {
    let name = image.file_name().unwrap_or_default().to_string_lossy();
    let words = [&*name, "superblock at 65536 is damaged", "later changes", "read-only", "usesupercopy"];
    let run = |args: &[&str]| bench.creamery().run(args);
    let point = bench.scratch.dir("point")?;
    expect_untouched(image, || {
        expect_refusal(run(&["mkdir"]).arg(inside(image, "/new")), &words)?;
        expect_refusal(run(&["rm"]).arg(inside(image, "/file")), &words)?;
        expect_refusal(run(&["cp", "/etc/hostname"]).arg(inside(image, "/new")), &words)?;
        expect_refusal(run(&["subvolume", "create"]).arg(inside(image, "/new")), &words)?;
        expect_refusal(run(&["filesystem", "trim"]).arg(image), &words)?;
        expect_refusal(run(&["mount"]).arg(image).arg(&point), &words)?;
        let listed = run(&["ls"]).arg(inside(image, "/")).ok()?;
        ensure!(listed.stderr_text().contains("is not shown"), "not a word of what is missing: {listed}");
        let mounted = run(&["mount", "-o", "ro"]).arg(image).arg(&point).ok()?;
        let unmounted = run(&["umount"]).arg(&point).ok();
        ensure!(mounted.stderr_text().contains("is not shown"), "not a word of what is missing: {mounted}");
        unmounted?;
        let mount = FuseMount::mount(bench.creamery(), image, &point, "ro,usesupercopy")?;
        ensure!(std::fs::read(mount.dir().join("file"))? == COMMITTED);
        mount.unmount()
    })
}

fn first_damaged(bench: &Bench) -> Result<()> {
    let cut = with_a_log(bench)?;
    flip_byte(&cut, DAMAGED_AT)?;
    expect_writers_refused(bench, &cut)?;
    let kernel = bench.scratch.file("kernel");
    ensure!(LoopMount::mount(&cut, &kernel, "").is_err(), "Linux mounts it");
    let point = bench.scratch.dir("point")?;
    let by_copy = |name: &str, write: &dyn Fn(&Path) -> Result<()>| -> Result<()> {
        let image = bench.scratch.file(name);
        Run::new("cp").arg("--sparse=always").args([&cut, &image]).ok()?;
        write(&image)?;
        // The first superblock is whole again, so no option is needed.
        bench.creamery().run(["mkdir"]).arg(inside(&image, "/after")).ok()?;
        expect_content(bench, &image, COMMITTED)?;
        btrfs_check(&image)?;
        LoopMount::mount(&image, &kernel, "")?.unmount()
    };
    by_copy("command.img", &|image| {
        let made = bench.creamery().run(["mkdir", "--usesupercopy"]).arg(inside(image, "/new")).ok()?;
        ensure!(made.stderr_text().contains("is lost"), "not a word of what is lost: {made}");
        Ok(())
    })?;
    for (name, options) in [("mount.img", "usesupercopy"), ("rescue.img", "rescue=usesupercopy")] {
        by_copy(name, &|image| {
            let mount = FuseMount::mount(bench.creamery(), image, &point, options)?;
            std::fs::create_dir(mount.dir().join("new"))?;
            mount.unmount()
        })?;
    }
    // The refused command has changed nothing.
    flip_byte(&cut, DAMAGED_AT)?;
    bench.creamery().run(["mkdir"]).arg(inside(&cut, "/new")).ok()?;
    expect_content(bench, &cut, SYNCED)?;
    btrfs_check(&cut)
}
