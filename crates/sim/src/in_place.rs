//! Power cuts while files are written in place, synced, cloned and snapshotted.
//!
//! After a power cut, data written in place is neither that of the last commit nor all new. Each piece of a sector is that of a write that had
//! begun, and not older than the writes acknowledged by fsync, a commit or a snapshot. A snapshot or a clone has exactly the file's content at its
//! creation, regardless of later writes to the file. Some writes are direct; some of these do not wait, and are answered once they are durable. A
//! file's change counter, which goes with the times of its writes, is not older than the acknowledged one, nor older than its data in a snapshot.
//!
//! Every piece of 512 bytes contains its file and its write.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail, ensure};
use creamery_base::{InodeId, TreeId, Wait};
use creamery_device::AlignedBuffer;
use creamery_fs::{
    DirectAt, DirectRequest, Filesystem, FsOptions, InodeFlags, NewInode, OpenFile, SetAttributes,
};
use creamery_testkit::Random;
use creamery_txn::Options;

use crate::crash::judge;
use crate::device::{Canary, SimDevice};
use crate::driver;
use crate::image::Image;
use crate::power_cut::{Class, PowerCut};
use crate::room_watch::ensure_room_was_kept;

const FILES: usize = 3;
const SECTORS: usize = 24;
const SECTOR: usize = 4096;
/// The unit that a device writes atomically, bytes.
const PIECE: usize = 512;
const OPERATIONS: usize = 300;
const SNAPSHOTS_MAX: usize = 6;
/// The number of waiting references at which a commit falls due; operations run them from a fourth of that on.
const REFS_MAX: usize = 40;

/// The results of such a run.
///
/// ```
/// assert_eq!(creamery_sim::InPlaceReport::default().states, 0);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct InPlaceReport {
    /// Extents that were written in place while the run was recorded.
    pub written: u64,
    /// Extents that went to new space because a snapshot or a clone shared them.
    pub shared: u64,
    /// Bytes of direct writes in place.
    pub direct: u64,
    /// Direct writes that were answered once they were durable.
    pub durable: u64,
    /// Calls of fsync that needed only a log.
    pub logged: u64,
    /// States with a log, which was replayed.
    pub replayed: usize,
    /// Distinct states of the device that were judged.
    pub states: usize,
    /// Snapshots and clones found in them.
    pub frozen: usize,
    /// Pieces that were newer than the acknowledged version.
    pub newer: usize,
}

/// The versions of a sector: the begin of each, and acknowledged ones with their time. The time is the number of events that the device had
/// noted.
#[derive(Clone, Default)]
struct Versions {
    begun: Vec<usize>,
    acknowledged: Vec<(usize, usize)>,
}

impl Versions {
    /// The oldest and the newest version that may remain after a power cut at `position`.
    fn legal(&self, position: usize) -> (usize, usize) {
        let oldest = self.acknowledged.iter().filter(|(_, at)| *at <= position).map(|(version, _)| *version);
        let newest = self.begun.iter().filter(|at| **at <= position).count() - 1;
        (oldest.max().unwrap_or(0), newest)
    }
}

/// The content of a name in the root directory that does not change any more.
struct Frozen {
    name: String,
    /// Versions of the sectors by file; a clone has only those of its source.
    content: BTreeMap<usize, Vec<usize>>,
    /// The number of changes of each file.
    changes: BTreeMap<usize, u64>,
    is_snapshot: bool,
    /// The times when it was durable, and when its removal began.
    durable: Option<usize>,
    gone: Option<usize>,
}

struct InPlaceRecorder {
    device: Arc<SimDevice>,
    fs: Arc<Filesystem>,
    random: Random,
    files: Vec<InodeId>,
    sectors: Vec<Vec<Versions>>,
    /// The number of changes of each file that were durable, with the number of events that the device had noted.
    changes: Vec<Vec<(u64, usize)>>,
    frozen: Vec<Frozen>,
}

fn name(file: usize) -> String {
    format!("file{file}")
}

fn piece(file: usize, sector: usize, version: usize) -> [u8; PIECE] {
    let mut bytes = [0; PIECE];
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value =
            (file as u64) << 56 | (sector as u64) << 40 | (version as u64) << 16 | at as u64 | 1 << 15;
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// The version of a piece of a sector of a file, if the bytes are such a piece.
fn version(bytes: &[u8], file: usize, sector: usize) -> Option<usize> {
    let first = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    let version = usize::try_from(first >> 16 & 0xff_ffff).ok()?;
    (bytes == piece(file, sector, version)).then_some(version)
}

impl InPlaceRecorder {
    fn new(base: &Image, seed: u64, canary: Option<Canary>) -> Result<Self> {
        let mut random = Random::new(seed);
        let first = Arc::new(SimDevice::new(base.clone()));
        let fs = driver::open(&first)?;
        let top = fs.root(TreeId::FS)?;
        for file in 0..FILES {
            let id = fs.create(top, name(file).as_bytes(), &NewInode::file(0o600))?.id;
            let flags = Some(InodeFlags::NODATACOW);
            fs.set_attributes(id, &SetAttributes { flags, ..SetAttributes::default() })?;
            let open = fs.open_file(id)?;
            let mut at = 0;
            while at < SECTORS {
                let end = (at + 1 + random.below(7) as usize).min(SECTORS);
                let bytes: Vec<u8> = (at..end).flat_map(|sector| content(file, sector, 0)).collect();
                open.write_at((at * SECTOR) as u64, &bytes)?;
                open.sync()?;
                at = end;
            }
            fs.close(open);
        }
        fs.sync()?;
        drop(fs);
        let device = Arc::new(SimDevice::recording(first.image(), canary));
        // Operations run references long before commits.
        let options = Options { delayed_refs_max: REFS_MAX, ..Options::default() };
        let fs = driver::open_with(&device, options, FsOptions::default())?;
        let top = fs.root(TreeId::FS)?;
        let files: Result<Vec<InodeId>, _> =
            (0..FILES).map(|file| fs.lookup(top, name(file).as_bytes(), Wait::Yes)).collect();
        let begun = Versions { begun: vec![0], acknowledged: vec![(0, 0)] };
        let sectors = vec![vec![begun; SECTORS]; FILES];
        let changes = vec![Vec::new(); FILES];
        Ok(Self { device, fs, random, files: files?, sectors, changes, frozen: Vec::new() })
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }

    fn step(&mut self) -> Result<()> {
        let file = self.below(FILES);
        match self.below(20) {
            0..11 => self.write(file),
            11..16 => {
                let open = self.fs.open_file(self.files[file])?;
                open.sync()?;
                self.fs.close(open);
                self.acknowledge(file..file + 1)
            }
            16 => {
                self.fs.sync()?;
                self.acknowledge_all()
            }
            17 => self.clone_file(file),
            18 => self.snapshot(),
            _ => {
                let snapshot = self.random.below(2) == 0;
                self.delete(snapshot)
            }
        }
    }

    fn write(&mut self, file: usize) -> Result<()> {
        let start = self.below(SECTORS);
        let end = (start + 1 + self.below(9)).min(SECTORS);
        let position = self.device.log_len();
        let mut bytes = Vec::new();
        for sector in start..end {
            let versions = &mut self.sectors[file][sector];
            bytes.extend(content(file, sector, versions.begun.len()));
            versions.begun.push(position);
        }
        let (open, at) = (self.fs.open_file(self.files[file])?, (start * SECTOR) as u64);
        let way = self.below(6);
        if way < 2 {
            let data = AlignedBuffer::from_slice(&bytes);
            ensure!(write_durably(&open, at, data)? == bytes.len(), "there is room for all of it");
            let position = self.device.log_len();
            for versions in &mut self.sectors[file][start..end] {
                versions.acknowledged.push((versions.begun.len() - 1, position));
            }
        } else if way < 4 {
            let done = open.write_direct(DirectAt::Offset(at), AlignedBuffer::from_slice(&bytes));
            ensure!(done.outcome?.len == bytes.len(), "there is room for all of it");
        } else {
            open.write_at(at, &bytes)?;
        }
        self.fs.close(open);
        Ok(())
    }

    /// Notes that everything is durable.
    fn acknowledge_all(&mut self) -> Result<()> {
        self.acknowledge(0..FILES)?;
        let position = self.device.log_len();
        for frozen in self.frozen.iter_mut().filter(|frozen| frozen.durable.is_none()) {
            frozen.durable = Some(position);
        }
        Ok(())
    }

    /// Notes that the content of these files is durable; their names may not be.
    fn acknowledge(&mut self, files: std::ops::Range<usize>) -> Result<()> {
        let position = self.device.log_len();
        for file in files.clone() {
            let changes = self.changes_of(file)?;
            self.changes[file].push((changes, position));
        }
        for versions in self.sectors[files].iter_mut().flatten() {
            versions.acknowledged.push((versions.begun.len() - 1, position));
        }
        Ok(())
    }

    /// The number of changes of a file so far.
    fn changes_of(&self, file: usize) -> Result<u64> {
        Ok(self.fs.stat(self.files[file], Wait::Yes)?.change_counter)
    }

    fn now(&self, file: usize) -> Vec<usize> {
        self.sectors[file].iter().map(|versions| versions.begun.len() - 1).collect()
    }

    fn clone_file(&mut self, file: usize) -> Result<()> {
        let name = format!("clone{}", self.frozen.len());
        let top = self.fs.root(TreeId::FS)?;
        let id = self.fs.create(top, name.as_bytes(), &NewInode::file(0o600))?.id;
        let flags = Some(InodeFlags::NODATACOW);
        self.fs.set_attributes(id, &SetAttributes { flags, ..SetAttributes::default() })?;
        let (source, target) = (self.fs.open_file(self.files[file])?, self.fs.open_file(id)?);
        target.clone_range(&source, 0, 0, 0)?;
        let (content, changes) = (BTreeMap::from([(file, self.now(file))]), BTreeMap::new());
        let is_synced = self.random.below(2) == 0;
        if is_synced {
            target.sync()?;
        }
        let durable = is_synced.then(|| self.device.log_len());
        self.fs.close(source);
        self.fs.close(target);
        self.frozen.push(Frozen { name, content, changes, is_snapshot: false, durable, gone: None });
        Ok(())
    }

    fn snapshot(&mut self) -> Result<()> {
        if self.frozen.iter().filter(|frozen| frozen.is_snapshot).count() == SNAPSHOTS_MAX {
            return Ok(());
        }
        let name = format!("snapshot{}", self.frozen.len());
        let top = self.fs.root(TreeId::FS)?;
        let content = (0..FILES).map(|file| (file, self.now(file))).collect();
        let changes: Result<_> = (0..FILES).map(|file| Ok((file, self.changes_of(file)?))).collect();
        self.fs.create_snapshot(TreeId::FS, top, name.as_bytes(), true)?;
        let changes = changes?;
        self.frozen.push(Frozen { name, content, changes, is_snapshot: true, durable: None, gone: None });
        self.acknowledge_all()
    }

    /// Deletes the oldest snapshot or the oldest clone, and takes a step of the cleaner.
    fn delete(&mut self, snapshot: bool) -> Result<()> {
        let position = self.device.log_len();
        let there = |frozen: &&mut Frozen| frozen.is_snapshot == snapshot && frozen.gone.is_none();
        if let Some(frozen) = self.frozen.iter_mut().find(there) {
            frozen.gone = Some(position);
            let (top, name) = (self.fs.root(TreeId::FS)?, frozen.name.as_bytes());
            if snapshot {
                self.fs.delete_subvolume(top, name)?;
            } else {
                self.fs.unlink(top, name)?;
            }
        }
        self.fs.clean_step().map(drop)?;
        Ok(())
    }
}

/// Submits a write that does not wait, and waits for the answer, which comes when the data is durable. Returns the number of bytes written.
fn write_durably(open: &OpenFile, at: u64, data: AlignedBuffer) -> Result<usize> {
    let (answer, waiter) = (Arc::new(OnceLock::new()), open.direct_waiter());
    let (request, own) =
        (DirectRequest::WriteDurably { at: DirectAt::Offset(at), data }, Arc::clone(&answer));
    open.submit_direct(request, Box::new(move |done| own.set(done.outcome).expect("it is answered once")));
    waiter.wait(|| answer.get().is_some());
    let outcome = Arc::into_inner(answer).and_then(OnceLock::into_inner).context("an answer")?;
    Ok(outcome?.len)
}

fn content(file: usize, sector: usize, version: usize) -> Vec<u8> {
    piece(file, sector, version).repeat(SECTOR / PIECE)
}

/// Records work of `seed` on `base`, and checks `states` states that power cuts leave.
///
/// # Errors
/// A state that no write explains, in words.
pub fn in_place_run(base: &Image, seed: u64, states: usize, canary: Option<Canary>) -> Result<InPlaceReport> {
    in_place_run_with(base, seed, states, canary, |_| ())
}

/// Runs like [`in_place_run`] after `plant`, which may set a failpoint.
///
/// # Errors
/// Those of [`in_place_run`].
pub fn in_place_run_with(
    base: &Image,
    seed: u64,
    states: usize,
    canary: Option<Canary>,
    plant: impl FnOnce(&Filesystem),
) -> Result<InPlaceReport> {
    let mut recorder = InPlaceRecorder::new(base, seed, canary)?;
    plant(&recorder.fs);
    let start = recorder.device.image();
    for operation in 0..OPERATIONS {
        recorder.step().with_context(|| format!("seed {seed}, operation {operation}"))?;
    }
    let counters = recorder.fs.statistics();
    let mut report = InPlaceReport {
        written: counters.nocow.written,
        shared: counters.nocow.shared,
        direct: counters.direct.in_place_bytes,
        durable: counters.direct.durable,
        logged: counters.fsyncs.logged,
        ..InPlaceReport::default()
    };
    let mut cut = PowerCut::new(start, recorder.device.take_log(), seed, false);
    while report.states < states
        && let Some(state) = cut.next_state()
    {
        if state.class == Class::TornSuperblock {
            continue;
        }
        recorder.look(&state.image, state.position, &mut report).with_context(|| {
            format!("seed {seed}: {:?} at {}: {}", state.class, state.position, state.story)
        })?;
        report.states += 1;
    }
    Ok(report)
}

impl InPlaceRecorder {
    fn look(&self, image: &Image, position: usize, report: &mut InPlaceReport) -> Result<()> {
        judge(image).context("verifying what the power cut left")?;
        let device = Arc::new(SimDevice::new(image.clone()));
        let fs = driver::open(&device).context("opening what the power cut left")?;
        report.replayed += usize::from(fs.replayed().is_some());
        let top = fs.root(TreeId::FS)?;
        for file in 0..FILES {
            let id = fs.lookup(top, name(file).as_bytes(), Wait::Yes)?;
            let durable =
                self.changes[file].iter().filter(|(_, at)| *at <= position).map(|(changes, _)| *changes);
            ensure!(
                fs.stat(id, Wait::Yes)?.change_counter >= durable.max().unwrap_or(0),
                "file {file} is as it was, but its change counter is older"
            );
            let found = read(&fs, id)?;
            for (sector, versions) in self.sectors[file].iter().enumerate() {
                let (oldest, newest) = versions.legal(position);
                let pieces = found[sector * SECTOR..][..SECTOR].chunks(PIECE);
                for piece in pieces {
                    let seen = version(piece, file, sector);
                    let legal = seen.is_some_and(|seen| (oldest..=newest).contains(&seen));
                    ensure!(
                        legal,
                        "file {file}, sector {sector}: {seen:?} is not one of {oldest} to {newest}"
                    );
                    report.newer += usize::from(seen > Some(oldest));
                }
            }
        }
        for frozen in &self.frozen {
            self.look_at(&fs, frozen, position, report).context(frozen.name.clone())?;
        }
        drop(fs);
        // Work goes on in the remaining state.
        let fs = driver::open(&device)?;
        let file = fs.lookup(fs.root(TreeId::FS)?, name(0).as_bytes(), Wait::Yes)?;
        let open = fs.open_file(file)?;
        open.write_at(0, &content(0, 0, 0))?;
        fs.close(open);
        fs.sync()?;
        ensure_room_was_kept(&fs)?;
        drop(fs);
        judge(&device.image()).context("verifying what work that went on left")
    }

    fn look_at(
        &self,
        fs: &Filesystem,
        frozen: &Frozen,
        position: usize,
        report: &mut InPlaceReport,
    ) -> Result<()> {
        let top = fs.root(TreeId::FS)?;
        let Ok(id) = fs.lookup(top, frozen.name.as_bytes(), Wait::Yes) else {
            let must_be = frozen.durable.is_some_and(|at| at <= position);
            let may_be_gone = frozen.gone.is_some_and(|at| at <= position);
            ensure!(!must_be || may_be_gone, "it is gone");
            return Ok(());
        };
        for (file, versions) in &frozen.content {
            let id = if frozen.is_snapshot { fs.lookup(id, name(*file).as_bytes(), Wait::Yes)? } else { id };
            let changes = frozen.changes.get(file).copied().unwrap_or(0);
            ensure!(
                fs.stat(id, Wait::Yes)?.change_counter >= changes,
                "file {file} has an older change counter"
            );
            let found = read(fs, id)?;
            if found.is_empty() && !frozen.is_snapshot && frozen.durable.is_none_or(|at| at > position) {
                continue; // a commit came between its name and its data
            }
            for (sector, wanted) in versions.iter().enumerate() {
                if found[sector * SECTOR..][..SECTOR] != content(*file, sector, *wanted) {
                    bail!("file {file}, sector {sector} is not version {wanted}, as it was");
                }
            }
        }
        report.frozen += 1;
        Ok(())
    }
}

fn read(fs: &Filesystem, id: InodeId) -> Result<Vec<u8>> {
    let open = fs.open_file(id)?;
    let mut found = vec![0; SECTORS * SECTOR];
    let count = open.read_at(0, &mut found, Wait::Yes)?;
    fs.close(open);
    found.truncate(count);
    ensure!(count == SECTORS * SECTOR || count == 0, "a file of {count} bytes");
    Ok(found)
}
