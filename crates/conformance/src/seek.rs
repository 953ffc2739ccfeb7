//! Data and holes of files: compares ours with Linux' own Btrfs on equal content, offset by offset.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, until};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use crate::mappings::{LEN, MappingWriter, program};
use crate::support::{MOUNTED, judge_mount, mkfs_empty, stats};

const SECTOR: u64 = 4096;
const MIB: u64 = 1 << 20;
const PREALLOC: FallocateFlags = FallocateFlags::KEEP_SIZE;
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

pub(crate) fn cases() -> Vec<Case> {
    let compiled = [&MOUNTED[..], &[Judge::Tool("cc")]].concat();
    let scanned = [&MOUNTED[..], &[Judge::Tool("xfs_io")]].concat();
    vec![
        Case::new("seek/each-place-is-what-it-is-on-linux", &MOUNTED, each_place),
        Case::new("seek/what-mappings-changed-is-data", &compiled, mapped),
        Case::new("seek/beside-a-mapping-that-changes", &compiled, beside),
        Case::new("seek/many-at-once-are-told-exactly", &MOUNTED, many_at_once),
        Case::new("seek/who-is-killed-ends", &scanned, killed),
    ]
}

/// A step of work on a file.
#[derive(Clone, Copy)]
enum Step {
    Write(u64, u64),
    SetLen(u64),
    Allocate(FallocateFlags, u64, u64),
    Sync,
}

use Step::{Allocate, SetLen, Sync, Write};

/// Files with names that describe them. No hole is punched into a part of a sector, and no file grows within a sector without data: Linux
/// writes zeros to such a sector.
const FILES: [(&str, &[Step]); 14] = [
    ("empty", &[]),
    ("one byte", &[Write(0, 1)]),
    ("inline", &[Write(0, 2000)]),
    ("inline and a hole", &[Write(0, 2000), Sync, SetLen(3 * SECTOR + 7)]),
    ("all hole", &[SetLen(MIB + 5)]),
    ("one byte far out", &[Write(5 * MIB + 3, 1)]),
    ("ends within a sector", &[Write(0, 10_000)]),
    ("a hole at its end", &[Write(0, 3 * SECTOR), SetLen(20 * SECTOR)]),
    ("set aside", &[Allocate(FallocateFlags::empty(), 0, 16 * SECTOR), Write(5 * SECTOR + 9, 5000)]),
    ("set aside behind the end", &[Write(0, SECTOR), Allocate(PREALLOC, SECTOR, MIB), Write(9 * SECTOR, 1)]),
    (
        "set aside and written",
        &[Allocate(PREALLOC, 0, MIB), Sync, Write(0, MIB / 2), Sync, Write(MIB - 9, 9)],
    ),
    ("punched", &[Write(0, MIB), Sync, Allocate(PUNCH, 8 * SECTOR, 16 * SECTOR), Write(10 * SECTOR, 1)]),
    ("cut", &[Write(0, MIB), SetLen(3 * SECTOR), SetLen(9 * SECTOR)]),
    ("far", &[Write(1 << 40, 1), Write(1 << 30, SECTOR), SetLen((1 << 42) + 1)]),
];

fn step(file: &File, step: Step) -> Result<()> {
    match step {
        Write(at, len) => file.write_all_at(&vec![7; usize::try_from(len)?], at)?,
        SetLen(len) => file.set_len(len)?,
        Allocate(flags, at, len) => fallocate(file, flags, at, len)?,
        Sync => file.sync_all()?,
    }
    Ok(())
}

/// Scattered writes, as of a program that copies parts of a sparse file.
fn scatter(file: &File) -> Result<()> {
    let mut random = Random::new(7);
    for _ in 0..60 {
        let at = random.below(300) * SECTOR;
        step(file, Write(at, 1 + random.below(3 * SECTOR)))?;
    }
    step(file, SetLen(400 * SECTOR + 11))
}

/// Both answers for an offset: SEEK_DATA and SEEK_HOLE.
type SeekAnswers = [Result<u64, Errno>; 2];

fn ask(file: &File, at: u64) -> SeekAnswers {
    [seek(file, SeekFrom::Data(at)), seek(file, SeekFrom::Hole(at))]
}

/// Asks for data and holes around all sectors up to a megabyte and more, around each answer, at the ends, and outside.
fn look(file: &File) -> Result<Vec<(u64, SeekAnswers)>> {
    let size = file.metadata()?.len();
    let sectors = (0..300).map(|sector| sector * SECTOR);
    let told = map(file)?.into_iter().flat_map(|(start, end)| [start, end]);
    let places = sectors.chain(told).chain([size, size + SECTOR, 1 << 41, i64::MAX as u64]);
    let places = places.flat_map(|at| [at.saturating_sub(1), at, at.saturating_add(1)]);
    Ok(places.filter(|at| *at <= i64::MAX as u64).map(|at| (at, ask(file, at))).collect())
}

/// The ranges of data; checks that they and the holes between them make up the file.
pub(crate) fn map(file: &File) -> Result<Vec<(u64, u64)>> {
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let start = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(found),
            start => start?,
        };
        ensure!(start > at || at == 0, "data at {start} behind data that ended there");
        at = seek(file, SeekFrom::Hole(start))?;
        ensure!(at > start, "a hole at {at} in data");
        found.push((start, at));
    }
}

/// Compares both answers for a file: through a handle for reading, and through one for writing as well.
fn compare(linux: &Path, ours: &Path, state: &str) -> Result<()> {
    for write in [false, true] {
        let [linux, ours] = [linux, ours].map(|path| File::options().read(true).write(write).open(path));
        let (linux, ours) = (linux?, ours?);
        for ((at, wanted), (place, found)) in look(&linux)?.into_iter().zip(look(&ours)?) {
            let same = at == place && wanted == found;
            ensure!(same, "{state}, write={write}: at {at} Linux says {wanted:?}, at {place} ours {found:?}");
        }
        // Offsets before the file. Linux reports no data for inline data in the tree, but its offset for the same data in memory; we report
        // its offset in both cases.
        for before in [-1, -5000, i64::MIN] {
            let [wanted, found] = [&linux, &ours].map(|file| ask(file, before as u64));
            let [data, hole] = ask(&ours, 0);
            ensure!(
                found == [data, hole] && wanted[1] == hole,
                "{state}: at {before} {wanted:?} and {found:?}"
            );
            ensure!(wanted[0] == data || wanted[0] == Err(Errno::NXIO), "{state}: at {before} {wanted:?}");
        }
    }
    Ok(())
}

/// Two equal filesystems made by us: one mounted by Linux, one by us.
pub(crate) fn both(bench: &Bench) -> Result<(LoopMount, FuseMount)> {
    let images = ["linux.img", "disk.img"].map(|name| bench.scratch.file(name));
    for image in &images {
        mkfs_empty(bench.creamery(), &[], "512M", image)?;
    }
    let linux = LoopMount::mount(&images[0], &bench.scratch.file("linux"), "")?;
    Ok((linux, FuseMount::mount(bench.creamery(), &images[1], &bench.scratch.file("fuse"), "commit=3600")?))
}

fn each_place(bench: &Bench) -> Result<()> {
    let (linux, ours) = both(bench)?;
    let mut made: Vec<&str> = Vec::new();
    for (name, steps) in FILES {
        for dir in [linux.dir(), ours.dir()] {
            let file = File::create_new(dir.join(name))?;
            steps.iter().try_for_each(|done| step(&file, *done))?;
        }
        made.push(name);
    }
    for dir in [linux.dir(), ours.dir()] {
        scatter(&File::create_new(dir.join("scattered"))?)?;
    }
    made.push("scattered");
    for state in ["dirty", "synced"] {
        for name in &made {
            compare(&linux.dir().join(name), &ours.dir().join(name), &format!("{name}, {state}"))?;
        }
        Run::new("sync").arg("-f").arg(linux.dir()).ok()?;
        bench.creamery().run(["sync"]).arg(ours.dir()).ok()?;
    }
    // A directory is all data up to its size, on the part of the kernel.
    let [one, other] = [linux.dir(), ours.dir()].map(File::open);
    let (one, other) = (one?, other?);
    ensure!(one.metadata()?.len() == other.metadata()?.len(), "the folders differ in size");
    let size = one.metadata()?.len();
    for at in [0, 1, size - 1, size, size + 1] {
        ensure!(ask(&one, at) == ask(&other, at), "a folder at {at} of {size}: {:?}", ask(&other, at));
    }
    drop((one, other));
    linux.unmount()?;
    judge_mount(bench, &bench.scratch.file("disk.img"), ours)
}

/// Pages that a mapping made dirty over holes are data for all processes, before writeback.
fn mapped(bench: &Bench) -> Result<()> {
    let program = program(bench)?;
    let (linux, ours) = both(bench)?;
    for dir in [linux.dir(), ours.dir()] {
        let file = File::create_new(dir.join("file"))?;
        file.set_len(LEN)?;
        file.write_all_at(b"written", LEN / 2)?;
    }
    let files = [linux.dir().join("file"), ours.dir().join("file")];
    compare(&files[0], &files[1], "before")?;
    let mut writers =
        [MappingWriter::start(&program, &files[0])?, MappingWriter::start(&program, &files[1])?];
    let wanted = map(&File::open(&files[0])?)?;
    let found = map(&File::open(&files[1])?)?;
    ensure!(wanted == found && found.len() == 4, "Linux has data in {wanted:?}, ours in {found:?}");
    compare(&files[0], &files[1], "with dirty pages")?;
    writers.iter_mut().try_for_each(MappingWriter::end)?;
    compare(&files[0], &files[1], "afterwards")?;
    linux.unmount()?;
    judge_mount(bench, &bench.scratch.file("disk.img"), ours)
}

/// Many questions beside a program that changes pages all the time come to an end, and miss no earlier change.
fn beside(bench: &Bench) -> Result<()> {
    const PAGES: u64 = 200;
    const SCANS: usize = 10;
    let program = bench.scratch.dir("program")?;
    std::fs::write(program.join("busy.c"), include_str!("programs/busy.c"))?;
    Run::new("cc").args(["-O1", "-o", "busy", "busy.c"]).within(&program).ok()?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let path = mount.dir().join("file");
    File::create_new(&path)?.set_len(2 * PAGES * SECTOR)?;
    let mut command = Command::new(program.join("busy"));
    let mut child = command.arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    BufReader::new(child.stdout.take().context("its output")?).read_line(&mut said)?;
    let scan = |write: bool| -> Result<()> {
        let file = File::options().read(true).write(write).open(&path)?;
        (0..SCANS).try_for_each(|_| map(&file).map(drop))
    };
    let scanned: Result<()> = std::thread::scope(|scope| {
        let scans: Vec<_> = (0..8).map(|number| scope.spawn(move || scan(number % 2 == 0))).collect();
        scans.into_iter().try_for_each(|scan| scan.join().expect("no panic"))
    });
    drop(child.stdin.take());
    ensure!(child.wait()?.success() && said == "dirty\n", "the program says {said:?}");
    scanned?;
    let wanted: Vec<_> = (0..PAGES).map(|page| (2 * page * SECTOR, (2 * page + 1) * SECTOR)).collect();
    let found = map(&File::open(&path)?)?;
    ensure!(found == wanted, "every second page was changed, and {} ranges are data", found.len());
    judge_mount(bench, &image, mount)
}

/// A process with files open for reading and writing makes every question wait for the kernel. No number of questions makes an answer claim
/// that everything may be data.
fn many_at_once(bench: &Bench) -> Result<()> {
    const FILES: u64 = 4;
    const EACH: usize = 5;
    const PIECES: u64 = 100;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let path = |number: u64| mount.dir().join(format!("file {number}"));
    let mut open = Vec::new();
    for number in 0..FILES {
        let file = File::options().read(true).write(true).create_new(true).open(path(number))?;
        file.set_len(2 * PIECES * SECTOR)?;
        for piece in 0..PIECES {
            file.write_all_at(&[7; 4096], 2 * piece * SECTOR)?;
        }
        open.push(file);
    }
    let wanted: Vec<_> = (0..PIECES).map(|piece| (2 * piece * SECTOR, (2 * piece + 1) * SECTOR)).collect();
    let scan = |number: u64| -> Result<()> {
        let file = File::open(path(number))?;
        for _ in 0..5 {
            let found = map(&file)?;
            ensure!(found == wanted, "of file {number} {found:?} are data");
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let numbers = (0..FILES).flat_map(|number| [number; EACH]);
        let scans: Vec<_> = numbers.map(|number| scope.spawn(move || scan(number))).collect();
        scans.into_iter().try_for_each(|scan| scan.join().expect("no panic"))
    })?;
    drop(open);
    judge_mount(bench, &image, mount)
}

/// Programs that are killed while they ask about a file whose data lies behind many items without data: they end, and leave no wait behind.
fn killed(bench: &Bench) -> Result<()> {
    const PIECES: u64 = 5000;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let path = mount.dir().join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    let end = 2 * PIECES * SECTOR;
    file.set_len(end + SECTOR)?;
    for piece in 0..PIECES {
        fallocate(&file, PREALLOC, 2 * piece * SECTOR, SECTOR)?;
    }
    file.write_all_at(b"data", end)?;
    let asks = r#"while :; do xfs_io -r -c "seek -d 0" -c "seek -h 0" "$0" >/dev/null; done"#;
    let answers = || -> Result<u64> {
        Ok(stats(bench, mount.dir())?["requests"]["lseek"]["count"].as_u64().unwrap_or(0))
    };
    for round in 0..8 {
        let before = answers()?;
        let start = || Command::new("sh").args(["-c", asks]).arg(&path).process_group(0).spawn();
        let mut asking: Vec<_> = (0..3).map(|_| start()).collect::<Result<_, _>>()?;
        until("some answers", || Ok(answers()? > before + 10 * round))?;
        for child in &mut asking {
            let group = rustix::process::Pid::from_child(child);
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL)?;
            child.wait()?;
        }
        let [data, hole] = ask(&file, 0);
        ensure!(
            data == Ok(end) && hole == Ok(0),
            "after round {round} data is at {data:?}, a hole at {hole:?}"
        );
    }
    drop(file);
    judge_mount(bench, &image, mount)
}
