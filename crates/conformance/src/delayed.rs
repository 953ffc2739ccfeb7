//! Written data that is in memory first: its fate, and the kernel's view of it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, btrfs_check, until};

use crate::support::{JUDGED, MOUNTED, judge_mount, mkfs_empty, stats};

const MIB: u64 = 1 << 20;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("delayed/long-extents", &[&MOUNTED[..], &[Judge::Tool("filefrag")]].concat(), long_extents)
            .long(),
        Case::new("delayed/switched-off", &MOUNTED, switched_off),
        Case::new("delayed/new-versions-are-written-soon", &MOUNTED, new_versions),
        Case::new("delayed/as-if-it-was-on-disk", &MOUNTED, as_if_on_disk),
        Case::new("delayed/full-by-four", &JUDGED, full_by_four),
        Case::new("delayed/unlinked-is-never-written", &MOUNTED, unlinked),
    ]
}

fn mounted(bench: &Bench, size: &str, options: &str) -> Result<FuseMount> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], size, &image)?;
    FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), options)
}

/// A counter of writeback.
fn told(bench: &Bench, dir: &Path, name: &str) -> Result<u64> {
    let said = stats(bench, dir)?;
    said["filesystem"]["writeback"][name].as_u64().with_context(|| format!("no {name} in {said:#}"))
}

/// Waits until at most `bytes` are delayed, without starting writeback.
fn wait_until_delayed(bench: &Bench, dir: &Path, bytes: u64) -> Result<()> {
    until("the rest to be written", || Ok(told(bench, dir, "delayed_bytes")? <= bytes))
}

/// A gigabyte in pieces of 4 KiB, and a sync: at most forty extents, as the kernel counts them.
fn long_extents(bench: &Bench) -> Result<()> {
    const SIZE: u64 = 1 << 30;
    const EXTENTS_MAX: u64 = 40;
    let mount = mounted(bench, "3G", "")?;
    let piece = [7; 4096];
    let mut file = File::create_new(mount.dir().join("file"))?;
    for _ in 0..SIZE / 4096 {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    drop(file);
    mount.unmount()?;
    let image = bench.scratch.file("disk.img");
    btrfs_check(&image)?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    let said = Run::new("filefrag").arg(kernel.dir().join("file")).ok()?.stdout_text();
    let extents = said.split_whitespace().rev().nth(2).and_then(|count| count.parse::<u64>().ok());
    let extents = extents.with_context(|| format!("no number of extents in {said:?}"))?;
    ensure!(extents <= EXTENTS_MAX, "{extents} extents");
    kernel.unmount()
}

fn switched_off(bench: &Bench) -> Result<()> {
    let mount = mounted(bench, "512M", "nodelalloc,commit=3600")?;
    let file = File::create_new(mount.dir().join("file"))?;
    for at in 0..64 {
        file.write_all_at(&[7; 65536], at * 65536)?;
        ensure!(told(bench, mount.dir(), "delayed_bytes")? == 0, "something is delayed");
    }
    ensure!(told(bench, mount.dir(), "runs")? == 0, "something was written back");
    drop(file);
    judge_mount(bench, &bench.scratch.file("disk.img"), mount)
}

/// A file that replaces another one, and a file that is truncated and rewritten, do not stay in memory only.
fn new_versions(bench: &Bench) -> Result<()> {
    let mount = mounted(bench, "512M", "commit=3600")?;
    let (old, new) = (mount.dir().join("file"), mount.dir().join("new"));
    std::fs::write(&old, b"the old version")?;
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    std::fs::write(&new, Random::new(1).bytes(100_000))?;
    ensure!(told(bench, mount.dir(), "delayed_bytes")? > 0, "it is written at once");
    std::fs::rename(&new, &old)?;
    wait_until_delayed(bench, mount.dir(), 0).context("after a rename")?;
    std::fs::write(&old, Random::new(2).bytes(100_000))?;
    wait_until_delayed(bench, mount.dir(), 0).context("after it was cut to nothing")?;
    // Writeback keeps the order of writes, and a new file has time.
    std::fs::write(&new, Random::new(3).bytes(100_000))?;
    let of_the_new_one = told(bench, mount.dir(), "delayed_bytes")?;
    std::fs::write(&old, Random::new(4).bytes(100_000))?;
    wait_until_delayed(bench, mount.dir(), of_the_new_one).context("beside a new file")?;
    ensure!(
        of_the_new_one > 0 && told(bench, mount.dir(), "delayed_bytes")? == of_the_new_one,
        "a new file is written at once"
    );
    judge_mount(bench, &bench.scratch.file("disk.img"), mount)
}

/// Size, space, times, holes and content are equal before and after writeback.
fn as_if_on_disk(bench: &Bench) -> Result<()> {
    let mount = mounted(bench, "512M", "commit=3600")?;
    let path = mount.dir().join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    let mut random = Random::new(5);
    let mut want = vec![0_u8; 3 << 20];
    for _ in 0..40 {
        let at = random.below(want.len() as u64 - 70_000);
        let len = 1 + usize::try_from(random.below(70_000))?;
        let bytes = random.bytes(len);
        file.write_all_at(&bytes, at)?;
        let at = usize::try_from(at)?;
        want[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    want.truncate(usize::try_from(file.metadata()?.size())?);
    let look = || -> Result<_> {
        let meta = std::fs::metadata(&path)?;
        let reader = File::open(&path)?;
        let (mut at, mut map) = (0, Vec::new());
        while let Ok(start) = rustix::fs::seek(&reader, rustix::fs::SeekFrom::Data(at)) {
            at = rustix::fs::seek(&reader, rustix::fs::SeekFrom::Hole(start))?;
            map.push((start, at));
        }
        ensure!(std::fs::read(&path)? == want, "other content");
        Ok((meta.size(), meta.blocks(), meta.mtime(), meta.mtime_nsec(), map))
    };
    let before = look()?;
    ensure!(told(bench, mount.dir(), "delayed_bytes")? > 0 && before.1 * 512 < 3 * MIB + 4096, "{before:?}");
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    ensure!(told(bench, mount.dir(), "delayed_bytes")? == 0, "a sync leaves something in memory");
    let after = look()?;
    ensure!(before == after, "before: {before:?}\nafter: {after:?}");
    drop(file);
    judge_mount(bench, &bench.scratch.file("disk.img"), mount)
}

fn unlinked(bench: &Bench) -> Result<()> {
    let mount = mounted(bench, "512M", "commit=3600")?;
    for index in 0..100 {
        let path = mount.dir().join(format!("temporary-{index}"));
        std::fs::write(&path, [7; 50_000])?;
        std::fs::remove_file(&path)?;
    }
    ensure!(told(bench, mount.dir(), "delayed_bytes")? == 0, "what is gone is still in memory");
    ensure!(told(bench, mount.dir(), "runs")? == 0, "what is gone was written");
    judge_mount(bench, &bench.scratch.file("disk.img"), mount)
}

/// The data of one writer that must be durable.
#[derive(Default)]
struct Kept(Vec<(PathBuf, u64, usize)>);

/// Four writers fill a filesystem, delete, rename and go on: the only error is lack of space, and data acknowledged by fsync is there.
fn full_by_four(bench: &Bench) -> Result<()> {
    let mount = mounted(bench, "200M", "")?;
    let dir = mount.dir();
    let kept: Vec<Kept> = std::thread::scope(|scope| {
        let work: Vec<_> = (0..4).map(|worker| scope.spawn(move || fill(dir, worker))).collect();
        work.into_iter().map(|work| work.join().expect("no panic")).collect::<Result<_>>()
    })?;
    ensure!(told(bench, dir, "failures")? == 0, "data that was accepted was lost");
    let image = bench.scratch.file("disk.img");
    let dir = dir.to_owned();
    mount.unmount()?;
    btrfs_check(&image)?;
    let judge = LoopMount::mount(&image, &bench.scratch.dir("judge")?, "ro")?;
    let mut files = 0;
    for (path, seed, len) in kept.iter().flat_map(|kept| &kept.0) {
        let found = std::fs::read(judge.dir().join(path.strip_prefix(&dir)?))?;
        ensure!(found == Random::new(*seed).bytes(*len), "{} is not what was synced", path.display());
        files += 1;
    }
    ensure!(files > 20, "only {files} files were kept");
    judge.unmount()
}

/// Errors: any error but lack of space.
fn fill(dir: &Path, worker: u64) -> Result<Kept> {
    let (mut random, mut kept) = (Random::new(worker + 1), Kept::default());
    let mut full = 0;
    for number in 0..4000 {
        if full > 20 {
            break;
        }
        let path = dir.join(format!("{worker}-{number}"));
        let (seed, len) = (worker << 32 | number, 1 + random.below(3 << 20) as usize);
        let write = || {
            let mut file = File::create_new(&path)?;
            file.write_all(&Random::new(seed).bytes(len))?;
            file.sync_all()
        };
        match write() {
            Ok(()) if number % 5 == 4 => {
                let to = path.with_extension("renamed");
                std::fs::rename(&path, &to)?;
                File::open(&to)?.sync_all()?;
                kept.0.push((to, seed, len));
            }
            Ok(()) => kept.0.push((path, seed, len)),
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                full += 1;
                std::fs::remove_file(&path).or_else(|error| match error.kind() {
                    std::io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })?;
                // Makes some room for the other writers, and for later work.
                for _ in 0..3 {
                    if !kept.0.is_empty() {
                        let which = random.below(kept.0.len() as u64) as usize;
                        std::fs::remove_file(kept.0.swap_remove(which).0)?;
                    }
                }
            }
            Err(error) => return Err(error).with_context(|| format!("writing {}", path.display())),
        }
    }
    Ok(kept)
}
