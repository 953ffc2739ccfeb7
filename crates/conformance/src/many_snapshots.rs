//! A subvolume of many files, of which many snapshots are taken while it changes: the first, the one in the middle and the last show
//! what it was then, and taking the last one is as much work as taking the first was.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, LoopMount, Random, Run, btrfs_check, rounds};
use serde_json::Value;

use crate::support::{MOUNTED, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("subvolumes/many-snapshots", &MOUNTED, many).long()]
}

/// Snapshots: of every change, and of a proof.
const SNAPSHOTS: (u64, u64) = (60, 300);
/// Files for each, and at least: so many that the root of their tree leads to few nodes. It is copied, and each of those then has
/// one reference more.
const FILES: u64 = 100;
const FILES_MIN: u64 = 20_000;
/// Files that change between two.
const CHANGED: u64 = 3;
/// Snapshots at each end whose work is compared.
const COMPARED: usize = 20;

/// Blocks that one of the last may write more than one of the first.
const BLOCKS_MORE: u64 = 24;
/// With more snapshots than that `btrfs check` is not asked.
const CHECKED_MAX: u64 = 200;
/// How long our own check may take for a thousand.
const CHECK_LIMIT: Duration = Duration::from_secs(1_500);

/// What was done, as a mount counts it.
#[derive(Clone, Copy, Default, Debug)]
struct Effort {
    blocks_written: u64,
    blocks_read: u64,
    searches: u64,
}

impl Effort {
    fn until_now(bench: &Bench, dir: &Path) -> Result<Self> {
        let said = bench.creamery().run(["stats", "--json"]).arg(dir).ok()?.stdout;
        let json: Value = serde_json::from_slice(&said)?;
        let number = |path: &str| json.pointer(path).and_then(Value::as_u64).context(path.to_owned());
        Ok(Self {
            blocks_written: number("/filesystem/commits/tree_blocks_written")?,
            blocks_read: number("/filesystem/volume/tree_block_reads")?,
            searches: number("/filesystem/trees/searches")?,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            blocks_written: self.blocks_written - before.blocks_written,
            blocks_read: self.blocks_read - before.blocks_read,
            searches: self.searches - before.searches,
        }
    }

    fn sum(of: &[Self]) -> Self {
        of.iter().fold(Self::default(), |sum, one| Self {
            blocks_written: sum.blocks_written + one.blocks_written,
            blocks_read: sum.blocks_read + one.blocks_read,
            searches: sum.searches + one.searches,
        })
    }
}

fn file(work: &Path, number: u64) -> std::path::PathBuf {
    work.join(format!("dir-{}", number % 50)).join(format!("file-{number}"))
}

/// Small files, one of twenty with data of its own.
fn fill(work: &Path, files: u64, random: &mut Random) -> Result<()> {
    for number in 0..50 {
        std::fs::create_dir_all(work.join(format!("dir-{number}")))?;
    }
    for number in 0..files {
        let len = if number % 20 == 0 { 5_000 } else { random.below(200) };
        std::fs::write(file(work, number), random.bytes(len as usize))?;
    }
    Ok(())
}

fn change(work: &Path, files: u64, round: u64, random: &mut Random) -> Result<()> {
    for _ in 0..CHANGED {
        let len = random.below(5_000) as usize;
        std::fs::write(file(work, random.below(files)), random.bytes(len))?;
    }
    std::fs::write(file(work, files + round), "new")?;
    let gone = file(work, random.below(files));
    if gone.exists() { Ok(std::fs::remove_file(gone)?) } else { Ok(()) }
}

fn many(bench: &Bench) -> Result<()> {
    let snapshots = rounds(SNAPSHOTS.0, SNAPSHOTS.1).max(3 * COMPARED as u64);
    let files = (snapshots * FILES).max(FILES_MIN);
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-m", "single"], "4G", &image)?;
    let mut random = Random::new(31);
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
    Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(kernel.dir().join("work")).ok()?;
    fill(&kernel.dir().join("work"), files, &mut random)?;
    kernel.unmount()?;

    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let work = mount.dir().join("work");
    let kept = [0, snapshots / 2, snapshots - 1];
    let (mut wanted, mut efforts) = (Vec::new(), Vec::new());
    let sync = || bench.creamery().run(["sync"]).arg(mount.dir()).ok();
    for number in 0..snapshots {
        change(&work, files, number, &mut random).with_context(|| format!("before snapshot {number}"))?;
        sync()?;
        let before = Effort::until_now(bench, mount.dir())?;
        let name = mount.dir().join(format!("snapshot-{number}"));
        bench.creamery().run(["subvolume", "snapshot", "-r"]).args([&work, &name]).ok()?;
        sync()?;
        efforts.push(Effort::until_now(bench, mount.dir())?.since(before));
        if kept.contains(&number) {
            wanted.push((number, Walk::take(&work)?));
        }
    }
    mount.unmount()?;
    let (first, last) =
        (Effort::sum(&efforts[..COMPARED]), Effort::sum(&efforts[efforts.len() - COMPARED..]));
    println!("the first {COMPARED}: {first:?}, the last {COMPARED} of {snapshots}: {last:?}");
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro,noatime")?;
    for (number, want) in wanted {
        let found = Walk::take(&kernel.dir().join(format!("snapshot-{number}")))?;
        expect_same(
            &format!("snapshot {number}"),
            &want,
            &found,
            &Compare { holes: false, ..Compare::default() },
        )?;
    }
    kernel.unmount()?;
    // `btrfs check` looks into each snapshot anew: a thousand take it hours.
    if snapshots <= CHECKED_MAX {
        btrfs_check(&image)?;
    }
    bench.creamery().run(["check"]).arg(&image).limit(CHECK_LIMIT).ok()?;
    // What is changed is a dozen items of six trees. At first most of those trees are one leaf each; in the end each item may be in a
    // leaf of its own, below nodes of its own. More than that it never becomes.
    let most = first.blocks_written + BLOCKS_MORE * COMPARED as u64;
    ensure!(
        last.blocks_written <= most && last.searches <= 2 * first.searches,
        "the first {COMPARED} took {first:?}, the last {last:?}"
    );
    let few = 2 * COMPARED as u64;
    ensure!(last.blocks_read <= first.blocks_read + few, "the first read {first:?}, the last {last:?}");
    Ok(())
}
