//! Files that are overwritten in place: which data stays at its address, compared with Linux, step by step.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, btrfs_check, tree_items};
use serde_json::Value;

use crate::item_types::EXTENT_DATA;
use crate::random_work::TOP_LEVEL;
use crate::support::{MOUNTED, expect_refusal, inside, mkfs_empty};

const SECTOR: u64 = 4096;
const PIECE: u64 = 128 << 10;
const LEN: u64 = 8 * PIECE;

pub(crate) fn cases() -> Vec<Case> {
    let with_chattr = [&MOUNTED[..], &[Judge::Tool("chattr"), Judge::Tool("lsattr")]].concat();
    vec![
        Case::new("nocow/stays-in-place-as-on-linux", &with_chattr, as_on_linux),
        Case::new("nocow/stat-as-linux-writes", &with_chattr, told_as_linux_writes),
        Case::new("nocow/mount-option", &with_chattr, mount_option),
        Case::new("nocow/when-all-is-full", &with_chattr, when_full),
        Case::new("nocow/snapshot-when-all-is-full", &with_chattr, snapshot_when_full),
    ]
}

/// The side of a mount.
#[derive(Clone, Copy)]
enum NocowSide<'b> {
    Linux,
    Ours(&'b Bench),
}

impl NocowSide<'_> {
    fn run(self, ours: &[&str], linux: &[&str]) -> Run {
        match self {
            Self::Linux => Run::new("btrfs").args(linux),
            Self::Ours(bench) => bench.creamery().run(ours),
        }
    }

    fn sync(self, top: &Path) -> Result<()> {
        self.run(&["sync"], &["filesystem", "sync"]).arg(top).ok().map(drop)
    }

    fn snapshot(self, top: &Path, name: &str) -> Result<()> {
        let words = ["subvolume", "snapshot", "-r"];
        self.run(&words, &words).arg(top).arg(top.join(name)).ok().map(drop)
    }
}

/// Clones a range of a file to another one, at the same offset.
fn share(from: &Path, to: &Path, at: u64, len: u64) -> Result<()> {
    let (source, target) = (File::open(from)?, OpenOptions::new().write(true).open(to)?);
    let (mut from, mut to, mut left) = (at, at, usize::try_from(len)?);
    while left > 0 {
        let count = rustix::fs::copy_file_range(&source, Some(&mut from), &target, Some(&mut to), left)?;
        ensure!(count > 0, "copy_file_range ended early");
        left -= count;
    }
    Ok(())
}

fn attributes(path: &Path) -> Result<String> {
    let said = Run::new("lsattr").arg("-d").arg(path).ok()?.stdout_text();
    Ok(said.split_whitespace().next().unwrap_or_default().to_owned())
}

fn new_in_place(path: &Path) -> Result<File> {
    let file = OpenOptions::new().create_new(true).read(true).write(true).open(path)?;
    Run::new("chattr").arg("+C").arg(path).ok()?;
    Ok(file)
}

/// The address of each sector with space of a file at the top level.
fn places(top: &Path, path: &Path) -> Result<BTreeMap<u64, u64>> {
    let ino = path.metadata()?.ino();
    let mut places = BTreeMap::new();
    for item in tree_items(top, TOP_LEVEL)? {
        if (item.objectid, item.kind) != (ino, EXTENT_DATA) || item.data[20] == 0 || item.u64_at(21) == 0 {
            continue;
        }
        let (at, shown) = (item.u64_at(21) + item.u64_at(37), item.u64_at(45));
        places.extend((0..shown).step_by(SECTOR as usize).map(|part| (item.offset + part, at + part)));
    }
    Ok(places)
}

/// The sectors that each step moved, and the final content of the files.
struct Lived {
    moved: Vec<(&'static str, Vec<u64>)>,
    content: Vec<(&'static str, Vec<u8>)>,
}

fn live(side: NocowSide<'_>, top: &Path) -> Result<Lived> {
    let (path, shared) = (top.join("file"), top.join("shared"));
    let file = new_in_place(&path)?;
    let mut random = Random::new(5);
    let mut now = random.bytes(usize::try_from(LEN)?);
    for (piece, at) in now.chunks(usize::try_from(PIECE)?).zip((0..).step_by(PIECE as usize)) {
        file.write_all_at(piece, at)?;
        file.sync_all()?;
    }
    std::fs::create_dir(top.join("dir"))?;
    Run::new("chattr").arg("+C").arg(top.join("dir")).ok()?;
    std::fs::write(top.join("dir/inherited"), &now[..10_000])?;
    ensure!(attributes(&top.join("dir/inherited"))?.contains('C'), "a file has not its directory's flag");
    side.sync(top)?;
    let mut before = places(top, &path)?;
    ensure!(before.len() as u64 == LEN / SECTOR, "{} sectors have space", before.len());
    let mut moved = Vec::new();
    let mut note = |what, top: &Path| -> Result<()> {
        side.sync(top)?;
        let after = places(top, &path)?;
        moved.push((what, before.keys().copied().filter(|at| before[at] != after[at]).collect()));
        before = after;
        Ok(())
    };
    let overwrite = |now: &mut [u8], random: &mut Random, (at, len): (u64, u64)| -> Result<()> {
        let bytes = random.bytes(usize::try_from(len)?);
        now[usize::try_from(at)?..][..bytes.len()].copy_from_slice(&bytes);
        Ok(file.write_all_at(&bytes, at)?)
    };
    for number in 0..50 {
        let at = random.below(LEN);
        let len = (1 + random.below(60_000)).min(LEN - at);
        overwrite(&mut now, &mut random, (at, len))?;
        if number % 10 == 0 {
            file.sync_data()?;
        }
    }
    note("anywhere", top)?;
    drop(new_in_place(&shared)?);
    share(&path, &shared, 2 * PIECE, PIECE)?;
    share(&path, &shared, 5 * PIECE, PIECE)?;
    let cloned = now.clone();
    for what in ["what a clone shares", "the same again"] {
        overwrite(&mut now, &mut random, (PIECE, 6 * PIECE))?;
        note(what, top)?;
    }
    side.snapshot(top, "snapshot")?;
    let frozen = now.clone();
    for what in ["what a snapshot has", "that once more"] {
        overwrite(&mut now, &mut random, (100, LEN - 200))?;
        note(what, top)?;
    }
    file.set_len(LEN / 2 + 100)?;
    now.truncate(usize::try_from(LEN / 2 + 100)?);
    drop(file);
    side.sync(top)?;
    let mut shares = vec![0; usize::try_from(6 * PIECE)?];
    for piece in [2, 5] {
        let range = usize::try_from(piece * PIECE)?..usize::try_from((piece + 1) * PIECE)?;
        shares[range.clone()].copy_from_slice(&cloned[range]);
    }
    let content = vec![("file", now), ("shared", shares), ("snapshot/file", frozen)];
    Ok(Lived { moved, content })
}

fn as_on_linux(bench: &Bench) -> Result<()> {
    let images = [bench.scratch.file("linux.img"), bench.scratch.file("ours.img")];
    images.iter().try_for_each(|image| mkfs_empty(bench.creamery(), &[], "512M", image))?;
    let mount = LoopMount::mount(&images[0], &bench.scratch.file("linux"), "")?;
    let theirs = live(NocowSide::Linux, mount.dir()).context("on Linux")?;
    mount.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &images[1], &bench.scratch.file("ours"), "")?;
    let ours = live(NocowSide::Ours(bench), mount.dir()).context("on a mount of ours")?;
    mount.unmount()?;
    for (one, other) in theirs.moved.iter().zip(&ours.moved) {
        ensure!(one == other, "{}: Linux moves {:?}, we {:?}", one.0, one.1, other.1);
    }
    ensure!(ours.moved[0].1.is_empty() && !ours.moved[1].1.is_empty(), "{:?}", ours.moved);
    for (image, lived) in images.iter().zip([&theirs, &ours]) {
        btrfs_check(image)?;
        let linux = LoopMount::mount(image, &bench.scratch.file("kernel"), "ro")?;
        for (name, wanted) in &lived.content {
            let found = std::fs::read(linux.dir().join(name))?;
            ensure!(found == *wanted, "{}: {name} is something else", image.display());
        }
        linux.unmount()?;
    }
    Ok(())
}

/// The files that Linux makes, and overwrites later.
const TOLD: [&str; 7] = ["alone", "frozen", "partly", "summed", "packed", "small", "sparse"];

/// Makes files of each kind, some of them shared with a snapshot or a clone.
fn make_told(top: &Path) -> Result<()> {
    let mut random = Random::new(7);
    let mut piece = || random.bytes(PIECE as usize);
    for name in ["frozen", "partly"] {
        new_in_place(&top.join(name))?.write_all_at(&[piece(), piece()].concat(), 0)?;
    }
    NocowSide::Linux.sync(top)?;
    NocowSide::Linux.snapshot(top, "snapshot")?;
    // A sector written since then belongs to the file alone; a sector that a clone shares does not.
    let partly = top.join("partly");
    OpenOptions::new().write(true).open(&partly)?.write_all_at(&piece(), PIECE / 2)?;
    NocowSide::Linux.sync(top)?;
    drop(new_in_place(&top.join("clone"))?);
    share(&partly, &top.join("clone"), PIECE, SECTOR)?;
    let alone = new_in_place(&top.join("alone"))?;
    for at in 0..4 {
        alone.write_all_at(&piece(), at * PIECE)?;
        alone.sync_all()?;
    }
    for name in ["alone", "summed"] {
        std::fs::OpenOptions::new().create(true).append(true).open(top.join(name))?.write_all(&piece())?;
        Run::new("fallocate").args(["-o", "1M", "-l", "1M"]).arg(top.join(name)).ok()?;
    }
    File::create(top.join("packed"))?;
    Run::new("btrfs").args(["property", "set"]).arg(top.join("packed")).args(["compression", "zstd"]).ok()?;
    std::fs::write(top.join("packed"), [9; 300_000])?;
    std::fs::write(top.join("small"), [1; 100])?;
    let sparse = new_in_place(&top.join("sparse"))?;
    sparse.write_all_at(&piece(), 2 * PIECE)?;
    sparse.set_len(4 * PIECE + 100)?;
    NocowSide::Linux.sync(top)
}

/// The output of `stat` for files that Linux made agrees with Linux' writes to them.
fn told_as_linux_writes(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("linux.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("linux"), "")?;
    make_told(linux.dir())?;
    linux.unmount()?;
    let mut told = BTreeMap::new();
    for name in TOLD {
        let said = bench.creamery().run(["stat", "--json"]).arg(inside(&image, &format!("/{name}"))).ok()?;
        let said: Value = serde_json::from_str(&said.stdout_text())?;
        told.insert(name, said[0]["overwrites"].as_array().context("no overwrites")?.clone());
    }
    let whys = |name: &str| told[name].iter().filter_map(|part| part["why"].as_str()).collect::<Vec<_>>();
    ensure!(whys("alone") == ["in_place", "prealloc", "hole"], "{told:?}");
    ensure!(whys("frozen") == ["shared"] && whys("partly") == ["shared"], "{told:?}");
    ensure!(whys("summed") == ["prealloc", "copy_on_write", "hole"], "{told:?}");
    ensure!(whys("packed") == ["compressed"] && whys("small") == ["inline"], "{told:?}");
    ensure!(whys("sparse") == ["in_place", "hole"], "{told:?}");
    let linux = LoopMount::mount(&image, &bench.scratch.file("linux"), "")?;
    for (name, parts) in &told {
        let path = linux.dir().join(name);
        let before = places(linux.dir(), &path)?;
        let len = path.metadata()?.len();
        let all: u64 = parts.iter().filter_map(|part| part["bytes"].as_u64()).sum();
        ensure!(all == len, "{name}: {all} bytes of {len} were told of");
        let stay = parts.iter().filter(|part| part["in_place"] == true);
        let stay: u64 = stay.filter_map(|part| part["bytes"].as_u64()).sum();
        OpenOptions::new().write(true).open(&path)?.write_all_at(&vec![3; usize::try_from(len)?], 0)?;
        NocowSide::Linux.sync(linux.dir())?;
        let after = places(linux.dir(), &path)?;
        let stayed = before.iter().filter(|(at, place)| after.get(at) == Some(place)).count() as u64;
        ensure!(stayed * SECTOR == stay, "{name}: {stay} bytes were to stay, {} did", stayed * SECTOR);
    }
    linux.unmount()?;
    let text = bench.creamery().run(["stat"]).arg(inside(&image, "/frozen")).ok()?.stdout_text();
    ensure!(text.contains("\nWrites: in place\n"), "once it is written over it is the file's alone: {text}");
    Ok(())
}

fn mount_option(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let dir = bench.scratch.file("ours");
    let mount = FuseMount::mount(bench.creamery(), &image, &dir, "datacow")?;
    std::fs::write(mount.dir().join("old"), [1; 9000])?;
    mount.unmount()?;
    for side in [NocowSide::Linux, NocowSide::Ours(bench)] {
        let name = if matches!(side, NocowSide::Linux) { "by-linux" } else { "by-us" };
        let work = |top: &Path| -> Result<()> {
            let path = top.join(name);
            std::fs::write(&path, [2; 100_000])?;
            std::fs::create_dir(top.join(format!("{name}-dir")))?;
            side.sync(top)?;
            let before = places(top, &path)?;
            OpenOptions::new().write(true).open(&path)?.write_all_at(&[3; 50_000], 7000)?;
            side.sync(top)?;
            ensure!(before == places(top, &path)?, "{name} has moved");
            for (path, wanted) in [(name, true), ("old", false), (&format!("{name}-dir"), false)] {
                let told = attributes(&top.join(path))?;
                ensure!(told.contains('C') == wanted, "{path} has the flags {told}");
            }
            Ok(())
        };
        match side {
            NocowSide::Linux => {
                let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "nodatacow")?;
                work(mount.dir())?;
                mount.unmount()?;
            }
            NocowSide::Ours(_) => {
                let mount = FuseMount::mount(bench.creamery(), &image, &dir, "nodatacow")?;
                work(mount.dir())?;
                let remount = bench.creamery().run(["mount", "-o", "remount,datacow"]);
                expect_refusal(remount.arg(&image).arg(mount.dir()), &["datacow"])?;
                mount.unmount()?;
            }
        }
        btrfs_check(&image)?;
    }
    Ok(())
}

/// Overwriting in place needs no space, with any system call.
fn when_full(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "")?;
    let path = mount.dir().join("file");
    let file = new_in_place(&path)?;
    let mut random = Random::new(9);
    let mut now = random.bytes(20 << 20);
    file.write_all_at(&now, 0)?;
    file.sync_all()?;
    fill(mount.dir())?;
    for round in 0..200 {
        let at = random.below(19 << 20);
        let len = usize::try_from(1 + random.below(200_000))?;
        let bytes = random.bytes(len);
        now[usize::try_from(at)?..][..bytes.len()].copy_from_slice(&bytes);
        file.write_all_at(&bytes, at).with_context(|| format!("write {round}"))?;
        if round % 20 == 0 {
            file.sync_all().with_context(|| format!("fsync after {round}"))?;
        }
    }
    file.sync_all()?;
    drop(file);
    mount.unmount()?;
    btrfs_check(&image)?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    ensure!(std::fs::read(linux.dir().join("file"))? == now, "the file is something else");
    linux.unmount()
}

/// Writes until there is no space for data.
fn fill(dir: &Path) -> Result<()> {
    let filler = File::create(dir.join("filler"))?;
    let mut at = 0;
    while filler.write_all_at(&[5; 1 << 16], at).is_ok() && filler.sync_data().is_ok() {
        at += 1 << 16;
    }
    Ok(())
}

/// Data written in place but not synced before a snapshot is in the file and the snapshot; later writes need space, and fail at once
/// without it, not at writeback.
fn snapshot_when_full(bench: &Bench) -> Result<()> {
    const PIECES: u64 = 400;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "")?;
    let work = mount.dir().join("work");
    bench.creamery().run(["subvolume", "create"]).arg(&work).ok()?;
    let file = new_in_place(&work.join("file"))?;
    let mut now = vec![b'a'; usize::try_from(PIECES * 4 * SECTOR)?];
    file.write_all_at(&now, 0)?;
    file.sync_all()?;
    fill(mount.dir())?;
    let mut put = |byte: u8, piece: u64| -> std::io::Result<()> {
        let at = piece * 4 * SECTOR + u64::from(byte % 4) * SECTOR;
        file.write_all_at(&[byte; SECTOR as usize], at)?;
        now[at as usize..][..SECTOR as usize].fill(byte);
        Ok(())
    };
    for piece in 0..PIECES {
        put(b'b', piece)?;
    }
    bench.creamery().run(["subvolume", "snapshot"]).arg(&work).arg(mount.dir().join("snapshot")).ok()?;
    let mut refused = 0;
    for piece in 0..PIECES {
        match put(b'c', piece) {
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => refused += 1,
            written => written?,
        }
    }
    ensure!(refused > 0, "there was room: this is no test");
    file.sync_all()?;
    let frozen: Vec<u8> = now.iter().map(|byte| if *byte == b'c' { b'a' } else { *byte }).collect();
    drop(file);
    mount.unmount()?;
    btrfs_check(&image)?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    ensure!(std::fs::read(linux.dir().join("work/file"))? == now, "the file is something else");
    ensure!(std::fs::read(linux.dir().join("snapshot/file"))? == frozen, "the snapshot is something else");
    linux.unmount()
}
