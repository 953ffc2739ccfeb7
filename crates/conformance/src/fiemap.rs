//! The extents of files and their addresses: compares `creamery filesystem fiemap` with Linux on one image, entry by entry, and after equal
//! work that is not written back yet.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, clone_range, sync_filesystem};
use serde_json::Value;

use crate::hostile::Victim;
use crate::item_types::EXTENT_DATA;
use crate::mappings;
use crate::support::{JUDGED, MOUNTED, expect_refusal, inside, judge_mount, mkfs_empty};

const FIEMAP_C: &str = include_str!("programs/fiemap.c");
const SECTOR: u64 = 4096;
const EXTENTS: u64 = 10_000;
/// Extents of a file with one damaged leaf.
const SCATTERED: u64 = 2000;

pub(crate) fn cases() -> Vec<Case> {
    let tools = [Judge::Tool("cc"), Judge::Tool("fallocate")];
    let judged = [&JUDGED[..], &tools].concat();
    let mounted = [&MOUNTED[..], &tools].concat();
    let with_users = [&mounted[..], &[Judge::Tool("setpriv")]].concat();
    vec![
        Case::new("fiemap/as-linux", &mounted, |bench| as_linux(bench, &["-n", "16384"], 1)),
        Case::new("fiemap/as-linux-deep", &judged, |bench| as_linux(bench, &["-n", "4096"], 2)),
        Case::new("fiemap/as-linux-with-hole-items", &judged, |bench| {
            as_linux(bench, &["-O", "^no-holes"], 3)
        }),
        Case::new("fiemap/dirty-as-linux", &mounted, dirty_as_linux),
        Case::new("fiemap/many-extents-on-a-mount", &mounted, many_on_a_mount),
        Case::new("fiemap/mappings", &mounted, of_mappings),
        Case::new("fiemap/refused", &with_users, refused),
    ]
}

/// Offset in the file, offset on the device, length, flags.
type Entry = (u64, u64, u64, u64);

const LAST: u64 = 0x1;
const DELALLOC: u64 = 0x4;
const UNWRITTEN: u64 = 0x800;

fn compile(bench: &Bench) -> Result<PathBuf> {
    let dir = bench.scratch.dir("program")?;
    std::fs::write(dir.join("fiemap.c"), FIEMAP_C)?;
    Run::new("cc").args(["-O1", "-Wall", "-Werror", "-o", "fiemap", "fiemap.c"]).within(&dir).ok()?;
    Ok(dir.join("fiemap"))
}

/// Linux' extents of a file.
fn linux(program: &Path, file: &Path, range: Option<(u64, u64)>) -> Result<Vec<Entry>> {
    let words = range.map(|(start, len)| [start.to_string(), len.to_string()]);
    let told = Run::new(program).arg(file).args(words.into_iter().flatten()).ok()?.stdout_text();
    let line = |line: &str| -> Result<Entry> {
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        <[u64; 4]>::try_from(numbers).map(Entry::from).ok().with_context(|| line.to_owned())
    };
    told.lines().map(line).collect()
}

fn flag(name: &str) -> Option<u64> {
    let names = [
        ("last", LAST),
        ("unknown_loc", 0x2),
        ("delalloc", DELALLOC),
        ("encoded", 0x8),
        ("not_aligned", 0x100),
        ("inline", 0x200),
        ("unwritten", UNWRITTEN),
        ("shared", 0x2000),
    ];
    names.into_iter().find(|(known, _)| *known == name).map(|(_, bit)| bit)
}

/// Our extents of a file; `place` names it for the command.
fn ours(bench: &Bench, place: impl AsRef<std::ffi::OsStr>, options: &[String]) -> Result<Vec<Entry>> {
    let told = bench.creamery().run(["filesystem", "fiemap", "--json"]).args(options).arg(place).ok()?;
    let rows: Vec<Value> = serde_json::from_str(&told.stdout_text())?;
    let entry = |row: &Value| -> Option<Entry> {
        let number = |name: &str| row[name].as_u64();
        let flags = row["flags"].as_array()?.iter().map(|name| flag(name.as_str()?)).sum::<Option<u64>>()?;
        Some((number("logical")?, number("physical")?, number("length")?, flags))
    };
    rows.iter().map(|row| entry(row).with_context(|| row.to_string())).collect()
}

fn ranged((start, len): (u64, u64)) -> Vec<String> {
    vec![format!("--start={start}"), format!("--length={len}")]
}

fn allocate(file: &Path, offset: u64, len: u64) -> Result<()> {
    let range = [format!("-o{offset}"), format!("-l{len}")];
    Run::new("fallocate").arg("-n").args(range).arg(file).ok().map(drop)
}

fn write(file: &Path, random: &mut Random, at: u64, sectors: u64) -> Result<()> {
    let len = usize::try_from(sectors * SECTOR)?;
    let open = File::options().write(true).create(true).truncate(false).open(file)?;
    Ok(open.write_all_at(&random.bytes(len), at * SECTOR)?)
}

/// Text that compresses well.
fn text(len: usize) -> Vec<u8> {
    b"what is said again and again packs well\n".iter().copied().cycle().take(len).collect()
}

/// Files of all kinds, made by Linux below `dir`.
fn kinds(dir: &Path, random: &mut Random) -> Result<()> {
    let at = |name: &str| dir.join(name);
    File::create(at("empty"))?;
    File::create(at("hole"))?.set_len(100_000)?;
    for len in [1, 100, 2048] {
        std::fs::write(at(&format!("inline-{len}")), random.bytes(len))?;
    }
    for method in ["zstd", "lzo", "zlib"] {
        std::fs::create_dir(at(method))?;
        Run::new("btrfs").args(["property", "set"]).arg(at(method)).args(["compression", method]).ok()?;
        for len in [100, 1500, 4000, 300_000, 1_000_000] {
            std::fs::write(at(method).join(format!("packed-{len}")), text(len))?;
        }
        sync_filesystem(dir)?;
        write(&at(method).join("packed-300000"), random, 7, 2)?;
    }
    write(&at("sparse"), random, 10, 3)?;
    write(&at("sparse"), random, 400, 5)?;
    File::options().write(true).open(at("sparse"))?.set_len(10 << 20)?;
    std::fs::write(at("set-aside"), "")?;
    allocate(&at("set-aside"), 0, 1 << 20)?;
    std::fs::write(at("behind-the-end"), random.bytes(10_000))?;
    sync_filesystem(dir)?;
    allocate(&at("behind-the-end"), 0, 1 << 20)?;
    write(&at("set-aside"), random, 3, 9)?;
    write(&at("set-aside"), random, 100, 1)?;
    write(&at("bookend"), random, 0, 64)?;
    sync_filesystem(dir)?;
    write(&at("bookend"), random, 8, 4)?;
    write(&at("bookend"), random, 40, 1)?;
    Ok(())
}

/// Random work on a few files, some of it shared.
fn change(dir: &Path, random: &mut Random) -> Result<()> {
    for number in 0..6 {
        let file = dir.join(format!("random-{number}"));
        let (at, sectors) = (random.below(50), 1 + random.below(60));
        write(&file, random, at, sectors)?;
        for _ in 0..12 {
            let (at, sectors) = (random.below(200), 1 + random.below(12));
            match random.below(6) {
                0 => allocate(&file, at * SECTOR, sectors * SECTOR)?,
                1 => {
                    let range = [format!("-o{}", at * SECTOR), format!("-l{}", sectors * SECTOR)];
                    Run::new("fallocate").arg("-p").args(range).arg(&file).ok()?;
                }
                2 => sync_filesystem(dir)?,
                3 if number > 0 => {
                    let source = dir.join(format!("random-{}", random.below(number)));
                    let len = source.metadata()?.len() / SECTOR * SECTOR;
                    clone_range(&source, len.min(9 * SECTOR), &file, at * SECTOR)?;
                }
                _ => write(&file, random, at, sectors)?,
            }
        }
    }
    sync_filesystem(dir)
}

fn populate(top: &Path, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let random = &mut random;
    let btrfs = |words: &[&str]| Run::new("btrfs").args(words);
    btrfs(&["-q", "subvolume", "create"]).arg(top.join("work")).ok()?;
    kinds(&top.join("work"), random)?;
    change(&top.join("work"), random)?;
    // Each second block of a long file is written separately, so no extent goes on from the one before.
    let many = top.join("work/many");
    for half in [1, 0] {
        for number in 0..EXTENTS / 2 {
            write(&many, random, 2 * (2 * number + half), 1)?;
        }
        sync_filesystem(top)?;
    }
    // Clones of uncompressed data, whole and in part; and an extent twice in one file.
    for (name, sectors, to) in [("whole", 64, 0), ("part", 5, 3)] {
        File::create(top.join("work").join(name))?;
        clone_range(&top.join("work/bookend"), sectors * SECTOR, &top.join("work").join(name), to * SECTOR)?;
    }
    write(&top.join("work/twice"), random, 0, 10)?;
    sync_filesystem(top)?;
    clone_range(&top.join("work/twice"), 4 * SECTOR, &top.join("work/twice"), 30 * SECTOR)?;
    sync_filesystem(top)?;
    btrfs(&["-q", "subvolume", "snapshot"]).arg(top.join("work")).arg(top.join("before")).ok()?;
    btrfs(&["-q", "subvolume", "snapshot", "-r"]).arg(top.join("work")).arg(top.join("kept")).ok()?;
    for name in ["set-aside", "sparse", "zstd/packed-1000000", "random-0", "random-3"] {
        write(&top.join("work").join(name), random, 20, 7)?;
        sync_filesystem(top)?;
    }
    std::fs::create_dir(top.join("own"))?;
    kinds(&top.join("own"), random)?;
    change(&top.join("own"), random)
}

/// All files below `dir`, from there.
fn files(dir: &Path) -> Result<Vec<String>> {
    let listed = Run::new("find").within(dir).args([".", "-type", "f", "-printf", "%P\\n"]).ok()?;
    Ok(listed.stdout_text().lines().map(str::to_owned).collect())
}

fn as_linux(bench: &Bench, options: &[&str], seed: u64) -> Result<()> {
    let (program, image) = (compile(bench)?, bench.scratch.file("disk.img"));
    File::create(&image)?.set_len(1 << 30)?;
    Run::new("mkfs.btrfs").arg("-q").args(options).arg(&image).ok()?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("linux"), "")?;
    populate(mount.dir(), seed)?;
    mount.unmount()?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("linux"), "ro")?;
    let mut random = Random::new(seed);
    let mut told = Vec::new();
    for name in files(mount.dir())? {
        let file = mount.dir().join(&name);
        told.push((name.clone(), None, linux(&program, &file, None)?));
        for _ in 0..2 {
            let len = file.metadata()?.len() + SECTOR;
            let range = (random.below(len), 1 + random.below(len));
            told.push((name.clone(), Some(range), linux(&program, &file, Some(range))?));
        }
    }
    mount.unmount()?;
    let flags = told.iter().flat_map(|(.., entries)| entries).fold(0, |flags, entry| flags | entry.3);
    ensure!(flags == 0x2b09, "not all kinds of extents are there: {flags:#x}");
    ensure!(told.iter().any(|(.., entries)| entries.len() as u64 == EXTENTS), "no file has many extents");
    let has_mount = seed == 1;
    let ours_mounted = has_mount
        .then(|| FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "ro"))
        .transpose()?;
    let mut problems = Vec::new();
    for (name, range, entries) in &told {
        let options = range.map_or_else(Vec::new, ranged);
        let found = match &ours_mounted {
            Some(mount) => ours(bench, mount.dir().join(name), &options)?,
            None => ours(bench, inside(&image, &format!("/{name}")), &options)?,
        };
        if found != *entries {
            problems.push(format!("{name} {range:?}: {}", difference(entries, &found)));
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    if let Some(mount) = ours_mounted {
        mount.unmount()?;
        let (name, _, entries) = told.first().context("a file")?;
        ensure!(ours(bench, inside(&image, &format!("/{name}")), &[])? == *entries, "{name} in the image");
    }
    Ok(())
}

/// The first entry in which both differ.
fn difference(linux: &[Entry], ours: &[Entry]) -> String {
    let same = linux.iter().zip(ours).take_while(|(one, other)| one == other).count();
    let (one, other) = (linux.get(same), ours.get(same));
    format!("entry {same} of {}: Linux tells {one:?}, we {other:?}", linux.len())
}

/// The kind of each sector of a file: 0 for a hole, 1 for data, with the flags of delayed and unwritten extents.
fn sectors(entries: &[Entry]) -> Vec<u64> {
    let mut sectors = Vec::new();
    for (logical, _, length, flags) in entries {
        let (first, end) = ((logical / SECTOR) as usize, ((logical + length) / SECTOR) as usize);
        sectors.resize(first, 0);
        sectors.resize(end, flags & (DELALLOC | UNWRITTEN) | 1);
    }
    sectors
}

/// Equal work on both sides: both report the same before writeback, and the same extents in former holes after it.
fn dirty_as_linux(bench: &Bench) -> Result<()> {
    let program = compile(bench)?;
    let image = |name: &str| bench.scratch.file(name);
    for name in ["linux.img", "ours.img"] {
        mkfs_empty(bench.creamery(), &[], "1G", &image(name))?;
    }
    let linux_mount = LoopMount::mount(&image("linux.img"), &image("linux"), "commit=300")?;
    let our_mount = FuseMount::mount(bench.creamery(), &image("ours.img"), &image("fuse"), "commit=300")?;
    for round in 0..24 {
        let name = format!("file-{round}");
        let (there, here) = (linux_mount.dir().join(&name), our_mount.dir().join(&name));
        let both = |seed: u64| [(&there, Random::new(seed)), (&here, Random::new(seed))];
        for (file, mut random) in both(round) {
            std::fs::write(file, random.bytes(random_len(round)))?;
            File::open(file)?.sync_all()?;
            for _ in 0..random.below(3) {
                allocate(file, random.below(40) * SECTOR, (1 + random.below(20)) * SECTOR)?;
            }
            for _ in 0..random.below(6) {
                let (at, sectors) = (1 + random.below(50), 1 + random.below(5));
                write(file, &mut random, at, sectors)?;
            }
        }
        let told = [linux(&program, &there, None)?, ours(bench, &here, &[])?];
        // Both report the same delayed extents; written ones may be divided differently.
        let delayed = told.each_ref().map(|entries| {
            let delayed = entries.iter().filter(|entry| entry.3 & DELALLOC != 0);
            delayed.map(|(logical, _, length, flags)| (*logical, *length, *flags)).collect::<Vec<_>>()
        });
        ensure!(delayed[0] == delayed[1], "{name}: Linux tells {:?}, we {:?}", told[0], told[1]);
        let [one, other] = told.each_ref().map(|entries| sectors(entries));
        ensure!(one == other, "{name}: Linux tells {:?}, we {:?}", told[0], told[1]);
        for (file, mut random) in both(100 + round) {
            // Preallocated space behind the new end goes, also if only memory had the larger size.
            if round % 3 == 2 {
                File::options().write(true).open(file)?.set_len((1 + random.below(50)) * SECTOR)?;
            }
            File::open(file)?.sync_all()?;
        }
        let told = [linux(&program, &there, None)?, ours(bench, &here, &["--sync".to_owned()])?];
        let [one, other] = told.each_ref().map(|entries| sectors(entries));
        ensure!(one == other, "{name}, synced: Linux tells {:?}, we {:?}", told[0], told[1]);
        ensure!(!other.iter().any(|flags| flags & DELALLOC != 0), "{name} is synced: {:?}", told[1]);
    }
    linux_mount.unmount()?;
    judge_mount(bench, &image("ours.img"), our_mount)
}

/// Lengths of small files, which stay inline, and of larger ones.
const fn random_len(round: u64) -> usize {
    if round.is_multiple_of(4) { 700 + round as usize } else { 3_000 * round as usize }
}

/// A file of many extents on a live mount is listed in parts and as a whole, also while it is written.
fn many_on_a_mount(bench: &Bench) -> Result<()> {
    let (program, image) = (compile(bench)?, bench.scratch.file("disk.img"));
    mkfs_empty(bench.creamery(), &[], "1G", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let (file, mut random) = (mount.dir().join("many"), Random::new(1));
    for number in 0..EXTENTS {
        write(&file, &mut random, 2 * number, 1)?;
    }
    let entries = ours(bench, &file, &[])?;
    ensure!(entries.len() as u64 == EXTENTS, "{} of {EXTENTS} extents", entries.len());
    let delayed = entries.iter().filter(|entry| entry.3 & DELALLOC != 0).count();
    ensure!(delayed > 0, "nothing is delayed");
    let synced = ours(bench, &file, &["--sync".to_owned()])?;
    ensure!(synced.iter().all(|entry| entry.1 != 0 && entry.3 & !LAST == 0), "something lies nowhere");
    let places = |entries: &[Entry]| entries.iter().map(|entry| (entry.0, entry.2)).collect::<Vec<_>>();
    ensure!(places(&synced) == places(&entries), "the file has changed");
    // A file without a name can still be listed through an open descriptor.
    let open = File::open(&file)?;
    let copy = File::options().read(true).write(true).create_new(true).open(mount.dir().join("gone"))?;
    copy.write_all_at(&random.bytes(20_000), 0)?;
    std::fs::remove_file(mount.dir().join("gone"))?;
    let descriptor = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    ensure!(ours(bench, descriptor(&open), &[])? == synced, "by a descriptor");
    let gone = ours(bench, descriptor(&copy), &[])?;
    ensure!(gone.len() == 1 && gone[0].2 == 5 * SECTOR, "of a file without a name: {gone:?}");
    drop((open, copy));
    mount.unmount()?;
    let linux_mount = LoopMount::mount(&image, &bench.scratch.file("linux"), "ro")?;
    let told = linux(&program, &linux_mount.dir().join("many"), None)?;
    ensure!(told == synced, "Linux finds them elsewhere: {}", difference(&told, &synced));
    linux_mount.unmount()
}

/// Changes of a mapping are only in the kernel's pages, and are listed as well.
fn of_mappings(bench: &Bench) -> Result<()> {
    let (program, image) = (mappings::program(bench)?, bench.scratch.file("disk.img"));
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let path = mount.dir().join("mapped");
    File::create_new(&path)?.set_len(mappings::LEN)?;
    ensure!(ours(bench, &path, &[])?.is_empty(), "there is nothing yet");
    let mut writer = mappings::MappingWriter::start(&program, &path)?;
    let listed = ours(bench, &path, &[])?;
    let synced = ours(bench, &path, &["--sync".to_owned()])?;
    writer.end()?;
    ensure!(listed.len() == 3 && listed.iter().all(|entry| entry.3 & DELALLOC != 0), "{listed:?}");
    ensure!(synced.len() == 3 && synced.iter().all(|entry| entry.1 != 0), "{synced:?}");
    mount.unmount()
}

fn refused(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "allow_other")?;
    let at = |name: &str| mount.dir().join(name);
    std::fs::create_dir(at("directory"))?;
    write(&at("file"), &mut Random::new(1), 0, 300)?;
    for number in 0..SCATTERED {
        write(&at("scattered"), &mut Random::new(number), 2 * number, 1)?;
    }
    std::os::unix::fs::symlink("file", at("link"))?;
    std::os::unix::fs::symlink("nowhere", at("dangling"))?;
    Run::new("mkfifo").arg(at("pipe")).ok()?;
    let words =
        [("directory", "is a directory"), ("pipe", "not a regular file"), ("dangling", "no such file")];
    let listed = |place: &Path| bench.creamery().run(["filesystem", "fiemap"]).arg(place);
    for (name, what) in words {
        expect_refusal(listed(&at(name)), &["filesystem fiemap", name, what])?;
    }
    let whole = ours(bench, at("link"), &["--sync".to_owned()])?;
    ensure!(!whole.is_empty() && whole == ours(bench, at("file"), &[])?, "a link is what it leads to");
    for (options, what) in
        [(["--start=0", "--length=0"], "empty range"), (["--start=8E", "--length=1"], "beyond the maximum")]
    {
        expect_refusal(listed(&at("file")).args(options), &["file", what])?;
    }
    expect_refusal(listed(&bench.scratch.dir("elsewhere")?), &["is a directory"])?;
    expect_refusal(listed(&image), &["disk.img", "not on a mount"])?;
    // Listing needs read permission on the file.
    Run::new("chmod").arg("755").arg(mount.dir()).ok()?;
    for (mode, may) in [("600", false), ("604", true)] {
        Run::new("chmod").arg(mode).arg(at("file")).ok()?;
        let nobody = Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        let run = nobody.arg(bench.creamery().path()).args(["filesystem", "fiemap"]).arg(at("file"));
        if may {
            run.ok()?;
        } else {
            expect_refusal(run, &["file", "permission denied"])?;
        }
    }
    bench.creamery().run(["subvolume", "create"]).arg(at("subvolume")).ok()?;
    write(&at("subvolume/file"), &mut Random::new(2), 0, 3)?;
    bench.creamery().run(["subvolume", "snapshot", "-r"]).args([at("subvolume"), at("kept")]).ok()?;
    let kept = ours(bench, at("kept/file"), &[])?;
    ensure!(kept.len() == 1 && kept[0].3 == 0x2001, "of a file in a read-only subvolume: {kept:?}");
    mount.unmount()?;
    for (name, what) in
        [("directory", "is a directory"), ("pipe", "not a regular file"), ("missing", "not found")]
    {
        let place = inside(&image, &format!("/{name}"));
        expect_refusal(
            bench.creamery().run(["filesystem", "fiemap"]).arg(place),
            &["disk.img:/", name, what],
        )?;
    }
    damaged(bench, &image)
}

/// A leaf in the middle of the file's leaves is damaged, with a valid checksum: the entries before it may be listed, then the error
/// follows.
fn damaged(bench: &Bench, image: &Path) -> Result<()> {
    let mut victim = Victim::new(image.to_owned())?;
    let far = (SCATTERED / 2 * 2 * SECTOR).to_le_bytes();
    let broken = victim.edit(EXTENT_DATA, &mut |key, data| {
        let is_it = key[9..17] == far;
        data[20] = if is_it { 9 } else { data[20] };
        is_it
    })?;
    ensure!(broken == 1, "{broken} items were damaged");
    let words = ["scattered", "extent_data", "found 9", "damaged"];
    let place = inside(image, "/scattered");
    expect_refusal(bench.creamery().run(["filesystem", "fiemap"]).arg(place), &words)?;
    let mount = FuseMount::mount(bench.creamery(), image, &bench.scratch.file("fuse"), "ro")?;
    let live = || bench.creamery().run(["filesystem", "fiemap"]).arg(mount.dir().join("scattered"));
    expect_refusal(live(), &words)?;
    ensure!(live().output()?.stdout_text().lines().count() > 100, "what is before the damage is told");
    ensure!(!ours(bench, mount.dir().join("file"), &[])?.is_empty(), "the others are told as ever");
    mount.unmount()
}
