//! Copying trees: from the host, to the host, between images.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};
use creamery_device::ImageName;
use creamery_mkfs::{CopyIn, Progress, copy_in};

use crate::copy_out::{HostDir, HostSink};
use crate::fs::{self, NewInode};
use crate::host_path::HostPath;
use crate::image_sink::ImageSink;
use crate::metadata::file_type;
use crate::path::{Last, at, means_directory, resolve_parent_of_target};
use crate::progress::OnError;
use crate::salvage::for_each_piece;
use crate::selection::Selection;
use crate::sink::{Driver, KeptAttributes};
use crate::{File, Filesystem, OpenOptions};

pub use crate::copy_options::{CopyOptions, Reflink};
pub use crate::copying::Copying;
pub use crate::moving::NameOptions;

/// Bytes of one read from a stream.
const STREAM_PIECE: usize = 1 << 20;

/// Whether a path means the content of a directory and not the directory: `dir/.`.
fn means_content(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes == b"." || bytes.ends_with(b"/.") || path.file_name().is_none()
}

fn refuse_directory() -> Error {
    Error::new(ErrorKind::IsADirectory, "omitted")
}

/// Rejects a destination of a file whose path is spelled like that of a directory (`dir/`, `dir/.`), where there is no directory.
pub(crate) fn refuse_file_as_directory(to: &Path) -> Result<()> {
    if !means_directory(to) && !means_content(to) {
        return Ok(());
    }
    let what = format!("{} ends with a slash, but is not a directory", to.display());
    Err(Error::new(ErrorKind::NotADirectory, what))
}

/// Whether a file's size may be only a guess: it is 0 in /proc, and a page in /sys.
fn is_made_up(meta: &std::fs::Metadata) -> bool {
    meta.blocks() == 0 && meta.len() <= STREAM_PIECE as u64
}

/// Refuses to share data with another filesystem.
fn refuse_sharing(options: CopyOptions, from: &Path) -> Result<()> {
    if options.reflink != Reflink::Always {
        return Ok(());
    }
    Err(at(from)(Error::new(ErrorKind::CrossDevice, "cannot reflink between filesystems")))
}

/// Rejects a name on the host that means a partition of an existing file.
pub(crate) fn refuse_part(to: &Path) -> Result<()> {
    ImageName::refuse_part(to).map_err(|error| error.on_host(to))
}

/// A destination in an image: a directory, and the name there.
struct Destination {
    dir: InodeId,
    name: Option<Vec<u8>>,
}

impl Filesystem {
    /// Where a copy of `name` to `to` goes: into `to`, if that is a directory.
    fn destination(&self, to: &Path, name: Option<&[u8]>, directory: bool) -> Result<Destination> {
        match self.metadata(to) {
            Ok(meta) if meta.is_dir() => {
                let dir = self.resolve(to, Last::Follow)?;
                name.map_or(Ok(()), |name| self.refuse_name_of_top_level(dir, name).map_err(at(to)))?;
                return Ok(Destination { dir, name: name.map(<[u8]>::to_vec) });
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if directory {
            let (dir, name) = self.resolve_parent_to_make(to)?;
            return Ok(Destination { dir, name: Some(name.to_vec()) });
        }
        refuse_file_as_directory(to)?;
        let (dir, name) = resolve_parent_of_target(&self.fs, self.root, to)?;
        // As on the host: another user may have made the link.
        if self.symlink_metadata(to).is_ok() && self.fs.lookup(dir, &name, Wait::Yes).is_err() {
            return Err(at(to)(Error::new(ErrorKind::NotFound, "is a dangling symbolic link")));
        }
        self.refuse_name_of_top_level(dir, &name).map_err(at(to))?;
        Ok(Destination { dir, name: Some(name) })
    }

    /// Copies the content and the permissions of a file, as [`std::fs::copy`] does; returns the number of bytes. Holes stay holes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// assert_eq!(fs.copy("/file", "/copy")?, 4);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When `from` cannot be read or `to` cannot be written.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open(from.as_ref())?;
        let meta = source.metadata()?;
        let target = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(meta.permissions().mode())
            .open(self, to.as_ref())?;
        copy_data(&source, &target).map_err(at(to.as_ref()))?;
        self.set_permissions(to, meta.permissions())?;
        Ok(meta.len())
    }

    pub(crate) fn copy_in_with(
        &self,
        source: &Path,
        to: &Path,
        options: CopyOptions,
        progress: &dyn Progress,
    ) -> Result<()> {
        refuse_sharing(options, source)?;
        let host = |error: std::io::Error| Error::from(error).on_host(source);
        let recursive = options.recursive || options.archive;
        // The links of /proc to pipes have no path as target.
        if !recursive && std::fs::metadata(source).is_ok_and(|meta| meta.file_type().is_fifo()) {
            return self.copy_in_what_it_gives(source, to, progress);
        }
        // Without recursion a link stands for its target.
        let followed = if recursive { None } else { Some(std::fs::canonicalize(source).map_err(host)?) };
        let from = followed.as_deref().unwrap_or(source);
        let meta = std::fs::symlink_metadata(from).map_err(host)?;
        if !recursive && !meta.is_dir() && (!meta.is_file() || !options.keeps_all() && is_made_up(&meta)) {
            return self.copy_in_what_it_gives(source, to, progress);
        }
        if meta.is_dir() && !recursive {
            return Err(refuse_directory().on_host(source));
        }
        let name = match source.file_name() {
            Some(name) if !means_content(source) => Some(name.as_bytes()),
            _ => None,
        };
        let Destination { dir, name } = self.destination(to, name, meta.is_dir())?;
        let name = name.as_deref();
        if name.is_none() {
            let names = std::fs::read_dir(from).map_err(host)?;
            self.refuse_names_of_top_level(dir, names.flatten().map(|entry| entry.file_name()))
                .map_err(at(to))?;
        }
        let (archive, on_error) = (options.keeps_all(), options.on_error);
        let copy = CopyIn { source: from, dir, name, archive, on_error, image: self.image };
        copy_in(&self.fs, &copy, progress)
    }

    /// Copies the output of a pipe or a device of the host, like cp(1) without `-r`.
    fn copy_in_what_it_gives(&self, source: &Path, to: &Path, progress: &dyn Progress) -> Result<()> {
        let host = |error: std::io::Error| Error::from(error).on_host(source);
        let name = source.file_name().map(OsStrExt::as_bytes);
        let Destination { dir, name } = self.destination(to, name, false)?;
        let name = name.ok_or_else(|| host(std::io::ErrorKind::IsADirectory.into()))?;
        let file = std::fs::File::open(source).map_err(host)?;
        let meta = file.metadata().map_err(host)?;
        let new = NewInode::file(meta.mode() & 0o777);
        let make = |name: &[u8]| self.fs.create(dir, name, &new);
        let (made, replacing) = self.fs.make_or_replace(dir, &name, 0, make).map_err(at(to))?;
        replacing.begin_as_the_old(made.id).map_err(at(to))?;
        let open = self.fs.open_file(made.id).map_err(at(to))?;
        let target = File::for_writing(self.near(), open);
        fill(file, &target, |error| Error::from(error).on_host(source), || progress.go_on())
            .map_err(at(to))?;
        replacing.finish_as_the_old(made.id).map_err(at(to))
    }

    /// Replaces the content of the file at `to` with everything that `source` returns. Creates the file if it does not exist; an existing
    /// one keeps its other attributes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::options().write().open(&image)?;
    /// fs.copy_in_stream(&b"from a pipe"[..], "/text")?;
    /// assert_eq!(fs.read("/text")?, b"from a pipe");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When `to` is a directory or cannot be written; when `source` cannot be read. The file then has the data before the error.
    pub fn copy_in_stream(&self, source: impl std::io::Read, to: impl AsRef<Path>) -> Result<()> {
        let to = to.as_ref();
        let target = OpenOptions::new().write(true).create(true).truncate(true).open(self, to)?;
        let reading = |error| Error::from(error).on_host(Path::new("reading what is copied"));
        fill(source, &target, reading, || Ok(())).map_err(at(to))
    }

    /// Copies the entries that `selection` selects. With `keeps_what_is_there` a file of the host stays, and [`Progress::skipped`] is
    /// called.
    pub(crate) fn copy_out_selected(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
        selection: Option<&Selection>,
        keeps_what_is_there: bool,
        progress: &dyn Progress,
    ) -> Result<()> {
        refuse_sharing(options, from)?;
        if to.as_os_str().is_empty() {
            return Err(Error::new(ErrorKind::NotFound, "empty destination path"));
        }
        let (id, kind) = self.copy_source(from, options)?;
        let directory = kind == fs::FileType::Directory;
        let into = std::fs::metadata(to).is_ok_and(|meta| meta.is_dir());
        if !into {
            if !directory {
                refuse_file_as_directory(to)?;
            }
            refuse_part(to)?;
        }
        let driver = Driver { selection, ..self.driver(options, progress) };
        let keeps = KeptAttributes::all(options.keeps_all());
        let sink = |(sink, dir): (HostSink, HostDir)| {
            let sink = sink.replacing_by_force(options.replace_images);
            (if keeps_what_is_there { sink.keeping_what_is_there() } else { sink }, dir)
        };
        let file_name = from.file_name().filter(|_| !means_content(from));
        // SINK-2: a name in a directory that the user named stands for the file that has it, and never for another path.
        if kind == fs::FileType::File && !into {
            let place = HostPath::find(to)?;
            let name = place.name().as_bytes().to_vec();
            let (mut sink, dir) = sink(HostSink::at_place(place, keeps)?);
            return driver.copy(&mut sink, id, file_type(kind), dir, Some(&name), from);
        }
        let (parent, name) = match into {
            true => (to, file_name),
            false => {
                let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
                (parent.unwrap_or(Path::new(".")), to.file_name())
            }
        };
        if name.is_none() && !directory {
            return Err(Error::new(ErrorKind::NotADirectory, from.display().to_string()));
        }
        let (mut sink, dir) = sink(HostSink::open(parent, keeps)?);
        driver.copy(&mut sink, id, file_type(kind), dir, name.map(OsStrExt::as_bytes), from)
    }

    pub(crate) fn copy_between_with(
        &self,
        from: &Path,
        other: &Self,
        to: &Path,
        options: CopyOptions,
        progress: &dyn Progress,
    ) -> Result<()> {
        let (id, kind) = self.copy_source(from, options)?;
        let directory = kind == fs::FileType::Directory;
        let name = if means_content(from) { None } else { from.file_name().map(OsStrExt::as_bytes) };
        let Destination { dir, name } = other.destination(to, name, directory)?;
        if name.is_none() && !directory {
            return Err(Error::new(ErrorKind::NotADirectory, from.display().to_string()));
        }
        if name.is_none() {
            let names = self.read_dir(from).into_iter().flatten().flatten();
            let names = names.map(|entry| entry.file_name().to_owned());
            other.refuse_names_of_top_level(dir, names).map_err(at(to))?;
        }
        if std::sync::Arc::ptr_eq(&self.fs, &other.fs) {
            if directory {
                self.refuse_into_itself(id, dir).map_err(at(from))?;
            } else {
                self.refuse_onto_itself(id, to, dir, name.as_deref()).map_err(at(from))?;
            }
        }
        let shares = std::sync::Arc::ptr_eq(&self.fs, &other.fs);
        if !shares {
            refuse_sharing(options, from)?;
        }
        let reflink = if shares { options.reflink } else { Reflink::Never };
        let (to, archive) = (&*other.fs, options.keeps_all());
        let mut sink = ImageSink::new(to, archive, reflink);
        self.driver(options, progress).copy(&mut sink, id, file_type(kind), dir, name.as_deref(), from)
    }

    /// Rejects a copy of a file onto itself, by any of its names: it would replace its own source.
    fn refuse_onto_itself(
        &self,
        source: InodeId,
        to: &Path,
        dir: InodeId,
        name: Option<&[u8]>,
    ) -> Result<()> {
        let there = name.and_then(|name| self.fs.lookup(dir, name, Wait::Yes).ok());
        let led_to = self.resolve(to, Last::Follow).ok();
        if there == Some(source) || led_to == Some(source) {
            return Err(Error::invalid(format!("same file as {}", to.display())));
        }
        Ok(())
    }

    /// Rejects a copy of a directory into itself, which would never end. Damage may make the way up a circle; the check ends there, too.
    fn refuse_into_itself(&self, source: InodeId, mut into: InodeId) -> Result<()> {
        let mut seen = HashSet::new();
        loop {
            if !seen.insert(into) {
                return Err(Error::new(ErrorKind::Corrupt, "directory loop"));
            }
            if into == source {
                return Err(Error::invalid("a directory cannot be copied into itself"));
            }
            let above = self.fs.parent(into, Wait::Yes)?;
            if above == into {
                return Ok(());
            }
            into = above;
        }
    }

    /// The inode to copy, and its type.
    fn copy_source(&self, from: &Path, options: CopyOptions) -> Result<(InodeId, fs::FileType)> {
        let recursive = options.recursive || options.archive;
        let last = if recursive { Last::Keep } else { Last::Follow };
        let (id, led_to) = match options.on_error == OnError::PastDamage {
            true => self.resolve_past_damage(from, last).map(|(id, kind)| (id, Some(kind)))?,
            false => (self.resolve(from, last)?, None),
        };
        let kind = match self.fs.stat(id, Wait::Yes) {
            // Of a directory with a lost inode only the attributes are lost.
            Err(_) if led_to == Some(fs::FileType::Directory) => fs::FileType::Directory,
            found => found.map_err(at(from))?.kind,
        };
        if kind == fs::FileType::Directory && !recursive {
            return Err(at(from)(refuse_directory()));
        }
        Ok((id, kind))
    }

    const fn driver<'a>(&'a self, options: CopyOptions, progress: &'a dyn Progress) -> Driver<'a> {
        let (keeps, on_error) = (KeptAttributes::all(options.keeps_all()), options.on_error);
        Driver { from: self, keeps, on_error, selection: None, progress }
    }
}

/// Copies everything that `source` returns to the empty file `target`.
fn fill(
    mut source: impl std::io::Read,
    target: &File,
    reading: impl Fn(std::io::Error) -> Error,
    go_on: impl Fn() -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; STREAM_PIECE];
    let mut at = 0;
    loop {
        // A pipe returns little at a time, and extents should be long.
        let (mut count, mut failed) = (0, None);
        while count < buffer.len() {
            match source.read(&mut buffer[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    failed = Some(reading(error));
                    break;
                }
            }
        }
        go_on()?;
        target.write_all_at(&buffer[..count], at)?;
        at += count as u64;
        match failed {
            Some(error) => return Err(error),
            None if count == 0 => return Ok(()),
            None => {}
        }
    }
}

/// Copies data and holes of `source` to the empty file `target`.
fn copy_data(source: &File, target: &File) -> Result<()> {
    let len = source.metadata()?.len();
    for_each_piece(source, len, |at, bytes| target.write_all_at(bytes, at))?;
    if target.metadata()?.len() < len { target.set_len(len) } else { Ok(()) }
}
