//! Filesystems of random sizes and sorts that several writers fill: what was accepted is there afterwards.
//!
//! The writers write, overwrite, cut and remove files of their own until several of their writes found no space. A write that was
//! accepted is in its file when the filesystem is closed and opened again; one that was refused changed nothing.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use creamery_base::{DevId, ErrorKind, InodeId, TreeId, Wait};
use creamery_device::BlockDevice;
use creamery_fs::{Compress, Filesystem, FsOptions, InodeFlags, NewInode, NewSize, SetAttributes};
use creamery_mkfs::Profile;
use creamery_testkit::Random;
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

use crate::device::SimDevice;
use crate::fresh::{MadeBy, fresh_image};
use crate::image::Image;
use crate::room_watch::ensure_room_was_kept;

const WRITERS: u64 = 4;
const MIB: u64 = 1 << 20;
const SECTOR: u64 = 4096;
/// Writes of one writer that find no space before it ends.
const REFUSALS: u64 = 8;
/// The longest file.
const SIZE_MAX: u64 = 6 * MIB;

/// A sort of filesystem, and how it is worked on.
///
/// ```
/// assert_eq!(creamery_sim::FullRun::of(7).to_string(), creamery_sim::FullRun::of(7).to_string());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FullRun {
    seed: u64,
    made_by: MadeBy,
    /// Bytes by which it grows before it is filled, and when it is full.
    grown: u64,
    nodatacow: bool,
    compress: bool,
    snapshots: bool,
    /// Whether free space lies in holes of one sector, and metadata is many items.
    shredded: bool,
    delayed_bytes: u64,
}

impl fmt::Display for FullRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl FullRun {
    /// The sort that follows from `seed`.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut one_in = |count| random.below(count) == 0;
        let mixed = one_in(5);
        let metadata = if one_in(3) { Profile::Single } else { Profile::Dup };
        let data = if one_in(8) { Profile::Dup } else { Profile::Single };
        let (nodatacow, compress, snapshots, grows) = (one_in(4), one_in(4), one_in(3), one_in(3));
        let small_nodes = mixed || one_in(4);
        // The smallest ones are smaller where there is one copy of data.
        let least = match data {
            Profile::Dup => 230,
            Profile::Single if mixed && metadata == Profile::Dup => 170,
            Profile::Single => 112,
        };
        let len = least * MIB + random.below(120 * MIB / SECTOR) * SECTOR;
        let made_by = MadeBy {
            len,
            node_size: if small_nodes { 4096 } else { 16384 },
            data: if mixed { metadata } else { data },
            metadata,
            mixed,
            no_holes: true,
        };
        let grown = if grows { random.below(3 * MIB / SECTOR) * SECTOR } else { 0 };
        let delayed_bytes = [2 * MIB, 16 * MIB, 256 * MIB][random.below(3) as usize];
        let shredded = random.below(4) == 0;
        Self { seed, made_by, grown, nodatacow, compress, snapshots, shredded, delayed_bytes }
    }

    fn open(&self, device: &Arc<SimDevice>) -> Result<Arc<Filesystem>> {
        let device: Arc<dyn BlockDevice> = Arc::<SimDevice>::clone(device);
        let engine = Engine::open(Volume::open(vec![device], Mode::ReadWrite)?, Options::default())?;
        let options = FsOptions {
            nodatacow: self.nodatacow,
            compress: if self.compress { Compress::option("zstd")? } else { None },
            delayed_bytes: self.delayed_bytes,
            ..FsOptions::default()
        };
        Ok(Filesystem::open(engine, options)?)
    }

    /// Fills a filesystem of this sort, and looks at it when it was opened again. Returns the image.
    ///
    /// # Errors
    /// Where a file is not what was written to it, or another error than "no space" comes.
    pub fn run(&self) -> Result<Image> {
        self.try_run().with_context(|| self.to_string())
    }

    fn try_run(&self) -> Result<Image> {
        let writers: Vec<Writer> = (0..WRITERS).map(|number| Writer::new(self, number)).collect();
        let mut image = fresh_image(&self.made_by)?;
        if self.shredded {
            image = self.shred(image).context("shredding it")?;
        }
        let (image, writers) = self.fill(image, writers).context("filling it")?;
        if self.grown == 0 {
            return Ok(image);
        }
        self.fill(image, writers).context("filling it again").map(|(image, _)| image)
    }

    /// Fills it with files of one sector, and removes each second of them.
    fn shred(&self, image: Image) -> Result<Image> {
        let device = Arc::new(SimDevice::new(image));
        let fs = self.open(&device)?;
        let root = fs.root(TreeId::FS)?;
        let data = vec![b's'; SECTOR as usize];
        let make = |number: u64| -> creamery_base::Result<()> {
            let made = fs.create(root, format!("small {number}").as_bytes(), &NewInode::file(0o644))?;
            let file = fs.open_file(made.id)?;
            let written = file.write_at(0, &data).map(drop);
            fs.close(file);
            written
        };
        let found_no_space = |done: &creamery_base::Result<()>| matches!(done, Err(error) if error.kind() == ErrorKind::NoSpace);
        let mut made = 0;
        loop {
            let done = make(made);
            if found_no_space(&done) {
                break;
            }
            done?;
            made += 1;
        }
        fs.sync()?;
        for number in (0..made).step_by(2) {
            fs.unlink(root, format!("small {number}").as_bytes())?;
        }
        fs.sync()?;
        ensure_room_was_kept(&fs)?;
        fs.engine().volume().close()?;
        drop(fs);
        Ok(device.image())
    }

    /// Has it grow, fills it and looks at it when it was opened again.
    fn fill(&self, image: Image, writers: Vec<Writer>) -> Result<(Image, Vec<Writer>)> {
        let len = image.len() + self.grown;
        let device = Arc::new(SimDevice::new(image.with_room(self.grown)));
        let fs = self.open(&device)?;
        if self.grown > 0 {
            fs.resize(DevId::new(1), NewSize::Bytes(len))?;
        }
        let filled: Result<Vec<Writer>> = std::thread::scope(|scope| {
            let start = |writer: Writer| {
                let (fs, number) = (&fs, writer.number);
                scope.spawn(move || writer.fill(fs).with_context(|| format!("writer {number}")))
            };
            let running: Vec<_> = writers.into_iter().map(start).collect();
            let join = |writer: std::thread::ScopedJoinHandle<'_, Result<Writer>>| {
                writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            running.into_iter().map(join).collect()
        });
        let filled = filled?;
        fs.sync().context("closing it")?;
        ensure_room_was_kept(&fs)?;
        let failures = fs.statistics().writeback.failures;
        ensure!(failures == 0, "{failures} runs of accepted data were lost");
        fs.engine().volume().close()?;
        drop(fs);
        let fs = self.open(&device)?;
        filled.iter().try_for_each(|writer| writer.compare(&fs)).context("after a new start")?;
        drop(fs);
        Ok((device.image(), filled))
    }
}

struct File {
    name: String,
    id: InodeId,
    content: Vec<u8>,
}

struct Writer {
    number: u64,
    random: Random,
    compressible: bool,
    snapshots: bool,
    files: Vec<File>,
    made: u64,
    refused: u64,
}

impl Writer {
    fn new(run: &FullRun, number: u64) -> Self {
        let random = Random::new(run.seed << 8 | number);
        let (compressible, snapshots) = (run.compress, run.snapshots);
        Self { number, random, compressible, snapshots, files: Vec::new(), made: 0, refused: 0 }
    }

    fn fill(mut self, fs: &Filesystem) -> Result<Self> {
        self.refused = 0;
        while self.refused < REFUSALS {
            match self.random.below(100) {
                0..5 if !self.files.is_empty() => self.unlink(fs)?,
                5..9 if !self.files.is_empty() => self.cut(fs)?,
                9..11 if !self.files.is_empty() => self.fsync(fs)?,
                11 => self.attempt("syncing", || fs.sync())?,
                12 if self.snapshots => self.snapshot(fs)?,
                13..60 if !self.files.is_empty() => self.write(fs)?,
                _ => self.create(fs)?,
            }
        }
        // Room can be made.
        for _ in 0..self.files.len() / 10 {
            self.unlink(fs)?;
        }
        Ok(self)
    }

    /// Whether there was space; another error ends the run.
    fn has_space(&mut self, done: creamery_base::Result<()>) -> Result<bool> {
        match done {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.refused += 1;
                Ok(false)
            }
            done => Ok(done.map(|()| true)?),
        }
    }

    fn attempt(&mut self, doing: &str, act: impl FnOnce() -> creamery_base::Result<()>) -> Result<()> {
        let done = act();
        self.has_space(done).map(drop).with_context(|| doing.to_owned())
    }

    fn root(fs: &Filesystem) -> Result<InodeId> {
        Ok(fs.root(TreeId::FS)?)
    }

    fn any(&mut self) -> usize {
        self.random.below(self.files.len() as u64) as usize
    }

    fn create(&mut self, fs: &Filesystem) -> Result<()> {
        let name = format!("{}-{}", self.number, self.made);
        self.made += 1;
        match fs.create(Self::root(fs)?, name.as_bytes(), &NewInode::file(0o644)) {
            Ok(attributes) => {
                let (id, content) = (attributes.id, Vec::new());
                if self.random.below(20) == 0 {
                    let flags = Some(InodeFlags::NODATACOW);
                    let set = SetAttributes { flags, ..SetAttributes::default() };
                    self.attempt("setting flags", || fs.set_attributes(id, &set).map(drop))?;
                }
                self.files.push(File { name, id, content });
                self.write_to(fs, self.files.len() - 1)
            }
            Err(error) => self.has_space(Err(error)).map(drop),
        }
    }

    fn write(&mut self, fs: &Filesystem) -> Result<()> {
        let at = self.any();
        self.write_to(fs, at)
    }

    fn write_to(&mut self, fs: &Filesystem, at: usize) -> Result<()> {
        let len = [100, 3000, 4096, 65_536, 300_000, 1 << 20][self.random.below(6) as usize];
        let len = if self.random.below(2) == 0 { len } else { 1 + self.random.below(len) };
        let size = self.files[at].content.len() as u64;
        let offset = match self.random.below(4) {
            0 => self.random.below(size + 1),
            1 => self.random.below(SIZE_MAX / SECTOR) * SECTOR,
            _ => size,
        };
        let mut data = self.random.bytes(len as usize);
        if self.compressible && self.random.below(2) == 0 {
            data.fill(b'x');
        }
        let file = fs.open_file(self.files[at].id)?;
        let written = file.write_at(offset, &data);
        fs.close(file);
        let count = match written {
            Ok(count) => count,
            Err(error) => return self.has_space(Err(error)).map(drop).context("writing"),
        };
        let (offset, content) = (offset as usize, &mut self.files[at].content);
        content.resize(content.len().max(offset + count), 0);
        content[offset..offset + count].copy_from_slice(&data[..count]);
        Ok(())
    }

    fn unlink(&mut self, fs: &Filesystem) -> Result<()> {
        let at = self.any();
        let file = &self.files[at];
        let done = fs.unlink(Self::root(fs)?, file.name.as_bytes());
        // Where a snapshot shares what goes, removing it takes space.
        let told = done.as_ref().err().map(ToString::to_string);
        if self.has_space(done).context("unlinking")? {
            self.files.swap_remove(at);
        } else {
            ensure!(self.snapshots, "no space for unlinking: {told:?}");
        }
        Ok(())
    }

    fn cut(&mut self, fs: &Filesystem) -> Result<()> {
        let at = self.any();
        let size = self.random.below(self.files[at].content.len() as u64 + 1);
        let done = fs.set_attributes(self.files[at].id, &SetAttributes::truncate(size)).map(drop);
        // Where a snapshot shares what goes, it takes space, and may end on the way.
        let cut = if self.has_space(done).context("cutting")? {
            size
        } else {
            fs.stat(self.files[at].id, Wait::Yes)?.size
        };
        let before = self.files[at].content.len() as u64;
        ensure!((size..=before).contains(&cut), "cut from {before} to {size} bytes: it has {cut}");
        self.files[at].content.truncate(cut as usize);
        Ok(())
    }

    fn fsync(&mut self, fs: &Filesystem) -> Result<()> {
        let at = self.any();
        let file = fs.open_file(self.files[at].id)?;
        let done = file.sync();
        fs.close(file);
        self.has_space(done).map(drop).context("fsync")
    }

    fn snapshot(&mut self, fs: &Filesystem) -> Result<()> {
        let name = format!("snapshot {}-{}", self.number, self.made);
        self.made += 1;
        let root = Self::root(fs)?;
        self.attempt("a snapshot", || fs.create_snapshot(TreeId::FS, root, name.as_bytes(), false).map(drop))
    }

    fn compare(&self, fs: &Filesystem) -> Result<()> {
        for file in &self.files {
            let id = fs.lookup(Self::root(fs)?, file.name.as_bytes(), Wait::Yes)?;
            let size = fs.stat(id, Wait::Yes)?.size;
            let told = || format!("file {} of writer {}", file.name, self.number);
            ensure!(size == file.content.len() as u64, "{}: {size} bytes of {}", told(), file.content.len());
            let open = fs.open_file(id)?;
            let mut found = vec![0; file.content.len()];
            let read = open.read_at(0, &mut found, Wait::Yes).with_context(told)?;
            fs.close(open);
            let wrong = found.iter().zip(&file.content).position(|(found, wanted)| found != wanted);
            ensure!(read == found.len() && wrong.is_none(), "{}: another byte at {wrong:?}", told());
        }
        Ok(())
    }
}
