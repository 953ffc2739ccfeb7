//! Filesystems of random sizes, in whole sectors, and of every kind, which four writers fill through the mount.
//!
//! Each accepted write is in its file after the mount, as Linux reads it. On a full filesystem the answers are those of Linux on a copy of
//! the image - to the first refused write, to one more, and then to an unlink, a truncation, an `rm -r` and a write -, or a call succeeds
//! where it fails on Linux.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Random, Run, asked_seed, btrfs_check, rounds};

use crate::support::{MOUNTED, mkfs_from};

/// The number of filesystems: for every change, and in a proof.
const ROUNDS: (u64, u64) = (4, 60);
const WRITERS: u64 = 4;
const MIB: u64 = 1 << 20;
const SECTOR: u64 = 4096;
/// Files of one writer that find no space before the writer ends.
const REFUSALS: u64 = 3;
const PIECE: usize = 65_536;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("full/what-four-wrote-is-there", &MOUNTED, what_four_wrote)]
}

#[derive(Clone, Copy, Debug)]
enum MadeBy {
    Ours,
    Linux,
    /// Made by us from a folder, and shrunk to the minimum.
    Shrunk,
}

/// A kind of filesystem, and its mount options.
#[derive(Clone, Debug)]
struct Sort {
    seed: u64,
    made_by: MadeBy,
    len: u64,
    profile: &'static [&'static str],
    /// Bytes by which it grows before it is filled.
    grown: u64,
    options: &'static str,
    snapshot: bool,
}

impl Sort {
    fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut one_of = |count: u64| random.below(count) as usize;
        let profile: [&[&str]; 4] = [&[], &["-m", "dup"], &["-m", "single"], &["-M"]];
        let profile = profile[one_of(4)];
        let made_by = [MadeBy::Ours, MadeBy::Linux, MadeBy::Shrunk][one_of(3)];
        let options = ["", "", "compress=zstd", "nodatacow"][one_of(4)];
        let (snapshot, grows) = (one_of(3) == 0, one_of(3) == 0);
        let len = 112 * MIB + random.below(140 * MIB / SECTOR) * SECTOR;
        let grown = random.below(9 * MIB / SECTOR) * SECTOR;
        let grown = match made_by {
            // A shrunk filesystem has no room for a directory.
            MadeBy::Shrunk => grown + 12 * MIB,
            _ if grows => grown,
            _ => 0,
        };
        Self { seed, made_by, len, profile, grown, options, snapshot }
    }

    fn make(&self, bench: &Bench, image: &Path) -> Result<()> {
        let len = self.len.to_string();
        match self.made_by {
            MadeBy::Ours => {
                bench.creamery().run(["mkfs", "-b", &len]).args(self.profile).arg(image).ok()?;
            }
            MadeBy::Linux => {
                File::create_new(image)?.set_len(self.len)?;
                Run::new("mkfs.btrfs").arg("-q").args(self.profile).arg(image).ok()?;
            }
            MadeBy::Shrunk => {
                let source = bench.scratch.dir(&format!("source{}", self.seed))?;
                let content = Random::new(self.seed).bytes(30 << 20);
                std::fs::write(source.join("file"), content)?;
                let options = [&["-b", &len, "--shrink"], self.profile].concat();
                mkfs_from(bench.creamery(), &options, &source, image)?;
                std::fs::remove_dir_all(source)?;
            }
        }
        if self.grown > 0 {
            let more = format!("+{}", self.grown);
            bench.creamery().run(["filesystem", "resize", &more]).arg(image).ok()?;
        }
        Ok(())
    }

    /// Makes content for a snapshot; it is overwritten while the filesystem is filled.
    fn begin(&self, dir: &Path, tool: impl Fn(&[&str], &[&Path]) -> Result<()>) -> Result<()> {
        let home = dir.join("home");
        tool(&["subvolume", "create"], &[&home])?;
        (0..WRITERS).try_for_each(|number| std::fs::create_dir(home.join(number.to_string())))?;
        if self.snapshot {
            std::fs::write(home.join("shared"), Random::new(self.seed).bytes(2 << 20))?;
            tool(&["subvolume", "snapshot"], &[&home, &dir.join("snapshot")])?;
        }
        Ok(())
    }
}

/// The files of a writer and their expected content.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A call, and the kind of its error.
type Answer = (&'static str, Option<ErrorKind>);
type SizeAnswers = Vec<Answer>;

fn what_four_wrote(bench: &Bench) -> Result<()> {
    let first = asked_seed();
    for seed in first..first + rounds(ROUNDS.0, ROUNDS.1) {
        let sort = Sort::of(seed);
        fill_both(bench, &sort).with_context(|| format!("{sort:?}"))?;
    }
    Ok(())
}

fn fill_both(bench: &Bench, sort: &Sort) -> Result<()> {
    let (image, copy) = (bench.scratch.file("disk.img"), bench.scratch.file("copy.img"));
    sort.make(bench, &image)?;
    Run::new("cp").args(["--sparse=always", "--"]).arg(&image).arg(&copy).ok()?;

    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), sort.options)?;
    let creamery = |words: &[&str], paths: &[&Path]| bench.creamery().run(words).args(paths).ok().map(drop);
    sort.begin(mount.dir(), creamery)?;
    let (files, ours) = work(mount.dir(), sort).context("through our mount")?;
    mount.unmount().context("what was accepted is told to be lost")?;
    btrfs_check(&image)?;
    let judge = LoopMount::mount(&image, &bench.scratch.file("judge"), "ro")?;
    compare(judge.dir(), &files)?;
    judge.unmount()?;

    let linux = LoopMount::mount(&copy, &bench.scratch.file("linux"), sort.options)?;
    let btrfs = |words: &[&str], paths: &[&Path]| Run::new("btrfs").args(words).args(paths).ok().map(drop);
    match sort.begin(linux.dir(), btrfs) {
        // On a small device Linux makes a metadata chunk of the remaining space, and has no room for the first files then. Ours had.
        Err(error) if is_full(&error) => linux.unmount()?,
        begun => {
            begun?;
            let (_, theirs) = work(linux.dir(), sort).context("through Linux' mount")?;
            linux.unmount()?;
            // For the last bytes Linux has less space for metadata.
            let as_good = |((_, ours), (_, theirs)): (&Answer, &Answer)| ours.is_none() || ours == theirs;
            ensure!(
                ours.len() >= theirs.len(),
                "Linux had room for a file, and there was none here: {ours:?}"
            );
            ensure!(
                ours.iter().zip(&theirs).all(as_good),
                "what is answered: {ours:?}\nby Linux: {theirs:?}"
            );
        }
    }
    [image, copy].into_iter().try_for_each(|image| Ok(std::fs::remove_file(image)?))
}

fn is_full(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::StorageFull)
}

/// Fills the filesystem, and goes on if there was room for a file.
fn work(dir: &Path, sort: &Sort) -> Result<(Files, SizeAnswers)> {
    let mut filled = std::thread::scope(|scope| {
        let fill = |number| scope.spawn(move || fill(dir, sort.seed, number));
        let running: Vec<_> = (0..WRITERS).map(fill).collect();
        running.into_iter().map(|writer| writer.join().expect("no panic")).collect::<Result<Vec<_>>>()
    })?;
    let mut answers = SizeAnswers::new();
    answers.extend(filled.iter().map(|(_, refused)| ("a writer", *refused)));
    let mut files: Vec<Files> = filled.drain(..).map(|(files, _)| files).collect();
    let content = Random::new(sort.seed).bytes(300_000);
    let write = |files: &mut Files, name: &str, len: usize| {
        let path = Path::new("home").join(name);
        let (accepted, error) = write_file(&dir.join(&path), &content[..len])?;
        if accepted > 0 {
            files.insert(path, content[..accepted].to_vec());
        }
        Ok::<_, anyhow::Error>(error)
    };
    answers.push(("another write", write(&mut files[0], "another", content.len())?));
    // A file of any writer: one may have come too late for all the space.
    let Some((gone, _)) = files.iter_mut().find_map(Files::pop_first) else {
        // There was no room for any file.
        return Ok((Files::new(), answers));
    };
    answers.push(("unlink", kind(std::fs::remove_file(dir.join(gone)))));
    let mut first = files.iter_mut().find_map(Files::first_entry).context("a file to cut off")?;
    let path = dir.join(first.key());
    // Whole sectors: a partial one would be rewritten, and there may be no room for that.
    let size = first.get().len() as u64 / 2 / SECTOR * SECTOR;
    let cut = File::options().write(true).open(path).and_then(|file| file.set_len(size));
    if cut.is_ok() {
        first.get_mut().truncate(size as usize);
    }
    answers.push(("truncate", kind(cut)));
    answers.push(("rm -r", kind(std::fs::remove_dir_all(dir.join("home/2")))));
    files[2].clear();
    answers.push(("a write after that", write(&mut files[0], "after", 20_000)?));
    Ok((files.into_iter().flatten().collect(), answers))
}

fn kind(done: std::io::Result<()>) -> Option<ErrorKind> {
    done.err().map(|error| error.kind())
}

/// Fills the filesystem with one writer's files. Returns them, and the error of the first refused write.
fn fill(dir: &Path, seed: u64, number: u64) -> Result<(Files, Option<ErrorKind>)> {
    let mut random = Random::new(seed << 8 | number);
    let (mut files, mut refused, mut first) = (Files::new(), 0, None);
    let shared = dir.join("home/shared");
    for made in 0.. {
        if refused == REFUSALS {
            break;
        }
        let path = Path::new("home").join(number.to_string()).join(made.to_string());
        let len = [100, 5000, 100_000, 1 << 20, 3 << 20][random.below(5) as usize];
        let len = 1 + random.below(len) as usize;
        let content = random.bytes(len);
        let (accepted, error) = write_file(&dir.join(&path), &content)?;
        if accepted > 0 || error.is_none() {
            files.insert(path, content[..accepted].to_vec());
        }
        refused += u64::from(error.is_some());
        first = first.or(error);
        if number == 0 && made == 3 && shared.exists() {
            // The snapshot has the old content.
            let content = random.bytes(2 << 20);
            let (accepted, _) = write_file(&shared, &content)?;
            files.insert("home/shared".into(), content[..accepted].to_vec());
        }
    }
    Ok((files, first))
}

/// Writes a new file in pieces. Returns the number of accepted bytes, and the error of the first refused write.
fn write_file(path: &Path, content: &[u8]) -> Result<(usize, Option<ErrorKind>)> {
    let mut file = match File::create(path) {
        Ok(file) => file,
        Err(error) => return Ok((0, Some(error.kind()))),
    };
    let mut at = 0;
    while at < content.len() {
        match file.write(&content[at..(at + PIECE).min(content.len())]) {
            Ok(count) => at += count,
            Err(error) => return Ok((at, Some(error.kind()))),
        }
    }
    Ok((at, None))
}

fn compare(dir: &Path, files: &Files) -> Result<()> {
    for (path, content) in files {
        let mut found = Vec::new();
        File::open(dir.join(path)).and_then(|mut file| file.read_to_end(&mut found))?;
        let (path, sizes) = (path.display(), (found.len(), content.len()));
        ensure!(sizes.0 == sizes.1, "{path}: {} bytes are there, and {} were accepted", sizes.0, sizes.1);
        ensure!(found == *content, "{path} has another content");
    }
    Ok(())
}
