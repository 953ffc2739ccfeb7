//! Archives: out of a filesystem, and into one, without a mount and without root.
//!
//! What is written is POSIX' pax format with what GNU tar adds: extended attributes and ACLs, times to the nanosecond, sizes and
//! numbers beyond the fields of ustar, holes. What is read is that, ustar, GNU tar's own format and all its ways to say holes.
//!
//! An archive comes from anybody. Its names are components below the directory that it is unpacked to; a name with `..` is refused,
//! and links on the way are followed as if that directory were the root of all (`docs/use/tar.md`). Numbers are checked before
//! anything is done with them, and nothing is allocated because it was claimed.
//!
//! Headers are the crate's (`tar`); records of extended headers are ours, because it splits them at the ends of lines that values may have.

mod acl;
mod extract;
mod facts;
mod keys;
mod layer;
mod list;
mod names;
mod packed;
mod pax;
mod read;
mod rootfs;
mod sparse;
mod stored;
mod way;
mod whiteouts;
mod write;

use std::collections::BTreeSet;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};

pub use self::list::{TarEntry, list_tar};
pub use self::rootfs::TarRootfs;
pub use self::stored::TarArchive;

use self::extract::{Extractor, Rules};
use self::read::Archive;
use self::write::TarSink;
use crate::host_path::write_whole_file;
use crate::metadata::file_type;
use crate::path::{Last, at};
use crate::progress::{OnError, Progress};
use crate::sink::{Driver, Keeps};
use crate::{FileType, Filesystem};

/// Bytes that are written to an archive at once.
const BUFFER: usize = 1 << 20;

/// A file or tree that goes into an archive, and what it is called there.
///
/// ```
/// let member = creamery::tar::TarMember::new("/etc", "etc");
/// # assert_ne!(member.path, member.name);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TarMember {
    /// Where it is; a symbolic link stands for itself.
    pub path: PathBuf,
    /// Its name in the archive, without a slash in front; empty for the directory that others are in, which is called `./`.
    pub name: PathBuf,
}

impl TarMember {
    /// What is at `path`, by this name.
    pub fn new(path: impl Into<PathBuf>, name: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), name: name.into() }
    }
}

/// How an archive is written.
///
/// ```
/// let options = creamery::tar::TarOptions { ignore_errors: true, ..Default::default() };
/// # assert!(options.ignore_errors);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TarOptions {
    /// Go on past what cannot be read: the progress is told, and lost parts of files are holes.
    pub ignore_errors: bool,
    /// Let the archive replace an image of a filesystem, or of a disk with partitions, that has its name on the host.
    pub replace_images: bool,
}

impl Filesystem {
    /// Writes an archive with these members, and all that is in them. Sockets are left out, which `note` is told in a sentence. With
    /// [`TarOptions::ignore_errors`] it goes on past what cannot be read, out of a damaged filesystem, as
    /// [`OnError::PastDamage`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::progress::NoProgress;
    /// use creamery::tar::{TarMember, TarOptions};
    /// fs.create_dir_all("/srv/pages")?;
    /// fs.write("/srv/pages/index", "hello")?;
    /// let mut archive = Vec::new();
    /// let member = TarMember::new("/srv", "srv");
    /// fs.write_tar(&[member], &mut archive, TarOptions::default(), &|note| eprintln!("{note}"), &NoProgress)?;
    /// fs.create_dir("/copy")?;
    /// fs.read_tar(&archive[..], "/copy", &|_, error| panic!("{error}"), &NoProgress)?;
    /// assert_eq!(fs.read("/copy/srv/pages/index")?, b"hello");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first file that cannot be read, unless that is ignored; when the archive cannot be written.
    pub fn write_tar(
        &self,
        members: &[TarMember],
        mut out: impl Write,
        options: TarOptions,
        note: &dyn Fn(&str),
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut sink = TarSink::new(&mut out, note);
        let on_error = if options.ignore_errors { OnError::PastDamage } else { OnError::Stop };
        for TarMember { path, name } in members {
            let (id, kind) = self.member(path, options)?;
            let (parent, name) = split(name);
            let driver = Driver { from: self, keeps: Keeps::all(true), on_error, selection: None, progress };
            driver.copy(&mut sink, id, kind, parent, Some(name), path)?;
        }
        sink.finish()
    }

    /// The inode of a member, and what it is.
    fn member(&self, path: &Path, options: TarOptions) -> Result<(InodeId, FileType)> {
        let (id, kind) = if options.ignore_errors {
            self.resolve_past_damage(path, Last::Keep)?
        } else {
            let id = self.resolve(path, Last::Keep)?;
            (id, self.fs.stat(id, Wait::Yes).map_err(at(path))?.kind)
        };
        Ok((id, file_type(kind)))
    }

    /// Writes the archive of [`write_tar`](Self::write_tar) into the file `to` of the host. The archive gets its name when it is whole, and a regular file of that name stays until then.
    /// Written where they are: a pipe, a device, an open file (`/dev/stdout`), a file with several names, somebody else's, and one in a directory that
    /// takes no new name from this user.
    ///
    /// # Errors
    /// As [`write_tar`](Self::write_tar), and the host's; `AlreadyExists` for an image, without [`TarOptions::replace_images`].
    pub fn write_tar_file(
        &self,
        members: &[TarMember],
        to: &Path,
        options: TarOptions,
        note: &dyn Fn(&str),
        progress: &dyn Progress,
    ) -> Result<()> {
        write_whole_file(to, options.replace_images, progress, &|file| {
            let out = BufWriter::with_capacity(BUFFER, file);
            self.write_tar(members, out, options, note, progress)
        })
    }

    /// Unpacks an archive, which may be packed with gzip or zstd, into the directory `to`. What has the name of a member is replaced,
    /// directories are merged. What becomes of one member says nothing of others: `failed` is told of those that cannot be made, or only in
    /// part.
    ///
    /// # Errors
    /// When the archive cannot be read on, or nothing more can be written; what came before is there.
    pub fn read_tar(
        &self,
        archive: impl Read,
        to: impl AsRef<Path>,
        failed: &dyn Fn(&[u8], &Error),
        progress: &dyn Progress,
    ) -> Result<()> {
        let failed = going_on(failed);
        let rules = Rules::default();
        let mut archive = Archive::new(packed::unpacked(Box::new(archive))?);
        self.extractor(to.as_ref(), &failed, progress, rules)?.run(&mut archive)
    }

    /// The same of a layer of a container image: members with names of whiteouts are no files, but say what of the directory is gone, as
    /// the image specification of OCI has it. They take away what was there before, whatever else the layer has of that name.
    /// Directories have the attributes that the layer says and no others, and what is no directory takes the place of one with all
    /// that is in it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, image) = (dir.path().join("layer.tar"), dir.path().join("disk.img"));
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::progress::NoProgress;
    /// use creamery::tar::{TarArchive, TarMember, TarOptions};
    /// # fs.create_dir("/layer")?;
    /// fs.write("/layer/.wh.old", "")?;
    /// let members = [TarMember::new("/layer", "")];
    /// fs.write_tar(&members, std::fs::File::create(&path)?, TarOptions::default(), &|_| {}, &NoProgress)?;
    /// let layer = TarArchive::new(std::fs::File::open(&path)?, &path, dir.path())?;
    /// fs.create_dir_all("/rootfs/old/and/all/below")?;
    /// fs.read_tar_layer(&layer, "/rootfs", &|_, error| panic!("{error}"), &NoProgress)?;
    /// assert!(fs.read_dir("/rootfs")?.next().is_none());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`read_tar`](Self::read_tar). A whiteout of what is not there is none.
    pub fn read_tar_layer(
        &self,
        layer: &TarArchive,
        to: impl AsRef<Path>,
        failed: &dyn Fn(&[u8], &Error),
        progress: &dyn Progress,
    ) -> Result<()> {
        let failed = going_on(failed);
        let rules = Rules { is_layer: true, ..Rules::default() };
        self.extractor(to.as_ref(), &failed, progress, rules)?.add(layer)
    }

    fn extractor<'a>(
        &'a self,
        to: &Path,
        failed: &'a dyn Fn(&[u8], Error) -> Result<()>,
        progress: &'a dyn Progress,
        rules: Rules,
    ) -> Result<Extractor<'a>> {
        let root = self.resolve(to, Last::Follow)?;
        if !self.metadata(to)?.is_dir() {
            return Err(at(to)(ErrorKind::NotADirectory.into()));
        }
        Ok(Extractor { to: self, root, progress, failed, rules, gives_way: BTreeSet::new() })
    }
}

/// Tells `failed` of what cannot be made, with which nothing ends.
fn going_on<'a>(failed: &'a dyn Fn(&[u8], &Error)) -> impl Fn(&[u8], Error) -> Result<()> + 'a {
    move |name, error| {
        failed(name, &error);
        Ok(())
    }
}

/// The directory that a name is in, and its last component.
fn split(name: &Path) -> (Vec<u8>, &[u8]) {
    let bytes = name.as_os_str().as_encoded_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    match &bytes[start..end] {
        b"" => (Vec::new(), b"."),
        last => (bytes[..start].to_vec(), last),
    }
}
