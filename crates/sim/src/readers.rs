//! Readers verify their data while other threads overwrite, truncate, unlink, rename and commit.
//!
//! Every sector contains its file, its place there, and the number of the step that wrote it; the rest of its bytes follow from these. So a
//! sector is whole or not, and in its place or not. A [`Story`] has the steps of one file, which one thread makes. A reader notes the
//! number of steps that had ended before it read, and the number that had begun afterwards; its data must be that of one of the states
//! between.
//!
//! Beside them there is a file that no thread changes, with one sector rotten on the device. A read of that sector is an error, or comes
//! from the other copy; it never returns the rotten bytes. And repeatedly, two files are laid out with alternating sectors, and one of them
//! is removed: its checksums are cut out of items, sector by sector in one commit, from between those of the other file, which is read
//! meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ScopedJoinHandle;

use anyhow::{Context, Result, bail, ensure};
use creamery_base::{ErrorKind, InodeId, Wait};
use creamery_fs::{Filesystem, NewInode, OpenFile, RenameMode, SetAttributes};
use creamery_mkfs::Profile;
use creamery_testkit::Random;
use creamery_txn::Engine;
use parking_lot::{Mutex, RwLock};

use crate::device::SimDevice;
use crate::driver::open;
use crate::fresh::{MadeBy, fresh_image};
use crate::image::Image;
use crate::room_watch::ensure_room_was_kept;

const SECTOR: usize = 4096;
const WRITERS: usize = 2;
const READERS: usize = 2;
/// Files of each writer.
const FILES: usize = 4;
/// Maximum sectors of a file.
const SECTORS: u64 = 24;
/// Maximum sectors of one write.
const WRITE_MAX: u64 = 4;
/// Sectors of each of two files that alternate.
const COMB: u64 = 150;
/// Steps of a writer between two such layouts.
const PER_COMB: u64 = 50;
/// Sectors of the file with the rotten sector.
const STILL_SECTORS: u64 = 64;
const ROTTEN: u64 = STILL_SECTORS / 2;

/// The counts of the readers of a run.
///
/// ```
/// assert_eq!(creamery_sim::ReadersReport::default().rotten, 0);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ReadersReport {
    /// Reads of files that were being changed.
    pub changing: u64,
    /// Of these, reads during which a step began or ended.
    pub overlapping: u64,
    /// Reads of the rotten sector.
    pub rotten: u64,
}

/// One step on a file: writes or removes the sectors from `first` to `end`.
#[derive(Clone, Copy, Debug)]
struct ReadStep {
    first: u64,
    end: u64,
    writes: bool,
}

#[derive(Default)]
struct Steps {
    begun: Vec<ReadStep>,
    ended: usize,
}

/// A file and its steps.
struct Story {
    file: Arc<OpenFile>,
    steps: RwLock<Steps>,
}

impl Story {
    fn id(&self) -> InodeId {
        self.file.id()
    }

    /// Makes one step; readers know it from before its begin until after its end.
    fn step(&self, step: ReadStep, change: impl FnOnce(u64) -> creamery_base::Result<()>) -> Result<()> {
        let number = {
            let mut steps = self.steps.write();
            steps.begun.push(step);
            steps.begun.len()
        };
        change(number as u64)?;
        self.steps.write().ended = number;
        Ok(())
    }

    fn write(&self, first: u64, end: u64) -> Result<()> {
        self.step(ReadStep { first, end, writes: true }, |number| {
            let bytes: Vec<u8> = (first..end).flat_map(|at| sector(self.id(), at, number)).collect();
            let written = self.file.write_at(first * SECTOR as u64, &bytes)?;
            assert_eq!(written, bytes.len(), "there is room");
            Ok(())
        })
    }

    fn truncate(&self, fs: &Filesystem, first: u64) -> Result<()> {
        self.step(ReadStep { first, end: u64::MAX, writes: false }, |_| {
            fs.set_attributes(self.id(), &SetAttributes::truncate(first * SECTOR as u64)).map(drop)
        })
    }

    /// Whether sector `at` may show step `found` (0: zeros), if `ended` steps had ended before the read and `begun` had begun after it.
    fn explains(&self, at: u64, found: u64, ended: usize, begun: usize) -> bool {
        let steps = self.steps.read();
        for (index, step) in steps.begun[..begun].iter().enumerate().rev() {
            if step.first <= at && at < step.end {
                let shown = if step.writes { index as u64 + 1 } else { 0 };
                if shown == found {
                    return true;
                }
                if index < ended {
                    return false; // it hides all earlier steps
                }
            }
        }
        found == 0
    }
}

/// The content of a sector.
fn sector(id: InodeId, at: u64, step: u64) -> Vec<u8> {
    let mut random = Random::new(id.ino.get() ^ (at << 20) ^ (step << 40));
    let mut bytes = Vec::with_capacity(SECTOR);
    [id.ino.get(), at, step].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    while bytes.len() < SECTOR {
        bytes.extend(random.next_u64().to_le_bytes());
    }
    bytes
}

/// The step that wrote `bytes`, read as sector `at` of the file; 0 for zeros.
fn step_of(id: InodeId, at: u64, bytes: &[u8]) -> Result<u64> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let word =
        |index: usize| u64::from_le_bytes(bytes[index * 8..index * 8 + 8].try_into().expect("eight bytes"));
    let (ino, place, step) = (word(0), word(1), word(2));
    let told = || format!("sector {at} of inode {} says that it is {place} of {ino}, step {step}", id.ino);
    ensure!(ino == id.ino.get() && place == at, "{}", told());
    ensure!(bytes == sector(id, at, step), "{}, and is not whole", told());
    Ok(step)
}

/// The state that all threads of a run share.
struct ReadersRun {
    fs: Arc<Filesystem>,
    root: InodeId,
    seed: u64,
    /// The files that have a name now, each with its name.
    slots: Vec<RwLock<(Vec<u8>, Arc<Story>)>>,
    /// All files that any thread still has.
    known: Mutex<HashMap<InodeId, Weak<Story>>>,
    still: Arc<OpenFile>,
    /// The remaining file of the last alternating layout, if there was one.
    comb: RwLock<Option<Arc<OpenFile>>>,
    copies: usize,
    done: AtomicBool,
    changing: AtomicU64,
    overlapping: AtomicU64,
    rotten: AtomicU64,
}

impl ReadersRun {
    fn create(&self, name: &[u8]) -> Result<Arc<Story>> {
        let made = self.fs.create(self.root, name, &NewInode::file(0o644))?;
        let story = Arc::new(Story { file: self.fs.open_file(made.id)?, steps: RwLock::default() });
        self.known.lock().insert(made.id, Arc::downgrade(&story));
        Ok(story)
    }

    /// One step of a writer, on its own file.
    fn change(&self, random: &mut Random, slot: usize, number: u64) -> Result<()> {
        let fs = &self.fs;
        let (name, story) = self.slots[slot].read().clone();
        let new_name = format!("{slot}-{number}").into_bytes();
        match random.below(20) {
            0..12 => {
                let first = random.below(SECTORS - WRITE_MAX);
                story.write(first, first + 1 + random.below(WRITE_MAX))?;
            }
            12..14 => story.truncate(fs, random.below(SECTORS))?,
            14 => {
                fs.rename(self.root, &name, self.root, &new_name, RenameMode::NoReplace)?;
                self.slots[slot].write().0 = new_name;
            }
            15 => {
                fs.unlink(self.root, &name)?;
                let fresh = self.create(&new_name)?;
                *self.slots[slot].write() = (new_name, fresh);
            }
            16 => {
                // An editor saves this way: a new file takes the name of the old one.
                let fresh = self.create(&new_name)?;
                fresh.write(0, 1 + random.below(SECTORS))?;
                fs.rename(self.root, &new_name, self.root, &name, RenameMode::Replace)?;
                self.slots[slot].write().1 = fresh;
            }
            _ => story.file.sync()?,
        }
        Ok(())
    }

    fn write(&self, writer: usize, count: u64) -> Result<()> {
        let mut random = Random::new(self.seed.wrapping_add(writer as u64));
        for number in 0..count {
            if writer == 0 && number % PER_COMB == 0 {
                self.lay_comb(number).with_context(|| format!("laying out files at step {number}"))?;
            }
            let slot = writer * FILES + random.below(FILES as u64) as usize;
            self.change(&mut random, slot, number)
                .with_context(|| format!("step {number} of writer {writer}"))?;
        }
        Ok(())
    }

    /// Lays two files out with alternating sectors, and removes one of them.
    fn lay_comb(&self, number: u64) -> Result<()> {
        let fs = &self.fs;
        let names = [format!("stays{number}"), format!("goes{number}")];
        let make =
            |name: &String| fs.open_file(fs.create(self.root, name.as_bytes(), &NewInode::file(0o644))?.id);
        let (stays, goes) = (make(&names[0])?, make(&names[1])?);
        for at in 0..COMB {
            for file in [&stays, &goes] {
                file.write_at(at * SECTOR as u64, &sector(file.id(), at, 1))?;
                // Delayed data would become one extent for each file.
                file.sync()?;
            }
        }
        *self.comb.write() = Some(stays);
        fs.unlink(self.root, names[0].as_bytes())?;
        fs.unlink(self.root, names[1].as_bytes())?;
        fs.close(goes);
        Ok(fs.sync()?)
    }

    /// Reads sectors of the remaining file, one by one.
    fn read_comb(&self, random: &mut Random) -> Result<()> {
        let Some(file) = self.comb.read().clone() else { return Ok(()) };
        let mut bytes = vec![0; SECTOR];
        for _ in 0..COMB / 10 {
            let at = random.below(COMB);
            let len = file.read_at(at * SECTOR as u64, &mut bytes, Wait::Yes)?;
            ensure!(
                len == SECTOR && step_of(file.id(), at, &bytes)? == 1,
                "sector {at} of the file that stays"
            );
        }
        Ok(())
    }

    fn read(&self, reader: usize) -> Result<()> {
        let mut random = Random::new(self.seed.wrapping_add(1000 + reader as u64));
        while !self.done.load(Ordering::Relaxed) {
            let slot = random.below(self.slots.len() as u64) as usize;
            match random.below(8) {
                0..2 => self.read_still(&mut random)?,
                2 => self.read_named(&mut random, slot)?,
                3..6 => self.read_comb(&mut random)?,
                _ => {
                    let story = Arc::clone(&self.slots[slot].read().1);
                    self.read_story(&mut random, &story)?;
                }
            }
        }
        Ok(())
    }

    /// Reads a part of a file that other threads change.
    fn read_story(&self, random: &mut Random, story: &Story) -> Result<()> {
        let first = random.below(SECTORS);
        let mut bytes = vec![0; (1 + random.below(SECTORS - first)) as usize * SECTOR];
        let ended = story.steps.read().ended;
        let len = story.file.read_at(first * SECTOR as u64, &mut bytes, Wait::Yes)?;
        let begun = story.steps.read().begun.len();
        self.changing.fetch_add(1, Ordering::Relaxed);
        self.overlapping.fetch_add(u64::from(begun > ended), Ordering::Relaxed);
        ensure!(len.is_multiple_of(SECTOR), "{len} bytes of a file that has whole sectors");
        bytes[len..].fill(0);
        for (at, bytes) in (first..).zip(bytes.chunks(SECTOR)) {
            let found = step_of(story.id(), at, bytes)?;
            ensure!(
                story.explains(at, found, ended, begun),
                "sector {at} of inode {} is of step {found}, after {ended} steps had ended and before {begun} had begun",
                story.id().ino
            );
        }
        Ok(())
    }

    /// Reads the file that now has a name which some file has or had.
    fn read_named(&self, random: &mut Random, slot: usize) -> Result<()> {
        let name = self.slots[slot].read().0.clone();
        let gone = |kind| [ErrorKind::NotFound, ErrorKind::Stale].contains(&kind);
        let id = match self.fs.lookup(self.root, &name, Wait::Yes) {
            Err(error) if gone(error.kind()) => return Ok(()),
            found => found?,
        };
        let story = self.known.lock().get(&id).and_then(Weak::upgrade);
        match story {
            Some(story) => self.read_story(random, &story),
            None => Ok(()), // no thread has it any more, or its writer is just about to publish it
        }
    }

    /// Reads a sector of the unchanged file.
    fn read_still(&self, random: &mut Random) -> Result<()> {
        let at = if random.below(2) == 0 { ROTTEN } else { random.below(STILL_SECTORS) };
        let mut bytes = vec![0; SECTOR];
        let read = self.still.read_at(at * SECTOR as u64, &mut bytes, Wait::Yes);
        if at == ROTTEN {
            self.rotten.fetch_add(1, Ordering::Relaxed);
            if self.copies == 1 {
                return match read {
                    Err(error) if error.kind() == ErrorKind::Unreadable => Ok(()),
                    Err(error) => Err(error.into()),
                    Ok(_) => bail!("a rotten sector was read as good"),
                };
            }
        }
        ensure!(
            read? == SECTOR && step_of(self.still.id(), at, &bytes)? == 1,
            "sector {at} of the file that rests"
        );
        Ok(())
    }
}

/// Makes the unchanged file: each of its sectors lies between sectors of two files that keep changing.
fn lay_out(run: &ReadersRun) -> Result<()> {
    for at in 0..STILL_SECTORS {
        let bytes = sector(run.still.id(), at, 1);
        run.still.write_at(at * SECTOR as u64, &bytes)?;
        let story = Arc::clone(&run.slots[at as usize % run.slots.len()].read().1);
        story.write(at % SECTORS, at % SECTORS + 1)?;
    }
    Ok(run.fs.sync()?)
}

/// Device offsets of the rotten sector's copies.
fn places(image: &Image, id: InodeId) -> Vec<u64> {
    let wanted = sector(id, ROTTEN, 1);
    let mut bytes = vec![0; SECTOR];
    let all = (0..image.len()).step_by(SECTOR);
    all.filter(|at| {
        image.read(*at, &mut bytes);
        bytes == wanted
    })
    .collect()
}

/// Runs readers and writers on one filesystem, until each writer has made `count` steps. Returns the counts of the readers, and the image.
///
/// # Errors
/// A reader got wrong data; the error has the seed.
pub fn readers_run(seed: u64, count: u64, data: Profile) -> Result<(ReadersReport, Image)> {
    readers_run_with(seed, count, data, |_| ())
}

/// Runs like [`readers_run`] with a failpoint that `plant` sets, which the readers should notice.
///
/// # Errors
/// Those of [`readers_run`].
pub fn readers_run_with(
    seed: u64,
    count: u64,
    data: Profile,
    plant: fn(&Engine),
) -> Result<(ReadersReport, Image)> {
    let made_by = MadeBy { node_size: 4096, data, len: 256 << 20, ..MadeBy::default() };
    let device = Arc::new(SimDevice::new(fresh_image(&made_by)?));
    let fs = open(&device)?;
    plant(fs.engine());
    let root = fs.root(fs.default_subvolume())?;
    let still = fs.open_file(fs.create(root, b"still", &NewInode::file(0o644))?.id)?;
    let mut run = ReadersRun {
        fs,
        root,
        seed,
        slots: Vec::new(),
        known: Mutex::default(),
        still,
        comb: RwLock::default(),
        copies: 0,
        done: AtomicBool::new(false),
        changing: AtomicU64::new(0),
        overlapping: AtomicU64::new(0),
        rotten: AtomicU64::new(0),
    };
    for slot in 0..WRITERS * FILES {
        let name = format!("{slot}").into_bytes();
        let story = run.create(&name)?;
        run.slots.push(RwLock::new((name, story)));
    }
    lay_out(&run)?;
    let places = places(&device.image(), run.still.id());
    run.copies = places.len();
    ensure!(run.copies == if data == Profile::Single { 1 } else { 2 }, "{places:?}");
    device.rot(places[0]..places[0] + 100);
    work(&run, count).with_context(|| format!("seed {seed}"))?;
    run.fs.sync()?;
    ensure_room_was_kept(&run.fs)?;
    let report = ReadersReport {
        changing: run.changing.load(Ordering::Relaxed),
        overlapping: run.overlapping.load(Ordering::Relaxed),
        rotten: run.rotten.load(Ordering::Relaxed),
    };
    drop(run);
    Ok((report, device.image()))
}

fn work(run: &ReadersRun, count: u64) -> Result<()> {
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|reader| scope.spawn(move || run.read(reader))).collect();
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || run.write(writer, count))).collect();
        let join = |threads: Vec<ScopedJoinHandle<'_, Result<()>>>| -> Vec<std::thread::Result<Result<()>>> {
            threads.into_iter().map(ScopedJoinHandle::join).collect()
        };
        let written = join(writers);
        // Readers end also if a writer has panicked.
        run.done.store(true, Ordering::Relaxed);
        let all: Vec<_> = join(readers).into_iter().chain(written).collect();
        let mut failures = Vec::new();
        for one in all {
            let ended = one.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            failures.extend(ended.err().map(|error| format!("{error:#}")));
        }
        ensure!(failures.is_empty(), "{}; aborted: {:?}", failures.join("; "), run.fs.engine().aborted());
        Ok(())
    })
}
