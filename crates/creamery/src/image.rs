//! Making and opening images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{Env, Error, ErrorKind, Generation, InodeId, ObjectId, Result, SystemEnv, TreeId, Uuid};
use creamery_device::{Access, BlockDevice, FileDevice, ImageName, file_of};
use creamery_txn::{DiscardPolicy, Engine, Options};
use creamery_volume::{Mode, Rescue, SuperblockChange, Volume};

use crate::Filesystem;
use crate::compression::Compress;
use crate::env::Tuning;
use crate::fs::FsOptions;
use crate::history::volume_at;
use crate::make::{Make, Target};
use crate::rescue::Start;
use crate::rescue::openable::check_first;

/// Where everything begins: makes and opens filesystems in image files and on block devices.
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
    /// Begins to make a filesystem at `path`; [`Make::run`] does it, as mkfs.btrfs(8).
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

    /// Begins to make a filesystem on a device of one's own (see [`device`](crate::device)), which is as large as it is; [`Make::run`] does it.
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

    /// Opens for reading, as `mount -o ro` on Linux. Nothing is written, and other readers may have it open at the same time.
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
    /// When there is no filesystem, it is damaged, or somebody is writing to it.
    pub fn open(path: impl AsRef<Path>) -> Result<Filesystem> {
        Self::options().open(path)
    }

    /// Changes what only the superblock says: features, the UUID, whether it is a seed. False when everything was so already. What
    /// cuts it off leaves all of it or nothing.
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
    /// When somebody has it open; when a filesystem that Linux has mounted has the UUID that it is to have; when the first superblock leads
    /// nowhere; as [`SuperblockChange::apply`].
    pub fn change_superblock(path: impl AsRef<Path>, change: &SuperblockChange) -> Result<bool> {
        refuse_mounted(path.as_ref(), change.new_uuid())?;
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path.as_ref(), Access::ReadWrite)?);
        check_first(&device)?;
        change.apply(&*device)
    }

    /// Opens in other ways, as mount options do on Linux.
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

/// How an image is opened; begin with [`Image::options`].
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
}

impl ImageOptions {
    /// Opens it for writing; nobody else can have it open then, as `mount -o rw` on Linux.
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

    /// Paths begin in this subvolume, named from the top level; without it, in the default subvolume (the mount option `subvol=`).
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

    /// Paths begin in the subvolume with this number (the mount option `subvolid=`); [`TreeId::FS`] is the top level.
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

    /// Whether freed space goes back to the device (the mount option `discard`). Without it none does.
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

    /// Writes with every commit the data that was written before it, as the mount option `flushoncommit` does. Without it an fsync
    /// writes its own file's data, and a sync writes all.
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

    /// Overwrites new files in place, without checksums, as the mount option `nodatacow` does (or `chattr +C` for each): fewer
    /// fragments for databases and images of machines, and nothing that detects rot. Files that exist stay as they are.
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

    /// What new data is compressed with, where a file does not say otherwise by its property or its flags
    /// (`docs/use/compression.md`); nothing unless told.
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

    /// Makes each sync of a file a commit, as the mount option `notreelog` does. Without it a log takes a file that is synced, where
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

    /// Opens it for writing also when its first superblock is damaged and a copy is whole: what was synced after the last commit
    /// is given up then, for only the first one leads to it. Without this, and by Linux in any case, that is refused. Reading
    /// needs no leave.
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

    /// Shows a filesystem whose root tree, or what it leads to, is damaged as an earlier commit left it, as the mount option
    /// `rescue=usebackuproot` does: the newest of those that the superblock's backups tell of and that can be opened ([`Volume::earlier_root`](crate::volume::Volume::earlier_root) says which). For reading only. Files whose
    /// blocks are in use again by now cannot be read.
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

    /// What is passed over to get files off a damaged filesystem, for reading only; [`Volume::notes`](crate::volume::Volume::notes) says what was left out. It
    /// replaces what was said of that before.
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

    /// Begins elsewhere than where the superblock says, for reading only.
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

    /// Shows the commit of this generation in place of the last one, for reading only, if its blocks are there still:
    /// [`history`](crate::history::history) lists those that are. Data is read by the checksums of that commit, so that what was given to other
    /// files since is an error, and so is all data if the checksum tree of that commit is gone; a file without checksums (NODATASUM) has what is in its place by now.
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

    /// The commit that is shown, if that is not the last one.
    pub(crate) const fn shown_generation(&self) -> Option<Generation> {
        self.generation
    }

    /// Memory and threads that the filesystem may use.
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

    /// Clock and randomness; those of the host when none are given.
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

    /// Opens the image file or block device at `path`, or a partition of it (see [`partitions`](crate::partitions)), as mount(2) does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::options().open(&image)?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no filesystem, it is damaged, it is in a state that does not allow writing, or somebody else has
    /// it open.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Filesystem> {
        let path = path.as_ref();
        self.open_engine(path).map_err(|error| named(error, path))
    }

    fn open_engine(&self, path: &Path) -> Result<Filesystem> {
        let access = if self.write { Access::ReadWrite } else { Access::ReadOnly };
        if path.is_dir() {
            return Err(Error::new(
                ErrorKind::IsADirectory,
                format!("opening {} as an image", path.display()),
            ));
        }
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path, access)?);
        let image = ImageName::metadata(path).map(|meta| file_of(&meta)).ok();
        self.open_volume(device, image)
    }

    /// Opens the filesystem on a device of one's own (see [`device`](crate::device)).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use creamery::device::{BlockDevice, MemoryDevice};
    /// let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(256 << 20));
    /// creamery::Image::make_on(Arc::clone(&memory)).run()?;
    /// let fs = creamery::Image::options().open_device(memory)?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Filesystem> {
        self.open_volume(device, None)
    }

    fn open_volume(&self, device: Arc<dyn BlockDevice>, image: Option<(u64, u64)>) -> Result<Filesystem> {
        if self.write {
            self.rescue.check_writing()?;
            self.start.check_writing()?;
        }
        self.check_generation()?;
        let volume = match (self.write, self.use_super_copy) {
            (false, _) => self.start.volume(device, self.passed_over())?,
            (true, false) => Volume::open(vec![device], Mode::ReadWrite)?,
            (true, true) => Volume::open_by_copy(vec![device])?,
        };
        let volume = match self.generation {
            Some(generation) => volume_at(volume, generation)?,
            None => volume,
        };
        self.open_on_volume(volume, image)
    }

    /// What is passed over. Of an earlier commit trees may be gone that reading can do without.
    const fn passed_over(&self) -> Rescue {
        Rescue { ignore_bad_roots: self.rescue.ignore_bad_roots || self.generation.is_some(), ..self.rescue }
    }

    /// Errors: another commit than the last is written to, or two things say which.
    fn check_generation(&self) -> Result<()> {
        let why = match self.generation {
            None => return Ok(()),
            Some(_) if self.write => "an earlier commit is for reading only: its blocks may be in use again",
            Some(_) if self.rescue.use_backup_root => {
                "both a generation and usebackuproot say which commit is read; leave one out"
            }
            Some(_) if self.start.root_tree.is_some() => {
                "both a generation and a root tree say which commit is read; leave one out"
            }
            Some(_) => return Ok(()),
        };
        Err(Error::invalid(why))
    }

    /// Opens also where the tree of the subvolume that paths begin in cannot be read: for what has more to show than files.
    pub(crate) const fn even_with_lost_root(mut self) -> Self {
        self.lost_root = true;
        self
    }

    /// Opens the filesystem on a volume for reading.
    pub(crate) fn open_on(&self, volume: Volume) -> Result<Filesystem> {
        self.open_on_volume(volume, None)
    }

    fn open_on_volume(&self, volume: Volume, image: Option<(u64, u64)>) -> Result<Filesystem> {
        let (fs, root) = match self.rescue.use_backup_root {
            true => volume.by_newest_usable_root(|volume| self.open_subvolume(volume))?,
            false => self.open_subvolume(volume)?,
        };
        let threads = self.tuning.threads(self.write, fs.engine().env());
        let is_default = self.subvolume.is_none() && self.subvolume_id.is_none();
        Ok(Filesystem::new(fs, root, image, threads).by_default(is_default))
    }

    /// The filesystem on a volume, and the root of the subvolume that paths begin in.
    fn open_subvolume(&self, volume: Volume) -> Result<(Arc<crate::fs::Filesystem>, InodeId)> {
        let env: Arc<dyn Env> = self.env.clone().unwrap_or_else(|| Arc::new(SystemEnv));
        let (tuning, usual) = (&self.tuning, Options::default());
        let options = Options {
            read_only: !self.write,
            cache_bytes: tuning.cache_bytes,
            dirty_bytes: tuning.dirty_bytes,
            early_unlock: tuning.early_unlock,
            fingers: tuning.fingers,
            read_ahead: tuning.read_ahead,
            earlier_commit: self.generation.is_some(),
            lock_times: tuning.lock_times,
            tree_log: self.tree_log.unwrap_or(usual.tree_log),
            env,
            ..usual
        };
        let engine = Engine::open(volume, options)?;
        engine.set_discard(self.discard);
        let fs_options = FsOptions {
            delayed_bytes: tuning.delayed_bytes,
            flush_on_commit: self.flush_on_commit,
            nodatacow: self.nodatacow,
            compress: self.compress,
            nocow_keeps_leaf: tuning.nocow_keeps_leaf,
            seek_cursors: tuning.seek_cursors,
            ..FsOptions::default()
        };
        let fs = crate::fs::Filesystem::open(engine, fs_options)?;
        let by_path = |path: &PathBuf| {
            fs.resolve_subvolume(path.as_os_str().as_encoded_bytes())
                .map_err(|error| error.context(format!("subvolume '{}'", path.display())))
        };
        let subvolume = match (self.subvolume.as_ref().map(by_path).transpose()?, self.subvolume_id) {
            (Some(found), Some(id)) if found != id => {
                let what =
                    format!("the subvolume of that path has number {found}, and number {id} is asked for");
                return Err(Error::invalid(what).advise("leave one of them out"));
            }
            (Some(id), _) | (None, Some(id)) => id,
            (None, None) => fs.default_subvolume(),
        };
        let root = match fs.root(subvolume) {
            // An earlier commit may have it whole.
            Err(error) if self.lost_root && !self.rescue.use_backup_root && error.kind().is_damage() => {
                InodeId::new(subvolume, ObjectId::FIRST_FREE)
            }
            root => root?,
        };
        Ok((fs, root))
    }
}

/// Linux takes two filesystems with one UUID for one.
pub(crate) fn refuse_mounted(path: &Path, uuid: Option<Uuid>) -> Result<()> {
    match uuid.filter(|uuid| Path::new("/sys/fs/btrfs").join(uuid.to_string()).exists()) {
        Some(uuid) => {
            let what = format!("{}: a filesystem with the UUID {uuid} is mounted", path.display());
            Err(Error::new(ErrorKind::Busy, what))
        }
        None => Ok(()),
    }
}

/// Puts the image's path in front of a message that does not say it yet.
fn named(error: creamery_base::Error, path: &Path) -> creamery_base::Error {
    let shown = path.display().to_string();
    if error.to_string().contains(&shown) { error } else { error.context(shown) }
}
