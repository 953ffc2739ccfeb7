//! Dropping a subvolume is cut off: the process is killed at random moments, and the next one, Linux or ours, goes on from the last commit.
//! Subvolumes that share data with the dropped ones keep all of it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{
    FuseMount, LoopMount, Random, Run, Signal, btrfs_check, commit_and_clean, daemon, ficlonerange, signal,
    sync_filesystem, until,
};

use crate::subvolumes::{fill, is_half_dropped, orphans};
use crate::support::{JUDGED, MOUNTED, inside, killed_after, mkfs_empty, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("subvolumes/killed-while-dropping-in-an-image", &JUDGED, in_an_image).long(),
        Case::new("subvolumes/killed-server-while-dropping", &MOUNTED, live).long(),
        Case::new("subvolumes/linux-cut-off-while-dropping", &JUDGED, linux_cut_off).long(),
    ]
}

const FILES: usize = 8_000;
const SNAPSHOTS: usize = 5;

fn btrfs(words: &[&str]) -> Run {
    Run::new("btrfs").args(words)
}

/// An image with a subvolume `work`, and snapshots of it with much data of their own; returns the content of `work`.
fn populated(bench: &Bench, image: &Path) -> Result<Walk> {
    mkfs_empty(bench.creamery(), &["-n", "4096"], "1G", image)?;
    let mount = LoopMount::mount(image, &bench.scratch.file("kernel"), "noatime")?;
    let work = mount.dir().join("work");
    btrfs(&["-q", "subvolume", "create"]).arg(&work).ok()?;
    fill(&work, FILES)?;
    (0..SNAPSHOTS).try_for_each(|number| snapshot(mount.dir(), number))?;
    let want = Walk::take(&work)?;
    mount.unmount()?;
    Ok(want)
}

/// A snapshot of `work` with much data of its own.
fn snapshot(root: &Path, number: usize) -> Result<()> {
    let target = root.join(format!("snapshot-{number}"));
    btrfs(&["-q", "subvolume", "snapshot"]).args([&root.join("work"), &target]).ok()?;
    fill(&target, FILES / 2)
}

/// Checks that the sharing subvolume is whole, and that nothing of the dropped ones is left.
fn expect_all_dropped(bench: &Bench, image: &Path, want: &Walk) -> Result<()> {
    ensure!(orphans(image)? == 0, "something is left");
    btrfs_check(image)?;
    let mount = LoopMount::mount(image, &bench.scratch.file("kernel"), "noatime")?;
    let found = Walk::take(&mount.dir().join("work"))?;
    expect_same("what shares with what was dropped", want, &found, &Compare::default())?;
    let room = rustix::fs::statvfs(mount.dir())?;
    let used = (room.f_blocks - room.f_bfree) * room.f_frsize;
    mount.unmount()?;
    // One sector for each file, twice, and their metadata.
    let most = FILES as u64 * 2 * 4096 + (64 << 20);
    ensure!(used < most, "{used} bytes are in use: the data of what was dropped was not given back");
    Ok(())
}

/// Killed repeatedly, while deleting and while going on, each time at another moment.
fn in_an_image(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let want = populated(bench, &image)?;
    let mut random = Random::new(41);
    let command = |words: &[&str]| {
        let mut command = Command::new(bench.creamery().path());
        command.args(words);
        command
    };
    let path = |number: usize| inside(&image, &format!("/snapshot-{number}"));
    let (_, whole) = killed_after(command(&["subvolume", "delete"]).arg(path(0)), u64::MAX)?;
    let (mut cut, mut number) = (0, 0);
    while number + 1 < SNAPSHOTS || cut < 3 {
        number += 1;
        if number >= SNAPSHOTS {
            // It ended too often before it was killed.
            let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
            snapshot(mount.dir(), number)?;
            mount.unmount()?;
        }
        let mut moment = || random.below(whole);
        let path = path(number);
        let mut is_cut = killed_after(command(&["subvolume", "delete"]).arg(&path), moment())?.0;
        btrfs_check(&image).with_context(|| format!("snapshot {number}, killed while deleting it"))?;
        let mut rounds = 0;
        while is_cut && rounds < 4 {
            (cut, rounds) = (cut + 1, rounds + 1);
            is_cut = killed_after(command(&["subvolume", "sync"]).arg(&image), moment())?.0;
            btrfs_check(&image).with_context(|| format!("snapshot {number}, killed while going on"))?;
        }
        go_on(bench, &image, number)?;
        let listed = bench.creamery().run(["ls"]).arg(inside(&image, "/")).ok()?.stdout_text();
        if listed.contains(&format!("snapshot-{number}")) {
            // It was killed before anything was committed.
            bench.creamery().run(["subvolume", "delete"]).arg(&path).ok()?;
        }
    }
    expect_all_dropped(bench, &image, &want)
}

/// Linux goes on, or we do in the image, or on a mount.
fn go_on(bench: &Bench, image: &Path, turn: usize) -> Result<()> {
    match turn % 3 {
        0 => {
            let mount = LoopMount::mount(image, &bench.scratch.file("kernel"), "noatime,commit=1")?;
            btrfs(&["subvolume", "sync"]).arg(mount.dir()).ok()?;
            mount.unmount()?;
        }
        1 => bench.creamery().run(["subvolume", "sync"]).arg(image).ok().map(drop)?,
        _ => {
            let mount = FuseMount::mount(bench.creamery(), image, &bench.scratch.file("fuse"), "")?;
            bench.creamery().run(["subvolume", "sync"]).arg(mount.dir()).ok()?;
            mount.unmount()?;
        }
    }
    ensure!(orphans(image)? == 0, "something is left, turn {turn}");
    btrfs_check(image).with_context(|| format!("turn {turn}"))
}

/// Commits repeatedly until space comes back, until nothing is left to drop, or a number of times that the seed gives.
fn work_until_it_drops(bench: &Bench, dir: &Path, random: &mut Random) -> Result<()> {
    let file = File::create(dir.join("file"))?;
    let free = || Ok::<_, anyhow::Error>(rustix::fs::statvfs(dir)?.f_bfree);
    let before = free()?;
    let mut commits = if random.below(4) == 0 { random.below(20) } else { u64::MAX };
    let mut more = random.below(4);
    until("space to come back", || {
        if commits == 0 || more == 0 {
            return Ok(true);
        }
        commits -= 1;
        file.write_all_at(b"changed", 0)?;
        bench.creamery().run(["sync"]).arg(dir).ok()?;
        more -= u64::from(free()? > before + 100);
        let left = bench.creamery().run(["subvolume", "list", "-d"]).arg(dir).ok()?;
        Ok(left.stdout.is_empty())
    })?;
    // Other requests that the server answers meanwhile.
    (0..random.below(60)).try_for_each(|_| free().map(drop))
}

/// The server of a mount is killed while it drops, with commits meanwhile.
fn live(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let want = populated(bench, &image)?;
    let mut random = Random::new(42);
    let (mut waiting, mut half) = (0, 0);
    for number in 0.. {
        if number >= SNAPSHOTS {
            if waiting > 0 {
                break;
            }
            // Everything was dropped before the server was killed.
            let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
            snapshot(mount.dir(), number)?;
            mount.unmount()?;
        }
        let mut turn = 0;
        loop {
            // The first server deletes the subvolume, the next ones go on until they are killed.
            let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
            if turn == 0 {
                let path = mount.dir().join(format!("snapshot-{number}"));
                bench.creamery().run(["subvolume", "delete"]).arg(path).ok()?;
            }
            let server = daemon(&image)?;
            work_until_it_drops(bench, mount.dir(), &mut random)?;
            signal(Signal::KILL, server)?;
            drop(mount);
            btrfs_check(&image).with_context(|| format!("snapshot {number}, server killed, turn {turn}"))?;
            half += u32::from(is_half_dropped(&image)?);
            turn += 1;
            if orphans(&image)? == 0 || turn == 3 {
                break;
            }
            waiting += 1;
        }
        go_on(bench, &image, number)?;
        let listed = bench.creamery().run(["ls"]).arg(inside(&image, "/")).ok()?.stdout_text();
        if listed.contains(&format!("snapshot-{number}")) {
            bench
                .creamery()
                .run(["subvolume", "delete"])
                .arg(inside(&image, &format!("/snapshot-{number}")))
                .ok()?;
        }
    }
    // Chance decides whether a commit falls into the middle of a drop.
    println!(
        "killed {waiting} times while something waited for being dropped, {half} times in the midst of dropping"
    );
    expect_all_dropped(bench, &image, &want)
}

/// Linux' image at one moment while Linux drops: a clone, made by another Btrfs, of the file under its loop device.
fn linux_cut_off(bench: &Bench) -> Result<()> {
    let outer = bench.scratch.file("outer.img");
    sparse_file(&outer, 3 << 30)?;
    Run::new("mkfs.btrfs").args(["-q", "-m", "single"]).arg(&outer).ok()?;
    let outer = LoopMount::mount(&outer, &bench.scratch.file("outer"), "noatime,nodatasum")?;
    let image = outer.dir().join("disk.img");
    let want = populated(bench, &image)?;
    let copies = copies_while_dropping(bench, &image)?;
    let mut left = 0;
    // The latest ones come first; they have dropped more.
    for copy in copies.iter().rev() {
        if orphans(copy)? > 0 && left < 3 {
            left += 1;
            // First in the image, then on a mount.
            go_on(bench, copy, left)?;
            expect_all_dropped(bench, copy, &want).with_context(|| copy.display().to_string())?;
        }
        std::fs::remove_file(copy)?;
    }
    ensure!(left > 0, "Linux drops what no commit has");
    std::fs::remove_file(&image)?;
    outer.unmount()
}

/// Clones of an image whose snapshots Linux drops, some commits apart. In the first one all snapshots still wait: their deletion is
/// committed, and neither a timer of that mount nor a program has woken Linux' cleaner yet.
fn copies_while_dropping(bench: &Bench, image: &Path) -> Result<Vec<PathBuf>> {
    const MOMENTS: usize = 8;
    let mount = LoopMount::mount(image, &bench.scratch.file("dropping"), "noatime,commit=300")?;
    for number in 0..SNAPSHOTS {
        let gone = mount.dir().join(format!("snapshot-{number}"));
        btrfs(&["-q", "subvolume", "delete"]).arg(gone).ok()?;
    }
    let (mut random, source) = (Random::new(43), File::open(image)?);
    let mut copies: Vec<PathBuf> = Vec::new();
    for number in 0..MOMENTS {
        match number {
            0 => sync_filesystem(mount.dir())?,
            // This wakes the cleaner.
            1 => commit_and_clean(&File::open(mount.dir())?)?,
            _ => (0..=random.below(3)).try_for_each(|_| sync_filesystem(mount.dir()))?,
        }
        let copy = image.with_file_name(format!("copy-{number}.img"));
        ficlonerange(&File::create_new(&copy)?, 0, &source, 0, 0)?;
        copies.push(copy);
    }
    mount.unmount()?;
    Ok(copies)
}
