//! Image files and block device nodes, by plain system calls, buffered by the host.

mod descriptors;
mod direct;
mod opening;
mod part;
mod vectors;

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::descriptors::{Descriptors, OpenedAlone, OpenedFile};
use self::direct::{Counts, DirectFile, Opened};
use self::opening::{Kind, kind_of, open_file};
use creamery_base::gate::{self, Reason};
use creamery_base::lock::{ProcessMutex, ProcessRwLock, rank};
use creamery_base::{Error, ErrorKind, Result};
use rustix::fs::FallocateFlags;

use crate::device::{check_range, write_zeros};
use crate::in_use::{self, Extent};
use crate::patience::patiently;
use crate::pool::ThreadPool;
use crate::{Access, BlockDevice, Completion, DeviceId, DeviceIo, DirectRequests, ImageName, Reply, Request};

/// An open image file or block device, or a partition of one (see [`ImageName`]). Dropping it releases the lock, also for children forked meanwhile: a
/// program that becomes a daemon opens its devices afterwards.
///
/// ```
/// use creamery_base::ErrorKind;
/// use creamery_device::{Access, BlockDevice, FileDevice};
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("disk.img");
/// let device = FileDevice::create(&path, 1 << 30)?;
/// device.write_at(65536, b"hello")?;
/// device.flush()?;
/// // While it is open, nobody else gets it.
/// assert_eq!(FileDevice::open(&path, Access::ReadOnly).err().unwrap().kind(), ErrorKind::Busy);
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub struct FileDevice {
    shared: Arc<SharedFile>,
    pool: ThreadPool,
}

/// Reads and writes of fewer bytes run on the submitting thread: another thread would take longer to start.
const POOLED: usize = 16 << 10;

/// The file and its properties.
struct SharedFile {
    /// `None` after the close (DEV-4).
    file: ProcessRwLock<Option<Descriptors>, { rank::DEVICE }>,
    /// The name it was opened by, which may be a part of `place`.
    path: PathBuf,
    /// The file or block device itself.
    place: PathBuf,
    kind: Kind,
    access: Access,
    id: DeviceId,
    /// The byte in the file where the device begins (DEV-5).
    start: u64,
    len: AtomicU64,
    sector_size: u64,
    is_part: bool,
    notes: Vec<String>,
    /// Whether a flush failed (DEV-2). Locked during a flush: the host reports an error to only one of two that run at once.
    flush_failed: ProcessMutex<bool, { rank::FLUSH }>,
    /// Requests of a device that bypasses the page cache.
    counts: Counts,
}

impl FileDevice {
    /// Opens the file or block device at `path`, and makes sure that no other user conflicts with `access`.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`], with the user, if it is in use; [`ErrorKind::InvalidInput`] if the path is
    /// neither a regular file nor a block device, or for a partition that does not exist or does not fit, with the partitions that
    /// exist; [`ErrorKind::ReadOnly`] for a block device that is write-protected,
    /// which the kernel lets a writer open all the same; and the host's errors.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self> {
        Self::open_with(path, access, DeviceIo::default())
    }

    /// Opens a device like [`open`](Self::open), with `io` as the way of its reads and writes.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); [`ErrorKind::Unsupported`] if it is to bypass the page cache and the file, or the place in it where a
    /// partition begins, does not allow that.
    pub fn open_with(path: impl AsRef<Path>, access: Access, io: DeviceIo) -> Result<Self> {
        let device = patiently(|| Self::open_once(path.as_ref(), access))?;
        if io == DeviceIo::Direct {
            device.shared.go_direct()?;
        }
        Ok(device)
    }

    fn open_once(path: &Path, access: Access) -> Result<Self> {
        let name = ImageName::find(path)?;
        let mut device = Self::open_whole(path, &name, access)?;
        device.narrow_all(name.behind())?;
        device.shared_mut().path = path.to_owned();
        if name.is_part() {
            let shared = &device.shared;
            let range = shared.start..shared.start + device.len();
            in_use::claim_range(shared.file()?.file(), path, access, &range)?;
        }
        Ok(device)
    }

    /// Opens the file or block device of `name`; errors name `path`.
    fn open_whole(path: &Path, name: &ImageName, access: Access) -> Result<Self> {
        let place = name.file();
        let opening =
            |error: std::io::Error| Error::from(error).context(format!("opening {}", path.display()));
        // Checked before the open: opening some devices has side effects.
        let kind = kind_of(&std::fs::metadata(place).map_err(opening)?, place)?;
        let file = match (kind, access) {
            (Kind::Block, Access::ReadWrite) => in_use::open_exclusively(place, access, opening)?,
            (Kind::Block, _) => OpenOptions::new().read(true).open(place).map_err(opening)?,
            (Kind::File, _) => open_file(place, access).map_err(opening)?,
        };
        let metadata = file.metadata().map_err(opening)?;
        if kind_of(&metadata, place)? != kind {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("{} was replaced while opening it", place.display()),
            ));
        }
        if kind == Kind::Block && access == Access::ReadWrite && in_use::takes_no_writes(metadata.rdev()) {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!("{} is a read-only device", place.display()),
            ));
        }
        // The kernel gives a block device to one writer, whichever part of it the writer wants.
        let extent = if name.is_part() && kind == Kind::File { Extent::Part } else { Extent::Whole };
        let behind = in_use::claim(&file, place, access, extent)?;
        Self::new(Descriptors::new(file, behind), place, &metadata, kind, access).map_err(opening)
    }

    /// Creates a sparse file of `len` bytes, open for writing.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if `path` exists, and the host's errors. A file that the call has created is removed again
    /// then.
    pub fn create(path: impl AsRef<Path>, len: u64) -> Result<Self> {
        let path = path.as_ref();
        let creating =
            |error: std::io::Error| Error::from(error).context(format!("creating {}", path.display()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(creating)?;
        Self::on_new(file, path, len).inspect_err(|_| {
            // Ours and empty. If it cannot be removed, the first error is more useful.
            let _ = std::fs::remove_file(path);
        })
    }

    /// Makes a device of a new file that is open already, and sets its length to `len` bytes; `path` is its future name.
    ///
    /// # Errors
    /// The host's, and those of [`open`](Self::open).
    pub fn on_new(file: File, path: impl AsRef<Path>, len: u64) -> Result<Self> {
        let path = path.as_ref();
        let creating =
            |error: std::io::Error| Error::from(error).context(format!("creating {}", path.display()));
        let behind = in_use::claim(&file, path, Access::ReadWrite, Extent::Whole)?;
        file.set_len(len).map_err(creating)?;
        let metadata = file.metadata().map_err(creating)?;
        Self::new(Descriptors::new(file, behind), path, &metadata, Kind::File, Access::ReadWrite)
            .map_err(creating)
    }

    /// Returns the path that the device was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Whether it is a block device, or a partition of one, rather than a file.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.shared.kind == Kind::Block
    }

    /// Whether it is a part of a file or block device, whose length cannot be changed.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.shared.is_part
    }

    /// Whether it is a rotational device, according to the system; false for an image file.
    #[must_use]
    pub fn is_rotational(&self) -> bool {
        let Ok(stat) = rustix::fs::stat(&self.shared.place) else { return false };
        self.is_block_device() && queue_says(stat.st_rdev, "rotational").is_some_and(|said| said == "1")
    }

    fn new(
        opened: Descriptors,
        path: &Path,
        metadata: &std::fs::Metadata,
        kind: Kind,
        access: Access,
    ) -> std::io::Result<Self> {
        let start = 0;
        let (len, id) = match kind {
            Kind::File => (metadata.len(), DeviceId { space: metadata.dev(), number: metadata.ino(), start }),
            // The end of a block device is its size. A seek needs no ioctl.
            Kind::Block => {
                (opened.file().seek(SeekFrom::End(0))?, DeviceId { space: 0, number: metadata.rdev(), start })
            }
        };
        let said = (kind == Kind::Block).then(|| queue_says(metadata.rdev(), "logical_block_size")).flatten();
        let sector_size = said.and_then(|said| said.parse().ok()).filter(|size| SECTORS.contains(size));
        let shared = SharedFile {
            file: ProcessRwLock::new(Some(opened)),
            path: path.to_owned(),
            place: path.to_owned(),
            kind,
            access,
            id,
            start,
            len: AtomicU64::new(len),
            sector_size: sector_size.unwrap_or(SECTOR),
            is_part: false,
            notes: Vec::new(),
            flush_failed: ProcessMutex::new(false),
            counts: Counts::default(),
        };
        Ok(Self { shared: Arc::new(shared), pool: ThreadPool::default() })
    }

    /// Returns the shared state while the device is being opened.
    fn shared_mut(&mut self) -> &mut SharedFile {
        Arc::get_mut(&mut self.shared).expect("nobody has it before it is open")
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        BlockDevice::close(self);
    }
}

/// Bytes of a sector if the system reports none, and the range of sizes that is accepted from the system.
const SECTOR: u64 = 512;
const SECTORS: std::ops::RangeInclusive<u64> = SECTOR..=65536;

/// Returns an attribute of a block device's queue from sysfs.
fn queue_says(device: u64, what: &str) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // A partition has no queue of its own.
    let queues = ["queue", "../queue"].map(|queue| format!("/sys/dev/block/{major}:{minor}/{queue}/{what}"));
    let said = queues.iter().find_map(|path| std::fs::read_to_string(path).ok());
    said.map(|said| said.trim().to_owned())
}

/// Converts a host error of a request. Unless it is about space or permissions, it means that the device failed.
fn of_device(error: std::io::Error) -> Error {
    let error = Error::from(error);
    match error.kind() {
        ErrorKind::NoSpace
        | ErrorKind::QuotaExceeded
        | ErrorKind::FileTooLarge
        | ErrorKind::ReadOnly
        | ErrorKind::PermissionDenied
        | ErrorKind::WouldBlock
        | ErrorKind::Interrupted => error,
        _ => error.with_kind(ErrorKind::Io),
    }
}

impl SharedFile {
    fn doing(&self, what: &str, offset: u64, len: usize) -> impl FnOnce(std::io::Error) -> Error {
        let context = format!("{what} {len} bytes at {offset} of {}", self.path.display());
        move |error| of_device(error).context(context)
    }

    /// Returns the file for one request. The guard delays a close.
    fn file(&self) -> Result<OpenedFile<'_>> {
        OpenedFile::of(self.file.read()).ok_or_else(|| self.was_closed())
    }

    /// Returns the file when no request is under way; none begins while the guard lives.
    fn file_alone(&self) -> Result<OpenedAlone<'_>> {
        OpenedAlone::of(self.file.write()).ok_or_else(|| self.was_closed())
    }

    fn was_closed(&self) -> Error {
        Error::new(ErrorKind::Stale, format!("{} was closed", self.path.display()))
    }

    /// Turns on direct I/O.
    fn go_direct(&self) -> Result<()> {
        let mut opened = self.file_alone()?;
        let what = || format!("opening {} for direct I/O", self.path.display());
        let direct = DirectFile::open(opened.file(), (self.kind, self.access), self.sector_size, self.start);
        match direct.map_err(|error| Error::from(error).context(what()))? {
            Opened::Direct(direct) => opened.go_direct(direct),
            Opened::Refused(why) => {
                return Err(Error::unsupported(format!("{}: {why}", what())).advise("leave out --direct-io"));
            }
        }
        Ok(())
    }

    fn close(&self) {
        let Some(opened) = self.file.write().take() else { return };
        // Closing alone is not enough: a child process that another thread is starting has a copy of the descriptor
        // until it executes its program, and the lock would live as long.
        if self.access != Access::ReadOnlyForced {
            opened.unlock();
        }
    }

    /// Returns the offset in the file of the `len` bytes at `offset`, checked (DEV-1, DEV-5). The only way to such an offset.
    fn place_of(&self, offset: u64, len: u64) -> Result<u64> {
        check_range(offset, len, self.len.load(Ordering::Relaxed))
            .map_err(|error| error.context(self.path.display()))?;
        Ok(self.start + offset)
    }

    fn check_writable(&self) -> Result<()> {
        if self.access == Access::ReadWrite {
            return Ok(());
        }
        Err(Error::new(ErrorKind::ReadOnly, format!("{} is open read-only", self.path.display())))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let len = out.len();
        let at = self.place_of(offset, len as u64)?;
        self.file()?.read(out, at, &self.counts).map_err(|e| self.doing("reading", offset, len)(e))
    }

    /// Writes the parts one after the other.
    fn write(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.check_writable()?;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let at = self.place_of(offset, total as u64)?;
        let failed = |error| self.doing("writing", offset, total)(error);
        let done = self.file()?.write(parts, at, &self.counts).map_err(failed)?;
        if done < total {
            self.file_alone()?.write_cached(parts, done, at, &self.counts).map_err(failed)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let failed =
            |cause: &str| Error::new(ErrorKind::Io, format!("flushing {}: {cause}", self.path.display()));
        if self.access != Access::ReadWrite {
            return Ok(());
        }
        let file = self.file()?;
        let mut has_failed = self.flush_failed.lock();
        if *has_failed {
            return Err(failed("an earlier flush failed"));
        }
        file.file().sync_data().map_err(|error| {
            *has_failed = true;
            of_device(error).context(format!("flushing {}", self.path.display()))
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        let at = self.place_of(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let outcome = match self.kind {
            Kind::File => self.fallocate(FallocateFlags::PUNCH_HOLE, at, len)?,
            Kind::Block => self.block_discard(at, len)?,
        };
        outcome.map_err(|error| {
            let what = format!("discarding {len} bytes at {offset} of {}", self.path.display());
            match error.raw_os_error() {
                Some(libc::EOPNOTSUPP | libc::ENOTTY) => Error::unsupported(what),
                _ => Error::from(error).context(what),
            }
        })
    }

    /// Calls fallocate(2) at `at`, an offset from [`place_of`](Self::place_of).
    fn fallocate(&self, how: FallocateFlags, at: u64, len: u64) -> Result<std::io::Result<()>> {
        let file = self.file()?;
        Ok(rustix::fs::fallocate(file.file(), how | FallocateFlags::KEEP_SIZE, at, len).map_err(Into::into))
    }

    /// Tells the block device that its `[at, at + len)` is not needed.
    fn block_discard(&self, at: u64, len: u64) -> Result<std::io::Result<()>> {
        /// `_IO(0x12, 119)`.
        const BLKDISCARD: libc::Ioctl = 0x1277;
        assert!(self.kind == Kind::Block, "another kind of driver reads the number as it likes");
        let file = self.file()?;
        let range = [at, len];
        // SAFETY: a block device reads two u64 through the pointer for BLKDISCARD and keeps nothing; `range` lives across the
        // call. The kind was checked when the file was opened, and a block device stays one.
        let answer = unsafe { libc::ioctl(file.file().as_raw_fd(), BLKDISCARD, range.as_ptr()) };
        Ok(if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) })
    }

    /// Makes a file at least `len` bytes long. Returns its length.
    fn lengthen(&self, len: u64) -> Result<u64> {
        let failed =
            |error| Error::from(error).context(format!("making {} {len} bytes long", self.path.display()));
        // Alone: no other request may change the length meanwhile, and growing may make the last page dirty (ODIRECT-2).
        let opened = self.file_alone()?;
        let mut has = match self.kind {
            Kind::File => opened.file().metadata().map(|meta| meta.len()),
            Kind::Block => opened.file().seek(SeekFrom::End(0)),
        }
        .map_err(failed)?;
        if has < len && self.kind == Kind::File {
            set_len(opened.file(), len).map_err(failed)?;
            has = len;
        }
        self.len.store(has, Ordering::Relaxed);
        Ok(has)
    }

    /// Changes the length of a file.
    fn set_len(&self, len: u64) -> Result<()> {
        let opened = self.file_alone()?; // ODIRECT-2
        set_len(opened.file(), len).map_err(|error| {
            Error::from(error).context(format!("resizing {} to {len} bytes", self.path.display()))
        })?;
        self.len.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn run(&self, request: Request) -> Result<Reply> {
        match request {
            Request::Read { offset, mut buffer } => {
                self.read(offset, &mut buffer)?;
                return Ok(Reply::Read(buffer));
            }
            Request::Write { offset, data } => self.write(offset, &data.iter().collect::<Vec<_>>())?,
            Request::Flush => self.flush()?,
            Request::Discard { offset, len } => self.discard(offset, len)?,
        }
        Ok(Reply::Done)
    }
}

impl BlockDevice for FileDevice {
    fn submit(&self, request: Request, done: Completion) {
        let is_small = match &request {
            Request::Read { buffer, .. } => buffer.len() < POOLED,
            Request::Write { data, .. } => data.len() < POOLED,
            Request::Flush | Request::Discard { .. } => false,
        };
        let shared = Arc::clone(&self.shared);
        // The request, and the file's lock, are gone when the completion runs (DEV-3).
        let job = move || done(gate::passing(Reason::Device, || shared.run(request)));
        if is_small {
            return job();
        }
        if let Err(job) = self.pool.run(Box::new(job)) {
            job();
        }
    }

    fn submit_queued(&self, request: Request, done: Completion) {
        let shared = Arc::clone(&self.shared);
        let job = move || done(gate::passing(Reason::Device, || shared.run(request)));
        if let Err(job) = self.pool.take(Box::new(job)) {
            job();
        }
    }

    fn has_room(&self) -> bool {
        self.pool.has_room()
    }

    fn carry_out(&self, requests: Vec<(Request, Completion)>) {
        for (request, done) in requests {
            done(gate::passing(Reason::Device, || self.shared.run(request)));
        }
    }

    fn len(&self) -> u64 {
        self.shared.len.load(Ordering::Relaxed)
    }

    fn id(&self) -> DeviceId {
        self.shared.id
    }

    fn describe(&self) -> String {
        self.shared.path.display().to_string()
    }

    fn host_path(&self) -> PathBuf {
        self.shared.path.clone()
    }

    fn sector_size(&self) -> u64 {
        self.shared.sector_size
    }

    fn notes(&self) -> Vec<String> {
        self.shared.notes.clone()
    }

    fn direct_requests(&self) -> DirectRequests {
        self.shared.counts.snapshot()
    }

    fn will_read(&self, offset: u64, len: u64) -> bool {
        let place = self.shared.place_of(offset, len).ok().zip(NonZeroU64::new(len));
        if let (Some((place, len)), Ok(file)) = (place, self.shared.file()) {
            // The host would read ahead into the page cache.
            if file.is_direct() {
                return false;
            }
            // A hint: without it the file is read all the same.
            let _ = rustix::fs::fadvise(file.file(), place, Some(len), rustix::fs::Advice::WillNeed);
        }
        true
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        gate::passing(Reason::Device, || self.shared.read(offset, out))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        gate::passing(Reason::Device, || self.shared.write(offset, &[data]))
    }

    fn write_vectored_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        gate::passing(Reason::Device, || self.shared.write(offset, parts))
    }

    fn flush(&self) -> Result<()> {
        gate::passing(Reason::Device, || self.shared.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        gate::passing(Reason::Device, || self.shared.discard(offset, len))
    }

    fn close(&self) {
        gate::passing(Reason::Device, || {
            self.pool.close(); // DEV-6
            self.shared.close();
        });
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        self.shared.check_writable()?;
        let at = self.shared.place_of(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let by_host = gate::passing(Reason::Device, || match self.shared.kind {
            Kind::File => self.shared.fallocate(FallocateFlags::PUNCH_HOLE, at, len),
            Kind::Block => self.shared.fallocate(FallocateFlags::ZERO_RANGE, at, len),
        });
        if by_host?.is_ok() { Ok(()) } else { write_zeros(self, offset, len) }
    }

    fn lengthen(&self, len: u64) -> Result<u64> {
        self.shared.check_writable()?;
        if self.shared.is_part {
            return if len <= self.len() { Ok(self.len()) } else { self.resize(len).map(|()| len) };
        }
        let lengthened = gate::passing(Reason::Device, || self.shared.lengthen(len));
        match lengthened? {
            // `resize` returns the reason.
            has if has < len => self.resize(len).map(|()| len),
            has => Ok(has),
        }
    }

    fn resize(&self, len: u64) -> Result<()> {
        self.shared.check_writable()?;
        if self.shared.kind == Kind::Block {
            return Err(Error::unsupported(format!("resizing the block device {}", self.describe())));
        }
        if self.shared.is_part {
            return Err(Error::unsupported(format!("resizing the partition {}", self.describe())));
        }
        gate::passing(Reason::Device, || self.shared.set_len(len))
    }
}

/// Sets a length like ftruncate(2), whose numbers end at 8 EiB: beyond that a file is too large for every filesystem.
fn set_len(file: &File, len: u64) -> std::io::Result<()> {
    match i64::try_from(len) {
        Ok(_) => file.set_len(len),
        Err(_) => Err(std::io::ErrorKind::FileTooLarge.into()),
    }
}
