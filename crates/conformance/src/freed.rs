//! The space of removed files: when it is reported as free, and when it can be used.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Run, btrfs_check, until};

use crate::support::{MOUNTED, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("freed/an-idle-mount-gives-space-back", &MOUNTED, idle),
        Case::new("freed/df-tells-what-was-removed", &MOUNTED, told_by_df),
        Case::new("freed/a-full-mount-has-room-for-what-was-removed", &MOUNTED, refill),
    ]
}

/// The commit timer must not interfere.
const NO_TIMER: &str = "commit=3600";
const MIB: usize = 1 << 20;

fn mounted(bench: &Bench, image: &Path) -> Result<FuseMount> {
    mkfs_empty(bench.creamery(), &[], "512M", image)?;
    FuseMount::mount(bench.creamery(), image, &bench.scratch.file("fuse"), NO_TIMER)
}

/// Inodes in the top level subvolume as of the last commit.
fn inodes(image: &Path) -> Result<usize> {
    let said = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(image).ok()?;
    let is_inode = |line: &&str| line.trim_start().starts_with("item ") && line.contains(" INODE_ITEM 0)");
    Ok(said.stdout_text().lines().filter(is_inode).count())
}

fn free(dir: &Path) -> Result<u64> {
    let said = Run::new("stat").args(["-f", "-c", "%f %S"]).arg(dir).ok()?.stdout_text();
    let (blocks, size) = said.trim().split_once(' ').context("two numbers")?;
    Ok(blocks.parse::<u64>()? * size.parse::<u64>()?)
}

fn idle(bench: &Bench) -> Result<()> {
    const FILES: usize = 200;
    let image = bench.scratch.file("disk.img");
    let mount = mounted(bench, &image)?;
    let mut open = Vec::new();
    for number in 0..FILES {
        let path = mount.dir().join(format!("file-{number}"));
        std::fs::write(&path, vec![number as u8; 20_000])?;
        open.push(File::open(&path)?);
        std::fs::remove_file(&path)?;
    }
    open[0].sync_all()?;
    let there = inodes(&image)?;
    ensure!(there == FILES + 1, "{FILES} files are open, and {there} inodes are there");
    drop(open);
    // A reader of an image that is being written can meet a block that was just reused.
    until("all but one inode to go", || Ok(inodes(&image).is_ok_and(|there| there == 1)))?;
    mount.unmount()?;
    btrfs_check(&image)
}

/// Like fstests' generic/015, and like a program that makes room by removing one file after the other.
fn told_by_df(bench: &Bench) -> Result<()> {
    const FILES: usize = 45;
    let image = bench.scratch.file("disk.img");
    let mount = mounted(bench, &image)?;
    let empty = free(mount.dir())?;
    let large = mount.dir().join("large");
    std::fs::write(&large, vec![b'l'; 100 * MIB])?;
    let full = free(mount.dir())?;
    // Data on its way to the device counts until it is written; the sync leaves nothing to wait for.
    Run::new("sync").arg("-f").arg(mount.dir()).ok()?;
    std::fs::remove_file(&large)?;
    ensure!(full + 100 * MIB as u64 <= empty, "{empty} bytes were free, with the file {full}");
    // The kernel sends a message of its own that the file is not used any more, and unlink(2) does not wait for it.
    until(&format!("{empty} bytes to be free again"), || Ok(empty - free(mount.dir())? <= MIB as u64))?;
    let name = |number: usize| mount.dir().join(format!("file-{number}"));
    for number in 0..FILES {
        std::fs::write(name(number), vec![number as u8; 8 * MIB])?;
    }
    Run::new("sync").arg("-f").arg(mount.dir()).ok()?;
    let full = free(mount.dir())?;
    let mut removed = 0;
    while free(mount.dir())? <= full {
        std::fs::remove_file(name(removed))?;
        removed += 1;
    }
    ensure!(removed <= 5, "{removed} of {FILES} files were removed before df fell");
    mount.unmount()?;
    btrfs_check(&image)
}

fn refill(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let mount = mounted(bench, &image)?;
    let mut kept = File::create(mount.dir().join("kept"))?;
    kept.write_all(b"kept")?;
    let piece = vec![b'p'; 4 * MIB];
    let mut files = Vec::new();
    loop {
        let path = mount.dir().join(format!("file-{}", files.len()));
        let written = File::create(&path).and_then(|file| file.write_all_at(&piece, 0));
        match written {
            Ok(()) => files.push(path),
            Err(error) => {
                ensure!(error.kind() == std::io::ErrorKind::StorageFull, "filling: {error}");
                break;
            }
        }
    }
    let removed = &files[..files.len() / 2];
    removed.iter().try_for_each(std::fs::remove_file)?;
    for number in 1..removed.len() {
        let written = kept.write_all_at(&piece, (number * piece.len()) as u64);
        written.with_context(|| format!("writing what {number} of {} removed files took", removed.len()))?;
    }
    drop(kept);
    mount.unmount()?;
    btrfs_check(&image)
}
