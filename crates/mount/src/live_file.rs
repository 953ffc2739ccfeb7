//! A file on a live mount, opened to send controls to its server.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use creamery_base::{Error, ErrorKind, Result};
use rustix::fs::OFlags;

use crate::control::Channel;
use crate::table::is_ours;

/// A file on a live mount, opened for queries and orders. It keeps the mount busy.
///
/// ```no_run
/// use creamery_fs::FiemapRequest;
/// let file = creamery_mount::LiveFile::open("/mnt/disk".as_ref())?.expect("a mount of an image");
/// for extent in file.fiemap(&FiemapRequest::default())? {
///     let extent = extent?;
///     println!("{} bytes of {} at {}", extent.length, extent.logical, extent.physical);
/// }
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Debug)]
pub struct LiveFile {
    channel: Channel,
    file: File,
    len: u64,
    block_size: u64,
}

impl LiveFile {
    /// Opens the file at `path` for reading; `None` if it is not on a live mount of an image.
    /// Errors: those of opening it; it is not a regular file.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let failed = |error: std::io::Error| Error::from(error).context(path.display());
        check_regular(&std::fs::metadata(path).map_err(failed)?, path)?;
        // The open does not wait for the other end of a pipe that has taken the place.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        check_regular(&meta, path)?;
        // With another type in the mount table it may still be ours; the first query shows that.
        if is_ours(meta.dev())?.is_none() {
            return Ok(None);
        }
        Self::of(file, path).map(Some)
    }

    /// Makes it from an open file on a live mount of an image.
    pub(crate) fn of(file: File, path: &Path) -> Result<Self> {
        let meta = file.metadata()?;
        let channel = Channel::of(file.try_clone()?, path.to_owned());
        Ok(Self { channel, file, len: meta.len(), block_size: meta.blksize() })
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    pub(crate) const fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The size of the file when it was opened, bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "as of std::fs::Metadata")]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// The size of a block, bytes.
    #[must_use]
    pub const fn block_size(&self) -> u64 {
        self.block_size
    }
}

fn check_regular(meta: &std::fs::Metadata, path: &Path) -> Result<()> {
    match meta.file_type() {
        kind if kind.is_file() => Ok(()),
        kind if kind.is_dir() => Err(Error::new(ErrorKind::IsADirectory, path.display().to_string())),
        _ => Err(Error::invalid(format!("{}: not a regular file", path.display()))),
    }
}
