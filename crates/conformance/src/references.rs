//! The users of data, and sharing between files, compared with Linux' answers on one image: snapshots of snapshots, clones within and
//! between subvolumes, extents with little left in use, preallocated and compressed ones, and trees so deep that parents refer to their
//! blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Random, Run, clone_range, sync_filesystem};

use crate::support::{JUDGED, MOUNTED, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let resolve = [
        ("references/resolve-as-linux", &["-n", "16384"][..], 11),
        ("references/resolve-as-linux-deep", &["-n", "4096"], 12),
    ];
    let usage = [
        ("references/du-as-linux", &["-n", "16384"][..], 13),
        ("references/du-as-linux-deep", &["-n", "4096"], 14),
    ];
    let resolve = resolve
        .map(|(name, options, seed)| Case::new(name, &JUDGED, move |bench| resolved(bench, options, seed)));
    let usage =
        usage.map(|(name, options, seed)| Case::new(name, &JUDGED, move |bench| used(bench, options, seed)));
    let units = Case::new("references/du-units", &JUDGED, units);
    let judged = [&JUDGED[..], &MOUNTED[..]].concat();
    let deleted = Case::new("references/du-beside-a-deleted-snapshot", &judged, beside_a_deleted_snapshot);
    resolve.into_iter().chain(usage).chain([units, deleted]).collect()
}

fn btrfs(words: &[&str]) -> Run {
    Run::new("btrfs").args(words)
}

const SECTOR: u64 = 4096;
const FILES: u64 = 250;

/// Files of one to eight sectors, some in directories, and a few that are larger.
fn fill(dir: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(dir.join("directory"))?;
    std::fs::create_dir(dir.join("directory/deeper"))?;
    for number in 0..FILES {
        let below = ["", "directory", "directory/deeper"][random.below(3) as usize];
        let len = (1 + random.below(8 * SECTOR)) as usize;
        std::fs::write(dir.join(below).join(format!("file-{number}")), random.bytes(len))?;
    }
    for number in 0..12 {
        std::fs::write(dir.join(format!("large-{number}")), random.bytes(40 * SECTOR as usize))?;
    }
    sync_filesystem(dir)
}

/// Overwrites parts of existing files, removes some, and clones within the subvolume.
fn change(dir: &Path, random: &mut Random) -> Result<()> {
    use std::os::unix::fs::FileExt;
    for number in 0..12 {
        let path = dir.join(format!("large-{number}"));
        let file = std::fs::File::options().write(true).open(&path)?;
        for _ in 0..random.below(5) {
            let len = (1 + random.below(3)) * SECTOR;
            file.write_all_at(&random.bytes(len as usize), random.below(38) * SECTOR)?;
        }
        sync_filesystem(dir)?;
        match number % 4 {
            0 => clone_range(&path, 8 * SECTOR, &path, (50 + random.below(50)) * SECTOR)?,
            1 => clone_range(&path, 30 * SECTOR, &dir.join("large-0"), (200 + random.below(100)) * SECTOR)?,
            _ => {}
        }
    }
    for number in 0..FILES {
        let path = dir.join(format!("file-{number}"));
        if path.exists() {
            match random.below(12) {
                0 => std::fs::remove_file(&path)?,
                1 => {
                    let len = (1 + random.below(4 * SECTOR)) as usize;
                    std::fs::write(&path, random.bytes(len))?;
                }
                2 => {
                    std::fs::hard_link(&path, dir.join(format!("directory/link-{}", random.below(1 << 40))))?
                }
                _ => {}
            }
        }
    }
    sync_filesystem(dir)
}

/// Linux' work below the root `top` of its mount.
fn populate(top: &Path, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let random = &mut random;
    let snapshot = |words: &[&str], source: &str, target: &str| {
        let run = btrfs(&["-q", "subvolume", "snapshot"]).args(words);
        run.arg(top.join(source)).arg(top.join(target)).ok().map(drop)
    };
    btrfs(&["-q", "subvolume", "create"]).arg(top.join("project")).ok()?;
    btrfs(&["-q", "subvolume", "create"]).arg(top.join("project/nested")).ok()?;
    fill(&top.join("project"), random)?;
    std::fs::write(top.join("project/nested/file"), random.bytes(20_000))?;
    // Preallocated space, partly written; a file that begins in the middle of an extent; compressed data, partly shown.
    Run::new("fallocate").args(["-l", "2M"]).arg(top.join("project/set-aside")).ok()?;
    let behind = create(&top.join("project/behind-the-end"))?;
    Run::new("fallocate").args(["-n", "-l", "1M"]).arg(behind).ok()?;
    clone_range(&top.join("project/large-3"), 4 * SECTOR, &create(&top.join("project/head"))?, 0)?;
    let packed = create(&top.join("project/packed"))?;
    btrfs(&["property", "set"]).arg(&packed).args(["compression", "zstd"]).ok()?;
    std::fs::write(&packed, vec![7; 700_000])?;
    sync_filesystem(top)?;
    snapshot(&[], "project", "first")?;
    snapshot(&["-r"], "first", "kept")?;
    for name in ["project", "first", "project"] {
        change(&top.join(name), random)?;
        snapshot(&[], name, &format!("project/nested/of-{name}-{}", random.below(1 << 40)))?;
    }
    clone_range(
        &top.join("project/large-5"),
        20 * SECTOR,
        &create(&top.join("first/from-project"))?,
        3 * SECTOR,
    )?;
    clone_range(&top.join("first/packed"), 300_000 / SECTOR * SECTOR, &create(&top.join("top"))?, 0)?;
    overwrite(&top.join("first/packed"), 37 * SECTOR, &random.bytes(5 * SECTOR as usize))?;
    overwrite(&top.join("project/set-aside"), 30 * SECTOR, &random.bytes(9 * SECTOR as usize))?;
    snapshot(&[], "first", "last")?;
    // From now on its formerly shared blocks count references by parent.
    change(&top.join("last"), random)?;
    btrfs(&["-q", "subvolume", "delete"]).arg(top.join("first")).ok()?;
    sync_filesystem(top)?;
    btrfs(&["subvolume", "sync"]).arg(top).ok()?;
    change(&top.join("project"), random)
}

fn create(path: &Path) -> Result<std::path::PathBuf> {
    std::fs::write(path, "")?;
    Ok(path.to_owned())
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
    use std::os::unix::fs::FileExt;
    std::fs::File::options().write(true).open(path)?.write_all_at(bytes, at)?;
    sync_filesystem(path)
}

/// The data extents: address and length.
fn data_extents(image: &Path) -> Result<Vec<(u64, u64)>> {
    let said = btrfs(&["inspect-internal", "dump-tree", "-t", "extent"]).arg(image).ok()?.stdout_text();
    let (mut found, mut last) = (Vec::new(), None);
    for line in said.lines() {
        if let Some((_, key)) = line.split_once("key (") {
            let mut words = key.split(&[' ', ')'][..]);
            last = match (words.next(), words.next(), words.next()) {
                (Some(at), Some("EXTENT_ITEM"), Some(len)) => Some((at.parse()?, len.parse()?)),
                _ => None,
            };
        } else if line.contains("flags DATA") {
            found.extend(last.take());
        }
    }
    Ok(found)
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

/// The paths relative to the top level.
fn below(lines: BTreeSet<String>, top: &Path) -> Result<BTreeSet<String>> {
    let top = top.to_str().context("a path of ours")?;
    let strip = |line: String| {
        line.strip_prefix(top).map(str::to_owned).with_context(|| format!("{line} is elsewhere"))
    };
    lines.into_iter().map(strip).collect()
}

/// Paths of inodes from Linux.
struct Paths<'m> {
    top: &'m Path,
    known: BTreeMap<(String, String), BTreeSet<String>>,
}

impl Paths<'_> {
    /// The paths, relative to the top level, of an inode in a line like "inode 257 offset 0 root 5".
    fn of_line(&mut self, line: &str) -> Result<BTreeSet<String>> {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, inode, _, _, _, root] = words[..] else { anyhow::bail!("{line}") };
        let key = (inode.to_owned(), root.to_owned());
        if !self.known.contains_key(&key) {
            let inspect = |words: &[&str], dir: &Path| -> Result<String> {
                let run = btrfs(&["inspect-internal"]).args(words).arg(dir);
                Ok(run.ok()?.stdout_text())
            };
            let subvolume = inspect(&["subvolid-resolve", root], self.top)?;
            let said = inspect(&["inode-resolve", inode], &self.top.join(subvolume.trim()))?;
            let paths = below(lines(&said.replace("//", "/")), self.top)?;
            self.known.insert(key.clone(), paths);
        }
        Ok(self.known[&key].clone())
    }
}

/// One of this many extents gets every question; the others get one.
const EVERY: usize = 10;

fn resolved(bench: &Bench, options: &[&str], seed: u64) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), options, "500M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime,commit=1")?;
    populate(mount.dir(), seed)?;
    let extents = data_extents(&image)?;
    ensure!(extents.len() > 350, "{} extents are few", extents.len());
    let mut random = Random::new(seed);
    let mut wanted: BTreeMap<(&[&str], String), _> = BTreeMap::new();
    let mut known = Paths { top: mount.dir(), known: BTreeMap::new() };
    for (number, &(at, len)) in extents.iter().enumerate() {
        let middle = (at + random.below(len / SECTOR) * SECTOR).to_string();
        let questions = [(&["-P", "-o"][..], at.to_string()), (&["-P"], middle.clone())];
        let all = number % EVERY == 0;
        for (options, at) in questions.into_iter().take(if all { 2 } else { 1 }) {
            let run = btrfs(&["inspect-internal", "logical-resolve", "-s", "1048576"]).args(options);
            let said = run.arg(&at).arg(mount.dir()).output()?;
            let said = if said.code == Some(0) { lines(&said.stdout_text()) } else { BTreeSet::new() };
            wanted.insert((options, at), said);
        }
        if all {
            // Linux names only files of the mounted subvolume, so each path is asked for separately.
            let mut paths = BTreeSet::new();
            for line in &wanted[&(&["-P"][..], middle.clone())] {
                paths.extend(known.of_line(line)?);
            }
            wanted.insert((&[], middle), paths);
        }
    }
    let (subvolumes, inodes) = named(mount.dir())?;
    mount.unmount()?;
    let inspect = |words: &[&str]| bench.creamery().run(["inspect-internal"]).args(words);
    let mut shared = 0;
    for ((options, at), want) in &wanted {
        let said = inspect(&["logical-resolve"]).args(*options).arg(at).arg(&image).ok()?;
        let found = lines(&said.stdout_text());
        ensure!(found == *want, "logical-resolve {options:?} {at}: found {found:?}, Linux found {want:?}");
        shared += usize::from(found.len() > 3);
    }
    ensure!(shared > 100, "only {shared} answers have more than three lines");
    for (id, want) in subvolumes {
        let said = inspect(&["subvolid-resolve"]).arg(id.to_string()).arg(&image).ok()?;
        ensure!(said.stdout_text().trim() == want, "subvolume {id}: {said}, Linux says {want}");
    }
    for ((inode, subvolume), want) in inodes {
        let said = inspect(&["inode-resolve"]).arg(inode.to_string()).arg(inside(&image, &subvolume)).ok()?;
        let found = lines(&said.stdout_text());
        ensure!(found == want, "inode {inode} of {subvolume}: found {found:?}, Linux found {want:?}");
    }
    Ok(())
}

type Subvolumes = BTreeMap<u64, String>;
type Inodes = BTreeMap<(u64, String), BTreeSet<String>>;

/// Linux' answers about all subvolumes, and about some inodes in each.
fn named(top: &Path) -> Result<(Subvolumes, Inodes)> {
    let (mut subvolumes, mut inodes) = (BTreeMap::new(), BTreeMap::new());
    let listed = btrfs(&["subvolume", "list"]).arg(top).ok()?.stdout_text();
    for line in listed.lines() {
        let id: u64 = line.split(' ').nth(1).context("a number")?.parse()?;
        let said = btrfs(&["inspect-internal", "subvolid-resolve"]).arg(id.to_string()).arg(top).ok()?;
        let path = said.stdout_text().trim().to_owned();
        for entry in std::fs::read_dir(top.join(&path).join("directory")).into_iter().flatten().step_by(10) {
            let inode = entry?.metadata()?.ino();
            let run = btrfs(&["inspect-internal", "inode-resolve"]).arg(inode.to_string());
            let said = run.arg(top.join(&path)).ok()?;
            inodes.insert((inode, format!("/{path}")), below(lines(&said.stdout_text()), top)?);
        }
        subvolumes.insert(id, path);
    }
    ensure!(subvolumes.len() > 5 && inodes.len() > 30, "{} and {}", subvolumes.len(), inodes.len());
    Ok((subvolumes, inodes))
}

/// A line of `du`: total, exclusive, set shared, path from the top level.
#[derive(Clone, PartialEq, Eq, Debug)]
struct DuLine {
    total: u64,
    exclusive: u64,
    set_shared: Option<u64>,
    path: String,
}

fn rows(said: &str, top: &str) -> Result<Vec<DuLine>> {
    let row = |line: &str| {
        let (figures, path) = line.split_at_checked(36).context("a line of du")?;
        let figures: Vec<&str> = figures.split_whitespace().collect();
        let [total, exclusive, set_shared] = figures[..] else { anyhow::bail!("{line}") };
        let path = path.trim_start_matches(top).replace("//", "/");
        let set_shared = if set_shared == "-" { None } else { Some(set_shared.parse()?) };
        Ok(DuLine { total: total.parse()?, exclusive: exclusive.parse()?, set_shared, path })
    };
    said.lines().skip(1).map(row).collect()
}

/// Bytes of a file that Linux calls exclusive, although it names other files that refer to these extents. It takes all references
/// from one leaf for one if the leaf's address counts them, although they are of several files.
fn passed_over(file: &Path, top: &Path, extents: &[(u64, u64)]) -> Result<u64> {
    let mut bytes = 0;
    for line in Run::new("filefrag").arg("-v").arg(file).ok()?.stdout_text().lines() {
        let words: Vec<&str> = line.split(&[' ', ':', '.'][..]).filter(|word| !word.is_empty()).collect();
        let (Some(Ok(start)), Some(Ok(end))) =
            (words.get(3).map(|word| word.parse::<u64>()), words.get(4).map(|word| word.parse::<u64>()))
        else {
            continue;
        };
        if line.contains("shared") {
            continue;
        }
        let (start, end) = (start * SECTOR, (end + 1) * SECTOR);
        for &(at, len) in extents.iter().filter(|(at, len)| *at < end && at + len > start) {
            let run = btrfs(&["inspect-internal", "logical-resolve", "-P", "-o", "-s", "1048576"]);
            let said = run.arg(at.to_string()).arg(top).ok()?.stdout_text();
            let file = |line: &str| -> Vec<String> {
                line.split(' ')
                    .enumerate()
                    .filter(|(at, _)| at % 4 == 1)
                    .map(|(_, word)| word.to_owned())
                    .collect()
            };
            let files: BTreeSet<Vec<String>> = said.lines().map(file).collect();
            if files.len() > 1 {
                bytes += end.min(at + len) - start.max(at);
            }
        }
    }
    Ok(bytes)
}

/// Compares our answers about a place with those of Linux, mounted at `top`.
fn compare(top: &Path, found: &[DuLine], want: &[DuLine], extents: &[(u64, u64)]) -> Result<()> {
    ensure!(found.len() == want.len(), "{} lines, Linux has {}", found.len(), want.len());
    let mut more: Vec<(&str, u64)> = Vec::new();
    for (found, want) in found.iter().zip(want) {
        let what = || format!("found {found:?}, Linux says {want:?}");
        ensure!(found.path == want.path && found.total == want.total, what());
        ensure!(found.exclusive <= want.exclusive, what());
        let path = top.join(found.path.trim_start_matches('/'));
        let passed_over = if path.is_dir() {
            let below = format!("{}/", found.path.trim_end_matches('/'));
            more.iter().filter(|(path, _)| path.starts_with(&below)).map(|(_, bytes)| bytes).sum()
        } else if found.exclusive == want.exclusive {
            0
        } else {
            passed_over(&path, top, extents).with_context(what)?
        };
        ensure!(
            want.exclusive - found.exclusive == passed_over,
            "{}, of these {passed_over} are shared",
            what()
        );
        if path.is_file() {
            more.push((&found.path, passed_over));
        }
        if let (Some(found), Some(want)) = (found.set_shared, want.set_shared) {
            // For a file operand, Linux' set shared counts data twice that the file shows twice.
            let fits = if path.is_file() {
                found <= want + passed_over
            } else {
                (want..=want + passed_over).contains(&found)
            };
            ensure!(fits, what());
        } else {
            ensure!(found.set_shared == want.set_shared, what());
        }
    }
    Ok(())
}

fn used(bench: &Bench, options: &[&str], seed: u64) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), options, "500M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime,commit=1")?;
    populate(mount.dir(), seed)?;
    let extents = data_extents(&image)?;
    mount.unmount()?;
    let places = [
        "/",
        "/project",
        "/kept",
        "/last",
        "/project/nested",
        "/project/directory/deeper",
        "/project/large-0",
        "/top",
    ];
    let shown = format!("{}:", image.display());
    let du = |words: &[&str]| bench.creamery().run(["filesystem", "du", "--raw"]).args(words);
    let mut found = Vec::new();
    for place in places {
        found.push(rows(&du(&[]).arg(inside(&image, place)).ok()?.stdout_text(), &shown)?);
    }
    let sums: Vec<DuLine> = found.iter().filter_map(|rows| rows.last()).cloned().collect();
    let said = du(&["-s"]).args(places.map(|place| inside(&image, place))).ok()?;
    ensure!(rows(&said.stdout_text(), &shown)? == sums, "{said}, one by one {sums:#?}");
    let json = du(&["-s", "--json"]).arg(inside(&image, "/kept")).ok()?.stdout_text();
    let figures = [("total", sums[2].total), ("exclusive", sums[2].exclusive)];
    for (name, figure) in figures.into_iter().chain(sums[2].set_shared.map(|bytes| ("set_shared", bytes))) {
        ensure!(json.contains(&format!("\"{name}\":{figure}")), "{name} is not {figure} in {json}");
    }
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro,noatime")?;
    let top = mount.dir().to_str().context("a path of ours")?;
    for (place, found) in places.iter().zip(found) {
        let said = btrfs(&["filesystem", "du", "--raw"]).arg(format!("{top}{place}")).ok()?.stdout_text();
        compare(mount.dir(), &found, &rows(&said, top)?, &extents).with_context(|| (*place).to_owned())?;
    }
    mount.unmount()
}

fn units(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime,commit=1")?;
    let top = mount.dir().to_str().context("a path of ours")?.to_owned();
    let file = mount.dir().join("file");
    std::fs::write(&file, Random::new(1).bytes(5_123_000))?;
    clone_range(&file, 1 << 20, &create(&mount.dir().join("clone"))?, 0)?;
    sync_filesystem(mount.dir())?;
    let all: [&[&str]; 12] = [
        &[],
        &["--raw"],
        &["--human-readable"],
        &["--iec"],
        &["--si"],
        &["--kbytes"],
        &["--mbytes"],
        &["--gbytes"],
        &["--tbytes"],
        &["--si", "--kbytes"],
        &["--mbytes", "--si"],
        &["--si", "--raw"],
    ];
    let mut wanted = Vec::new();
    for options in all {
        wanted.push(btrfs(&["filesystem", "du"]).args(options).arg(&top).ok()?.stdout_text());
    }
    mount.unmount()?;
    for (options, want) in all.iter().zip(wanted) {
        let said = bench.creamery().run(["filesystem", "du"]).args(*options).arg(inside(&image, "/")).ok()?;
        let said = said.stdout_text();
        ensure!(said.lines().next() == want.lines().next(), "{said:?}, Linux says {want:?}");
        let figures = |text: &str| -> Vec<Vec<String>> {
            let row = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect();
            text.lines().skip(1).map(row).collect()
        };
        ensure!(figures(&said) == figures(&want), "{options:?}: {said}, Linux says {want}");
    }
    Ok(())
}

/// A deleted snapshot keeps its space until it is dropped, so it still shares its data.
fn beside_a_deleted_snapshot(bench: &Bench) -> Result<()> {
    let (image, cut) = (bench.scratch.file("disk.img"), bench.scratch.file("cut.img"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "commit=3600")?;
    let at = |name: &str| mount.dir().join(name);
    let subvolume = |words: &[&str]| bench.creamery().run(["subvolume"]).args(words);
    subvolume(&["create"]).arg(at("sub")).ok()?;
    for name in ["sub/kept", "sub/changed"] {
        std::fs::write(at(name), Random::new(1).bytes(300_000))?;
    }
    subvolume(&["snapshot"]).arg(at("sub")).arg(at("goes")).ok()?;
    std::fs::write(at("sub/changed"), Random::new(2).bytes(200_000))?;
    // An open file keeps the snapshot from being dropped.
    let held = std::fs::File::open(at("goes/kept"))?;
    subvolume(&["delete"]).arg(at("goes")).ok()?;
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    Run::new("cp").arg("--sparse=always").args([&image, &cut]).ok()?;
    drop(held);
    mount.unmount()?;
    let figures = |said: &str| -> Vec<String> {
        let line = said.lines().last().unwrap_or_default();
        line.split_whitespace().take(3).map(str::to_owned).collect()
    };
    let names = ["sub/kept", "sub/changed"];
    let linux = LoopMount::mount(&cut, &bench.scratch.file("kernel"), "ro")?;
    let theirs = names.map(|name| btrfs(&["filesystem", "du", "--raw"]).arg(linux.dir().join(name)).ok());
    linux.unmount()?;
    for ((name, is_shared), theirs) in names.into_iter().zip([true, false]).zip(theirs) {
        let theirs = theirs?.stdout_text();
        let ours = bench.creamery().run(["filesystem", "du", "--raw"]).arg(inside(&cut, &format!("/{name}")));
        let ours = ours.ok()?.stdout_text();
        ensure!(figures(&ours) == figures(&theirs), "{name}\n--- Linux ---\n{theirs}\n--- ours ---\n{ours}");
        ensure!((figures(&ours)[1] == "0") == is_shared, "{name}: {ours}");
    }
    Ok(())
}
