//! Makes and opens images.

mod open;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{Env, Error, ErrorKind, Generation, Result, TreeId, Uuid};
use creamery_device::{Access, BlockDevice, DeviceIo, FileDevice};
use creamery_txn::DiscardPolicy;
use creamery_volume::{NamedSet, Rescue, SuperblockChange};

use crate::Filesystem;
use crate::compression::Compress;
use crate::env::Tuning;
use crate::make::{Make, Target};
use crate::rescue::Start;
use crate::rescue::openable::check_first;

/// The entry point: makes and opens filesystems in image files and on block devices.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// use creamery::Image;
/// Image::make(&image).size(256 << 20).run()?;
/// assert!(Image::open(&image)?.read_dir("/")?.next().is_none());
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Debug)]
pub struct Image(());

impl Image {
    /// Begins to make a filesystem at `path`; [`Make::run`] makes it, like mkfs.btrfs(8).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// let made = creamery::Image::make(&image).size(256 << 20).run()?;
    /// # drop(made);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn make(path: impl Into<PathBuf>) -> Make {
        Make::at(Target::Path(path.into()))
    }

    /// Begins to make a filesystem on a device of your own (see [`device`](crate::device)), of the size of the device; [`Make::run`] makes
    /// it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use creamery::device::MemoryDevice;
    /// let memory = Arc::new(MemoryDevice::new(256 << 20));
    /// creamery::Image::make_on(memory).run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn make_on(device: Arc<dyn BlockDevice>) -> Make {
        Make::at(Target::Device(device))
    }

    /// Opens an image for reading, like `mount -o ro` on Linux. Nothing is written, and other readers may have it open at the same time.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::open(&image)?;
    /// assert!(fs.create("/file").is_err());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no filesystem, it is damaged, or it is open for writing elsewhere.
    pub fn open(image: impl Into<NamedSet>) -> Result<Filesystem> {
        Self::options().open(image)
    }

    /// Changes fields that only the superblock has: features, the UUID, the seed flag. False when they all have these values already. A
    /// crash leaves all changes or none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use creamery::{Image, Uuid};
    /// use creamery::volume::SuperblockChange;
    /// let (old, new) = (Image::open(&image)?.volume().uuid(), Uuid::from_u128(1));
    /// assert!(Image::change_superblock(&image, &SuperblockChange::default().uuid(new))?);
    /// let fs = Image::open(&image)?;
    /// assert_eq!((fs.volume().uuid(), fs.volume().metadata_uuid()), (new, old));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the image is open elsewhere; when a filesystem that Linux has mounted has the new UUID; when the first superblock does not lead
    /// to a filesystem; those of [`SuperblockChange::apply`].
    pub fn change_superblock(path: impl AsRef<Path>, change: &SuperblockChange) -> Result<bool> {
        refuse_mounted(path.as_ref(), change.new_uuid())?;
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path.as_ref(), Access::ReadWrite)?);
        check_first(&device)?;
        change.apply(&*device)
    }

    /// Returns options for opening, like the mount options of Linux.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::options().write().open(&image)?;
    /// fs.create("/file")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn options() -> ImageOptions {
        ImageOptions::default()
    }
}

/// Options for opening an image; begin with [`Image::options`].
///
/// ```no_run
/// let fs = creamery::Image::options().write().subvolume("home").open("disk.img")?;
/// fs.write("/note", "in the subvolume home")?;
/// fs.close()?;
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct ImageOptions {
    write: bool,
    subvolume: Option<PathBuf>,
    subvolume_id: Option<TreeId>,
    discard: DiscardPolicy,
    flush_on_commit: bool,
    nodatacow: bool,
    compress: Option<Compress>,
    tuning: Tuning,
    tree_log: Option<bool>,
    use_super_copy: bool,
    lost_root: bool,
    rescue: Rescue,
    start: Start,
    generation: Option<Generation>,
    env: Option<Arc<dyn Env>>,
    /// The named devices except the first one.
    devices: Vec<PathBuf>,
    degraded: bool,
    io: DeviceIo,
}

impl ImageOptions {
    /// Opens the image for writing and locks out everyone else, like `mount -o rw` on Linux.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::options().write().open(&image)?;
    /// assert!(creamery::Image::open(&image).is_err(), "one has it open");
    /// # fs.close()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn write(mut self) -> Self {
        self.write = true;
        self
    }

    /// Makes paths begin in this subvolume, named from the top level (the mount option `subvol=`). Default: the default subvolume.
    ///
    /// ```no_run
    /// let home = creamery::Image::options().subvolume("@home").open("disk.img")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn subvolume(mut self, path: impl Into<PathBuf>) -> Self {
        self.subvolume = Some(path.into());
        self
    }

    /// Makes paths begin in the subvolume with this number (the mount option `subvolid=`); [`TreeId::FS`] is the top level.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::options().subvolume_id(creamery::id::TreeId::FS).open(&image)?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn subvolume_id(mut self, id: TreeId) -> Self {
        self.subvolume_id = Some(id);
        self
    }

    /// Sets whether freed space goes back to the device (the mount option `discard`). Default: it does not.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use creamery::volume::DiscardPolicy;
    /// let fs = creamery::Image::options().write().discard(DiscardPolicy::default()).open(&image)?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn discard(mut self, policy: DiscardPolicy) -> Self {
        self.discard = policy;
        self
    }

    /// Makes every commit write the data from before it, like the mount option `flushoncommit`. Without it an fsync
    /// writes the data of its own file, and a sync writes all data.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::options().write().flush_on_commit().open(&image)?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn flush_on_commit(mut self) -> Self {
        self.flush_on_commit = true;
        self
    }

    /// Overwrites new files in place, without checksums, like the mount option `nodatacow` (or `chattr +C` for each): fewer
    /// fragments for databases and images of machines, but no detection of rot. Existing files stay as they are.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::options().write().nodatacow().open(&image)?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn nodatacow(mut self) -> Self {
        self.nodatacow = true;
        self
    }

    /// Sets the compression of new data for files without a compression property or flag
    /// (`docs/use/compression.md`). Default: none.
    ///
    /// ```no_run
    /// # fn example() -> creamery::Result<()> {
    /// let options = creamery::Image::options().write().compress(Some("zstd:5".parse()?));
    /// let fs = options.open("disk.img")?;
    /// fs.write("/log", b"the same again and again".repeat(1000))?;
    /// # fs.close()
    /// # }
    /// ```
    #[must_use]
    pub fn compress(mut self, compress: Option<Compress>) -> Self {
        self.compress = compress;
        self
    }

    /// Makes each sync of a file a commit, like the mount option `notreelog`. Without it a sync writes the file to a log if
    /// that is enough.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::options().write().notreelog().open(&image)?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn notreelog(mut self) -> Self {
        self.tree_log = Some(false);
        self
    }

    /// Also opens a filesystem for writing whose first superblock is damaged while a copy is whole. Files that were synced after the last
    /// commit are lost then, because only the first superblock leads to them. Without this option opening for writing fails, as on Linux in
    /// any case. Reading does not need the option.
    ///
    /// ```no_run
    /// let fs = creamery::Image::options().write().use_super_copy().open("disk.img")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn use_super_copy(mut self) -> Self {
        self.use_super_copy = true;
        self
    }

    /// Shows a filesystem with a damaged root tree, or damaged trees below it, in the state of an earlier commit, like the mount option
    /// `rescue=usebackuproot`: the newest one in the superblock's backups that can be opened
    /// ([`Volume::earlier_root`](crate::volume::Volume::earlier_root) returns it). For reading only. Files whose blocks are in use again
    /// cannot be read.
    ///
    /// ```no_run
    /// let fs = creamery::Image::options().use_backup_root().open("disk.img")?;
    /// let note = fs.read("/note")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn use_backup_root(mut self) -> Self {
        self.rescue.use_backup_root = true;
        self
    }

    /// Sets which damage is ignored to get files off a damaged filesystem, for reading only;
    /// [`Volume::notes`](crate::volume::Volume::notes) lists the parts that are left out. Replaces earlier settings.
    ///
    /// ```no_run
    /// let fs = creamery::Image::options().rescue("ignorebadroots:ignoredatacsums".parse()?).open("disk.img")?;
    /// let note = fs.read("/note")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn rescue(mut self, rescue: Rescue) -> Self {
        self.rescue = rescue;
        self
    }

    /// Reads from another superblock or root tree than the usual ones, for reading only.
    ///
    /// ```no_run
    /// use creamery::rescue::Start;
    /// let fs = creamery::Image::options().start(Start::default()).open("disk.img")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Shows the commit of this generation in place of the last one, for reading only, if its blocks are left:
    /// [`history`](crate::history::history) lists such commits. Data is verified by the checksums of that commit. So reading data whose
    /// space another file uses by now is an error, and so is reading any data if the checksum tree of that commit is gone. A file without
    /// checksums (NODATASUM) returns whatever is in its place by now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use creamery::Image;
    /// use creamery::history::{NoSearchProgress, history};
    /// let fs = Image::options().write().open(&image)?;
    /// fs.write("/note", "milk")?;
    /// fs.close()?;
    /// let before = history(&image, &NoSearchProgress)?.commits[0];
    /// let fs = Image::options().write().open(&image)?;
    /// fs.remove_file("/note")?;
    /// fs.close()?;
    /// let fs = Image::options().generation(before.generation).open(&image)?;
    /// assert_eq!(fs.read("/note")?, b"milk");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn generation(mut self, generation: Generation) -> Self {
        self.generation = Some(generation);
        self
    }

    /// The commit that is shown, if it is not the last one.
    pub(crate) const fn shown_generation(&self) -> Option<Generation> {
        self.generation
    }

    /// Sets the memory and threads that the filesystem may use.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use creamery::env::Tuning;
    /// let mut small = Tuning::default();
    /// small.cache_bytes = 8 << 20;
    /// let fs = creamery::Image::options().tuning(small).open(&image)?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// Sets clock and randomness; default: those of the host.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use creamery::env::SystemEnv;
    /// let fs = creamery::Image::options().env(std::sync::Arc::new(SystemEnv)).open(&image)?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = Some(env);
        self
    }

    /// Names another device of the filesystem. Opening also searches for devices beside the first one: files in the same directory, or
    /// block devices of the host.
    ///
    /// ```no_run
    /// let fs = creamery::Image::options().device("b.img").open("a.img")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn device(mut self, path: impl Into<PathBuf>) -> Self {
        self.devices.push(path.into());
        self
    }

    /// Allows missing devices, as many as the profiles of the filesystem tolerate: for reading.
    ///
    /// ```no_run
    /// let fs = creamery::Image::options().degraded().open("a.img")?; // the one that is left of two
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn degraded(mut self) -> Self {
        self.degraded = true;
        self
    }

    /// Reads and writes the devices past the page cache of the host (O_DIRECT), so that the host does not cache the filesystem's cache a
    /// second time. The host does not read ahead then. Requests that are not aligned go through the cache.
    ///
    /// ```no_run
    /// let fs = creamery::Image::options().write().direct_io().open("/dev/sdb1")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// Opening fails with [`ErrorKind::Unsupported`] if the file, or its filesystem, has no direct I/O. The option does not affect devices
    /// of your own ([`open_device`](Self::open_device)).
    #[must_use]
    pub fn direct_io(mut self) -> Self {
        self.io = DeviceIo::Direct;
        self
    }

    /// Also opens a filesystem whose paths begin in a subvolume with an unreadable tree: for callers that show more than files.
    pub(crate) const fn even_with_lost_root(mut self) -> Self {
        self.lost_root = true;
        self
    }
}

/// Fails if Linux has mounted the filesystem with this UUID: it takes two filesystems with one UUID for one.
pub(crate) fn refuse_mounted(path: &Path, uuid: Option<Uuid>) -> Result<()> {
    match uuid.filter(|uuid| Path::new("/sys/fs/btrfs").join(uuid.to_string()).exists()) {
        Some(uuid) => {
            let what = format!("{}: a filesystem with the UUID {uuid} is mounted", path.display());
            Err(Error::new(ErrorKind::Busy, what))
        }
        None => Ok(()),
    }
}
