//! `creamery rescue`: forgets logs, rewrites superblocks and finds roots as btrfs-progs does.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, LoopDevice, LoopMount, Run, btrfs_check};

use crate::space_caches::headers;
use crate::superblock_copies::with_a_log;
use crate::support::{
    JUDGED, MOUNTED, crc32c, expect_refusal, expect_untouched, flip_byte, inside, mkfs_empty, sparse_file,
};
use crate::tree_log::{LOG_ROOT_AT, superblock_word};

pub(crate) fn cases() -> Vec<Case> {
    let with_ext4 = [&JUDGED[..], &[Judge::Tool("mkfs.ext4")]].concat();
    let with_find_root = [&JUDGED[..], &[Judge::Tool("btrfs-find-root")]].concat();
    vec![
        Case::new("rescue/zero-log", &MOUNTED, zero_log),
        Case::new("rescue/super-recover", &JUDGED, super_recover),
        Case::new("rescue/super-recover-refuses", &with_ext4, super_recover_refuses),
        Case::new("rescue/a-superblock-that-leads-nowhere-replaces-no-other", &JUDGED, leads_nowhere),
        Case::new("rescue/find-root", &with_find_root, find_root),
        Case::new("rescue/not-on-a-mount", &JUDGED, not_on_a_mount),
        Case::new("rescue/clear-space-cache", &JUDGED, clear_space_cache),
    ]
}

const FIRST: u64 = 0x10000;
const SECOND: u64 = 0x400_0000;
const SUPERBLOCK: usize = 4096;
/// A byte of a superblock's label, which a checksum covers.
const LABEL: u64 = 300;

fn copied(bench: &Bench, image: &Path, name: &str) -> Result<PathBuf> {
    let copy = bench.scratch.file(name);
    Run::new("cp").arg("--sparse=always").args([image, &copy]).ok()?;
    Ok(copy)
}

fn superblock_at(image: &Path, at: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; SUPERBLOCK];
    File::open(image)?.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn zero_log(bench: &Bench) -> Result<()> {
    let cut = with_a_log(bench)?;
    let progs = copied(bench, &cut, "progs.img")?;
    let theirs = Run::new("btrfs").args(["rescue", "zero-log"]).arg(&progs).ok()?.stdout_text();
    let ours = bench.creamery().run(["rescue", "zero-log"]).arg(&cut).ok()?.stdout_text();
    let name = |text: &str| text.replace("progs.img", "cut.img");
    ensure!(ours == name(&theirs), "{ours:?}, and btrfs-progs {theirs:?}");
    ensure!(superblock_word(&cut, LOG_ROOT_AT)? == 0, "the log is there still");
    btrfs_check(&cut)?;
    let mount = LoopMount::mount(&cut, &bench.scratch.file("kernel"), "")?;
    ensure!(fs::read(mount.dir().join("file"))? == b"committed", "not what the last commit left");
    mount.unmount()?;
    // Without a log it changes nothing.
    expect_untouched(&cut, || {
        let again = bench.creamery().run(["rescue", "zero-log"]).arg(&cut).ok()?.stdout_text();
        ensure!(again.contains("previous log_root 0, level 0"), "{again}");
        Ok(())
    })
}

/// Damage to an image with two commits; the second path is an image of the first commit.
type ToolsDamage = fn(&Path, &Path) -> Result<()>;

fn write_at(image: &Path, at: u64, bytes: &[u8]) -> Result<()> {
    Ok(File::options().write(true).open(image)?.write_all_at(bytes, at)?)
}

const DAMAGES: [(&str, ToolsDamage); 6] = [
    ("nothing", |_, _| Ok(())),
    ("the first damaged", |image, _| flip_byte(image, FIRST + LABEL)),
    ("the second damaged", |image, _| flip_byte(image, SECOND + LABEL)),
    ("the first zeros", |image, _| write_at(image, FIRST, &[0; SUPERBLOCK])),
    ("the second zeros", |image, _| write_at(image, SECOND, &[0; SUPERBLOCK])),
    ("the second of an earlier commit", |image, earlier| {
        write_at(image, SECOND, &superblock_at(earlier, SECOND)?)
    }),
];

fn super_recover(bench: &Bench) -> Result<()> {
    let whole = bench.scratch.file("whole.img");
    mkfs_empty(bench.creamery(), &[], "256M", &whole)?;
    let earlier = copied(bench, &whole, "earlier.img")?;
    fs::write(bench.scratch.file("note"), "a note")?;
    bench.creamery().run(["cp"]).arg(bench.scratch.file("note")).arg(inside(&whole, "/note")).ok()?;
    for (what, damage) in DAMAGES {
        let image = copied(bench, &whole, "disk.img")?;
        damage(&image, &earlier)?;
        let progs = copied(bench, &image, "progs.img")?;
        let both = |words: &str| -> Result<()> {
            let script = format!("echo n | \"$0\" rescue super-recover {words} \"$1\"");
            let by = |program: &Path, image: &Path| {
                Run::new("sh").args(["-c", &script]).arg(program).arg(image).output()
            };
            let theirs = by(Path::new("btrfs"), &progs)?;
            let ours = by(bench.creamery().path(), &image)?;
            let wanted = theirs.stdout_text().replace("progs.img", "disk.img");
            ensure!(ours.stdout_text() == wanted, "{what}, {words}: {ours}\nbtrfs-progs: {theirs}");
            ensure!(ours.code == theirs.code, "{what}, {words}: {ours}\nbtrfs-progs: {theirs}");
            Ok(())
        };
        expect_untouched(&image, || both("").and_then(|()| both("-v")))?;
        both("-v -y")?;
        both("-v")?;
        for at in [FIRST, SECOND] {
            ensure!(superblock_at(&image, at)? == superblock_at(&whole, at)?, "{what}: another one at {at}");
        }
        btrfs_check(&image)?;
        let note = bench.creamery().run(["cat"]).arg(inside(&image, "/note")).ok()?;
        ensure!(note.stdout == b"a note" && note.stderr.is_empty(), "{note}");
    }
    let nothing = copied(bench, &whole, "nothing.img")?;
    [FIRST, SECOND].iter().try_for_each(|at| flip_byte(&nothing, at + LABEL))?;
    expect_untouched(&nothing, || {
        expect_refusal(
            bench.creamery().run(["rescue", "super-recover", "-y"]).arg(&nothing),
            &["nothing.img", "no superblock copy is intact"],
        )
    })
}

/// Offsets of words in a superblock.
const GENERATION: usize = 72;
const ROOT: usize = 80;
const INCOMPAT: usize = 188;

/// Adds to words of a superblock, with the right checksum.
fn edit_superblock(image: &Path, at: u64, words: &[(usize, u64)]) -> Result<()> {
    let mut bytes = superblock_at(image, at)?;
    for &(word, more) in words {
        let old = u64::from_le_bytes(bytes[word..word + 8].try_into()?);
        bytes[word..word + 8].copy_from_slice(&(old + more).to_le_bytes());
    }
    let sum = crc32c(&bytes[32..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    Ok(File::options().write(true).open(image)?.write_all_at(&bytes, at)?)
}

/// Gives a superblock the address of a missing root tree, and a generation higher by `newer`.
fn lead_nowhere(image: &Path, at: u64, newer: u64) -> Result<()> {
    edit_superblock(image, at, &[(GENERATION, newer), (ROOT, 1 << 20)])
}

/// A whole and newer superblock whose root tree is missing replaces no superblock that leads to the files; and no other command that writes
/// superblocks uses it.
fn leads_nowhere(bench: &Bench) -> Result<()> {
    let whole = bench.scratch.file("whole.img");
    mkfs_empty(bench.creamery(), &["--csum", "crc32c"], "256M", &whole)?;
    fs::write(bench.scratch.file("note"), "a note")?;
    bench.creamery().run(["cp"]).arg(bench.scratch.file("note")).arg(inside(&whole, "/note")).ok()?;
    let recover = |image: &Path| bench.creamery().run(["rescue", "super-recover", "-y"]).arg(image);

    let image = copied(bench, &whole, "newer.img")?;
    lead_nowhere(&image, SECOND, 1)?;
    let recovered = recover(&image).output()?;
    ensure!(recovered.code == Some(2), "{recovered}");
    for at in [FIRST, SECOND] {
        ensure!(superblock_at(&image, at)? == superblock_at(&whole, at)?, "another one at {at}");
    }
    btrfs_check(&image)?;

    // The first superblock leads nowhere, and an older one to all files.
    let image = copied(bench, &whole, "first.img")?;
    lead_nowhere(&image, FIRST, 1)?;
    expect_untouched(&image, || {
        let run = |words: &[&str]| bench.creamery().run(words).arg(&image);
        for words in [&["rescue", "zero-log"][..], &["tune", "-m"], &["tune", "-S", "1"]] {
            expect_refusal(run(words), &["first.img", "no usable trees", "super-recover"])?;
        }
        Ok(())
    })?;
    let recovered = recover(&image).output()?;
    ensure!(recovered.code == Some(2), "{recovered}");
    ensure!(superblock_at(&image, FIRST)? == superblock_at(&whole, FIRST)?, "another first one");
    btrfs_check(&image)?;

    // An unknown feature is no damage: a newer version reads the filesystem.
    let image = copied(bench, &whole, "unknown.img")?;
    edit_superblock(&image, FIRST, &[(GENERATION, 1), (INCOMPAT, 1 << 62)])?;
    expect_untouched(&image, || expect_refusal(recover(&image), &["unknown.img", "feature"]))?;

    // If no superblock leads anywhere, none is written.
    let image = copied(bench, &whole, "none.img")?;
    lead_nowhere(&image, FIRST, 0)?;
    lead_nowhere(&image, SECOND, 1)?;
    expect_untouched(&image, || expect_refusal(recover(&image), &["none.img", "usable trees"]))
}

/// A device that is no Btrfs any more is not written, and copies that another filesystem has left are not taken for those of this one.
fn super_recover_refuses(bench: &Bench) -> Result<()> {
    let recover = |image: &Path| bench.creamery().run(["rescue", "super-recover", "-y"]).arg(image);
    let image = bench.scratch.file("ext4.img");
    sparse_file(&image, 300 << 20)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&image).ok()?;
    Run::new("mkfs.ext4").args(["-q", "-F", "-E", "nodiscard"]).arg(&image).ok()?;
    // ext4 writes there.
    File::options().write(true).open(&image)?.write_all_at(&[5; SUPERBLOCK], FIRST)?;
    expect_untouched(&image, || {
        expect_refusal(recover(&image), &["ext4.img", "holds an ext2, ext3 or ext4"])
    })?;

    let image = bench.scratch.file("other.img");
    let made = |size: &str, label: &str| {
        Run::new("mkfs.btrfs").args(["-q", "-K", "-f", "-b", size, "-L", label]).arg(&image).ok()
    };
    sparse_file(&image, 257 << 30)?;
    made("257G", "old")?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    for number in 0..20 {
        fs::write(mount.dir().join(format!("{number}")), "a file")?;
        Run::new("sync").arg("-f").arg(mount.dir()).ok()?;
    }
    mount.unmount()?;
    made("10G", "new")?;
    let listed = bench.creamery().run(["rescue", "super-recover", "-v"]).arg(&image).ok()?.stdout_text();
    ensure!(listed.contains("no need to recover"), "{listed}");
    // Also if only a copy of the new superblock is left.
    flip_byte(&image, FIRST + LABEL)?;
    let label = bench.creamery().run(["filesystem", "label"]).arg(&image).ok()?.stdout_text();
    ensure!(label == "new\n", "{label}");
    ensure!(recover(&image).output()?.code == Some(2), "the first one is written anew");
    btrfs_check(&image)?;

    // A whole superblock of another filesystem in the place of a copy is not overwritten.
    let (image, other) = (bench.scratch.file("two.img"), bench.scratch.file("second.img"));
    [&image, &other].into_iter().try_for_each(|image| mkfs_empty(bench.creamery(), &[], "256M", image))?;
    File::options().write(true).open(&image)?.write_all_at(&superblock_at(&other, SECOND)?, SECOND)?;
    expect_untouched(&image, || expect_refusal(recover(&image), &["two.img", "belongs to filesystem"]))?;

    // Whole superblocks that lead nowhere are not copied.
    let image = bench.scratch.file("nowhere.img");
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
    let chunk_root = superblock_word(&image, FIRST + 88)?;
    flip_byte(&image, chunk_root + 200)?;
    flip_byte(&image, SECOND + LABEL)?;
    expect_untouched(&image, || expect_refusal(recover(&image), &["nowhere.img", "no superblock is written"]))
}

fn find_root(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
    // Without discards, so that older blocks can be found.
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "nodiscard,commit=300")?;
    for commit in 0..4 {
        for number in 0..300 {
            fs::write(mount.dir().join(format!("{number}-of-{commit}")), "a file")?;
        }
        Run::new("sync").arg("-f").arg(mount.dir()).ok()?;
    }
    mount.unmount()?;
    let generation = superblock_word(&image, FIRST + 72)?;
    let (last, later) = (format!("-g {}", generation - 1), format!("-g {}", generation + 9));
    let words = ["", "-a", "-l 0", "-l 1", "-o 5", "-o 5 -l 1", "-o 5 -a", "-o 3", "-o 2", "-o 300", "-o 0"];
    let words = words.into_iter().map(str::to_owned).chain([
        format!("-o 5 {last}"),
        format!("-o 5 {last} -l 0"),
        last,
        later,
    ]);
    for words in words {
        let words: Vec<&str> = words.split_whitespace().collect();
        let theirs = Run::new("btrfs-find-root").args(&words).arg(&image).ok()?.stdout_text();
        let ours = bench.creamery().run(["rescue", "find-root"]).args(&words).arg(&image).ok()?.stdout_text();
        ensure!(ours == theirs, "{words:?}: {ours}\nbtrfs-find-root:\n{theirs}");
    }
    // Also when the root tree is damaged.
    let root = superblock_word(&image, FIRST + 80)?;
    flip_byte(&image, root + 200)?;
    let theirs = Run::new("btrfs-find-root").arg(&image).output()?.stdout_text();
    let ours = bench.creamery().run(["rescue", "find-root"]).arg(&image).ok()?.stdout_text();
    ensure!(ours == theirs && ours.contains("Well block"), "{ours}\nbtrfs-find-root:\n{theirs}");
    // An unreadable part is reported.
    let chunk_root = superblock_word(&image, FIRST + 88)?;
    let chunk_tree = bench.creamery().run(["rescue", "find-root", "-o", "3"]).arg(&image).ok()?;
    ensure!(chunk_tree.stderr.is_empty(), "{chunk_tree}");
    flip_byte(&image, chunk_root + 200)?;
    let said = bench.creamery().run(["rescue", "find-root"]).arg(&image).ok()?.stderr_text();
    ensure!(said.contains("the chunk tree is only partly readable"), "{said}");
    Ok(())
}

/// A command that writes needs the image for itself.
fn not_on_a_mount(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let commands = [&["zero-log"][..], &["super-recover", "-y"], &["clear-space-cache", "v1"]];
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    for words in commands {
        let call = bench.creamery().run(["rescue"]).args(words).arg(&image);
        expect_refusal(call, &["disk.img"])?;
    }
    mount.unmount()?;
    let device = LoopDevice::attach(&image, true)?;
    for words in commands {
        expect_refusal(bench.creamery().run(["rescue"]).args(words).arg(device.path()), &[&device.name()])?;
    }
    device.detach()
}

fn clear_space_cache(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    // Linux keeps caches only of large groups.
    sparse_file(&image, 4 << 30)?;
    Run::new("mkfs.btrfs").args(["-q", "-O", "^free-space-tree,^block-group-tree"]).arg(&image).ok()?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "space_cache=v1")?;
    fs::write(mount.dir().join("file"), vec![1; 64 << 20])?;
    mount.unmount()?;
    ensure!(headers(&image)? > 0, "there are caches to begin with");
    let said = bench.creamery().run(["rescue", "clear-space-cache", "v1"]).arg(&image).ok()?;
    ensure!(said.stdout_text() == "Free space cache cleared\n", "{said}");
    ensure!(headers(&image)? == 0, "caches are left");
    btrfs_check(&image)
}
