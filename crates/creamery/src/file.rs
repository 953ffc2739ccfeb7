//! Open files.

mod direct;

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Result, ShardedArc, Wait};

use crate::file_times::FileTimes;
use crate::fs::{
    self, Deduped, Defragment, Fallocate, Fiemap, FiemapRequest, OpenFile, Overwrites, SetAttributes,
    VerityInfo,
};
use crate::progress::Progress;
use crate::{Metadata, Permissions};

/// An open file. Its content stays until the file is closed, even without a name. After the filesystem was closed
/// every operation fails.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use std::io::{Read, Seek, SeekFrom, Write};
/// let mut file = creamery::OpenOptions::new().read(true).write(true).create(true).open(&fs, "/data")?;
/// file.write_all(b"hello world")?;
/// file.seek(SeekFrom::Start(6))?;
/// let mut text = String::new();
/// file.read_to_string(&mut text)?;
/// assert_eq!(text, "world");
/// // From any thread, without moving the position:
/// file.write_all_at(b"WORLD", 6)?;
/// let mut bytes = [0; 5];
/// assert_eq!(file.read_at(&mut bytes, 6)?, 5);
/// assert_eq!(&bytes, b"WORLD");
/// # Ok::<(), creamery::Error>(())
/// ```
pub struct File {
    fs: ShardedArc<fs::Filesystem>,
    open: Arc<OpenFile>,
    rights: Rights,
    position: u64,
}

/// The operations that a file was opened for.
#[derive(Clone, Copy)]
pub(crate) struct Rights {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
}

impl File {
    /// Returns the file's metadata, as [`std::fs::File::metadata`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// assert_eq!(fs.open("/file")?.metadata()?.len(), 4);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the filesystem cannot be read.
    pub fn metadata(&self) -> Result<Metadata> {
        self.fs.engine().check_open()?;
        self.open.stat(Wait::Yes).map(Metadata::new)
    }

    /// Reads at `offset`; returns the number of bytes read before the end of the file, as [`std::os::unix::fs::FileExt::read_at`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let mut bytes = [0; 8];
    /// assert_eq!(fs.open("/file")?.read_at(&mut bytes, 1)?, 3);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the file was not opened for reading, or the data is damaged.
    pub fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        if !self.rights.read {
            return Err(denied("the file was not opened for reading"));
        }
        check_position(offset)?;
        self.open.read_at(offset, out, Wait::Yes)
    }

    /// Reads exactly `out.len()` bytes at `offset`, as [`std::os::unix::fs::FileExt::read_exact_at`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "hello")?;
    /// let file = fs.open("/file")?;
    /// let mut bytes = [0; 4];
    /// file.read_exact_at(&mut bytes, 1)?;
    /// assert_eq!(&bytes, b"ello");
    /// let error = file.read_exact_at(&mut bytes, 2).unwrap_err();
    /// assert_eq!(error.kind(), creamery::ErrorKind::UnexpectedEof);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::UnexpectedEof`] when the file ends first; and those of [`read_at`](Self::read_at).
    pub fn read_exact_at(&self, mut out: &mut [u8], mut offset: u64) -> Result<()> {
        while !out.is_empty() {
            let count = self.read_at(out, offset)?;
            if count == 0 {
                let what = format!("{} bytes at {offset} lie beyond the end of the file", out.len());
                return Err(Error::new(ErrorKind::UnexpectedEof, what));
            }
            out = &mut out[count..];
            offset += count as u64;
        }
        Ok(())
    }

    /// Writes at `offset`; returns the number of bytes written, as [`std::os::unix::fs::FileExt::write_at`] does. A caller of the library
    /// is root to the filesystem: unlike the kernel, no write, direct or not, clears set-user-id or capabilities.
    /// [`set_len`](Self::set_len) and [`fallocate`](Self::fallocate) clear capabilities.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// let file = fs.create("/file")?;
    /// assert_eq!(file.write_at(b"text", 4096)?, 4);
    /// assert_eq!(file.metadata()?.len(), 4100);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the file was not opened for writing, or there is no space.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.check_write()?;
        self.open.write_at(offset, data)
    }

    /// Writes all of `data` at `offset`, as [`std::os::unix::fs::FileExt::write_all_at`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.create("/file")?.write_all_at(b"text", 0)?;
    /// assert_eq!(fs.read("/file")?, b"text");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    pub fn write_all_at(&self, mut data: &[u8], mut offset: u64) -> Result<()> {
        while !data.is_empty() {
            let count = self.write_at(data, offset)?;
            data = &data[count..];
            offset += count as u64;
        }
        Ok(())
    }

    /// Sets the length of the file: truncates it, or adds a hole, as [`std::fs::File::set_len`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// let file = fs.create("/file")?;
    /// file.set_len(1 << 30)?;
    /// assert_eq!(file.metadata()?.allocated(), 0);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the file was not opened for writing.
    pub fn set_len(&self, len: u64) -> Result<()> {
        if !self.rights.write {
            return Err(Error::invalid("the file was not opened for writing"));
        }
        self.fs.set_attributes(self.open.id(), &SetAttributes::truncate(len))?;
        self.fs.remove_capabilities(self.open.id())
    }

    /// Allocates the `len` bytes from `offset`, makes them a hole, or zeros them, by `mode`, like fallocate(2).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::OpenOptions;
    /// use creamery::extents::Fallocate;
    /// let log = OpenOptions::new().write(true).create(true).open(&fs, "/log")?;
    /// log.fallocate(Fallocate::Allocate { keep_size: true }, 0, 1 << 20)?;
    /// assert_eq!((log.metadata()?.len(), log.metadata()?.allocated()), (0, 1 << 20));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the file was not opened for writing, or there is no space.
    pub fn fallocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.check_write()?;
        self.open.fallocate(mode, offset, len)?;
        self.fs.remove_capabilities(self.open.id())
    }

    /// Shares the `len` bytes of `source` at `from` with this file at `to`, without a copy, until
    /// either is written to. With a `len` of 0, shares up to the end of `source`. Like ioctl_ficlonerange(2).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::OpenOptions;
    /// fs.write("/base", vec![7; 1 << 20])?;
    /// let base = OpenOptions::new().read(true).open(&fs, "/base")?;
    /// let clone = OpenOptions::new().write(true).create(true).open(&fs, "/clone")?;
    /// clone.clone_range(&base, 0, 0, 0)?;
    /// assert_eq!(clone.metadata()?.len(), 1 << 20);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// - This file was not opened for writing, or `source` not for reading.
    /// - The ranges do not begin and end with sectors, overlap, or go beyond the end. The end of `source` need not be aligned if this file
    ///   does not go on behind it.
    /// - Only one of the files has checksums.
    /// - The files are of different filesystems.
    /// - There is no space.
    pub fn clone_range(&self, source: &Self, from: u64, len: u64, to: u64) -> Result<()> {
        self.check_shares(source)?;
        self.open.clone_range(&source.open, from, len, to)
    }

    /// Shares the `len` bytes of `source` at `from` with this file at `to` if this file already has the same bytes there. The call compares
    /// them. It shortens a `len` that ends neither with a sector nor with both files. The file's times stay. Like ioctl_fideduperange(2).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::OpenOptions;
    /// use creamery::extents::Deduped;
    /// let mut open = OpenOptions::new();
    /// open.read(true).write(true).create(true);
    /// let (one, other) = (open.open(&fs, "/one")?, open.open(&fs, "/other")?);
    /// one.write_all_at(&[7; 1 << 20], 0)?;
    /// other.write_all_at(&[7; 1 << 20], 0)?;
    /// assert_eq!(other.dedupe_range(&one, 0, 1 << 20, 0)?, Deduped::Shared(1 << 20));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`File::clone_range`]; when either range goes beyond the end of its file, or cannot be read.
    pub fn dedupe_range(&self, source: &Self, from: u64, len: u64, to: u64) -> Result<Deduped> {
        self.check_shares(source)?;
        self.open.dedupe_range(&source.open, from, len, to)
    }

    /// Shares the whole content of this file with the empty file `target`.
    pub(crate) fn clone_to(&self, target: &OpenFile) -> Result<()> {
        target.clone_range(&self.open, 0, 0, 0)
    }

    fn check_shares(&self, source: &Self) -> Result<()> {
        self.check_write()?;
        if !source.rights.read {
            return Err(denied("the file whose data is shared was not opened for reading"));
        }
        Ok(())
    }

    fn check_write(&self) -> Result<()> {
        if self.rights.write { Ok(()) } else { Err(denied("the file was not opened for writing")) }
    }

    /// Makes all changes to the file so far durable, data and metadata, as [`std::fs::File::sync_all`] (fsync(2)) does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// let file = fs.create("/file")?;
    /// file.write_all_at(b"text", 0)?;
    /// file.sync_all()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the device fails.
    pub fn sync_all(&self) -> Result<()> {
        self.open.sync()
    }

    /// Makes the data written to the file so far durable, with the metadata that reading it needs, as
    /// [`std::fs::File::sync_data`] (fdatasync(2)) does. As on Linux' Btrfs it takes as long as [`sync_all`](Self::sync_all).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// let file = fs.create("/file")?;
    /// file.write_all_at(b"text", 0)?;
    /// file.sync_data()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the device fails.
    pub fn sync_data(&self) -> Result<()> {
        self.open.sync()
    }

    /// Changes the permission bits, as [`std::fs::File::set_permissions`] (fchmod(2)) does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::Permissions;
    /// let file = fs.create("/secret")?;
    /// file.set_permissions(Permissions::from_mode(0o600))?;
    /// assert_eq!(fs.metadata("/secret")?.permissions().mode(), 0o600);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the filesystem was opened for reading or is closed, or its device fails.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        self.set_attributes(&SetAttributes { mode: Some(permissions.mode()), ..SetAttributes::default() })
    }

    /// Sets the times of the last access and of the last change of the data, as [`std::fs::File::set_times`] (futimens(3)) does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::attributes::FileTimes;
    /// let file = fs.create("/file")?;
    /// file.set_times(FileTimes::new().set_modified(std::time::UNIX_EPOCH))?;
    /// assert_eq!(file.metadata()?.modified(), std::time::UNIX_EPOCH);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the filesystem was opened for reading or is closed, or its device fails.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.set_attributes(&times.to_set())
    }

    fn set_attributes(&self, set: &SetAttributes) -> Result<()> {
        self.fs.engine().check_open()?;
        self.fs.set_attributes(self.open.id(), set).map(drop)
    }

    /// Returns the offset of the first data at or after `offset`, or `None` if only a hole follows, like lseek(2) with `SEEK_DATA`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// let file = creamery::OpenOptions::new().read(true).write(true).create(true).open(&fs, "/file")?;
    /// file.write_all_at(b"text", 1 << 20)?;
    /// assert_eq!(file.seek_data(0)?, Some(1 << 20));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the filesystem cannot be read.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        found(self.open.seek_data(offset))
    }

    /// Returns the offset of the first hole at or after `offset`, like lseek(2) with `SEEK_HOLE`. The end of the file is a hole; `None`
    /// beyond it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// let file = creamery::OpenOptions::new().read(true).write(true).create(true).open(&fs, "/file")?;
    /// file.set_len(1 << 20)?;
    /// assert_eq!((file.seek_hole(0)?, file.seek_hole(1 << 20)?), (Some(0), None));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the filesystem cannot be read.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        found(self.open.seek_hole(offset))
    }

    /// Returns the fs-verity digest that the file's data is verified against on each read; `None` for a file without fs-verity
    /// (`docs/use/verity.md`).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// # fs.write("/file", b"text")?;
    /// match fs.open("/file")?.verity()? {
    ///     Some(info) => println!("{}:{}", info.hash, info.digest),
    ///     None => println!("it can be changed"),
    /// }
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When this is not a regular file, or its descriptor is damaged; when the filesystem cannot be read.
    pub fn verity(&self) -> Result<Option<VerityInfo>> {
        self.open.verity()
    }

    /// Lists the file's extents and their addresses, without its holes, like `FS_IOC_FIEMAP` of Linux' Btrfs. The extents come in batches;
    /// each batch is consistent, and no lock is held in between. They include data that is not written back yet. In a writable filesystem
    /// earlier changes are committed first, to find out which extents are shared.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::OpenOptions;
    /// use creamery::extents::{FiemapFlags, FiemapRequest};
    /// let file = OpenOptions::new().read(true).write(true).create(true).open(&fs, "/sparse")?;
    /// file.write_all_at(&[7; 65536], 1 << 20)?;
    /// let extents: Vec<_> = file.fiemap(&FiemapRequest::default()).collect::<Result<_, _>>()?;
    /// assert_eq!((extents[0].logical, extents[0].length), (1 << 20, 65536));
    /// assert!(extents[0].flags.contains(FiemapFlags::DELALLOC | FiemapFlags::LAST));
    /// // With what is delayed written back first, each lies somewhere.
    /// let placed = FiemapRequest { sync: true, ..FiemapRequest::default() };
    /// for extent in file.fiemap(&placed) {
    ///     let extent = extent?;
    ///     assert!(extent.physical > 0);
    ///     println!("{} bytes: {}", extent.length, extent.flags.names().collect::<Vec<_>>().join(","));
    /// }
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Of each item: when the range is empty or begins beyond the largest possible file; when the filesystem cannot be read, or a commit
    /// fails. No item follows an error.
    #[must_use]
    pub fn fiemap(&self, request: &FiemapRequest) -> Fiemap<'_> {
        self.open.fiemap(request)
    }

    /// For each byte of the file, returns whether the next overwrite stays in place, and why not. Writes back
    /// pending data first. See docs/use/nocow.md.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use creamery::extents::Overwrite;
    /// let fs = creamery::Image::options().write().nodatacow().open(&image)?;
    /// fs.write("/vm.img", vec![7; 1 << 20])?;
    /// assert!(fs.open("/vm.img")?.overwrites()?.are_in_place());
    /// fs.subvolumes().snapshot("/", "/before").run()?;
    /// let overwrites = fs.open("/vm.img")?.overwrites()?;
    /// assert_eq!(overwrites.of(Overwrite::Shared).bytes, 1 << 20);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When this is not a regular file; when the filesystem cannot be read, or data cannot be written back.
    pub fn overwrites(&self) -> Result<Overwrites> {
        self.open.overwrites()
    }

    /// Rewrites fragmented data contiguously, or with another compression. Content and times stay the same.
    /// Asks `progress` about every 32 MiB whether to go on. Returns the number of bytes rewritten.
    ///
    /// ```
    /// use creamery::OpenOptions;
    /// use creamery::extents::{Defragment, Recompress};
    /// use creamery::progress::NoProgress;
    /// # fn example(fs: &creamery::Filesystem) -> creamery::Result<()> {
    /// let file = OpenOptions::new().write(true).open(fs, "/var/log/journal")?;
    /// let compress = Recompress::With("zstd:9".parse::<creamery::compression::Compress>()?.method);
    /// file.defragment(&Defragment { compress, ..Defragment::default() }, &NoProgress)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The file was not opened for writing; there is no space; `progress` cancels (a part may be done); data cannot be read; and those of
    /// a write.
    pub fn defragment(&self, wanted: &Defragment, progress: &dyn Progress) -> Result<u64> {
        self.check_write()?;
        let done = self.open.defragment(wanted, &|| progress.go_on().is_err());
        // `progress` makes the error of a cancelled run.
        done.or_else(|error| progress.go_on().and(Err(error)))
    }

    /// The size of a data block, bytes.
    pub(crate) fn sector_size(&self) -> u64 {
        self.fs.engine().sector_size().into()
    }

    pub(crate) const fn new(fs: ShardedArc<fs::Filesystem>, open: Arc<OpenFile>, rights: Rights) -> Self {
        Self { fs, open, rights, position: 0 }
    }

    pub(crate) const fn for_reading(fs: ShardedArc<fs::Filesystem>, open: Arc<OpenFile>) -> Self {
        Self::new(fs, open, Rights { read: true, write: false, append: false })
    }

    pub(crate) const fn for_writing(fs: ShardedArc<fs::Filesystem>, open: Arc<OpenFile>) -> Self {
        Self::new(fs, open, Rights { read: false, write: true, append: false })
    }
}

/// Rejects a position that does not fit a signed 64-bit number, as on Linux.
fn check_position(position: u64) -> Result<()> {
    match i64::try_from(position) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::invalid(format!("file offset {position} is out of range"))),
    }
}

fn denied(what: &str) -> Error {
    Error::new(ErrorKind::PermissionDenied, what.to_owned())
}

fn found(outcome: Result<u64>) -> Result<Option<u64>> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

impl Read for File {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(out, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let (start, count) = if self.rights.append {
            self.open.append(data)?
        } else {
            (self.position, self.write_at(data, self.position)?)
        };
        self.position = start + count as u64;
        Ok(count)
    }

    /// Does nothing: this type has no buffer. See [`File::sync_all`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.metadata()?.len().checked_add_signed(by),
        };
        let position = position.ok_or_else(|| Error::invalid("file offset out of range"))?;
        check_position(position)?;
        self.position = position;
        Ok(position)
    }
}
