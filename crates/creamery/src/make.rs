//! Filesystems about to be made (mkfs.btrfs).

use std::path::PathBuf;
use std::sync::Arc;

use creamery_base::{Env, Result, SystemEnv};
use creamery_device::BlockDevice;
use creamery_mkfs::{Made, MkfsOptions, NoProgress, RootdirOptions, Source, make_image, make_on};

use crate::tar::TarRootfs;

/// A filesystem about to be made; begin with [`Image::make`](crate::Image::make).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let (image, rootfs) = (dir.path().join("disk.img"), dir.path().join("rootfs"));
/// # std::fs::create_dir(&rootfs)?;
/// use creamery::Image;
/// use creamery::mkfs::ChecksumType;
/// let made = Image::make(image)
///     .rootdir(rootfs)
///     .label("system")
///     .with(|options| options.checksum = ChecksumType::Xxhash64)
///     .run()?;
/// assert_eq!(made.checksum, ChecksumType::Xxhash64);
/// # Ok::<(), creamery::Error>(())
/// ```
#[must_use]
pub struct Make {
    target: Target,
    options: MkfsOptions,
    source: Option<Box<dyn Source + Send + Sync>>,
    env: Arc<dyn Env>,
}

/// The destination of a new filesystem.
pub(crate) enum Target {
    Path(PathBuf),
    Device(Arc<dyn BlockDevice>),
}

impl Make {
    pub(crate) fn at(target: Target) -> Self {
        Self { target, options: MkfsOptions::default(), source: None, env: Arc::new(SystemEnv) }
    }

    /// Sets the size of the filesystem, bytes (`mkfs.btrfs -b`). Without it: the whole device, or the size that the content needs.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// creamery::Image::make(&image).size(256 << 20).run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn size(mut self, bytes: u64) -> Self {
        self.options.total_bytes = Some(bytes);
        self
    }

    /// Sets the label (`mkfs.btrfs -L`).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// creamery::Image::make(&image).size(256 << 20).label("backup").run()?;
    /// assert_eq!(creamery::Image::open(&image)?.volume().label(), b"backup");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn label(mut self, label: impl Into<Vec<u8>>) -> Self {
        self.options.label = label.into();
        self
    }

    /// Fills the filesystem with the content of this directory of the host (`mkfs.btrfs --rootdir`).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # let rootfs = dir.path().join("rootfs");
    /// # std::fs::create_dir(&rootfs)?;
    /// creamery::Image::make(&image).rootdir(&rootfs).run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn rootdir(self, source: impl Into<PathBuf>) -> Self {
        self.rootdir_with(RootdirOptions::new(source))
    }

    /// Fills the filesystem with the content of a directory of the host, with owners, times or subvolumes changed on the way.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # let rootfs = dir.path().join("rootfs");
    /// # std::fs::create_dir(&rootfs)?;
    /// use creamery::mkfs::RootdirOptions;
    /// creamery::Image::make(&image).rootdir_with(RootdirOptions::new(&rootfs)).run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn rootdir_with(mut self, rootdir: RootdirOptions) -> Self {
        self.source = Some(Box::new(rootdir));
        self
    }

    /// Fills the filesystem with the content of archives.
    ///
    /// ```no_run
    /// use creamery::tar::{TarArchive, TarRootfs};
    /// # fn example(rootfs: TarRootfs) -> creamery::Result<()> {
    /// creamery::Image::make("disk.img").tar(rootfs).run()?;
    /// # Ok(()) }
    /// ```
    pub fn tar(mut self, rootfs: TarRootfs) -> Self {
        self.source = Some(Box::new(rootfs));
        self
    }

    /// Allows overwriting another filesystem, as `mkfs.btrfs -f` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// creamery::Image::make(&image).size(256 << 20).run()?;
    /// creamery::Image::make(&image).size(256 << 20).force().run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn force(mut self) -> Self {
        self.options.force = true;
        self
    }

    /// Changes any other option.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// use creamery::mkfs::ChecksumType;
    /// creamery::Image::make(&image).size(256 << 20).with(|options| options.checksum = ChecksumType::Sha256).run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn with(mut self, change: impl FnOnce(&mut MkfsOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Sets the clock and randomness; default: those of the host. With a fixed environment and a fixed UUID, equal sources
    /// make equal images, byte for byte.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// use creamery::env::SystemEnv;
    /// creamery::Image::make(&image).size(256 << 20).env(std::sync::Arc::new(SystemEnv)).run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// Makes the filesystem, as mkfs.btrfs(8) does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// let made = creamery::Image::make(&image).size(256 << 20).run()?;
    /// println!("{made:?}");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`make_image`]; a failure leaves nothing that looks like a whole filesystem.
    pub fn run(self) -> Result<Made> {
        let options = &self.options;
        let source = self.source.as_deref().map(|source| source as &dyn Source);
        match self.target {
            Target::Path(path) => make_image(&path, options, source, self.env, &NoProgress),
            Target::Device(device) => make_on(device, options, source, self.env, &NoProgress),
        }
    }
}
