//! Reads and writes around the kernel's page cache (`O_DIRECT`), and the view through the cache.

pub(crate) mod killed;
pub(crate) mod qemu;

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};

use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, btrfs_check};
use rustix::fs::{IFlags, OFlags};

use crate::support::{MOUNTED, judge_mount, mkfs_empty, stats};

const DIRECT_C: &str = include_str!("../programs/direct.c");
const PAIRS_C: &str = include_str!("../programs/direct_pairs.c");
const FULL_C: &str = include_str!("../programs/direct_full.c");
const ROUNDS: &str = "500";
/// Bytes of a file of which each opener sees all writes of the others.
const PAIRS_LEN: usize = 64 << 12;

/// Kinds of files.
const KINDS: [(&str, IFlags); 3] =
    [("checksummed", IFlags::empty()), ("in-place", IFlags::NOCOW), ("compressed", IFlags::COMPRESSED)];

pub(crate) fn cases() -> Vec<Case> {
    let judges = [&MOUNTED[..], &[Judge::Tool("cc")]].concat();
    vec![
        Case::new("direct/asynchronous-writes-beside-reads", &judges, writes_beside_reads),
        Case::new("direct/each-sees-what-the-other-writes", &judges, pairs),
        Case::new("direct/any-offset-and-length", &MOUNTED, any_offset),
        Case::new("direct/no-space-is-said-as-that", &judges, no_space),
        Case::new("direct/appends-to-what-is-only-appended-to", &MOUNTED, appends),
    ]
}

/// Builds a program from the source `text`.
fn program(bench: &Bench, text: &str) -> Result<PathBuf> {
    let folder = bench.scratch.dir("program")?;
    std::fs::write(folder.join("direct.c"), text)?;
    Run::new("cc").args(["-O1", "-o", "direct", "direct.c"]).within(&folder).ok()?;
    Ok(folder.join("direct"))
}

fn writes_beside_reads(bench: &Bench) -> Result<()> {
    let program = program(bench, DIRECT_C)?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    Run::new(program).arg(mount.dir().join("file")).arg(ROUNDS).ok()?;
    mount.unmount()
}

/// Direct and cached openers, on our mount, and on the kernel's.
fn pairs(bench: &Bench) -> Result<()> {
    let program = program(bench, PAIRS_C)?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let of_each_kind = |dir: &Path| -> Result<()> {
        std::fs::create_dir(dir)?;
        for (name, kind) in KINDS {
            let path = dir.join(name);
            new_file(&path, kind)?.write_all_at(&vec![b'a'; PAIRS_LEN], 0)?;
            Run::new(&program).arg(&path).ok().context(name)?;
        }
        Ok(())
    };
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "allow_other")?;
    of_each_kind(&mount.dir().join("ours"))?;
    let told = stats(bench, mount.dir())?;
    for figure in ["reads", "writes", "in_place_bytes", "to_new_space_bytes", "buffered_compressed"] {
        let count = told["filesystem"]["direct"][figure].as_u64().context(figure)?;
        ensure!(count > 0, "{figure} of direct requests is 0");
    }
    judge_mount(bench, &image, mount)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    of_each_kind(&mount.dir().join("the-kernel's")).context("on the kernel's mount")?;
    mount.unmount()?;
    btrfs_check(&image)
}

/// Asynchronous and synchronous writes, during which space runs out.
fn no_space(bench: &Bench) -> Result<()> {
    let program = program(bench, FULL_C)?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    for (name, kind) in KINDS {
        let path = mount.dir().join(name);
        drop(new_file(&path, kind)?);
        Run::new(&program).arg(&path).ok().context(name)?;
        std::fs::remove_file(path)?;
    }
    judge_mount(bench, &image, mount)
}

/// Appends through descriptors with and without read permission. The first write removes the file's capabilities, as any write does.
fn appends(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let append = |dir: &Path| -> Result<()> {
        let path = dir.join("log");
        File::create_new(&path)?;
        // VFS_CAP_REVISION_2, with no permitted capability.
        let capability = [&[0, 0, 0, 2][..], &[0; 16]].concat();
        rustix::fs::setxattr(&path, "security.capability", &capability, rustix::fs::XattrFlags::empty())?;
        let file = File::open(&path)?;
        rustix::fs::ioctl_setflags(&file, IFlags::APPEND)?;
        for flags in ["oflag=append,direct", "oflag=append", "oflag=append,direct"] {
            let words = ["if=/dev/zero", "bs=4096", "count=1", "conv=notrunc", "status=none", flags];
            let mut to = std::ffi::OsString::from("of=");
            to.push(&path);
            Run::new("dd").args(words).arg(to).ok().context(flags)?;
        }
        ensure!(std::fs::metadata(&path)?.len() == 3 * 4096);
        let mut names = vec![0; 256];
        let len = rustix::fs::listxattr(&path, &mut names)?;
        rustix::fs::ioctl_setflags(&file, IFlags::empty())?;
        ensure!(len == 0, "it has attributes still: {:?}", String::from_utf8_lossy(&names[..len]));
        Ok(())
    };
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "allow_other")?;
    append(mount.dir())?;
    judge_mount(bench, &image, mount)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    let below = mount.dir().join("the-kernel's");
    std::fs::create_dir(&below)?;
    append(&below).context("on the kernel's mount")?;
    mount.unmount()
}

fn new_file(path: &Path, kind: IFlags) -> Result<File> {
    let file = File::create_new(path)?;
    if !kind.is_empty() {
        rustix::fs::ioctl_setflags(&file, kind)?;
    }
    Ok(file)
}

/// Offsets, lengths and addresses that are not aligned to sectors, which the kernel's Btrfs refuses.
fn any_offset(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    for (seed, (name, kind)) in (1..).zip(KINDS) {
        let path = mount.dir().join(name);
        drop(new_file(&path, kind)?);
        odd_writes(&path, Random::new(seed)).context(name)?;
    }
    let told = stats(bench, mount.dir())?;
    let misaligned = told["filesystem"]["direct"]["buffered_misaligned"].as_u64().context("its count")?;
    ensure!(misaligned > 0, "no write was found to be misaligned");
    judge_mount(bench, &image, mount)
}

fn odd_writes(path: &Path, mut random: Random) -> Result<()> {
    const LENGTHS: [u64; 10] = [1, 511, 512, 513, 4095, 4096, 4097, 65536, 70_001, 1_572_864];
    let open = |reads, flags: OFlags| {
        File::options().read(reads).write(true).custom_flags(flags.bits().cast_signed()).open(path)
    };
    let cached = open(true, OFlags::empty())?;
    let (direct, only_writes) = (open(true, OFlags::DIRECT)?, open(false, OFlags::DIRECT)?);
    let mut model = Vec::new();
    let pick = |from: &[u64], random: &mut Random| {
        from[usize::try_from(random.below(from.len() as u64)).expect("small")]
    };
    for round in 0..120_u64 {
        let len = pick(&LENGTHS, &mut random);
        // Inside the file, at its end, and behind it.
        let page = random.below(64) << 12;
        let at = match round % 4 {
            0 => page,
            1 => page + pick(&LENGTHS[..7], &mut random),
            2 => model.len() as u64,
            _ => model.len() as u64 + pick(&LENGTHS[..8], &mut random),
        };
        let data = random.bytes(usize::try_from(len)?);
        let writer = [&direct, &only_writes, &cached][usize::try_from(round % 3)?];
        writer.write_all_at(&data, at).with_context(|| format!("writing {len} bytes at {at}"))?;
        let (at, len) = (usize::try_from(at)?, usize::try_from(len)?);
        model.resize(model.len().max(at + len), 0);
        model[at..at + len].copy_from_slice(&data);
        let (from, most) = (
            usize::try_from(random.below(model.len() as u64))?,
            usize::try_from(pick(&LENGTHS, &mut random))?,
        );
        let want = &model[from..model.len().min(from + most)];
        for (name, file) in [("directly", &direct), ("through the cache", &cached)] {
            let mut found = vec![0; most];
            let len = file.read_at(&mut found, from as u64)?;
            ensure!(
                found[..len] == *want,
                "round {round}: {most} bytes at {from} read {name}: {len}, or others"
            );
        }
        ensure!(direct.read_at(&mut [0; 8192], model.len() as u64 + round)? == 0, "something behind the end");
    }
    ensure!(std::fs::read(path)? == model, "it reads differently in the end");
    Ok(())
}
