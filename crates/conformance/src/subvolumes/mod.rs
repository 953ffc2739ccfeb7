//! Linux and we make and delete subvolumes and snapshots in turn, on one image.

pub(crate) mod beside_default;
pub(crate) mod controls;
pub(crate) mod killed;
pub(crate) mod live;
pub(crate) mod moved;
pub(crate) mod received;
pub(crate) mod told;
pub(crate) mod walked;
pub(crate) mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, LoopMount, Random, Run, btrfs_check, commit_and_clean, rounds, until};

use crate::support::{JUDGED, MOUNTED, expect_refusal, inside, killed_after, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let rounds = [
        ("subvolumes/in-turn-with-linux", &[][..], 1),
        ("subvolumes/in-turn-with-linux-small-nodes", &["-n", "4096"], 2),
        ("subvolumes/in-turn-with-linux-mixed", &["--mixed", "-n", "4096"], 3),
    ];
    let rounds = rounds
        .map(|(name, options, seed)| Case::new(name, &JUDGED, move |bench| in_turn(bench, options, seed)));
    let others = [
        Case::new("subvolumes/half-dropped-by-linux", &JUDGED, half_dropped_by_linux),
        Case::new("subvolumes/half-dropped-by-us", &JUDGED, half_dropped_by_us).long(),
        Case::new("subvolumes/moved-by-linux", &JUDGED, moved),
        Case::new("subvolumes/refused", &JUDGED, refused),
        Case::new("subvolumes/rmdir-on-a-mount", &MOUNTED, rmdir),
    ];
    rounds.into_iter().chain(others).collect()
}

/// Rounds of [`in_turn`]: for every change, and in a proof.
const ROUNDS: (u64, u64) = (6, 60);
const COMPARE: Compare = Compare {
    atime: false,
    ctime: false,
    btime: false,
    mtime: true,
    owners: true,
    holes: true,
    root: false,
    xattrs_not: &[],
};

fn btrfs(words: &[&str]) -> Run {
    Run::new("btrfs").args(words)
}

/// The subvolumes right below the top level, with their content.
fn walks(root: &Path) -> Result<BTreeMap<String, Walk>> {
    let mut walks = BTreeMap::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a name of ours")?;
        walks.insert(name, Walk::take(&entry.path())?);
    }
    Ok(walks)
}

/// The kernel's work in a round: changes, clones, snapshots and deletions.
struct Kernel<'r> {
    root: &'r Path,
    random: &'r mut Random,
    made: &'r mut u64,
}

impl Kernel<'_> {
    fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.root)? {
            names.push(entry?.file_name().into_string().ok().context("a name of ours")?);
        }
        names.sort();
        Ok(names)
    }

    fn pick(&mut self) -> Result<PathBuf> {
        let names = self.names()?;
        Ok(self.root.join(&names[self.random.below(names.len() as u64) as usize]))
    }

    fn new_name(&mut self) -> PathBuf {
        *self.made += 1;
        self.root.join(format!("kernel-{}", self.made))
    }

    fn change(&mut self) -> Result<()> {
        let subvolume = self.pick()?;
        if subvolume.to_string_lossy().ends_with("read-only") {
            return Ok(());
        }
        for _ in 0..40 {
            let path = subvolume.join(format!("file-{}", self.random.below(120)));
            match self.random.below(8) {
                0 if path.exists() => std::fs::remove_file(&path)?,
                1 if path.exists() => {
                    let other = subvolume.join(format!("file-{}", self.random.below(120)));
                    Run::new("cp").args(["--reflink=auto"]).arg(&path).arg(&other).output()?;
                }
                _ => {
                    let len = self.random.below(30_000) as usize;
                    std::fs::write(&path, self.random.bytes(len))?;
                }
            }
        }
        Ok(())
    }

    fn round(&mut self) -> Result<()> {
        for _ in 0..3 {
            self.change()?;
        }
        let (source, target) = (self.pick()?, self.new_name());
        btrfs(&["-q", "subvolume", "snapshot"]).arg(source).arg(target).ok()?;
        self.change()?;
        if self.names()?.len() > 6 {
            let gone = self.pick()?;
            btrfs(&["-q", "subvolume", "delete"]).arg(gone).ok()?;
        }
        self.change()
    }
}

/// Each side changes, snapshots and deletes the content of both; the other side, and `btrfs check`, verify that.
fn in_turn(bench: &Bench, options: &[&str], seed: u64) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), options, "600M", &image)?;
    let creamery = |words: &[&str]| bench.creamery().run(["subvolume"]).args(words);
    let dir = bench.scratch.file("kernel");
    creamery(&["create"]).arg(inside(&image, "/first")).arg(inside(&image, "/second")).ok()?;
    let mut random = Random::new(seed);
    let mut made = 0;
    for round in 0..rounds(ROUNDS.0, ROUNDS.1) {
        let what = || format!("seed {seed}, round {round}");
        let mount = LoopMount::mount(&image, &dir, "noatime,commit=1")?;
        Kernel { root: mount.dir(), random: &mut random, made: &mut made }.round().with_context(what)?;
        let before = walks(mount.dir())?;
        mount.unmount()?;
        let names: Vec<&String> = before.keys().collect();
        let mut pick = || names[random.below(names.len() as u64) as usize].clone();
        let (source, gone) = (pick(), pick());
        let (copy, read_only) = (format!("ours-{round}"), format!("ours-{round}-read-only"));
        let at = |name: &str| inside(&image, &format!("/{name}"));
        creamery(&["snapshot"]).arg(at(&source)).arg(at(&copy)).ok().with_context(what)?;
        creamery(&["snapshot", "-r"]).arg(at(&copy)).arg(at(&read_only)).ok().with_context(what)?;
        if names.len() > 2 && gone != source {
            creamery(&["delete"]).arg(at(&gone)).ok().with_context(what)?;
        }
        // The source may have snapshots of earlier rounds.
        let new = format!("{copy}/new-{round}");
        let changed = bench.creamery().run(["cp"]).arg(at(&format!("{source}/file-1"))).arg(at(&new));
        let is_changed = changed.output()?.code == Some(0);
        btrfs_check(&image).with_context(what)?;
        let mount = LoopMount::mount(&image, &dir, "noatime")?;
        let after = walks(mount.dir())?;
        let same = |name: &str, of: &str| {
            let what = format!("{}: {name} beside {of} before", what());
            expect_same(&what, &before[of], after.get(name).context("it is gone")?, &COMPARE)
        };
        for name in &names {
            if **name == gone && gone != source && names.len() > 2 {
                ensure!(!after.contains_key(*name), "{}: {name} is still there", what());
            } else {
                same(name, name)?;
            }
        }
        same(&read_only, &source)?;
        ensure!(is_changed == mount.dir().join(&new).exists(), "{}: the new file", what());
        let refused = std::fs::write(mount.dir().join(&read_only).join("file"), "").is_err();
        ensure!(refused, "{}: a read-only snapshot takes a file", what());
        mount.unmount()?;
    }
    Ok(())
}

const MANY: usize = 12_000;
/// The number of times that we are killed, spread over the work.
const TURNS: u64 = 6;

pub(crate) fn fill(dir: &Path, count: usize) -> Result<()> {
    for number in 0..count {
        std::fs::write(dir.join(format!("a file with some name {number}")), vec![number as u8; 3000])?;
    }
    Ok(())
}

/// A snapshot of `work` with some data of its own.
fn snapshot(root: &Path, number: u64) -> Result<()> {
    let target = root.join(format!("snapshot-{number}"));
    btrfs(&["-q", "subvolume", "snapshot"]).args([&root.join("work"), &target]).ok()?;
    fill(&target, MANY / 4)
}

/// Counts subvolumes that are deleted and not gone.
pub(crate) fn orphans(image: &Path) -> Result<usize> {
    let said = btrfs(&["inspect-internal", "dump-tree", "-t", "1"]).arg(image).ok()?.stdout_text();
    Ok(said.lines().filter(|line| line.contains("key (ORPHAN ORPHAN_ITEM")).count())
}

/// Whether one of them is partly dropped.
pub(crate) fn is_half_dropped(image: &Path) -> Result<bool> {
    let said = btrfs(&["inspect-internal", "dump-tree", "-t", "1"]).arg(image).ok()?.stdout_text();
    Ok(said.lines().any(|line| line.contains("drop_progress key") && !line.contains("drop_level 0")))
}

/// Linux begins to drop a subvolume, an unmount ends that, and we go on.
fn half_dropped_by_linux(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let dir = bench.scratch.file("kernel");
    for attempt in 1.. {
        mkfs_empty(bench.creamery(), &["-f", "-n", "4096"], "1G", &image)?;
        let mount = LoopMount::mount(&image, &dir, "noatime,commit=300")?;
        let (work, kept) = (mount.dir().join("work"), mount.dir().join("kept"));
        btrfs(&["-q", "subvolume", "create"]).arg(&work).ok()?;
        // If Linux dropped all of it at once, the next attempt has more to drop.
        fill(&work, MANY * attempt.min(3))?;
        btrfs(&["-q", "subvolume", "snapshot"]).arg(&work).arg(&kept).ok()?;
        fill(&work, MANY / 2)?;
        let want = Walk::take(&kept)?;
        btrfs(&["-q", "subvolume", "delete"]).arg(&work).ok()?;
        mount.unmount()?;
        for number in 0..20_u8 {
            if is_half_dropped(&image)? || orphans(&image)? == 0 {
                break;
            }
            let mount = LoopMount::mount(&image, &dir, "noatime,commit=300")?;
            std::fs::write(mount.dir().join("file"), [number])?;
            // This wakes Linux' cleaner. Then some commits follow, one more each time, so that it begins at all; no program runs, which
            // would give it time to drop everything.
            let opened = std::fs::File::open(mount.dir())?;
            commit_and_clean(&opened)?;
            (0..number).try_for_each(|_| rustix::fs::syncfs(&opened))?;
            drop(opened);
            mount.unmount()?;
        }
        if !is_half_dropped(&image)? {
            continue;
        }
        bench.creamery().run(["subvolume", "sync"]).arg(&image).ok()?;
        ensure!(orphans(&image)? == 0, "something is left");
        btrfs_check(&image)?;
        let mount = LoopMount::mount(&image, &dir, "noatime")?;
        expect_same(
            "what shares with what was dropped",
            &want,
            &Walk::take(&mount.dir().join("kept"))?,
            &COMPARE,
        )?;
        return mount.unmount();
    }
    Ok(())
}

/// A balance moves shared blocks, so they are newer than the snapshots that share them. We delete all of these, one before and one after a
/// change.
fn moved(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-n", "4096"], "1G", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
    let work = mount.dir().join("work");
    btrfs(&["-q", "subvolume", "create"]).arg(&work).ok()?;
    fill(&work, 3000)?;
    for name in ["one", "other"] {
        let snapshot = mount.dir().join(name);
        btrfs(&["-q", "subvolume", "snapshot"]).arg(&work).arg(&snapshot).ok()?;
        std::fs::write(snapshot.join("new"), name)?;
    }
    btrfs(&["-q", "balance", "start", "-m"]).arg(mount.dir()).ok()?;
    let want = Walk::take(&work)?;
    mount.unmount()?;
    let creamery = |words: &[&str]| bench.creamery().run(words);
    creamery(&["subvolume", "delete"]).arg(inside(&image, "/one")).ok()?;
    btrfs_check(&image)?;
    creamery(&["subvolume", "snapshot"]).arg(inside(&image, "/other")).arg("/third").ok()?;
    creamery(&["rm", "-r"]).arg(inside(&image, "/other/new")).ok()?;
    for name in ["/other", "/third"] {
        creamery(&["subvolume", "delete"]).arg(inside(&image, name)).ok()?;
        btrfs_check(&image)?;
    }
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    expect_same("what was moved", &want, &Walk::take(&mount.dir().join("work"))?, &COMPARE)?;
    mount.unmount()
}

/// We are killed while we drop a subvolume, and Linux or we go on.
fn half_dropped_by_us(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-n", "4096"], "1G", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
    btrfs(&["-q", "subvolume", "create"]).arg(mount.dir().join("work")).ok()?;
    fill(&mount.dir().join("work"), MANY)?;
    (0..=TURNS).try_for_each(|number| snapshot(mount.dir(), number))?;
    let want = Walk::take(&mount.dir().join("work"))?;
    mount.unmount()?;
    let delete = |number: u64, bytes: u64| {
        let mut command = Command::new(bench.creamery().path());
        command.args(["subvolume", "delete"]).arg(inside(&image, &format!("/snapshot-{number}")));
        killed_after(&mut command, bytes)
    };
    let (_, whole) = delete(0, u64::MAX)?;
    let (mut cut, mut number) = (0, 0);
    while number < TURNS || cut == 0 {
        number += 1;
        if number > TURNS {
            // No process was killed in time.
            let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
            snapshot(mount.dir(), number)?;
            mount.unmount()?;
        }
        let moment = whole * (1 + (number - 1) % TURNS) / (TURNS + 1);
        cut += u32::from(delete(number, moment)?.0);
        btrfs_check(&image).with_context(|| format!("killed while dropping snapshot {number}"))?;
        if number % 2 == 0 {
            let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime,commit=1")?;
            btrfs(&["subvolume", "sync"]).arg(mount.dir()).ok()?;
            mount.unmount()?;
        } else {
            bench.creamery().run(["subvolume", "sync"]).arg(&image).ok()?;
        }
        ensure!(orphans(&image)? == 0, "something is left of snapshot {number}");
        btrfs_check(&image)?;
    }
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
    expect_same(
        "what shares with what was dropped",
        &want,
        &Walk::take(&mount.dir().join("work"))?,
        &COMPARE,
    )?;
    mount.unmount()
}

fn refused(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let creamery = |words: &[&str], paths: &[&str]| {
        let run = bench.creamery().run(["subvolume"]).args(words);
        paths.iter().fold(run, |run, path| run.arg(inside(&image, path)))
    };
    creamery(&["create"], &["/one", "/one/inner", "/two"]).ok()?;
    creamery(&["snapshot", "-r"], &["/one", "/kept"]).ok()?;
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/dir")).ok()?;
    let long = format!("/{}", "n".repeat(256));
    let rows: [(&[&str], &[&str], &[&str]); 19] = [
        (&["create"], &["/one"], &["/one", "exists"]),
        (&["create"], &["/no/such"], &["/no/such", "not found"]),
        (&["create"], &[&long], &["too long"]),
        (&["create"], &["/kept/new"], &["/kept/new", "read-only"]),
        (&["snapshot"], &["/dir", "/new"], &["/dir", "not the root of a subvolume"]),
        (&["snapshot"], &["/nothing", "/new"], &["/nothing", "not found"]),
        (&["snapshot"], &["/two", "/kept/new"], &["/kept/new", "read-only"]),
        (&["snapshot"], &["/", "/dir"], &["/dir", "add a name"]),
        (&["delete"], &["/dir"], &["/dir", "not a subvolume"]),
        (&["delete"], &["/one"], &["/one", "contains subvolume", "delete the subvolumes in it first"]),
        (&["delete"], &["/"], &["root"]),
        (&["delete"], &["/nothing"], &["/nothing", "not found"]),
        (&["create"], &["/"], &["root"]),
        (&["create"], &["/one/."], &["/one/.", "ends in ."]),
        (&["create"], &["/one/.."], &["/one/..", "ends in ."]),
        (&["delete"], &["/one/."], &["/one/.", "ends in ."]),
        (&["delete"], &["/one/inner/.."], &["/one/inner/..", "ends in ."]),
        (&["snapshot"], &["/kept", "/kept/itself"], &["/kept/itself", "read-only"]),
        (&["snapshot"], &["/two", &long], &["too long"]),
    ];
    for (words, paths, said) in rows {
        expect_refusal(creamery(words, paths), said).with_context(|| format!("{words:?} {paths:?}"))?;
    }
    // Invalid numbers, the top level, and numbers that Linux reserves.
    for id in ["0", "5", "6", "255", "18446744073709551360", "18446744073709551615"] {
        for words in [&["delete", "-i", id][..], &["show", "-r", id], &["set-default", id]] {
            // The default may be the top level, also as number 0.
            let is_meant = id == "5" && words[0] != "delete" || id == "0" && words[0] == "set-default";
            if !is_meant {
                let run = bench.creamery().run(["subvolume"]).args(words).arg(&image);
                expect_refusal(run, &[id]).with_context(|| format!("{words:?}"))?;
            }
        }
    }
    // A snapshot of a snapshot into itself.
    creamery(&["snapshot"], &["/two", "/two/itself"]).ok()?;
    creamery(&["snapshot"], &["/two/itself", "/two/itself/again"]).ok()?;
    creamery(&["delete"], &["/two/itself/again", "/two/itself"]).ok()?;
    // As on Linux, a snapshot into a directory gets its source's name there, and rmdir removes an empty subvolume.
    creamery(&["snapshot"], &["/two", "/dir"]).ok()?;
    bench.creamery().run(["rm", "-r"]).arg(inside(&image, "/dir")).ok()?;
    creamery(&["delete"], &["/one/inner", "/one"]).ok()?;
    btrfs_check(&image)
}

/// As on Linux, rmdir removes an empty subvolume, and the directory that stands for a subvolume in a snapshot.
fn rmdir(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
    for name in ["work", "work/inner"] {
        btrfs(&["-q", "subvolume", "create"]).arg(kernel.dir().join(name)).ok()?;
    }
    fill(&kernel.dir().join("work"), 500)?;
    btrfs(&["-q", "subvolume", "snapshot"])
        .arg(kernel.dir().join("work"))
        .arg(kernel.dir().join("copy"))
        .ok()?;
    kernel.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let full = std::fs::remove_dir(mount.dir().join("work")).err().and_then(|error| error.raw_os_error());
    ensure!(full == Some(rustix::io::Errno::NOTEMPTY.raw_os_error()), "rmdir of a full subvolume: {full:?}");
    std::fs::remove_dir(mount.dir().join("work/inner"))?;
    Run::new("rm").arg("-r").arg(mount.dir().join("copy")).ok()?;
    ensure!(!mount.dir().join("copy").exists() && mount.dir().join("work").exists(), "the wrong one is gone");
    Run::new("sync").arg("-f").arg(mount.dir()).ok()?;
    // A reader of an image that is being written can meet a block that was just reused.
    until("what was deleted to be dropped", || Ok(orphans(&image).is_ok_and(|left| left == 0)))?;
    mount.unmount()?;
    btrfs_check(&image)
}
