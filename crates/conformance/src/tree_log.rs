//! Logs: after a power cut, we replay an fsync's log with the result of Linux' replay of the same device.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{
    FuseMount, Judge, LoopMount, Run, TreeItem, btrfs_check, rounds, sync_filesystem, tree_items,
};

use crate::hostile::Victim;
use crate::item_types::{DIR_INDEX, EXTENT_DATA, INODE_ITEM, ROOT_ITEM, VERITY_DESC_ITEM, XATTR_ITEM};
use crate::random_work::{RandomWork, State, TOP_LEVEL, WorkingSide, is_stub, subvolume_ids};
use crate::support::{MOUNTED, expect_refusal, expect_untouched, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let runs = [
        ("log/replayed-as-linux-does", &[][..], 31),
        ("log/replayed-as-linux-does-small-nodes", &["-n", "4096", "--csum", "xxhash"], 32),
        ("log/replayed-as-linux-does-hole-extents", &["-O", "^no-holes"], 33),
        ("log/replayed-as-linux-does-mixed", &["--mixed", "--csum", "sha256"], 34),
    ];
    let case = |(name, options, seed)| {
        Case::new(name, &MOUNTED, move |bench| logs_of_linux_are_replayed_as_linux_does(bench, options, seed))
    };
    let ours = [
        ("log/of-ours-replayed-by-linux-as-by-us", &[][..], 41),
        ("log/of-ours-replayed-by-linux-as-by-us-small-nodes", &["-n", "4096", "--csum", "xxhash"], 42),
        ("log/of-ours-replayed-by-linux-as-by-us-hole-extents", &["-O", "^no-holes"], 43),
        ("log/of-ours-replayed-by-linux-as-by-us-mixed", &["--mixed", "--csum", "sha256"], 44),
    ];
    let of_ours = |(name, options, seed)| {
        let run = move |bench: &Bench| logs_of_ours_are_replayed_by_linux_as_by_us(bench, options, seed);
        Case::new(name, &MOUNTED, run).long()
    };
    let with_xattrs = [&MOUNTED[..], &[Judge::Tool("setfattr")]].concat();
    let lies = Case::new("log/that-lies-is-refused", &with_xattrs, logs_that_lie_are_refused_by_name);
    let packed = Case::new("log/with-compressed-data", &with_xattrs, a_log_with_compressed_data);
    runs.into_iter().map(case).chain(ours.into_iter().map(of_ours)).chain([lies, packed]).collect()
}

/// Power cuts of a run: for every change, and in a proof.
const CUTS: (u64, u64) = (6, 30);
/// Operations before the first power cut.
const OPERATIONS: u64 = 100;
/// Operations between two power cuts.
const OPERATIONS_MAX: u64 = 40;
const SYNCS_MAX: u64 = 6;
/// Offsets in an inode item: the transaction that wrote it last, and the number of writes.
const TRANSID: Range<usize> = 8..16;
const SEQUENCE: Range<usize> = 72..80;
/// Offsets in an inode item: the times of change and of modification.
const TIMES: [Range<usize>; 2] = [124..136, 136..148];
const REGULAR: u8 = 1;
/// Offset in a file extent item.
const RAM_BYTES: Range<usize> = 8..16;
const EXTENT_OFFSET: Range<usize> = 37..45;
/// Offset of the log root's address on the device.
pub(crate) const LOG_ROOT_AT: u64 = 0x10000 + 96;

/// The visible state after a replay.
struct SeenAfterReplay {
    walk: Walk,
    items: BTreeMap<u64, Vec<TreeItem>>,
}

impl SeenAfterReplay {
    fn take(image: &Path, dir: &Path) -> Result<Self> {
        let mount = LoopMount::mount(image, dir, "noatime")?;
        let top = mount.dir();
        let stub = |path: &[u8]| is_stub(&top.join(std::ffi::OsStr::new(&*String::from_utf8_lossy(path))));
        let walk = Walk::take_without(top, &stub)?;
        let ids = subvolume_ids(top)?.into_values().chain([TOP_LEVEL]);
        let items = ids.map(|id| Ok((id, items_to_compare(top, id)?))).collect::<Result<_>>()?;
        mount.unmount()?;
        Ok(Self { walk, items })
    }

    /// Compares with Linux, whose replay began at `start` (seconds).
    fn expect_as_linux(&self, what: &str, linux: &Self, start: u64) -> Result<()> {
        // The comparison of items covers the times.
        let all =
            Compare { mtime: false, btime: true, xattrs_not: &["security.selinux"], ..Compare::default() };
        expect_same(what, &linux.walk, &self.walk, &all)?;
        for (id, items) in &self.items {
            let others =
                linux.items.get(id).with_context(|| format!("{what}: Linux has no subvolume {id}"))?;
            for (ours, theirs) in items.iter().zip(others) {
                let ours = forget_times_since(start, ours, theirs);
                ensure!(ours == *theirs, "{what}: in tree {id} {ours:?} is {theirs:?} on Linux");
            }
            ensure!(items.len() == others.len(), "{what}: {} items, Linux has {}", items.len(), others.len());
        }
        Ok(())
    }
}

/// The items of a subvolume, without the last writer of an inode item, and without former holes inside a larger hole.
fn items_to_compare(top: &Path, id: u64) -> Result<Vec<TreeItem>> {
    let mut items = tree_items(top, id)?;
    for item in &mut items {
        let is_hole = item.kind == EXTENT_DATA && item.data[20] == REGULAR && item.u64_at(21) == 0;
        let aside = match item.kind {
            INODE_ITEM => &[TRANSID, SEQUENCE][..],
            EXTENT_DATA if is_hole => &[RAM_BYTES, EXTENT_OFFSET],
            _ => &[],
        };
        aside.iter().for_each(|number| item.data[number.clone()].fill(0));
    }
    Ok(items)
}

/// Treats times as equal if Linux took them from its clock during the replay: it removes names as at any other time.
fn forget_times_since(start: u64, ours: &TreeItem, theirs: &TreeItem) -> TreeItem {
    let mut same = ours.clone();
    if ours.kind == INODE_ITEM && theirs.kind == INODE_ITEM {
        for time in TIMES {
            if theirs.u64_at(time.start) >= start {
                same.data[time.clone()].copy_from_slice(&theirs.data[time]);
            }
        }
    }
    same
}

fn has_log(image: &Path) -> Result<bool> {
    Ok(superblock_word(image, LOG_ROOT_AT)? != 0)
}

fn cuts() -> u64 {
    rounds(CUTS.0, CUTS.1)
}

/// Two copies of the device in its current state.
fn copies(bench: &Bench, image: &Path) -> Result<[PathBuf; 2]> {
    let copies = ["ours.img", "linux.img"].map(|name| bench.scratch.file(name));
    // One copy after the other: data may be written in place meanwhile.
    for (from, to) in [(image, &copies[0]), (&copies[0], &copies[1])] {
        Run::new("cp").arg("--sparse=always").args([from, to]).ok()?;
    }
    Ok(copies)
}

/// Replays and commits the log of an image, with no other change.
fn write_replay(bench: &Bench, image: &Path) -> Result<()> {
    bench.creamery().run(["rescue", "clear-space-cache", "v1"]).arg(image).ok().map(drop)
}

/// Replays the logs of two copies, one by Linux and one by us, and compares the results.
fn expect_same_replays(bench: &Bench, what: &str, [ours, theirs]: &[PathBuf; 2]) -> Result<()> {
    let file = |name: &str| bench.scratch.file(name);
    let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let linux = SeenAfterReplay::take(theirs, &file("linux"))?;
    FuseMount::mount(bench.creamery(), ours, &file("fuse"), "noatime")?.unmount()?;
    ensure!(has_log(ours)?, "{what}: a mount that nobody writes to has taken the log away");
    write_replay(bench, ours)?;
    ensure!(!has_log(ours)?, "{what}: the log is still there");
    for image in [ours, theirs] {
        btrfs_check(image).with_context(|| what.to_owned())?;
    }
    SeenAfterReplay::take(ours, &file("linux"))?.expect_as_linux(what, &linux, start)
}

/// Linux replays our logs with our result, and the file that was synced last is there.
fn logs_of_ours_are_replayed_by_linux_as_by_us(bench: &Bench, options: &[&str], seed: u64) -> Result<()> {
    let file = |name: &str| bench.scratch.file(name);
    let image = file("disk.img");
    mkfs_empty(bench.creamery(), options, "600M", &image)?;
    let mut state = State::new(seed);
    let mount = FuseMount::mount(bench.creamery(), &image, &file("ours"), "commit=300,noatime")?;
    let by = WorkingSide::Us(bench.creamery());
    RandomWork { top: mount.dir(), by, state: &mut state }.round(OPERATIONS)?;
    let (mut logs, cuts) = (0, 3 * cuts());
    for cut in 0..cuts {
        let what = format!("seed {seed}, cut {cut}");
        if state.random.below(3) > 0 {
            sync_filesystem(mount.dir())?;
        }
        let mut work = RandomWork { top: mount.dir(), by, state: &mut state };
        let synced = work.some(OPERATIONS_MAX, SYNCS_MAX).with_context(|| what.clone())?;
        let copies = copies(bench, &image)?;
        if !has_log(&copies[0])? {
            continue; // the sync committed, as no log could hold the change
        }
        logs += 1;
        let name = synced.strip_prefix(mount.dir())?;
        expect_same_replays(bench, &what, &copies)?;
        let linux = LoopMount::mount(&copies[1], &file("linux"), "ro,noatime")?;
        let (left, there) = (linux.dir().join(name), &synced);
        let what = || format!("{what}: {}", name.display());
        if there.is_file() {
            ensure!(std::fs::read(&left).with_context(what)? == std::fs::read(there)?, "{}", what());
        }
        let [left, there] = [left.metadata().with_context(what)?, there.metadata()?];
        ensure!(
            (left.len(), left.mode(), left.nlink(), left.mtime_nsec())
                == (there.len(), there.mode(), there.nlink(), there.mtime_nsec()),
            "{}: {left:?} is {there:?} before",
            what()
        );
        linux.unmount()?;
    }
    mount.unmount()?;
    btrfs_check(&image)?;
    ensure!(logs >= cuts / 6, "of {cuts} cuts {logs} left a log");
    Ok(())
}

fn logs_of_linux_are_replayed_as_linux_does(bench: &Bench, options: &[&str], seed: u64) -> Result<()> {
    let file = |name: &str| bench.scratch.file(name);
    let (image, kernel) = (file("disk.img"), file("kernel"));
    mkfs_empty(bench.creamery(), options, "600M", &image)?;
    let mut state = State::new(seed);
    let mount = LoopMount::mount(&image, &kernel, "commit=300,nodiscard")?;
    RandomWork { top: mount.dir(), by: WorkingSide::Linux, state: &mut state }.round(OPERATIONS)?;
    let (mut logs, cuts) = (0, cuts());
    for cut in 0..cuts {
        let what = format!("seed {seed}, cut {cut}");
        if state.random.below(3) > 0 {
            sync_filesystem(mount.dir())?;
        }
        let mut work = RandomWork { top: mount.dir(), by: WorkingSide::Linux, state: &mut state };
        work.some(OPERATIONS_MAX, SYNCS_MAX).with_context(|| what.clone())?;
        let copies = copies(bench, &image)?;
        if !has_log(&copies[0])? {
            continue; // the sync committed, as no log could hold the change
        }
        logs += 1;
        expect_same_replays(bench, &what, &copies)?;
    }
    mount.unmount()?;
    ensure!(logs >= cuts / 3, "of {cuts} cuts {logs} left a log");
    Ok(())
}

/// Offset of the superblock's incompatible features, with the bit of zstd.
const INCOMPAT_AT: u64 = 0x10000 + 188;
const COMPRESS_ZSTD: u64 = 1 << 4;

/// The first zstd data of a filesystem is in a log: Linux does not set the bit in the superblock with that log, so the replay must.
fn a_log_with_compressed_data(bench: &Bench) -> Result<()> {
    for _ in 0..10 {
        let [image, copy] = ["disk.img", "copy.img"].map(|name| bench.scratch.file(name));
        for old in [&image, &copy] {
            let _ = std::fs::remove_file(old);
        }
        mkfs_empty(bench.creamery(), &[], "256M", &image)?;
        let linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "commit=300,nodiscard")?;
        let path = linux.dir().join("file");
        std::fs::write(&path, "")?;
        std::fs::write(linux.dir().join("room"), vec![9; 20 << 20])?;
        sync_filesystem(linux.dir())?;
        std::fs::remove_file(linux.dir().join("room"))?;
        sync_filesystem(linux.dir())?;
        Run::new("setfattr").args(["-n", "btrfs.compression", "-v", "zstd"]).arg(&path).ok()?;
        let file = File::options().write(true).open(&path)?;
        file.write_all_at(&[b'a'; 200_000], 0)?;
        file.sync_all()?;
        drop(file);
        std::fs::copy(&image, &copy)?;
        linux.unmount()?;
        if !has_log(&copy)? || superblock_word(&copy, INCOMPAT_AT)? & COMPRESS_ZSTD != 0 {
            continue; // another process has called sync(2)
        }
        write_replay(bench, &copy)?;
        ensure!(!has_log(&copy)?, "the log was not replayed");
        let incompat = superblock_word(&copy, INCOMPAT_AT)?;
        ensure!(incompat & COMPRESS_ZSTD != 0, "there is zstd, and the superblock says {incompat:#x}");
        btrfs_check(&copy)?;
        let linux = LoopMount::mount(&copy, &bench.scratch.file("kernel"), "ro")?;
        ensure!(std::fs::read(linux.dir().join("file"))? == [b'a'; 200_000], "something else is there");
        return linux.unmount();
    }
    bail!("no fsync left a log without the word")
}

const TREE_LOG: u64 = 6_u64.wrapping_neg();
/// Offsets in a root item: the transaction that wrote the root, and its address.
const ROOT_GENERATION: usize = 160;
const ROOT_AT: usize = 176;
/// Offsets in a file extent item: the extent's address, and the part of it in use.
const DISK_BYTENR: usize = 21;
const NUM_BYTES: usize = 45;
/// Offset of the encoding in a file extent item, before the type; no encoding is defined.
const OTHER_ENCODING: usize = 18;
/// A transaction that never comes.
const NEVER: u64 = 1 << 40;
/// Bytes of an older file.
const OLDER_LEN: u64 = 90_000;
/// Offset of the root tree's address on the device.
const ROOT_TREE_AT: u64 = 0x10000 + 80;
/// Offset of the type in a key.
const KIND: usize = 8;
const OFFSET: usize = 9;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put(bytes: &mut [u8], at: usize, value: u64) -> bool {
    let other = word(bytes, at) != value;
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    other
}

pub(crate) fn superblock_word(image: &Path, at: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    File::open(image)?.read_exact_at(&mut bytes, at)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A device after an fsync, with data from before it. A sync(2) of another process on this host in that moment commits, so it may take
/// several tries.
fn with_a_log(bench: &Bench, image: &Path) -> Result<()> {
    for _ in 0..10 {
        if synced_by_linux(bench, image)? {
            return Ok(());
        }
    }
    bail!("an fsync left no log")
}

/// Syncs on a mount of Linux; returns whether the device has a log then.
fn synced_by_linux(bench: &Bench, image: &Path) -> Result<bool> {
    let mounted = bench.scratch.file("mounted.img");
    for old in [&*mounted, image] {
        if old.exists() {
            std::fs::remove_file(old)?;
        }
    }
    mkfs_empty(bench.creamery(), &["--csum", "crc32c", "--nodesize", "16k"], "256M", &mounted)?;
    let kernel = LoopMount::mount(&mounted, &bench.scratch.file("kernel"), "commit=300,nodiscard")?;
    let at = |path: &str| kernel.dir().join(path);
    std::fs::create_dir(at("dir"))?;
    for name in ["before", "dir/older"] {
        std::fs::write(at(name), vec![7; usize::try_from(OLDER_LEN)?])?;
    }
    // An fsync commits if a block group was made since the last commit, so this makes enough room first.
    std::fs::write(at("room"), vec![9; 20 << 20])?;
    sync_filesystem(kernel.dir())?;
    std::fs::remove_file(at("room"))?;
    sync_filesystem(kernel.dir())?;
    std::fs::write(at("dir/synced"), vec![8; 300_000])?;
    Run::new("setfattr").args(["-n", "user.name", "-v", "value"]).arg(at("dir/synced")).ok()?;
    for path in ["dir/synced", "dir"] {
        File::open(at(path))?.sync_all()?;
    }
    Run::new("cp").arg("--sparse=always").args([&mounted, image]).ok()?;
    kernel.unmount()?;
    Ok(superblock_word(image, LOG_ROOT_AT)? != 0)
}

/// Addresses that a log must not use.
struct Known {
    /// Data from before the fsync.
    used: u64,
    log_root: u64,
    root_tree: u64,
}

/// Changes a key and its data; returns whether it did.
type Lie = fn(&mut [u8], &mut [u8], &Known) -> bool;

fn is_on_disk(data: &[u8]) -> bool {
    data.len() == 53
}

fn next_kind(key: &mut [u8], _: &mut [u8], _: &Known) -> bool {
    key[KIND] += 1;
    true
}

fn slash(_: &mut [u8], name: &mut [u8], _: &Known) -> bool {
    *name.last_mut().expect("a name") = b'/';
    true
}

/// The name of a lie, the type of its items, the change, and the words of the refusal.
const LIES: [(&str, u8, Lie, &str); 19] = [
    ("items of no inode", INODE_ITEM, next_kind, "inode is missing"),
    ("an item of another kind", XATTR_ITEM, next_kind, "unexpected for"),
    ("a name that cannot be", DIR_INDEX, slash, "name"),
    ("data that others have", EXTENT_DATA, |_, data, known| point(data, known.used), "already in use"),
    ("data nowhere", EXTENT_DATA, |_, data, _| point(data, 1 << 40), "no data block group"),
    ("data among metadata", EXTENT_DATA, |_, data, known| point(data, known.log_root), "no data block group"),
    ("an inode that is not yet", INODE_ITEM, |_, data, _| put(data, 0, NEVER), "generation of an inode"),
    (
        "a change that is not yet",
        INODE_ITEM,
        |_, data, _| put(data, TRANSID.start, NEVER),
        "transid of an inode",
    ),
    ("data that is not yet", EXTENT_DATA, |_, data, _| put(data, 0, NEVER), "generation of a file extent"),
    ("data of no transaction", EXTENT_DATA, |_, data, _| put(data, 0, 0), "generation of a file extent"),
    (
        "data of an unknown encoding",
        EXTENT_DATA,
        |_, data, _| {
            data[OTHER_ENCODING] = 1;
            true
        },
        "other encoding",
    ),
    (
        "data in parts of sectors",
        EXTENT_DATA,
        |_, data, _| is_on_disk(data) && add(data, NUM_BYTES, 1),
        "num_bytes",
    ),
    (
        "data of odd bytes",
        EXTENT_DATA,
        |_, data, _| is_on_disk(data) && add(data, RAM_BYTES.start, 1),
        "ram_bytes",
    ),
    (
        "more data than there is",
        EXTENT_DATA,
        |_, data, _| is_on_disk(data) && put(data, RAM_BYTES.start, 0),
        "in memory",
    ),
    ("a log in itself", ROOT_ITEM, |_, data, known| put(data, ROOT_AT, known.log_root), "reached twice"),
    ("a log in a tree", ROOT_ITEM, |_, data, known| put(data, ROOT_AT, known.root_tree), "already in use"),
    ("a log of another time", ROOT_ITEM, |_, data, _| add(data, ROOT_GENERATION, 1), "generation"),
    ("an older log", ROOT_ITEM, |_, data, _| add(data, ROOT_GENERATION, u64::MAX), "generation"),
    ("a log of no subvolume", ROOT_ITEM, |key, _, _| put(key, OFFSET, 2), "does not belong"),
];

fn point(data: &mut [u8], at: u64) -> bool {
    is_on_disk(data) && put(data, DISK_BYTENR, at)
}

fn add(data: &mut [u8], at: usize, more: u64) -> bool {
    put(data, at, word(data, at).wrapping_add(more))
}

/// A log is replayed as a whole, or refused by name without any change.
fn logs_that_lie_are_refused_by_name(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("lies.img");
    with_a_log(bench, &image)?;
    let mut victim = Victim::new(image.clone())?;
    let mut known = Known {
        used: 0,
        log_root: superblock_word(&image, LOG_ROOT_AT)?,
        root_tree: superblock_word(&image, ROOT_TREE_AT)?,
    };
    victim.edit(EXTENT_DATA, &mut |_, data| {
        if is_on_disk(data) && word(data, NUM_BYTES) == OLDER_LEN.next_multiple_of(4096) {
            known.used = word(data, DISK_BYTENR);
        }
        false
    })?;
    ensure!(known.used > 0, "there is no data that was written before");
    victim.keep_blocks_of(TREE_LOG)?;
    for (what, kind, lie, said) in LIES {
        let changed = victim.edit(kind, &mut |key, data| lie(key, data, &known))?;
        ensure!(changed > 0, "{what}: there is nothing to change");
        expect_untouched(&image, || {
            expect_refusal(
                bench.creamery().run(["mkdir"]).arg(inside(&image, "/new")),
                &["lies.img", "log", said],
            )?;
            let checked = bench.creamery().run(["check"]).arg(&image).output()?;
            ensure!(checked.code == Some(4), "{checked}");
            Ok(())
        })
        .with_context(|| what.to_owned())?;
        bench
            .creamery()
            .run(["ls"])
            .arg(inside(&image, "/dir/older"))
            .ok()
            .with_context(|| what.to_owned())?;
        victim.restore()?;
    }
    // A valid change: a sealed file's extended attribute, on a file that is not sealed.
    let changed = victim.edit(XATTR_ITEM, &mut |key, _| {
        key[KIND] = VERITY_DESC_ITEM;
        true
    })?;
    ensure!(changed > 0, "there is no attribute");
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/sealed")).ok()?;
    btrfs_check(&image)?;
    victim.restore()?;
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/new")).ok()?;
    let listed = bench.creamery().run(["ls"]).arg(inside(&image, "/dir")).ok()?;
    ensure!(listed.stdout_text().trim() == "older\nsynced" && listed.stderr_text().is_empty(), "{listed}");
    btrfs_check(&image)
}
