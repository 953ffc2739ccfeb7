//! Copies about to be made: source, destination and options.

use std::path::{Path, PathBuf};

use creamery_base::Result;

use crate::Filesystem;
use crate::copy_options::{CopyOptions, Reflink};
use crate::progress::{NoProgress, OnError, Progress};

/// A copy about to be made, like a call of cp(1); begin with [`Filesystem::copy_in`], [`Filesystem::copy_out`] or
/// [`Filesystem::copy_between`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// fs.create_dir_all("/home/ada")?;
/// fs.copy_between("/home", &fs, "/backup").archive().run()?;
/// assert!(fs.exists("/backup/ada"));
/// # Ok::<(), creamery::Error>(())
/// ```
#[must_use]
pub struct Copying<'a> {
    fs: &'a Filesystem,
    way: CopyDirection<'a>,
    from: PathBuf,
    to: PathBuf,
    options: CopyOptions,
    progress: &'a dyn Progress,
}

/// The direction of a copy.
#[derive(Clone, Copy)]
enum CopyDirection<'a> {
    In,
    Out,
    Between(&'a Filesystem),
}

impl Filesystem {
    /// Begins to copy a file or tree of the host to `to`; into it, if that is a directory. A source that ends in `/.` stands
    /// for the content of the directory. [`Copying::run`] makes the copy, as cp(1) would on a mount.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// # std::fs::create_dir(dir.path().join("conf"))?;
    /// # std::fs::write(dir.path().join("conf/app"), "on")?;
    /// fs.copy_in(dir.path().join("conf"), "/").archive().run()?;
    /// assert_eq!(fs.read_to_string("/conf/app")?, "on");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn copy_in(&self, source: impl AsRef<Path>, to: impl AsRef<Path>) -> Copying<'_> {
        Copying::new(self, CopyDirection::In, source.as_ref(), to.as_ref())
    }

    /// Begins to copy a file or tree to the host; into `to`, if that is a directory. [`Copying::run`] makes the copy, as cp(1) would
    /// from a mount.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/greeting", "hello")?;
    /// fs.copy_out("/greeting", dir.path()).run()?;
    /// assert_eq!(std::fs::read_to_string(dir.path().join("greeting"))?, "hello");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn copy_out(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Copying<'_> {
        Copying::new(self, CopyDirection::Out, from.as_ref(), to.as_ref())
    }

    /// Begins to copy a file or tree to another filesystem, or to another place in this one; into `to`, if that is a directory.
    /// [`Copying::run`] makes the copy, as cp(1) would between mounts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let (old, new) = (dir.path().join("old.img"), dir.path().join("new.img"));
    /// # for image in [&old, &new] { creamery::Image::make(image).size(256 << 20).run()?; }
    /// # let old = creamery::Image::options().write().open(&old)?;
    /// # let new = creamery::Image::options().write().open(&new)?;
    /// old.create_dir_all("/home/ada")?;
    /// old.copy_between("/home", &new, "/").archive().run()?;
    /// assert!(new.metadata("/home/ada")?.is_dir());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn copy_between<'a>(
        &'a self,
        from: impl AsRef<Path>,
        other: &'a Self,
        to: impl AsRef<Path>,
    ) -> Copying<'a> {
        Copying::new(self, CopyDirection::Between(other), from.as_ref(), to.as_ref())
    }
}

impl<'a> Copying<'a> {
    fn new(fs: &'a Filesystem, way: CopyDirection<'a>, from: &Path, to: &Path) -> Self {
        let (from, to) = (from.to_owned(), to.to_owned());
        Self { fs, way, from, to, options: CopyOptions::default(), progress: &NoProgress }
    }

    /// Copies directories with everything below them, as `cp -r` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.create_dir("/dir")?;
    /// assert!(fs.copy_between("/dir", &fs, "/copy").run().is_err());
    /// fs.copy_between("/dir", &fs, "/copy").recursive().run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub const fn recursive(mut self) -> Self {
        self.options.recursive = true;
        self
    }

    /// Copies directories with everything below them, and keeps modes, owners, times, extended attributes, ACLs and hard links, as
    /// `cp -a` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.set_xattr("/file", "user.note", "milk")?;
    /// fs.copy_between("/file", &fs, "/copy").archive().run()?;
    /// assert_eq!(fs.xattr("/copy", "user.note")?, b"milk");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub const fn archive(mut self) -> Self {
        self.options.archive = true;
        self
    }

    /// Keeps modes, owners, times, extended attributes and ACLs, as `cp -p` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.copy_between("/file", &fs, "/copy").preserve().run()?;
    /// assert_eq!(fs.metadata("/copy")?.mtime(), fs.metadata("/file")?.mtime());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub const fn preserve(mut self) -> Self {
        self.options.preserve = true;
        self
    }

    /// Sets whether copies within a filesystem share the data of their sources, as `cp --reflink` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::copy::Reflink;
    /// fs.write("/file", vec![7; 1 << 20])?;
    /// fs.copy_between("/file", &fs, "/copy").reflink(Reflink::Always).run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub const fn reflink(mut self, reflink: Reflink) -> Self {
        self.options.reflink = reflink;
        self
    }

    /// Sets how the copy handles a file that cannot be read or made; default [`OnError::Stop`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::progress::OnError;
    /// fs.create_dir("/dir")?;
    /// fs.copy_out("/dir", dir.path()).archive().on_error(OnError::PastDamage).run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub const fn on_error(mut self, on_error: OnError) -> Self {
        self.options.on_error = on_error;
        self
    }

    /// Sets all options at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::copy::CopyOptions;
    /// let everything = CopyOptions { recursive: true, archive: true, ..CopyOptions::default() };
    /// fs.copy_out("/", dir.path().join("out")).options(everything).run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub const fn options(mut self, options: CopyOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the observer, which is called for each file and may cancel the copy. Default: none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::progress::Progress;
    /// struct Names;
    /// impl Progress for Names {
    ///     fn entry(&self, path: &[u8], _bytes: u64) {
    ///         println!("{}", path.escape_ascii());
    ///     }
    /// }
    /// fs.write("/file", "text")?;
    /// fs.copy_out("/file", dir.path()).progress(&Names).run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub const fn progress(mut self, progress: &'a dyn Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Makes the copy.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.copy_between("/file", &fs, "/copy").run()?;
    /// assert_eq!(fs.read("/copy")?, b"text");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// With [`OnError::Stop`] the error of the first file that cannot be copied; earlier copies stay.
    pub fn run(self) -> Result<()> {
        let Self { fs, way, from, to, options, progress } = self;
        match way {
            CopyDirection::In => fs.copy_in_with(&from, &to, options, progress),
            CopyDirection::Out => fs.copy_out_selected(&from, &to, options, None, false, progress),
            CopyDirection::Between(other) => fs.copy_between_with(&from, other, &to, options, progress),
        }
    }
}
