//! Archives that are read more than once: to measure them, to find the whiteouts of a layer, and to unpack them.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use creamery_base::{Error, Result};
use creamery_device::NewFile;

use super::packed;
use super::read::Archive;

/// Only the owner may read data that came through a pipe.
const SPOOL_MODE: u32 = 0o600;

/// An archive that can be read repeatedly: a file, or the content of a stream in an unnamed file.
/// It may be compressed with gzip or zstd.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("layer.tar");
/// # std::fs::write(&path, [0; 1024])?;
/// use creamery::tar::TarArchive;
/// let file = std::fs::File::open(&path)?;
/// let layer = TarArchive::new(file, &path, dir.path())?;
/// assert_eq!(layer.name(), path);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Debug)]
pub struct TarArchive {
    name: PathBuf,
    bytes: Bytes,
    /// The offset in the file where the archive begins.
    start: u64,
}

#[derive(Debug)]
enum Bytes {
    OfHost(File),
    Spooled(NewFile),
    InMemory(Vec<u8>),
}

impl TarArchive {
    /// The archive in `file`, from its current position; messages call it `name`. A stream, like a pipe, can be read only once, so it is
    /// read to its end now, into an unnamed file in the directory `spool`.
    ///
    /// # Errors
    /// `file` is a directory; it cannot be read; there is no space for it.
    pub fn new(mut file: File, name: &Path, spool: &Path) -> Result<Self> {
        let on_host = |error: io::Error| Error::from(error).on_host(name);
        let kind = file.metadata().map_err(on_host)?.file_type();
        if kind.is_dir() {
            return Err(Error::invalid(format!("{} is a directory, expected an archive", name.display())));
        }
        let name = name.to_owned();
        if kind.is_file() || kind.is_block_device() {
            let start = file.stream_position().map_err(on_host)?;
            return Ok(Self { name, bytes: Bytes::OfHost(file), start });
        }
        let in_spool = |error: io::Error| Error::from(error).on_host(spool);
        let spooled = NewFile::beside(&spool.join("archive"), SPOOL_MODE).map_err(in_spool)?;
        io::copy(&mut file, &mut spooled.file()).map_err(|error| {
            Error::from(error).on_host(&spool.join(format!("what comes from {}", name.display())))
        })?;
        Ok(Self { name, bytes: Bytes::Spooled(spooled), start: 0 })
    }

    /// An archive in memory.
    #[must_use]
    pub fn in_memory(bytes: impl Into<Vec<u8>>, name: &Path) -> Self {
        Self { name: name.to_owned(), bytes: Bytes::InMemory(bytes.into()), start: 0 }
    }

    /// The name of the archive in messages.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// The file of the archive, if it is one that others may know, too.
    pub(super) const fn file(&self) -> Option<&File> {
        if let Bytes::OfHost(file) = &self.bytes { Some(file) } else { None }
    }

    /// The members, from the first on.
    pub(super) fn members(&self) -> Result<Archive<Box<dyn Read + '_>>> {
        let bytes: Box<dyn Read + '_> = match &self.bytes {
            Bytes::OfHost(file) => Box::new(FromStart { file, at: self.start }),
            Bytes::Spooled(new) => Box::new(FromStart { file: new.file(), at: self.start }),
            Bytes::InMemory(bytes) => Box::new(&bytes[..]),
        };
        Ok(Archive::new(packed::unpacked(bytes)?))
    }
}

/// Reads a file without changing its position.
struct FromStart<'f> {
    file: &'f File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(out, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
