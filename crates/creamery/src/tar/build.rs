//! Archives about to be written or unpacked.

use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use creamery_base::{Error, Result};

use super::extract::Rules;
use super::read::Archive;
use super::stored::TarArchive;
use super::write::ended;
use super::{TarMember, TarOptions, packed};
use crate::Filesystem;
use crate::host_path::write_whole_file;
use crate::progress::{NoProgress, Progress};

/// Bytes of one write to an archive.
const BUFFER: usize = 1 << 20;

/// Called for each member that cannot be made, or only in part; an error from it ends the work.
type Failed<'a> = dyn Fn(&[u8], Error) -> Result<()> + 'a;

/// An archive about to be written, as `tar -c` writes it; begin with [`Filesystem::write_tar`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use creamery::tar::TarMember;
/// fs.create_dir_all("/srv/pages")?;
/// let mut archive = Vec::new();
/// fs.write_tar(&[TarMember::new("/srv", "srv")]).to(&mut archive)?;
/// assert!(archive.len() > 1024);
/// # Ok::<(), creamery::Error>(())
/// ```
#[must_use]
pub struct WriteTar<'a> {
    fs: &'a Filesystem,
    members: &'a [TarMember],
    options: TarOptions,
    note: &'a dyn Fn(&str),
    progress: &'a dyn Progress,
}

/// An archive about to be unpacked, as `tar -x` unpacks it; begin with [`Filesystem::read_tar`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use creamery::tar::TarMember;
/// fs.write("/file", "hello")?;
/// let mut archive = Vec::new();
/// fs.write_tar(&[TarMember::new("/file", "copy")]).to(&mut archive)?;
/// fs.read_tar("/").from(&archive[..])?;
/// assert_eq!(fs.read("/copy")?, b"hello");
/// # Ok::<(), creamery::Error>(())
/// ```
#[must_use]
pub struct ReadTar<'a> {
    fs: &'a Filesystem,
    to: PathBuf,
    failed: Box<Failed<'a>>,
    progress: &'a dyn Progress,
}

impl Filesystem {
    /// Begins an archive with these members, and everything in them. Sockets are left out. [`WriteTar::to`] writes it, like tar(1).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::tar::TarMember;
    /// fs.create_dir_all("/srv/pages")?;
    /// fs.write("/srv/pages/index", "hello")?;
    /// let mut archive = Vec::new();
    /// fs.write_tar(&[TarMember::new("/srv", "srv")]).to(&mut archive)?;
    /// fs.create_dir("/copy")?;
    /// fs.read_tar("/copy").from(&archive[..])?;
    /// assert_eq!(fs.read("/copy/srv/pages/index")?, b"hello");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn write_tar<'a>(&'a self, members: &'a [TarMember]) -> WriteTar<'a> {
        WriteTar { fs: self, members, options: TarOptions::default(), note: &|_| (), progress: &NoProgress }
    }

    /// Begins to unpack an archive into the directory `to`. A member replaces an existing file; directories are merged.
    /// [`ReadTar::from`] and [`ReadTar::layer`] do the work, like tar(1).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// # let archive = [0; 1024];
    /// fs.read_tar("/").from(&archive[..])?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn read_tar(&self, to: impl AsRef<Path>) -> ReadTar<'_> {
        let to = to.as_ref().to_owned();
        ReadTar { fs: self, to, failed: Box::new(|_, error| Err(error)), progress: &NoProgress }
    }
}

impl<'a> WriteTar<'a> {
    /// Sets options. With [`TarOptions::ignore_errors`] the archive goes on after errors of a damaged filesystem, as with
    /// [`OnError::PastDamage`](crate::progress::OnError::PastDamage).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::tar::{TarMember, TarOptions};
    /// let options = TarOptions { ignore_errors: true, ..TarOptions::default() };
    /// fs.write_tar(&[TarMember::new("/", "")]).options(options).to(std::io::sink())?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub const fn options(mut self, options: TarOptions) -> Self {
        self.options = options;
        self
    }

    /// Calls `note` with a sentence about each file that is left out, like a socket. Default: none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::tar::TarMember;
    /// fs.write_tar(&[TarMember::new("/", "")]).note(&|note| eprintln!("{note}")).to(std::io::sink())?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn note(mut self, note: &'a dyn Fn(&str)) -> Self {
        self.note = note;
        self
    }

    /// Sets the observer, which is called for each file and may cancel. Default: none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::tar::TarMember;
    /// use creamery::progress::NoProgress;
    /// fs.write_tar(&[TarMember::new("/", "")]).progress(&NoProgress).to(std::io::sink())?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub const fn progress(mut self, progress: &'a dyn Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Writes the archive to `out`, as `tar -cf -` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::tar::TarMember;
    /// let mut archive = Vec::new();
    /// fs.write_tar(&[TarMember::new("/", "")]).to(&mut archive)?;
    /// # assert!(!archive.is_empty());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first file that cannot be read, unless errors are ignored; an error of writing the archive.
    pub fn to(self, mut out: impl Write) -> Result<()> {
        self.write(&mut out).map_err(ended)
    }

    fn write(&self, out: &mut dyn Write) -> Result<()> {
        self.fs.write_members(self.members, out, self.options, self.note, self.progress)
    }

    /// Writes the archive into the file `to` of the host. The archive gets its name when it is whole; until then an existing regular file
    /// keeps it. Written in place: a pipe, a device, an open file (`/dev/stdout`), a file with several names, a file of another
    /// user, and one in a directory that takes no new name from this user.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::tar::TarMember;
    /// fs.write_tar(&[TarMember::new("/", "")]).to_file(dir.path().join("all.tar"))?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`to`](Self::to), and the host's; `AlreadyExists` for an image, without [`TarOptions::replace_images`].
    pub fn to_file(self, to: impl AsRef<Path>) -> Result<()> {
        write_whole_file(to.as_ref(), self.options.replace_images, self.progress, &|file| {
            let mut out = BufWriter::with_capacity(BUFFER, file);
            self.write(&mut out)
        })
        .map_err(ended)
    }
}

impl<'a> ReadTar<'a> {
    /// Calls `failed` for each member that cannot be made, or only in part, and goes on with the others. Without it the error of the first
    /// such member ends the work.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// # let archive = [0; 1024];
    /// let failed = |name: &[u8], error: &creamery::Error| eprintln!("{}: {error}", name.escape_ascii());
    /// fs.read_tar("/").failed(&failed).from(&archive[..])?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn failed(mut self, failed: &'a dyn Fn(&[u8], &Error)) -> Self {
        self.failed = Box::new(move |name, error| {
            failed(name, &error);
            Ok(())
        });
        self
    }

    /// Sets the observer, which is called for each member and may cancel. Default: none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// # let archive = [0; 1024];
    /// fs.read_tar("/").progress(&creamery::progress::NoProgress).from(&archive[..])?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn progress(mut self, progress: &'a dyn Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Unpacks an archive, which may be compressed with gzip or zstd, as `tar -xf` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// # let archive = [0; 1024];
    /// fs.read_tar("/").from(&archive[..])?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the archive cannot be read on, or no more can be written; earlier members stay.
    pub fn from(self, archive: impl Read) -> Result<()> {
        let mut archive = Archive::new(packed::unpacked(Box::new(archive))?);
        self.fs.extractor(&self.to, &*self.failed, self.progress, Rules::default())?.run(&mut archive)
    }

    /// Unpacks a layer of a container image, by the image specification of OCI. Members with names of whiteouts are not files, but name
    /// files of the directory that are removed. They only remove files of lower layers: a file of that name in the layer itself stays.
    /// Directories get the attributes of the layer and no others. A member that is not a directory replaces an existing directory with
    /// everything in it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// # let path = dir.path().join("layer.tar");
    /// use creamery::tar::{TarArchive, TarMember};
    /// # fs.create_dir("/layer")?;
    /// fs.write("/layer/.wh.old", "")?;
    /// fs.write_tar(&[TarMember::new("/layer", "")]).to_file(&path)?;
    /// let layer = TarArchive::new(std::fs::File::open(&path)?, &path, dir.path())?;
    /// fs.create_dir_all("/rootfs/old/and/all/below")?;
    /// fs.read_tar("/rootfs").layer(&layer)?;
    /// assert!(fs.read_dir("/rootfs")?.next().is_none());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`from`](Self::from). A whiteout of a file that does not exist is ignored.
    pub fn layer(self, layer: &TarArchive) -> Result<()> {
        let rules = Rules { is_layer: true, ..Rules::default() };
        self.fs.extractor(&self.to, &*self.failed, self.progress, rules)?.add(layer)
    }
}
