//! Images of every kind: built by creamery, judged, written by the kernel, read and written by creamery, judged again.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, Judge, Judges, LoopMount, Random, Run, btrfs_check};

use crate::support::{JUDGED, inside, mkfs_from, torture_source};

/// Name of the case and the options of mkfs.
const IMAGES: [(&str, &[&str]); 15] = [
    ("image/default", &[]),
    ("image/csum-crc32c", &["--csum", "crc32c"]),
    ("image/csum-xxhash", &["--csum", "xxhash"]),
    ("image/csum-sha256", &["--csum", "sha256"]),
    ("image/csum-blake2", &["--csum", "blake2"]),
    ("image/nodesize-4k", &["-n", "4096"]),
    ("image/nodesize-16k", &["-n", "16384"]),
    ("image/nodesize-64k", &["-n", "65536"]),
    ("image/single", &["-m", "single", "-d", "single"]),
    ("image/dup", &["-m", "dup", "-d", "dup"]),
    ("image/block-group-tree", &["-O", "block-group-tree"]),
    ("image/no-block-group-tree", &["-O", "^block-group-tree"]),
    ("image/with-hole-extents", &["-O", "^no-holes"]),
    ("image/mixed", &["--mixed", "-n", "4096"]),
    ("image/mixed-dup-sha256", &["-M", "-n", "4096", "-m", "dup", "-d", "dup", "--csum", "sha256"]),
];

/// Images made by `mkfs.btrfs --rootdir`, by its options.
const PACKED: [(&str, &[&str]); 5] = [
    ("packed-by-btrfs-progs/default", &[]),
    ("packed-by-btrfs-progs/nodesize-64k", &["-n", "65536"]),
    ("packed-by-btrfs-progs/zlib", &["--compress", "zlib"]),
    ("packed-by-btrfs-progs/lzo", &["--compress", "lzo"]),
    ("packed-by-btrfs-progs/zstd", &["--compress", "zstd", "-O", "block-group-tree"]),
];

/// Filesystems that Linux made and filled, by the options of mkfs.btrfs, of btrfstune and of mounting.
struct Foreign(&'static str, &'static [&'static str], &'static [&'static str], &'static str);

const FOREIGN: [Foreign; 7] = [
    Foreign("foreign/default", &[], &[], ""),
    Foreign("foreign/metadata-uuid", &[], &["-m"], ""),
    Foreign("foreign/without-skinny-metadata", &["-O", "^skinny-metadata"], &[], ""),
    Foreign("foreign/without-free-space-tree", &["-O", WITHOUT_TREES], &[], "nospace_cache"),
    Foreign("foreign/caches-of-the-old-kind", &["-O", WITHOUT_TREES], &[], "space_cache=v1"),
    Foreign("foreign/without-extref", &["-O", "^extref"], &[], ""),
    Foreign("foreign/oldest", &["-O", WITHOUT_ANYTHING], &[], "space_cache=v1"),
];

const WITHOUT_TREES: &str = "^free-space-tree,^block-group-tree";
const WITHOUT_ANYTHING: &str = "^extref,^skinny-metadata,^no-holes,^free-space-tree,^block-group-tree";

/// Filesystems whose sectors are larger than the pages of most machines, which Linux refuses there: `btrfs check` is the judge.
const SECTORS: [(&str, &[&str], &str); 3] = [
    ("sectors/8k", &["-s", "8192"], "compress=zstd"),
    ("sectors/16k", &["-s", "16384"], "compress=lzo"),
    ("sectors/64k", &["-s", "65536", "-n", "65536"], "compress=zlib"),
];

/// Frequent commits let the kernel's cleaner finish deleted snapshots soon.
const KERNEL_OPTIONS: &str = "noatime,commit=1";

pub(crate) fn cases() -> Vec<Case> {
    let packed = PACKED.map(|(name, options)| Case::new(name, &JUDGED, move |bench| packed(bench, options)));
    let made = IMAGES.map(|(name, options)| Case::new(name, &JUDGED, move |bench| cycle(bench, options)));
    let foreign = FOREIGN.map(|made| Case::new(made.0, &JUDGED, move |bench| foreign(bench, &made)));
    let sectors = SECTORS.map(|(name, mkfs, option)| {
        Case::new(name, &[Judge::BtrfsProgs, Judge::Fuse], move |bench| sectors(bench, mkfs, option))
    });
    made.into_iter().chain(packed).chain(foreign).chain(sectors).collect()
}

/// We read images made by btrfs-progs as the kernel does, write to them, and leave them valid.
fn packed(bench: &Bench, options: &[&str]) -> Result<()> {
    let creamery = bench.creamery();
    let image = bench.scratch.file("disk.img");
    let (source, _) = torture_source(bench)?;
    // It stores the NUL byte too, and then fails: Linux accepts no inline extent of 4,096 bytes.
    std::fs::remove_file(source.join("symlinks/long-4095"))?;
    // It writes the holes of sparse files, and the image grows by them.
    std::fs::remove_dir_all(source.join("holes"))?;
    File::create_new(&image)?.set_len(1 << 30)?;
    let script = "ulimit -f 2097152; exec mkfs.btrfs -q \"$@\"";
    let mkfs = Run::new("sh").args(["-c", script, "sh"]).args(options);
    mkfs.arg("--rootdir").arg(&source).arg(&image).ok()?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro,noatime")?;
    let wanted = Walk::take(kernel.dir())?;
    kernel.unmount()?;
    read_back(bench, &image, &wanted)?;
    creamery.run(["check", "--check-data-csum"]).arg(&image).ok()?;
    if !Judges::here().have(&[Judge::Fuse]) {
        return Ok(());
    }
    let mount = FuseMount::mount(creamery, &image, &bench.scratch.file("fuse"), "")?;
    expect_same("our view of what btrfs-progs packed", &wanted, &walk(mount.dir())?, &Compare::default())?;
    Run::new("cp")
        .args(["-a", "--"])
        .arg(mount.dir().join("symlinks"))
        .arg(mount.dir().join("again"))
        .ok()?;
    overwrite(&mount.dir().join("sizes/20971520"), &mut Random::new(17))?;
    std::fs::remove_dir_all(mount.dir().join("symlinks"))?;
    let ours = walk(mount.dir())?;
    mount.unmount()?;
    btrfs_check(&image)?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), KERNEL_OPTIONS)?;
    expect_same("the kernel's view of what we wrote", &ours, &walk(kernel.dir())?, &Compare::default())?;
    kernel.unmount()
}

/// We read and write filesystems that Linux made and filled as Linux does, in turn with it.
fn foreign(bench: &Bench, &Foreign(_, mkfs, tune, mount): &Foreign) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let (source, _) = torture_source(bench)?;
    if mkfs.iter().any(|word| word.contains("^extref")) {
        // All names of a file are in one item then, which is limited to a leaf.
        for index in 201..400 {
            let name = format!("one-of-many-names-of-the-same-file-{index:04}");
            let in_either = [source.join("links"), source.join("links/below")];
            in_either.iter().for_each(|dir| drop(std::fs::remove_file(dir.join(&name))));
        }
    }
    File::create_new(&image)?.set_len(1 << 30)?;
    Run::new("mkfs.btrfs").arg("-q").args(mkfs).arg(&image).ok()?;
    if !tune.is_empty() {
        Run::new("btrfstune").args(tune).arg(&image).ok()?;
    }
    let options =
        [KERNEL_OPTIONS, mount].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",");
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), &options)?;
    Run::new("cp").args(["-a", "--"]).arg(source.join(".")).arg(kernel.dir()).ok()?;
    kernel.unmount()?;
    in_turn(bench, &image, &source, &options)
}

/// We fill a filesystem, change and compress files, and find the content again.
fn sectors(bench: &Bench, mkfs: &[&str], option: &str) -> Result<()> {
    let creamery = bench.creamery();
    let image = bench.scratch.file("disk.img");
    let (source, _) = torture_source(bench)?;
    // The walk compares a very long file by its data ranges, and the source reports them in sectors of the host.
    std::fs::remove_file(source.join("holes/large"))?;
    let wanted = Walk::take(&source)?;
    File::create_new(&image)?.set_len(2 << 30)?;
    Run::new("mkfs.btrfs").arg("-q").args(mkfs).arg(&image).ok()?;
    let dir = bench.scratch.file("fuse");
    let mount = FuseMount::mount(creamery, &image, &dir, option)?;
    Run::new("cp").args(["-a", "--"]).arg(source.join(".")).arg(mount.dir()).ok()?;
    mount.unmount()?;
    btrfs_check(&image)?;
    let mount = FuseMount::mount(creamery, &image, &dir, "")?;
    let compare = Compare { holes: false, ..Compare::default() };
    expect_same("what was copied in", &wanted, &Walk::take(mount.dir())?, &compare)?;
    let mut random = Random::new(19);
    let file = |name: &str| mount.dir().join(name);
    for name in ["sizes/20971520", "sizes/65536", "holes/start", "holes/comb"] {
        overwrite(&file(name), &mut random)?;
    }
    File::options().write(true).open(file("sizes/16384"))?.set_len(5_000)?;
    Run::new("fallocate").args(["-p", "-o", "65536", "-l", "65536"]).arg(file("sizes/131072")).ok()?;
    // By copy_file_range(2), which clones.
    Run::new("cp").arg(file("sizes/1048577")).arg(file("reflink")).ok()?;
    overwrite(&file("reflink"), &mut random)?;
    std::fs::remove_dir_all(file("large"))?;
    let ours = Walk::take(mount.dir())?;
    mount.unmount()?;
    btrfs_check(&image)?;
    creamery.run(["check", "--check-data-csum"]).arg(&image).ok()?;
    read_back(bench, &image, &ours)
}

fn cycle(bench: &Bench, options: &[&str]) -> Result<()> {
    let creamery = bench.creamery();
    let image = bench.scratch.file("disk.img");
    let (source, _) = torture_source(bench)?;
    if options.contains(&"4096") {
        // A symlink's target is kept inline, and a leaf of 4 KiB cannot hold one of 4,095 bytes.
        std::fs::remove_file(source.join("symlinks/long-4095"))?;
    }
    let wanted = Walk::take(&source)?;
    // Room for what follows: without a size, an image is as large as its content needs.
    mkfs_from(creamery, &[options, &["-b", "1G"]].concat(), &source, &image)?;
    btrfs_check(&image)?;

    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), KERNEL_OPTIONS)?;
    let exact = Compare { atime: true, ..Compare::default() };
    expect_same("the kernel's view of a fresh image", &wanted, &Walk::take(kernel.dir())?, &exact)?;
    kernel.unmount()?;
    in_turn(bench, &image, &source, KERNEL_OPTIONS)
}

/// Linux writes to an image of `source`, then we, then Linux again.
fn in_turn(bench: &Bench, image: &Path, source: &Path, kernel_options: &str) -> Result<()> {
    let creamery = bench.creamery();
    let kernel = LoopMount::mount(image, &bench.scratch.file("kernel"), kernel_options)?;
    kernel_writes(kernel.dir()).context("writing through the kernel")?;
    let after_kernel = walk(kernel.dir())?;
    kernel.unmount()?;
    btrfs_check(image)?;

    let exact = Compare { ctime: true, btime: true, ..Compare::default() };
    read_back(bench, image, &after_kernel)?;
    if !Judges::here().have(&[Judge::Fuse]) {
        return Ok(());
    }
    let mount = FuseMount::mount(creamery, image, &bench.scratch.file("fuse"), "")?;
    expect_same("our view of what the kernel wrote", &after_kernel, &walk(mount.dir())?, &exact)?;
    our_writes(mount.dir()).context("writing through the mount")?;
    let after_us = walk(mount.dir())?;
    mount.unmount()?;
    btrfs_check(image)?;

    // The kernel again, which reads our free space tree, our references and our generation numbers.
    let kernel = LoopMount::mount(image, &bench.scratch.file("kernel"), kernel_options)?;
    expect_same("the kernel's view of what we wrote", &after_us, &walk(kernel.dir())?, &exact)?;
    Run::new("btrfs").args(["subvolume", "delete"]).arg(kernel.dir().join("kernel/snapshot")).ok()?;
    Run::new("btrfs").args(["subvolume", "sync"]).arg(kernel.dir()).ok()?;
    Run::new("cp").args(["-a", "--"]).arg(source.join("sizes")).arg(kernel.dir().join("ours/last")).ok()?;
    Run::new("btrfs").args(["scrub", "start", "-B"]).arg(kernel.dir()).ok()?;
    kernel.unmount()?;
    btrfs_check(image)
}

/// A walk without the places where a snapshot holds another subvolume: the kernel shows an empty folder there, with the current time.
fn walk(root: &Path) -> Result<Walk> {
    Walk::take_without(root, &|path| path == b"kernel/of-the-root/kernel/subvolume")
}

/// Linux' work on an image: all kinds of extents, shared blocks, subvolumes, deletions.
fn kernel_writes(root: &Path) -> Result<()> {
    let ours = root.join("kernel");
    std::fs::create_dir(&ours)?;
    let copy =
        |from: &str, to: &str| Run::new("cp").args(["-a", "--"]).arg(root.join(from)).arg(ours.join(to)).ok();
    copy("sizes", "sizes")?;
    copy("links", "links")?;
    Run::new("cp").arg("--reflink=always").arg(root.join("sizes/1048577")).arg(ours.join("reflink")).ok()?;

    let subvolume = ours.join("subvolume");
    Run::new("btrfs").args(["subvolume", "create"]).arg(&subvolume).ok()?;
    copy("names", "subvolume/names")?;
    copy("holes", "subvolume/holes")?;
    // This one shares the whole root: every later write meets shared blocks.
    Run::new("btrfs").args(["subvolume", "snapshot", "-r"]).arg(root).arg(ours.join("of-the-root")).ok()?;
    Run::new("btrfs").args(["subvolume", "snapshot"]).arg(&subvolume).arg(ours.join("snapshot")).ok()?;
    Run::new("btrfs").args(["subvolume", "snapshot"]).arg(&subvolume).arg(ours.join("short-lived")).ok()?;

    let mut random = Random::new(11);
    overwrite(&root.join("sizes/20971520"), &mut random)?;
    overwrite(&ours.join("snapshot/holes/start"), &mut random)?;
    File::options().write(true).open(root.join("sizes/65536"))?.set_len(1_000)?;
    for index in 0..2_000 {
        std::fs::remove_file(root.join(format!("large/name-{index}")))?;
    }
    std::fs::rename(root.join("deep"), ours.join("deep-moved"))?;
    std::fs::rename(root.join("names"), root.join("names-renamed"))?;
    Run::new("fallocate").args(["-p", "-o", "65536", "-l", "65536"]).arg(root.join("sizes/131072")).ok()?;
    Run::new("fallocate").args(["-l", "1048576"]).arg(ours.join("reserved")).ok()?;
    File::options().write(true).open(ours.join("reserved"))?.write_all_at(&random.bytes(9_000), 300_000)?;
    File::create_new(ours.join("no-cow"))?;
    Run::new("chattr").arg("+C").arg(ours.join("no-cow")).ok()?;
    std::fs::write(ours.join("no-cow"), random.bytes(300_000))?;
    Run::new("btrfs").args(["subvolume", "delete", "-c"]).arg(ours.join("short-lived")).ok()?;
    Run::new("btrfs").args(["subvolume", "sync"]).arg(root).ok()?;
    Ok(())
}

/// Similar changes through our mount, on a tree whose blocks are shared with snapshots.
fn our_writes(root: &Path) -> Result<()> {
    let ours = root.join("ours");
    std::fs::create_dir(&ours)?;
    let copy =
        |from: &str, to: &str| Run::new("cp").args(["-a", "--"]).arg(root.join(from)).arg(ours.join(to)).ok();
    for part in ["sizes", "links", "symlinks", "holes", "xattrs", "acls", "special", "collisions"] {
        copy(part, part)?;
    }
    let mut random = Random::new(13);
    overwrite(&root.join("sizes/20971520"), &mut random)?;
    overwrite(&root.join("kernel/snapshot/holes/start"), &mut random)?;
    overwrite(&root.join("kernel/reflink"), &mut random)?;
    overwrite(&root.join("kernel/no-cow"), &mut random)?;
    File::options()
        .write(true)
        .open(root.join("kernel/reserved"))?
        .write_all_at(&random.bytes(5_000), 290_000)?;
    File::options().write(true).open(root.join("sizes/16384"))?.set_len(5_000)?;
    File::options().write(true).open(root.join("sizes/4096"))?.set_len(50_000)?;
    for index in 2_000..4_000 {
        std::fs::remove_file(root.join(format!("large/name-{index}")))?;
    }
    for index in 0..200 {
        std::fs::remove_file(
            root.join(format!("kernel/links/one-of-many-names-of-the-same-file-{index:04}")),
        )
        .or_else(|_| {
            let below = format!("kernel/links/below/one-of-many-names-of-the-same-file-{index:04}");
            std::fs::remove_file(root.join(below))
        })?;
    }
    std::fs::remove_dir_all(root.join("kernel/sizes"))?;
    std::fs::rename(root.join("kernel/deep-moved"), ours.join("deep-moved-again"))?;
    std::fs::rename(root.join("names-renamed"), root.join("names"))?;
    std::fs::write(root.join("kernel/subvolume/new"), b"in a subvolume")?;
    std::fs::hard_link(root.join("kernel/subvolume/new"), root.join("kernel/subvolume/new-link"))?;
    symlink("subvolume/new", root.join("kernel/symlink"))?;
    let across = std::fs::hard_link(root.join("kernel/subvolume/new"), ours.join("across"));
    ensure!(across.is_err(), "a hard link into another subvolume was made");
    let read_only = std::fs::write(root.join("kernel/of-the-root/new"), b"");
    ensure!(read_only.is_err(), "a file was made in a read-only snapshot");
    Ok(())
}

/// Writes over the middle, over the end, and past the end of a file.
fn overwrite(path: &Path, random: &mut Random) -> Result<()> {
    let shown = || format!("writing over {}", path.display());
    let mut file = File::options().read(true).write(true).open(path).with_context(shown)?;
    let len = file.metadata()?.len();
    for at in [len / 2, len / 3 + 1, len - 5, len + 10_000] {
        file.write_all_at(&random.bytes(5_000), at).with_context(shown)?;
    }
    file.seek(SeekFrom::Start(len / 4))?;
    file.write_all(b"a few bytes").with_context(shown)?;
    file.sync_all().with_context(shown)
}

/// Reads the image without mounting it.
fn read_back(bench: &Bench, image: &Path, want: &Walk) -> Result<()> {
    let creamery = bench.creamery();
    let out = bench.scratch.file("copied-out");
    creamery.run(["cp", "-a"]).arg(inside(image, "/")).arg(&out).ok()?;
    expect_same("what creamery cp brought out", want, &walk(&out)?, &Compare::default())?;
    std::fs::remove_dir_all(&out)?;
    Ok(())
}
