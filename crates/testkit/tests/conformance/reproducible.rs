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
        Case::new("reproducible/each-command", &JUDGED, each_command),
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

/// What is done to an image, with `FILES` for a tree and `ARCHIVE` for an archive of the host.
const STEPS: [&str; 20] = [
    "mkdir -p IMG:/a/b/c",
    "cp -a FILES IMG:/a",
    "cp -r FILES IMG:/plain",
    "subvolume create IMG:/s",
    "subvolume create IMG:/s/inner",
    "cp -a FILES IMG:/s",
    "subvolume snapshot IMG:/s IMG:/snapshot",
    "subvolume snapshot -r IMG:/s IMG:/a/read-only",
    "mv IMG:/plain IMG:/moved",
    "ln IMG:/moved/noise IMG:/linked",
    "chmod 600 IMG:/moved/noise",
    "chown 7:8 IMG:/moved/noise",
    "touch IMG:/touched",
    "truncate -s 70000 IMG:/touched",
    "tar -x -f ARCHIVE -C IMG:/a/b",
    "rm -r IMG:/moved",
    "subvolume delete IMG:/snapshot",
    "filesystem label IMG name",
    "quota enable IMG",
    "tune -x IMG",
];

fn each_command(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    plant(&source, 1)?;
    std::fs::write(source.join("noise"), Random::new(0).bytes(3 << 20))?;
    let archive = bench.scratch.file("source.tar");
    Run::new("tar").args(["-c", "-f"]).arg(&archive).arg("-C").arg(&source).arg(".").ok()?;
    let image = |name: &str| bench.scratch.file(name);
    let dated = |run: Run| run.env("SOURCE_DATE_EPOCH", EPOCH.to_string());
    let made = bench.creamery().run(["mkfs", "-q", "-U", FSID, "-b", "256M", "-O", "^quota"]);
    dated(made.arg(image("one.img"))).ok()?;
    for copy in ["two.img", "other.img"] {
        std::fs::copy(image("one.img"), image(copy))?;
    }
    for (step, name) in STEPS.iter().flat_map(|step| ["one.img", "two.img"].map(|name| (step, name))) {
        let path = image(name).display().to_string();
        let words = step.split(' ').map(|word| {
            word.replace("IMG", &path)
                .replace("FILES", &source.display().to_string())
                .replace("ARCHIVE", &archive.display().to_string())
        });
        dated(bench.creamery().run(words.collect::<Vec<_>>())).ok()?;
        if name == "two.img" {
            let same = Run::new("cmp").arg(image("one.img")).arg(image("two.img")).output()?;
            ensure!(same.code == Some(0), "{step}: {same}");
        }
    }
    btrfs_check(&image("one.img"))?;
    // Of images that differ no two subvolumes have one UUID, wherever they lie.
    dated(bench.creamery().run(["mkdir"]).arg(crate::support::inside(&image("other.img"), "/x"))).ok()?;
    let uuid = |name: &str, path: &str| -> Result<String> {
        dated(bench.creamery().run(["subvolume", "create"]).arg(crate::support::inside(&image(name), path)))
            .ok()?;
        let shown = bench
            .creamery()
            .run(["subvolume", "show"])
            .arg(crate::support::inside(&image(name), path))
            .ok()?;
        let text = shown.stdout_text();
        let line = text.lines().find(|line| line.trim_start().starts_with("UUID:")).unwrap_or_default();
        Ok(line.split_whitespace().last().unwrap_or_default().to_owned())
    };
    let uuids = [
        uuid("other.img", "/a")?,
        uuid("one.img", "/same")?,
        uuid("two.img", "/same")?,
        uuid("two.img", "/different")?,
    ];
    ensure!(uuids.iter().all(|uuid| uuid.len() == 36) && uuids[1] == uuids[2], "{uuids:?}");
    ensure!(uuids[0] != uuids[1] && uuids[2] != uuids[3], "{uuids:?}");
    let mount = LoopMount::mount(&image("one.img"), &bench.scratch.file("kernel"), "ro")?;
    ensure!(mount.dir().join("a/read-only/source/noise").exists(), "the kernel's view");
    mount.unmount()
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
