//! Which accesses move access times: those that do on the kernel's own Btrfs with the same mount options.
//!
//! What the kernel answers from what it keeps of a FUSE mount its server does not hear of, so everything is read once, after a
//! fresh mount.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Run, btrfs_check, until};
use rustix::fs::{AtFlags, CWD, IFlags, OFlags, Timespec, Timestamps, utimensat};

use crate::support::{MOUNTED, mkfs_empty};

/// Options that are tried, each on both.
const OPTIONS: [&str; 7] = [
    "relatime",
    "noatime",
    "strictatime",
    "nodiratime,strictatime",
    "lazytime",
    "lazytime,strictatime",
    "nodiratime",
];
/// Seconds from now that an access time is away before it is read.
const AGES: [(&str, i64); 3] = [("fresh", 0), ("to-come", 100_000), ("old", -200_000)];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("access-times/as-the-kernel", &MOUNTED, as_the_kernel),
        Case::new("access-times/remounted", &MOUNTED, remounted),
        Case::new("access-times/written-in-time", &MOUNTED, written_in_time),
    ]
}

/// A kind of thing with an access time, and how it is read.
type AccessKind = (&'static str, fn(&Path) -> Result<()>, fn(&Path) -> Result<()>);

const KINDS: [AccessKind; 6] = [
    ("file", make_file, read_file),
    ("empty", |path| Ok(File::create(path).map(drop)?), |_| Ok(())),
    ("quiet", make_file, |path| read_with(path, OFlags::NOATIME)),
    ("marked", make_marked, read_file),
    (
        "dir",
        |path| Ok(std::fs::create_dir(path)?),
        |path| Ok(std::fs::read_dir(path)?.try_for_each(|entry| entry.map(drop))?),
    ),
    ("link", |path| Ok(symlink("target", path)?), |path| Ok(std::fs::read_link(path).map(drop)?)),
];

fn make_file(path: &Path) -> Result<()> {
    Ok(std::fs::write(path, "content")?)
}

fn make_marked(path: &Path) -> Result<()> {
    make_file(path)?;
    Ok(rustix::fs::ioctl_setflags(File::open(path)?, IFlags::NOATIME)?)
}

fn read_file(path: &Path) -> Result<()> {
    read_with(path, OFlags::empty())
}

fn read_with(path: &Path, flags: OFlags) -> Result<()> {
    let mut file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    ensure!(text == "content", "{} has {text:?}", path.display());
    Ok(())
}

fn all() -> impl Iterator<Item = (String, AccessKind, i64)> {
    KINDS.into_iter().flat_map(|kind| AGES.map(|(age, seconds)| (format!("{}-{age}", kind.0), kind, seconds)))
}

fn atime(path: &Path) -> Result<(i64, i64)> {
    let seen = path.symlink_metadata()?;
    Ok((seen.atime(), seen.atime_nsec()))
}

fn make(dir: &Path) -> Result<()> {
    for (name, (_, make, _), age) in all() {
        let path = dir.join(name);
        make(&path)?;
        let seen = path.symlink_metadata()?;
        let at = |seconds| Timespec { tv_sec: seen.mtime() + seconds, tv_nsec: seen.mtime_nsec() };
        if age != 0 {
            let times = Timestamps { last_access: at(age), last_modification: at(-300_000) };
            utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(())
}

/// Access times, and which of them have moved.
type MovedTimes = BTreeMap<String, ((i64, i64), bool)>;

/// Reads everything; returns the access times after that, and which of them have moved.
fn read(dir: &Path) -> Result<MovedTimes> {
    let mut told = BTreeMap::new();
    for (name, (_, _, read), _) in all() {
        let path = dir.join(&name);
        let before = atime(&path)?;
        read(&path)?;
        let after = atime(&path)?;
        told.insert(name, (after, after != before));
    }
    Ok(told)
}

fn kept(dir: &Path, told: &MovedTimes) -> Result<()> {
    for (name, (time, _)) in told {
        let now = atime(&dir.join(name))?;
        ensure!(now == *time, "{name}: {now:?}, was told {time:?}");
    }
    Ok(())
}

fn as_the_kernel(bench: &Bench) -> Result<()> {
    let (kernels, ours) = (bench.scratch.file("kernels.img"), bench.scratch.file("ours.img"));
    let dir = bench.scratch.file("mounted");
    for options in OPTIONS {
        for image in [&kernels, &ours] {
            mkfs_empty(bench.creamery(), &["-f"], "256M", image)?;
        }
        let mount = |options: &str| LoopMount::mount(&kernels, &dir, options);
        let first = mount("noatime")?;
        make(first.dir())?;
        first.unmount()?;
        let second = mount(options)?;
        let want = read(second.dir())?;
        second.unmount()?;
        let third = mount("ro,noatime")?;
        kept(third.dir(), &want).with_context(|| format!("{options}: the kernel"))?;
        third.unmount()?;

        let mount = |options: &str| FuseMount::mount(bench.creamery(), &ours, &dir, options);
        let first = mount("noatime")?;
        make(first.dir())?;
        first.unmount()?;
        let second = mount(options)?;
        let found = read(second.dir())?;
        second.unmount()?;
        let third = LoopMount::mount(&ours, &dir, "ro,noatime")?;
        kept(third.dir(), &found).with_context(|| format!("{options}: the mount"))?;
        third.unmount()?;
        btrfs_check(&ours)?;
        for (name, (_, moved)) in &want {
            let found = found.get(name).context("it was read, too")?.1;
            ensure!(found == *moved, "{options}: {name} moves: {found}; on the kernel's Btrfs: {moved}");
        }
        let moved = want.values().filter(|(_, moved)| *moved).count();
        ensure!((moved == 0) == (options == "noatime"), "{options}: {moved} have moved");
    }
    Ok(())
}

/// Every way to say that times move differently from now on.
fn remounted(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "strictatime")?;
    let file = mount.dir().join("dir");
    std::fs::create_dir(&file)?;
    let moves = || -> Result<bool> {
        let before = atime(&file)?;
        std::fs::read_dir(&file)?.try_for_each(|entry| entry.map(drop))?;
        Ok(atime(&file)? != before)
    };
    ensure!(moves()? && moves()?, "strictatime moves them always");
    for (options, want) in [
        ("noatime", false),
        ("strictatime,atime", true),
        ("strictatime,nodiratime", false),
        ("strictatime,diratime", true),
        ("ro", false),
        ("rw,strictatime", true),
        ("relatime,nostrictatime", false),
    ] {
        let options = format!("remount,{options}");
        bench.creamery().run(["mount", "-o", &options]).arg(&image).arg(mount.dir()).ok()?;
        ensure!(moves()? == want, "after {options}: {}", !want);
    }
    // By somebody else, whom the server does not hear of before it is asked to make everything durable.
    Run::new("mount").args(["-i", "-o", "remount,strictatime"]).arg(mount.dir()).ok()?;
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    ensure!(moves()?, "after mount(8) without a helper");
    mount.unmount()?;
    btrfs_check(&image)
}

/// A mount that reads a file on an image of its own.
struct Reader<'b> {
    bench: &'b Bench,
    mount: FuseMount,
    image: PathBuf,
    before: Vec<u8>,
}

impl<'b> Reader<'b> {
    fn mount(bench: &'b Bench, name: &str, options: &str) -> Result<Self> {
        let image = bench.scratch.file(&format!("{name}.img"));
        mkfs_empty(bench.creamery(), &[], "256M", &image)?;
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file(name), options)?;
        make_file(&mount.dir().join("file"))?;
        bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
        let mut reader = Self { bench, mount, image, before: Vec::new() };
        reader.before = reader.in_image("/file")?.context("a synced file is in the image")?;
        Ok(reader)
    }

    /// Reads the file, whose access time moves.
    fn read(&self) -> Result<()> {
        let file = self.mount.dir().join("file");
        let old = atime(&file)?;
        // The pages that were written are still in the cache.
        rustix::fs::fadvise(&File::open(&file)?, 0, None, rustix::fs::Advice::DontNeed)?;
        read_file(&file)?;
        ensure!(atime(&file)? > old, "the access time did not move");
        Ok(())
    }

    /// How a file is in the image now, where it is there.
    fn in_image(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let copy = self.image.with_extension("copy");
        Run::new("cp").arg("--sparse=always").args([&self.image, &copy]).ok()?;
        let said = self.bench.creamery().run(["stat"]).arg(crate::support::inside(&copy, path)).output()?;
        Ok((said.code == Some(0)).then_some(said.stdout))
    }

    fn is_written(&self) -> Result<bool> {
        Ok(self.in_image("/file")?.is_some_and(|now| now != self.before))
    }
}

/// Nobody does anything but read: the times get into the image of themselves, unless they are lazy.
fn written_in_time(bench: &Bench) -> Result<()> {
    let lazy = Reader::mount(bench, "lazy", "strictatime,commit=1,lazytime")?;
    let strict = Reader::mount(bench, "strict", "strictatime,commit=1")?;
    // The lazy one first: what is written of the other by now would have been written of it before.
    lazy.read()?;
    strict.read()?;
    until("the access time to be written", || strict.is_written())?;
    // Nor does a commit take it along.
    std::fs::write(lazy.mount.dir().join("other"), "content")?;
    until("a commit", || Ok(lazy.in_image("/other")?.is_some()))?;
    ensure!(!lazy.is_written()?, "a lazy access time was written");
    lazy.mount.unmount()?;
    let (image, before) = (&lazy.image, &lazy.before);
    let said = bench.creamery().run(["stat"]).arg(crate::support::inside(image, "/file")).ok()?.stdout;
    ensure!(said != *before, "a lazy access time was not written by the unmount");
    btrfs_check(image)?;
    strict.mount.unmount()?;
    btrfs_check(&strict.image)
}
