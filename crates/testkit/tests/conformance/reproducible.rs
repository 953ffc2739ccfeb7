//! Two builds of one tree give the same bytes, whatever order the host lists things in.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Moment, Walk};
use creamery_testkit::{Judge, Judges, LoopMount, Random, Run, btrfs_check};

use crate::support::JUDGED;

const EPOCH: u64 = 1_700_000_000;
const FSID: &str = "c0ffee00-1234-4abc-8def-0123456789ab";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("reproducible/byte-identical", &[Judge::Program, Judge::Tool("taskset")], byte_identical),
        Case::new(
            "reproducible/byte-identical-compressed",
            &[Judge::Program, Judge::Tool("taskset")],
            byte_identical_compressed,
        ),
    ]
}

fn byte_identical(bench: &Bench) -> Result<()> {
    builds(bench, &[])
}

/// Whichever thread packed what.
fn byte_identical_compressed(bench: &Bench) -> Result<()> {
    builds(bench, &["--compress", "zstd"])
}

fn builds(bench: &Bench, options: &[&str]) -> Result<()> {
    let mut images = Vec::new();
    for seed in [1, 2, 3] {
        let source = bench.scratch.dir(&format!("source-{seed}"))?;
        plant(&source, seed)?;
        std::fs::write(source.join("noise"), Random::new(0).bytes(3 << 20))?;
        let image = bench.scratch.file(&format!("{seed}.img"));
        // The last one by a single processor.
        let program = bench.creamery().path();
        let run =
            if seed == 3 { Run::new("taskset").args(["-c", "0"]).arg(program) } else { Run::new(program) };
        let run = run.args(["mkfs", "-U", FSID]).args(options).arg("--rootdir").arg(&source).arg(&image);
        run.env("SOURCE_DATE_EPOCH", EPOCH.to_string()).ok()?;
        images.push(image);
    }
    for other in &images[1..] {
        let same = Run::new("cmp").arg(&images[0]).arg(other).output()?;
        ensure!(same.code == Some(0), "two builds of one tree differ: {same}");
    }
    if Judges::here().have(&JUDGED) {
        btrfs_check(&images[0])?;
        let mount = LoopMount::mount(&images[0], &bench.scratch.file("kernel"), "ro")?;
        clamped(&Walk::take(mount.dir())?)?;
        mount.unmount()?;
    }
    Ok(())
}

/// Access, change and birth time are the epoch, the modification time is at most the epoch.
fn clamped(walk: &Walk) -> Result<()> {
    let epoch = Moment { seconds: EPOCH.cast_signed(), nanoseconds: 0 };
    for (path, entry) in walk.entries() {
        let path = path.escape_ascii();
        ensure!(entry.mtime <= epoch, "{path}: mtime {:?} is after the epoch", entry.mtime);
        ensure!(entry.atime == epoch, "{path}: atime is {:?}", entry.atime);
        ensure!(entry.ctime == epoch, "{path}: ctime is {:?}", entry.ctime);
        ensure!(entry.btime == Some(epoch), "{path}: birth time is {:?}", entry.btime);
    }
    let old = walk.entry(b"folder-3/file-5").map(|entry| entry.mtime.seconds);
    ensure!(old == Some(1_600_000_000), "an old mtime became {old:?}");
    Ok(())
}

/// One tree, made in an order that depends on `seed`.
fn plant(root: &Path, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let mut folders: Vec<u64> = (0..12).collect();
    random.shuffle(&mut folders);
    for folder in folders {
        let dir = root.join(format!("folder-{folder}"));
        std::fs::create_dir(&dir)?;
        let mut files: Vec<u64> = (0..40).collect();
        random.shuffle(&mut files);
        for file in files {
            plant_file(&dir, folder * 100 + file, file, &mut random)?;
        }
    }
    let mut names: Vec<OsString> = (0..300).map(|index| OsString::from(format!("link-{index:03}"))).collect();
    random.shuffle(&mut names);
    let (first, rest) = names.split_first().expect("there are names");
    std::fs::write(root.join(first), b"one file")?;
    for name in rest {
        std::fs::hard_link(root.join(first), root.join(name))?;
    }
    settle(root.join("link-000").as_ref(), 1_600_000_000)?;
    let mut folders: Vec<OsString> =
        (0..12).map(|folder| OsString::from(format!("folder-{folder}"))).collect();
    random.shuffle(&mut folders);
    for folder in &folders {
        settle(&root.join(folder), 1_600_000_000)?;
    }
    settle(root, 1_900_000_000)
}

fn plant_file(dir: &Path, seed: u64, file: u64, random: &mut Random) -> Result<()> {
    let path = dir.join(format!("file-{file}"));
    let mut content = Random::new(seed);
    let len = [0, 10, 3_000, 5_000, 140_000][(file % 5) as usize];
    if file % 11 == 10 {
        return Ok(symlink(OsStr::new("file-1"), path)?);
    }
    std::fs::write(&path, content.bytes(len))?;
    let mut xattrs: Vec<u64> = (0..(file % 4) * 3).collect();
    random.shuffle(&mut xattrs);
    for xattr in xattrs {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&path, format!("user.{xattr}"), xattr.to_string().as_bytes(), flags)?;
    }
    set_permissions(&path, Permissions::from_mode(0o600 + u32::from(file.is_multiple_of(2)) * 0o44))?;
    settle(&path, if file.is_multiple_of(2) { 1_800_000_000 } else { 1_600_000_000 })
}

fn settle(path: &Path, seconds: u64) -> Result<()> {
    let moment = UNIX_EPOCH + Duration::from_secs(seconds);
    Ok(File::open(path)?.set_times(std::fs::FileTimes::new().set_modified(moment).set_accessed(moment))?)
}
