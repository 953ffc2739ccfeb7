//! The work that is cut off: many commits that reach all that a commit can do.
//!
//! Random operations run throughout; at fixed commits something special happens, so that the history has leaf and
//! root splits and merges, a new chunk and its removal, free space turning into bitmaps and back, inodes that
//! are open without a name, more of the device for the filesystem, and changes of what only the superblock says. [`Features`] counts what came about, because a workload that misses its target tests
//! nothing.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use creamery_base::{TreeId, Uuid, Wait};
use creamery_device::BlockDevice;
use creamery_format::{CompatRo, Key, KeyType};
use creamery_fs::FileType;
use creamery_txn::{Conversion, Engine};
use creamery_volume::SuperblockChange;

use crate::device::{Canary, Event, SimDevice};
use crate::driver::Driver;
use crate::image::Image;
use crate::model::{Model, ROOT};
use crate::operation::{Generator, Operation, Outcome, Taste};
use crate::quotas;
use crate::snapshot::Snapshot;

/// A moment at which everything was durable.
pub(crate) struct Commit {
    /// What the files were, with nothing open.
    pub(crate) model: Model,
    pub(crate) snapshot: Snapshot,
    /// The event that wrote its superblock; none for what was there at the start.
    pub(crate) superblock: Option<usize>,
    /// From this many events on it is durable for sure.
    pub(crate) durable: usize,
}

impl Commit {
    /// What was there at the start.
    pub(crate) fn first(model: &Model) -> Self {
        Self { snapshot: model.snapshot(), model: model.clone(), superblock: None, durable: 0 }
    }
}

/// What a history has in it.
///
/// ```
/// assert_eq!(creamery_sim::Features::default().commits, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// Commits.
    pub commits: usize,
    /// Most levels of the tree of files.
    pub levels: u8,
    /// Most bitmaps in the free space tree.
    pub bitmaps: usize,
    /// Chunks at the start, and most of them.
    pub chunks: (usize, usize),
    /// Most orphans in a commit.
    pub orphans: usize,
    /// Commits in the middle of deleting an inode.
    pub deleting: usize,
    /// Most snapshots.
    pub snapshots: usize,
    /// Commits in the middle of dropping a subvolume.
    pub dropping: usize,
    /// Operations that ended while blocks of an earlier transaction were still to be written.
    pub shared: usize,
    /// Steps of the background that ended, and how often one was left in its midst for an operation to go on.
    pub steps: (u64, u64),
    /// Files that were made durable one by one.
    pub fsyncs: u64,
    /// Bytes of the device that the filesystem took in the midst.
    pub grown: u64,
    /// Changes of what only the superblock says.
    pub superblock_changes: usize,
    /// Which of the features that a writer has to know were switched on or off.
    pub converted: CompatRo,
}

/// A recorded piece of work.
pub struct History {
    pub(crate) base: Image,
    pub(crate) events: Vec<Event>,
    pub(crate) commits: Vec<Commit>,
    /// What came about.
    pub features: Features,
}

/// Commits of a workload.
const COMMITS: usize = 60;
/// A subvolume of which there are snapshots.
const HOME: &[u8] = b"home";
/// Extents of a file whose deleting takes longer than to the next commit.
const PIECES: u64 = 600;

struct WorkRecorder {
    device: Arc<SimDevice>,
    driver: Driver,
    generator: Generator,
    commits: Vec<Commit>,
    features: Features,
    /// What a writer had to know at the start.
    made_with: CompatRo,
}

fn known_to_writers(engine: &Engine) -> CompatRo {
    engine.volume().superblock().compat_ro()
}

/// What the device has that the filesystem has not, at the start.
const ROOM: u64 = 24 << 20;

/// Runs the workload of `seed` on a filesystem that holds `base`.
///
/// # Errors
/// Where engine and model differ.
pub fn record(base: &Image, seed: u64, canary: Option<Canary>) -> Result<History> {
    let base = base.with_room(ROOM);
    let device = Arc::new(SimDevice::recording(base.clone(), canary));
    let driver = Driver::open_foreign(&device)?;
    quotas::enable(driver.filesystem(), seed)?;
    let first = Commit::first(driver.model());
    let taste = Taste { mistakes: 3, names: 60, write_max: 30_000, ..Taste::default() };
    let made_with = known_to_writers(driver.filesystem().engine());
    let mut recorder = WorkRecorder {
        device: Arc::clone(&device),
        driver,
        generator: Generator::new(seed, taste),
        commits: vec![first],
        features: Features::default(),
        made_with,
    };
    recorder.note_features()?;
    recorder.features.chunks.0 = recorder.features.chunks.1;
    for number in 0..COMMITS {
        recorder.special(number).with_context(|| format!("seed {seed}, commit {number}"))?;
        let count = 5 + recorder.generator.random.below(25);
        for _ in 0..count {
            let operation = recorder.generator.next(recorder.driver.model());
            recorder.apply(&operation).with_context(|| format!("seed {seed}, commit {number}"))?;
        }
        // On average more than what is deleted in between.
        for _ in 0..recorder.generator.random.below(4) {
            recorder
                .driver
                .filesystem()
                .clean_step()
                .with_context(|| format!("seed {seed}, commit {number}"))?;
        }
        recorder.apply(&Operation::Sync).with_context(|| format!("seed {seed}, commit {number}"))?;
        if let Some(change) = superblock_change(number) {
            recorder = recorder.changed(&change).with_context(|| format!("seed {seed}, commit {number}"))?;
        }
    }
    let WorkRecorder { driver, commits, features, .. } = recorder;
    drop(driver);
    Ok(History { base, events: device.take_log(), commits, features })
}

/// What is changed behind some commits, with nothing open: the UUID, that of the tree blocks again, features that there are.
fn superblock_change(number: usize) -> Option<SuperblockChange> {
    let change = SuperblockChange::default();
    match number {
        10 => Some(change.uuid(Uuid::from_u128(1)).extref()),
        36 => Some(change.uuid(Uuid::from_u128(2)).skinny_metadata()),
        _ => None,
    }
}

fn file(number: usize) -> Vec<u8> {
    format!("one of many files {number:05}").into_bytes()
}

impl WorkRecorder {
    fn make(&mut self, dir: u64, name: &[u8], kind: FileType) -> Result<u64> {
        let number =
            self.driver.apply_for(&Operation::Create { dir, name: name.to_vec(), kind, mode: 0o640 })?;
        match number {
            Outcome::Made(number) => Ok(number),
            other => anyhow::bail!("making something gave {other:?}"),
        }
    }

    fn find(&self, dir: u64, name: &[u8]) -> Result<u64> {
        let names = self.driver.model().names(dir).map_err(|kind| anyhow::anyhow!("{kind:?}"))?;
        names.get(name).copied().context("a name that was made")
    }

    fn write(&mut self, inode: u64, offset: u64, len: usize) -> Result<()> {
        let seed = self.generator.random.next_u64();
        self.driver.apply(&Operation::Write { inode, offset, len, seed })
    }

    fn snapshot(&mut self, name: &[u8]) -> Result<()> {
        let source = self.find(ROOT, HOME)?;
        self.apply(&Operation::Snapshot { source, dir: ROOT, name: name.to_vec() })
    }

    /// Deletes a subvolume, unless somebody has something of it open.
    fn delete(&mut self, name: &[u8]) -> Result<()> {
        match self.driver.model().child(ROOT, name) {
            Some(id) if self.driver.model().may_be_deleted(id) => {
                self.driver.apply(&Operation::DeleteSubvolume { dir: ROOT, name: name.to_vec() })
            }
            _ => Ok(()),
        }
    }

    /// What happens at some commits only. The names are none that the generator uses.
    fn special(&mut self, number: usize) -> Result<()> {
        match number {
            5 => {
                let dir = self.make(ROOT, b"many", FileType::Directory)?;
                (0..1000).try_for_each(|each| self.make(dir, &file(each), FileType::File).map(drop))
            }
            8 => {
                let dir = self.find(ROOT, b"many")?;
                for each in 990..1000 {
                    let inode = self.find(dir, &file(each))?;
                    self.write(inode, 0, 9000)?;
                    self.driver.apply(&Operation::Open { inode })?;
                    self.driver.apply(&Operation::Unlink { dir, name: file(each) })?;
                }
                Ok(())
            }
            3 => self.apply(&Operation::Convert(Conversion::ToFreeSpaceTree)),
            12 => self.apply(&Operation::Convert(Conversion::FromBlockGroupTree)),
            24 => self.apply(&Operation::Convert(Conversion::ToBlockGroupTree)),
            9 | 31 => self.apply(&Operation::Grow { more: 5 << 20 }),
            20 => {
                let inode = self.make(ROOT, b"large", FileType::File)?;
                (0..9).try_for_each(|mib| self.write(inode, mib << 20, 1 << 20))
            }
            26 => {
                let inode = self.find(ROOT, b"large")?;
                self.driver.apply(&Operation::Truncate { inode, size: 100_001 })
            }
            30 => self.driver.apply(&Operation::Unlink { dir: ROOT, name: b"large".to_vec() }),
            33 => {
                let dir = self.make(ROOT, b"small", FileType::Directory)?;
                for each in 0..80 {
                    let inode = self.make(dir, &file(each), FileType::File)?;
                    self.write(inode, 0, 4096 + each % 3 * 4096)?;
                }
                Ok(())
            }
            35 => {
                let dir = self.find(ROOT, b"small")?;
                (0..80)
                    .step_by(2)
                    .try_for_each(|each| self.driver.apply(&Operation::Unlink { dir, name: file(each) }))
            }
            37 => {
                let inode = self.make(ROOT, b"pieces", FileType::File)?;
                (0..PIECES).try_for_each(|piece| self.write(inode, piece * 8192, 4096))
            }
            39 => {
                let inode = self.find(ROOT, b"pieces")?;
                self.driver.apply(&Operation::Open { inode })?;
                self.driver.apply(&Operation::Unlink { dir: ROOT, name: b"pieces".to_vec() })?;
                self.driver.apply(&Operation::Close { inode })
            }
            42 => {
                let dir = self.find(ROOT, b"many")?;
                (0..900).try_for_each(|each| self.driver.apply(&Operation::Unlink { dir, name: file(each) }))
            }
            46 => {
                let dir = self.find(ROOT, b"small")?;
                (1..80)
                    .step_by(2)
                    .try_for_each(|each| self.driver.apply(&Operation::Unlink { dir, name: file(each) }))
            }
            _ => self.special_of_subvolumes(number),
        }
    }

    /// Snapshots, and deleting them, which takes longer than to the next commit.
    fn special_of_subvolumes(&mut self, number: usize) -> Result<()> {
        match number {
            6 => {
                self.driver.apply(&Operation::CreateSubvolume { dir: ROOT, name: HOME.to_vec() })?;
                let home = self.find(ROOT, HOME)?;
                for each in 0..300 {
                    let inode = self.make(home, &file(each), FileType::File)?;
                    self.write(inode, 0, 5000)?;
                }
                self.snapshot(b"home, first")
            }
            7 => {
                let home = self.find(ROOT, HOME)?;
                for each in (0..300).step_by(3) {
                    let inode = self.find(home, &file(each))?;
                    self.write(inode, 100, 5000)?;
                }
                self.snapshot(b"home, second")
            }
            // As soon as nobody has anything of it open.
            11..=19 => self.delete(HOME),
            21..=25 => self.delete(b"home, first"),
            47..=59 => self.delete(b"home, second"),
            _ => Ok(()),
        }
    }

    fn apply(&mut self, operation: &Operation) -> Result<()> {
        let before = self.device.log_len();
        self.driver.apply(operation)?;
        if operation.commits() { self.committed(before, operation) } else { Ok(()) }
    }

    /// All events from `before` on are of one commit, with whatever there was if it was asked for. A snapshot has a second commit, in which
    /// the inodes without names leave it: both show the same files.
    fn committed(&mut self, before: usize, operation: &Operation) -> Result<()> {
        let asked = *operation == Operation::Sync;
        let most = if matches!(operation, Operation::Snapshot { .. }) { 2 } else { 1 };
        let (superblock, supers) = self.device.superblock_since(before);
        ensure!(supers <= most, "{operation:?} wrote {supers} superblocks, want {most} at most");
        let mut model = self.driver.model().clone();
        model.restart();
        let snapshot = model.snapshot();
        match superblock {
            Some(_) => {
                let durable = self.device.log_len();
                self.commits.push(Commit { model, snapshot, superblock, durable });
                self.features.commits += 1;
            }
            None if !asked => {} // it was refused
            None => {
                let same = self.commits.last().is_some_and(|last| last.snapshot == snapshot);
                ensure!(same, "a commit with changes wrote no superblock");
            }
        }
        self.note_features()
    }

    /// Closed, changed and opened again: the change shows the same files as the commit before.
    fn changed(self, change: &SuperblockChange) -> Result<Self> {
        let Self { device, driver, generator, mut commits, mut features, made_with } = self;
        let before = device.log_len();
        let driver = driver.restart_after(&device, || change.apply(&*device).map(drop))?;
        let superblocks = device.superblocks_since(before);
        ensure!(!superblocks.is_empty(), "the change wrote no superblock");
        let (durable, snapshot) = (device.log_len(), driver.model().snapshot());
        for at in superblocks {
            let model = driver.model().clone();
            commits.push(Commit { model, snapshot: snapshot.clone(), superblock: Some(at), durable });
        }
        features.superblock_changes += 1;
        Ok(Self { device, driver, generator, commits, features, made_with })
    }

    fn note_features(&mut self) -> Result<()> {
        let engine = self.driver.filesystem().engine();
        let files = engine.tree(TreeId::FS)?;
        let features = &mut self.features;
        features.levels = features.levels.max(files.root_pointer()?.level + 1);
        let total = engine.devices().first().map_or(0, |device| device.total_bytes);
        features.converted |= known_to_writers(engine) ^ self.made_with;
        features.grown = total.saturating_sub(self.device.len() - ROOM);
        features.chunks.1 = features.chunks.1.max(engine.volume().chunks().len());
        let count = |tree: TreeId, kind: KeyType| -> Result<usize> {
            let tree = engine.tree(tree)?;
            let mut cursor = tree.cursor(&Key::new(0.into(), KeyType::new(0), 0), Wait::Yes)?;
            let mut found = 0;
            while let Some((key, _)) = cursor.item() {
                found += usize::from(key.kind == kind);
                cursor.advance()?;
            }
            Ok(found)
        };
        features.deleting += usize::from(self.driver.filesystem().has_cleaning());
        if known_to_writers(engine).contains(CompatRo::FREE_SPACE_TREE) {
            let bitmaps = count(TreeId::FREE_SPACE, KeyType::FREE_SPACE_BITMAP)?;
            features.bitmaps = features.bitmaps.max(bitmaps);
        }
        features.orphans = features.orphans.max(count(TreeId::FS, KeyType::ORPHAN_ITEM)?);
        features.snapshots = features.snapshots.max(snapshots(engine)?);
        features.dropping += usize::from(is_half_dropped(engine)?);
        Ok(())
    }
}

/// Whether some of a subvolume is dropped, and some is not.
fn is_half_dropped(engine: &creamery_txn::Engine) -> Result<bool> {
    let mut begun = false;
    for id in engine.orphan_subvolumes()? {
        begun |= engine.root_item(id)?.drop_level != 0;
    }
    Ok(begun)
}

/// Root items of snapshots: those have the transaction that made them in their key.
fn snapshots(engine: &creamery_txn::Engine) -> Result<usize> {
    let tree = engine.tree(TreeId::ROOT)?;
    let mut cursor = tree.cursor(&Key::new(256.into(), KeyType::new(0), 0), Wait::Yes)?;
    let mut found = 0;
    while let Some((key, _)) = cursor.item() {
        found += usize::from(key.kind == KeyType::ROOT_ITEM && key.offset != 0);
        cursor.advance()?;
    }
    Ok(found)
}

impl History {
    /// The commits that a device may show after the power failed when `position` events had begun: the last one
    /// that was durable, and one on the way.
    pub(crate) fn legal(&self, position: usize) -> &[Commit] {
        let begun = |commit: &Commit| commit.superblock.is_none_or(|at| at < position);
        let flushed = |commit: &Commit| {
            let Some(at) = commit.superblock else { return true };
            let flush = self.events[at..].iter().position(|event| matches!(event, Event::Flush));
            flush.is_some_and(|after| at + after < position) || commit.durable <= position
        };
        let newest = self.commits.iter().rposition(begun).unwrap_or(0);
        let oldest = self.commits.iter().rposition(flushed).unwrap_or(0);
        // Where it is not known which of two an operation was part of, both are there, with one superblock.
        let superblock = self.commits[oldest].superblock;
        let oldest = self.commits.iter().position(|commit| commit.superblock == superblock).unwrap_or(oldest);
        &self.commits[oldest..=newest.max(oldest)]
    }
}
