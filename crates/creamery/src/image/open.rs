//! Opens a filesystem with options.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::lock::contention;
use creamery_base::{Env, Error, ErrorKind, InodeId, ObjectId, Result, SystemEnv};
use creamery_device::{Access, BlockDevice, DeviceIo, ImageName, file_of};
use creamery_txn::{Engine, Options};
use creamery_volume::{DeviceSet, Mode, NamedSet, Rescue, Volume};

use super::ImageOptions;
use crate::Filesystem;
use crate::fs::FsOptions;
use crate::history::volume_at;

impl ImageOptions {
    /// Opens an image file or block device, or a partition of it (see [`partitions`](crate::partitions)), like mount(2).
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
    /// When there is no filesystem, it is damaged, it is in a state that does not allow writing, or it is open
    /// elsewhere.
    pub fn open(&self, image: impl Into<NamedSet>) -> Result<Filesystem> {
        let set = self.set(image);
        self.open_engine(&set).map_err(|error| named(error, set.first()))
    }

    /// The named devices, with those of the options.
    pub(crate) fn set(&self, image: impl Into<NamedSet>) -> NamedSet {
        let image = image.into().devices(&self.devices);
        let image = if self.io == DeviceIo::Direct { image.direct_io() } else { image };
        if self.degraded { image.degraded() } else { image }
    }

    fn open_engine(&self, set: &NamedSet) -> Result<Filesystem> {
        let path = set.first();
        let access = if self.write { Access::ReadWrite } else { Access::ReadOnly };
        if path.is_dir() {
            return Err(Error::new(
                ErrorKind::IsADirectory,
                format!("opening {} as an image", path.display()),
            ));
        }
        let image = ImageName::metadata(path).map(|meta| file_of(&meta)).ok();
        set.open(access, |devices| self.open_volume(devices, image))
    }

    /// Opens the filesystem on a device of your own (see [`device`](crate::device)).
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
    /// Those of [`open`](Self::open).
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Filesystem> {
        self.open_set(DeviceSet::from(device).degraded(self.degraded))
    }

    /// Opens the filesystem on all of these devices, in any order: with [`degraded`](Self::degraded), others may be missing.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use creamery::device::{BlockDevice, MemoryDevice};
    /// let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(256 << 20));
    /// creamery::Image::make_on(Arc::clone(&memory)).run()?;
    /// let fs = creamery::Image::options().open_devices([memory])?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_devices(
        &self,
        devices: impl IntoIterator<Item = Arc<dyn BlockDevice>>,
    ) -> Result<Filesystem> {
        self.open_set(devices.into_iter().collect::<DeviceSet>().degraded(self.degraded))
    }

    /// Opens the filesystem on a set of devices.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub(crate) fn open_set(&self, devices: DeviceSet) -> Result<Filesystem> {
        self.open_volume(devices, None)
    }

    fn open_volume(&self, devices: DeviceSet, image: Option<(u64, u64)>) -> Result<Filesystem> {
        if self.write {
            self.rescue.check_writing()?;
            self.start.check_writing()?;
        }
        self.check_generation()?;
        let volume = match (self.write, self.use_super_copy) {
            (false, _) => self.start.volume(devices, self.passed_over())?,
            (true, false) => Volume::open(devices, Mode::ReadWrite)?,
            (true, true) => Volume::open_by_copy(devices)?,
        };
        let volume = match self.generation {
            Some(generation) => volume_at(volume, generation)?,
            None => volume,
        };
        self.open_on_volume(volume, image)
    }

    /// The damage that is ignored. An earlier commit may lack trees that reading does not need.
    const fn passed_over(&self) -> Rescue {
        Rescue { ignore_bad_roots: self.rescue.ignore_bad_roots || self.generation.is_some(), ..self.rescue }
    }

    /// Errors: writing to an earlier commit; two options that choose a commit.
    fn check_generation(&self) -> Result<()> {
        let why = match self.generation {
            None => return Ok(()),
            Some(_) if self.write => "an earlier commit can only be read: its blocks may be in use again",
            Some(_) if self.rescue.use_backup_root => {
                "a generation and usebackuproot exclude each other; leave one out"
            }
            Some(_) if self.start.root_tree.is_some() => {
                "both a generation and a root tree say which commit is read; leave one out"
            }
            Some(_) => return Ok(()),
        };
        Err(Error::invalid(why))
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

    /// The filesystem on a volume, and the root of the subvolume where paths begin.
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
        if tuning.lock_contention {
            contention::count();
        }
        let engine = Engine::open(volume, options)?;
        engine.set_discard(self.discard);
        let fs_options = FsOptions {
            delayed_bytes: tuning.delayed_bytes,
            direct_bytes: tuning.direct_bytes,
            flush_on_commit: self.flush_on_commit,
            nodatacow: self.nodatacow,
            compress: self.compress,
            nocow_keeps_leaf: tuning.nocow_keeps_leaf,
            direct_waits: tuning.direct_waits,
            direct_ends_at_once: tuning.direct_ends_at_once,
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
                let what = format!("the subvolume path has id {found}, expected {id}");
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

/// Adds the image's path to a message without it.
fn named(error: creamery_base::Error, path: &Path) -> creamery_base::Error {
    let shown = path.display().to_string();
    if error.to_string().contains(&shown) { error } else { error.context(shown) }
}
