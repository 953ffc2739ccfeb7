//! Two builds of one tree give the same bytes, whatever order the host lists things in.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Moment, Walk};
use creamery_testkit::{Judge, Judges, LoopMount, Random, Run, btrfs_check};

use crate::support::{JUDGED, inside};

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
        Case::new("reproducible/much-data", &JUDGED, much_data),
        Case::new("reproducible/subvolumes-of-other-content", &JUDGED, subvolumes),
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
const STEPS: [&str; 22] = [
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
    "tune -f -u IMG",
    "tune -m IMG",
];

fn each_command(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    plant(&source, 1)?;
    std::fs::write(source.join("noise"), Random::new(0).bytes(3 << 20))?;
    let archive = bench.scratch.file("source.tar");
    Run::new("tar").args(["-c", "-f"]).arg(&archive).arg("-C").arg(&source).arg(".").ok()?;
    let image = |name: &str| bench.scratch.file(name);
    let made = bench.creamery().run(["mkfs", "-q", "-U", FSID, "-b", "256M", "-O", "^quota"]);
    dated(made.arg(image("one.img"))).ok()?;
    std::fs::copy(image("one.img"), image("two.img"))?;
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
    let mount = LoopMount::mount(&image("one.img"), &bench.scratch.file("kernel"), "ro")?;
    ensure!(mount.dir().join("a/read-only/source/noise").exists(), "the kernel's view");
    mount.unmount()
}

/// The command with a time that stands still.
fn dated(run: Run) -> Run {
    run.env("SOURCE_DATE_EPOCH", EPOCH.to_string())
}

/// More data than may be delayed before somebody writes it back: which thread does so when must not be seen.
fn much_data(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    plant(&source, 1)?;
    for number in 0..4 {
        std::fs::write(source.join(format!("noise-{number}")), Random::new(number).bytes(20 << 20))?;
    }
    let archive = bench.scratch.file("source.tar");
    Run::new("tar").args(["-c", "-f"]).arg(&archive).arg("-C").arg(&source).arg(".").ok()?;
    let image = |name: &str| bench.scratch.file(name);
    dated(bench.creamery().run(["mkfs", "-q", "-U", FSID, "-b", "1G"]).arg(image("empty.img"))).ok()?;
    dated(bench.creamery().run(["mkfs", "-q", "-U", FSID, "--rootdir"]).arg(&source).arg(image("full.img")))
        .ok()?;
    let steps = ["tar -x -f ARCHIVE IMG:/", "cp -a SOURCE IMG:/", "cp -r FULL:/ IMG:/copy"];
    for step in steps {
        let mut images = Vec::new();
        for name in ["one.img", "two.img"] {
            Run::new("cp").arg("--sparse=always").arg(image("empty.img")).arg(image(name)).ok()?;
            let words = step.split(' ').map(|word| {
                word.replace("IMG", &image(name).display().to_string())
                    .replace("FULL", &image("full.img").display().to_string())
                    .replace("ARCHIVE", &archive.display().to_string())
                    .replace("SOURCE", &source.display().to_string())
            });
            dated(bench.creamery().run(words.collect::<Vec<_>>())).ok()?;
            images.push(image(name));
        }
        let same = Run::new("cmp").args(&images).output()?;
        ensure!(same.code == Some(0), "{step}: {same}");
        btrfs_check(&images[0])?;
    }
    Ok(())
}

/// `btrfs receive` finds a parent by its UUID: subvolumes with other content have other ones.
fn subvolumes(bench: &Bench) -> Result<()> {
    let image = |name: &str| bench.scratch.file(name);
    let file = bench.scratch.file("file");
    let run = |words: &[&str], path: &Path| dated(bench.creamery().run(words)).arg(path).ok();
    // Filesystems of one UUID, with files of the same size and time.
    let mut uuids = Vec::new();
    for (name, byte) in [("one.img", b'A'), ("other.img", b'B')] {
        std::fs::write(&file, vec![byte; 100_000])?;
        File::options().write(true).open(&file)?.set_modified(UNIX_EPOCH + Duration::from_secs(EPOCH - 1))?;
        run(&["mkfs", "-q", "-b", "256M", "-U", FSID], &image(name))?;
        let at = |path: &str| inside(&image(name), path);
        run(&["subvolume", "create"], Path::new(&at("/source")))?;
        dated(bench.creamery().run(["cp"]).arg(&file).arg(at("/source/data"))).ok()?;
        dated(bench.creamery().run(["subvolume", "snapshot", "-r"]).arg(at("/source")).arg(at("/snapshot")))
            .ok()?;
        uuids.push(uuid_of(bench, &image(name), "/snapshot")?);
        // Of what mkfs fills, too.
        let rootfs = bench.scratch.dir(&format!("rootfs-{name}"))?;
        std::fs::create_dir(rootfs.join("sub"))?;
        std::fs::copy(&file, rootfs.join("sub/data"))?;
        let filled = image(&format!("filled-{name}"));
        let words = ["mkfs", "-q", "-U", FSID, "-u", "ro:sub", "--rootdir"];
        dated(bench.creamery().run(words).arg(&rootfs).arg(&filled)).ok()?;
        btrfs_check(&filled)?;
        uuids.push(uuid_of(bench, &filled, "/sub")?);
    }
    // A snapshot at one place, of one or the other of two equal subvolumes.
    for name in ["x", "y"] {
        run(&["mkfs", "-q", "-b", "256M", "-U", FSID], &image(name))?;
        for subvolume in ["/x", "/y"] {
            run(&["subvolume", "create"], Path::new(&inside(&image(name), subvolume)))?;
        }
        let words = ["subvolume", "snapshot", "-r"];
        let (source, target) = (inside(&image(name), &format!("/{name}")), inside(&image(name), "/snapshot"));
        dated(bench.creamery().run(words).arg(source).arg(target)).ok()?;
        uuids.push(uuid_of(bench, &image(name), "/snapshot")?);
    }
    let different: BTreeSet<_> = uuids.iter().collect();
    ensure!(different.len() == uuids.len(), "subvolumes that differ have one UUID: {uuids:?}");
    Ok(())
}

fn uuid_of(bench: &Bench, image: &Path, path: &str) -> Result<String> {
    let shown = bench.creamery().run(["subvolume", "show"]).arg(inside(image, path)).ok()?.stdout_text();
    let line = shown.lines().find(|line| line.trim_start().starts_with("UUID:")).unwrap_or_default();
    let uuid = line.split_whitespace().last().unwrap_or_default();
    ensure!(uuid.len() == 36, "{path}: {shown}");
    Ok(uuid.to_owned())
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
