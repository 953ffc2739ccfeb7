//! Space caches of the old kind, which Linux takes for good once it has committed: what we leave must hold none of before.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, btrfs_check, sync_filesystem};

/// So large that it has whole groups of data: Linux keeps caches only of large ones.
const IMAGE_BYTES: u64 = 4 << 30;
const FILE_BYTES: usize = 64 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let needed = [Judge::Root, Judge::Fuse, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    let case = |name, mkfs, has_log| {
        Case::new(name, &needed, move |bench| no_space_cache_is_left(bench, mkfs, has_log))
    };
    vec![
        case("space-caches/are-gone", "^free-space-tree,^block-group-tree", false),
        case(
            "space-caches/are-gone-after-a-replay",
            "^free-space-tree,^block-group-tree,^skinny-metadata",
            true,
        ),
    ]
}

/// Linux makes caches. We move what is in use, so that they have as much free as before, and elsewhere. Linux does nothing to speak of,
/// which makes all caches that are there current; then it writes.
fn no_space_cache_is_left(bench: &Bench, mkfs: &str, has_log: bool) -> Result<()> {
    let creamery = bench.creamery();
    let (made, image) = (bench.scratch.file("made.img"), bench.scratch.file("disk.img"));
    let (dir, fuse) = (bench.scratch.file("kernel"), bench.scratch.file("fuse"));
    let contents = [1, 2, 3, 4].map(|seed| Random::new(seed).bytes(FILE_BYTES));
    let write = |path: &Path, content: usize| -> Result<()> {
        std::fs::write(path, &contents[content])?;
        sync_filesystem(path)
    };
    File::create_new(&made)?.set_len(IMAGE_BYTES)?;
    Run::new("mkfs.btrfs").args(["-q", "-O", mkfs]).arg(&made).ok()?;
    let kernel = LoopMount::mount(&made, &dir, "space_cache=v1")?;
    write(&kernel.dir().join("goes"), 0)?;
    write(&kernel.dir().join("stays"), 1)?;
    kernel.unmount()?;
    let kernel = LoopMount::mount(&made, &dir, "")?;
    write(&kernel.dir().join("note"), 3)?;
    if has_log {
        let logged = File::options().write(true).open(kernel.dir().join("note"))?;
        logged.write_all_at(&contents[2][..5000], 0)?;
        logged.sync_all()?;
        // As power leaves it.
        Run::new("cp").arg("--sparse=always").arg(&made).arg(&image).ok()?;
    }
    kernel.unmount()?;
    if !has_log {
        std::fs::rename(&made, &image)?;
    }
    ensure!(headers(&image)? > 0, "there are caches to begin with");

    let mount = FuseMount::mount(creamery, &image, &fuse, "")?;
    write(&mount.dir().join("ours"), 2)?;
    std::fs::remove_file(mount.dir().join("goes"))?;
    sync_filesystem(mount.dir())?;
    mount.unmount()?;
    ensure!(headers(&image)? == 0, "caches are left");
    btrfs_check(&image)?;
    creamery.run(["check", "--check-data-csum"]).arg(&image).ok()?;

    for turn in ["touched", "written"] {
        let kernel = LoopMount::mount(&image, &dir, "")?;
        match turn {
            "touched" => File::create_new(kernel.dir().join("touched")).map(drop)?,
            _ => write(&kernel.dir().join("theirs"), 0)?,
        }
        for (name, content) in [("ours", 2), ("stays", 1)] {
            let found = std::fs::read(kernel.dir().join(name))?;
            ensure!(found == contents[content], "{turn}: {name} is not what was written");
        }
        if has_log {
            let found = std::fs::read(kernel.dir().join("note"))?;
            ensure!(
                found[..5000] == contents[2][..5000] && found[5000..] == contents[3][5000..],
                "{turn}: note"
            );
        }
        kernel.unmount()?;
        btrfs_check(&image)?;
    }
    ensure!(headers(&image)? > 0, "Linux makes new ones");
    Ok(())
}

/// How many headers of caches the root tree has.
pub(crate) fn headers(image: &Path) -> Result<usize> {
    let dump = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "root"]).arg(image).ok()?;
    Ok(dump.stdout_text().lines().filter(|line| line.contains("(FREE_SPACE UNTYPED ")).count())
}
