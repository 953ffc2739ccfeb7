//! Clones: the kernel finds Creamery's clones shared and equal, through the mount, in images, and of data that Linux made.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, btrfs_check, ficlonerange, fideduperange};

use crate::support::{JUDGED, MOUNTED, expect_refusal, inside, judge_mount, mkfs_empty};

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 4096;

pub(crate) fn cases() -> Vec<Case> {
    let with_chattr = [&JUDGED[..], &[Judge::Tool("chattr"), Judge::Tool("fallocate")]].concat();
    vec![
        Case::new("clones/cp-through-a-mount-shares", &MOUNTED, through_a_mount),
        Case::new("clones/copy-file-range-on-a-mount", &MOUNTED, copy_file_range),
        Case::new("clones/of-what-linux-made", &with_chattr, of_linux),
        Case::new("clones/dedupe-command", &JUDGED, dedupe),
        Case::new("clones/in-a-full-filesystem", &JUDGED, clones_until_the_filesystem_is_full),
        Case::new("clones/refused", &JUDGED, refused),
    ]
}

/// Total bytes in use, and those exclusive to one file, as Linux counts them below `dir`.
fn usage(dir: &Path) -> Result<(u64, u64)> {
    let told = Run::new("btrfs").args(["filesystem", "du", "--raw", "-s"]).arg(dir).ok()?.stdout_text();
    let row = told.lines().last().context("a row")?;
    let mut numbers = row.split_whitespace().map(str::parse);
    let mut number = || numbers.next().context("a number")?.context("a number");
    Ok((number()?, number()?))
}

/// Data without repetitions.
fn bytes(seed: u64, len: u64) -> Result<Vec<u8>> {
    Ok(Random::new(seed).bytes(usize::try_from(len)?))
}

fn cp(from: &Path, to: &Path) -> Result<()> {
    Run::new("cp").args(["--reflink=auto", "--sparse=auto"]).arg(from).arg(to).ok().map(drop)
}

/// `cp` of coreutils on our mount; the kernel confirms that the copies share all they can.
fn through_a_mount(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "")?;
    let at = |name: &str| mount.dir().join(name);
    let mut sparse = bytes(1, 20 * MIB + 100)?;
    std::fs::write(at("large"), &sparse)?;
    cp(&at("large"), &at("large copy"))?;
    // Dirty in the kernel's pages or in memory: the copy has the last written data.
    let file = File::options().write(true).open(at("large"))?;
    file.write_all_at(b"changed", 5 * MIB + 17)?;
    drop(file);
    sparse[5 * MIB as usize + 17..][..7].copy_from_slice(b"changed");
    cp(&at("large"), &at("changed copy"))?;
    ensure!(std::fs::read(at("changed copy"))? == sparse, "the copy has not what was written last");
    ensure!(std::fs::read(at("large copy"))? != sparse, "what is written to the source shows in its copy");
    std::fs::write(at("small"), "inline")?;
    cp(&at("small"), &at("small copy"))?;
    let hole = File::create(at("hole"))?;
    hole.set_len(3 * MIB)?;
    hole.write_all_at(&bytes(2, 8 * SECTOR)?, MIB)?;
    drop(hole);
    cp(&at("hole"), &at("hole copy"))?;
    for (one, other) in [("small", "small copy"), ("hole", "hole copy"), ("large", "changed copy")] {
        ensure!(std::fs::read(at(one))? == std::fs::read(at(other))?, "{other} differs");
    }
    judge_mount(bench, &image, mount)?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("linux"), "ro")?;
    let (total, exclusive) = usage(linux.dir())?;
    linux.unmount()?;
    // One sector and the end of each of three large files are exclusive; the small files and the hole come on top.
    ensure!(total > 60 * MIB && exclusive < 2 * MIB, "{exclusive} of {total} bytes are not shared");
    Ok(())
}

/// copy_file_range(2) on our mount, at offsets where sharing is possible and where it is not: the bytes are always right.
fn copy_file_range(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "")?;
    let at = |name: &str| mount.dir().join(name);
    let source = bytes(3, 30 * SECTOR + 700)?;
    std::fs::write(at("source"), &source)?;
    let places = [0, 1, SECTOR - 1, SECTOR, 7 * SECTOR, 9 * SECTOR + 5];
    let lens = [1, 700, SECTOR - 1, SECTOR, SECTOR + 1, 20 * SECTOR, u64::MAX];
    for (number, (from, to, len)) in places
        .iter()
        .flat_map(|from| places.iter().map(move |to| (*from, *to)))
        .flat_map(|(from, to)| lens.iter().map(move |len| (from, to, *len)))
        .enumerate()
    {
        let mut expected = bytes(number as u64, if number % 2 == 0 { 12 * SECTOR + 9 } else { 0 })?;
        std::fs::write(at("target"), &expected)?;
        let end = (from.saturating_add(len)).min(source.len() as u64);
        let (mut source_at, mut target_at) = (from, to);
        let (input, output) = (File::open(at("source"))?, File::options().write(true).open(at("target"))?);
        while source_at < end {
            let room = usize::try_from(end - source_at)?;
            let done = rustix::fs::copy_file_range(
                &input,
                Some(&mut source_at),
                &output,
                Some(&mut target_at),
                room,
            )?;
            ensure!(done > 0, "nothing of {room} bytes at {source_at} was copied");
        }
        let stop = usize::try_from(to + (end - from))?;
        expected.resize(expected.len().max(stop), 0);
        expected[usize::try_from(to)?..stop]
            .copy_from_slice(&source[usize::try_from(from)?..usize::try_from(end)?]);
        ensure!(std::fs::read(at("target"))? == expected, "copying {len} bytes from {from} to {to}");
    }
    judge_mount(bench, &image, mount)
}

/// Makes files that only Linux can make: compressed, without checksums, preallocated, inline beyond our limit; in a snapshot, too.
fn make_sources(root: &Path) -> Result<Vec<&'static str>> {
    let subvolume = root.join("sources");
    Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(&subvolume).ok()?;
    let at = |name: &str| subvolume.join(name);
    let text: Vec<u8> = (0..300_001_u32).map(|index| (index / 100 % 251) as u8 | 1).collect();
    std::fs::write(at("packed"), &text)?;
    std::fs::write(at("packed inline"), &text[..1900])?;
    std::fs::write(at("random"), bytes(4, MIB + 1)?)?;
    Run::new("chattr").arg("+m").arg(root).ok()?;
    std::fs::write(at("inline"), &bytes(5, 1000)?)?;
    let aside = at("set aside");
    Run::new("fallocate").args(["-l", "300000"]).arg(&aside).ok()?;
    Run::new("fallocate").args(["-n", "-l", "500000"]).arg(&aside).ok()?;
    File::options().write(true).open(&aside)?.write_all_at(&text[..70_000], 50_000)?;
    std::fs::write(at("punched"), &text)?;
    Run::new("fallocate").args(["-p", "-o", "40960", "-l", "81920"]).arg(at("punched")).ok()?;
    std::fs::write(at("nocow"), "")?;
    Run::new("chattr").arg("+C").arg(at("nocow")).ok()?;
    std::fs::write(at("nocow"), bytes(6, 200_000)?)?;
    Run::new("btrfs").args(["filesystem", "sync"]).arg(root).ok()?;
    // Extents that are partly in use, and shared already.
    let cloned = File::create(at("cloned"))?;
    ficlonerange(&cloned, 8 * SECTOR, &File::open(at("random"))?, 4 * SECTOR, 100 * SECTOR)?;
    ficlonerange(&cloned, 0, &File::open(at("packed"))?, 3 * SECTOR, 7 * SECTOR)?;
    Run::new("btrfs")
        .args(["-q", "subvolume", "snapshot", "-r"])
        .args([&subvolume, &root.join("snapshot")])
        .ok()?;
    Ok(vec!["packed", "packed inline", "random", "inline", "set aside", "punched", "nocow", "cloned"])
}

/// Clones by Creamery of all of these, from a subvolume and a read-only snapshot into another one.
fn of_linux(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    for options in [&["-O", "no-holes"][..], &["-O", "^no-holes", "--nodesize", "4096"]] {
        let _ = std::fs::remove_file(&image);
        let run = Run::new("mkfs.btrfs").args(["-q", "-f", "-m", "single"]).args(options);
        crate::support::sparse_file(&image, 512 * MIB)?;
        run.arg(&image).ok()?;
        let linux = LoopMount::mount(&image, &bench.scratch.file("linux"), "compress=zstd")?;
        let names = make_sources(linux.dir())?;
        linux.unmount()?;
        let creamery = |words: &[&str]| bench.creamery().run(words);
        creamery(&["subvolume", "create"]).arg(inside(&image, "/target")).ok()?;
        for (source, to) in [("sources", ""), ("snapshot", " of the snapshot")] {
            for name in &names {
                // A file of ours has checksums, and cannot share with one without.
                let when = if *name == "nocow" { "--reflink=auto" } else { "--reflink=always" };
                creamery(&["cp", when])
                    .arg(inside(&image, &format!("/{source}/{name}")))
                    .arg(inside(&image, &format!("/target/{name}{to}")))
                    .ok()?;
            }
        }
        btrfs_check(&image)?;
        // Frequent commits let Linux' cleaner finish soon.
        let linux = LoopMount::mount(&image, &bench.scratch.file("linux"), "commit=1")?;
        let at = |dir: &str, name: &str| linux.dir().join(dir).join(name);
        for name in &names {
            let wanted = std::fs::read(at("sources", name))?;
            for to in ["", " of the snapshot"] {
                let found = std::fs::read(at("target", &format!("{name}{to}")))?;
                ensure!(found == wanted, "{name}{to}: the kernel reads something else");
            }
        }
        let (total, exclusive) = usage(&linux.dir().join("target"))?;
        let own = 2 * 200_000 + 64 * SECTOR;
        ensure!(total > 2 * MIB && exclusive <= own, "{exclusive} of {total} bytes are not shared");
        // The last user of shared data frees it.
        for dir in ["snapshot", "sources"] {
            Run::new("btrfs").args(["-q", "subvolume", "delete"]).arg(linux.dir().join(dir)).ok()?;
        }
        Run::new("btrfs").args(["-q", "subvolume", "sync"]).arg(linux.dir()).ok()?;
        linux.unmount()?;
        btrfs_check(&image)?;
    }
    Ok(())
}

/// `creamery dedupe`: equal files share, others do not, no bytes or times change, and Linux agrees that everything is shared.
fn dedupe(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("linux"), "")?;
    let at = |name: &str| linux.dir().join(name);
    std::fs::create_dir(at("dir"))?;
    let data = bytes(7, 17 * MIB + 333)?;
    let mut other = data.clone();
    other[9 * MIB as usize] ^= 1;
    for name in ["one", "dir/two", "dir/three"] {
        std::fs::write(at(name), &data)?;
    }
    std::fs::write(at("other"), &other)?;
    for name in ["small", "dir/small"] {
        std::fs::write(at(name), "small")?;
    }
    Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(at("sub")).ok()?;
    std::fs::write(at("sub/four"), &data)?;
    Run::new("btrfs").args(["-q", "subvolume", "snapshot", "-r"]).args([at("sub"), at("read-only")]).ok()?;
    let modified = at("one").metadata()?.mtime_nsec();
    linux.unmount()?;
    let told = || {
        let run = bench.creamery().run(["dedupe", "--json"]).arg(inside(&image, "/"));
        Ok::<_, anyhow::Error>(serde_json::from_slice::<serde_json::Value>(&run.ok()?.stdout)?)
    };
    let len = data.len() as u64;
    let first = told()?;
    ensure!(first["files"] == 6 && first["equal_files"] == 4, "{first}");
    ensure!(first["shared_bytes"] == 3 * len && first["already_shared_bytes"] == len, "{first}");
    let second = told()?;
    ensure!(second["shared_bytes"] == 0 && second["already_shared_bytes"] == 4 * len, "{second}");
    btrfs_check(&image)?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("linux"), "")?;
    let at = |name: &str| linux.dir().join(name);
    for name in ["one", "dir/two", "dir/three", "sub/four", "read-only/four"] {
        ensure!(std::fs::read(at(name))? == data, "{name}: the kernel reads something else");
    }
    ensure!(std::fs::read(at("other"))? == other, "what is different was shared");
    ensure!(at("one").metadata()?.mtime_nsec() == modified, "the time of the last change is another one");
    let (total, exclusive) = usage(linux.dir())?;
    ensure!(
        total > 6 * len - SECTOR && exclusive <= len + 64 * SECTOR,
        "{exclusive} of {total} bytes are not shared"
    );
    // Linux finds the ranges equal.
    let open = |name: &str| File::options().read(true).write(true).open(at(name));
    let shared = fideduperange(&open("dir/two")?, 0, &open("one")?, 0, MIB)?;
    ensure!(shared == Some(MIB), "Linux says {shared:?}");
    linux.unmount()
}

/// Clones until the filesystem is full: existing files stay whole, and can be deleted again.
fn clones_until_the_filesystem_is_full(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    let host = bench.scratch.file("source");
    // Every second sector, so each clone takes many items.
    let source = File::create(&host)?;
    let sector = bytes(8, SECTOR)?;
    for at in 0..4000 {
        source.write_all_at(&sector, at * 2 * SECTOR)?;
    }
    let creamery = |words: &[&str]| bench.creamery().run(words);
    creamery(&["cp"]).arg(&host).arg(inside(&image, "/source")).ok()?;
    let place = |number: u32| inside(&image, &format!("/clone{number}"));
    let clone =
        |number: u32| creamery(&["cp", "--reflink=always"]).arg(inside(&image, "/source")).arg(place(number));
    let mut count = 0;
    let last = loop {
        let done = clone(count).output()?;
        if done.code != Some(0) {
            break done.stderr_text();
        }
        count += 1;
        ensure!(count < 1000, "a filesystem of 128 MiB took {count} clones of 4,000 extents");
    };
    ensure!(last.contains("no space"), "{last}");
    btrfs_check(&image)?;
    let wanted = std::fs::read(&host)?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("linux"), "ro")?;
    for number in 0..count {
        let found = std::fs::read(linux.dir().join(format!("clone{number}")))?;
        ensure!(found == wanted, "clone {number} of {count} has something else");
    }
    linux.unmount()?;
    for number in 0..count {
        creamery(&["rm"]).arg(place(number)).ok()?;
    }
    clone(count).ok()?;
    btrfs_check(&image)
}

fn refused(bench: &Bench) -> Result<()> {
    let [image, other] = ["disk.img", "other.img"].map(|name| bench.scratch.file(name));
    for image in [&image, &other] {
        mkfs_empty(bench.creamery(), &[], "128M", image)?;
    }
    let host: PathBuf = bench.scratch.file("file");
    std::fs::write(&host, "content")?;
    let creamery = |words: &[&str]| bench.creamery().run(words);
    creamery(&["cp"]).arg(&host).arg(inside(&image, "/file")).ok()?;
    let across =
        creamery(&["cp", "--reflink=always"]).arg(inside(&image, "/file")).arg(inside(&other, "/file"));
    expect_refusal(across, &["between filesystems"])?;
    let from_host = creamery(&["cp", "--reflink=always"]).arg(&host).arg(inside(&image, "/new"));
    expect_refusal(from_host, &["between filesystems"])?;
    expect_refusal(
        creamery(&["cp", "--reflink=maybe"]).arg(&host).arg(inside(&image, "/new")),
        &["auto, always"],
    )?;
    expect_refusal(creamery(&["dedupe"]).arg(inside(&image, "/nothing")), &["/nothing", "not found"])?;
    expect_refusal(creamery(&["dedupe"]).arg(bench.scratch.dir("dir")?), &["directory of the host"])?;
    btrfs_check(&image)
}
