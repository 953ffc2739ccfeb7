//! Files of the host that cannot be opened as an image while they are written or replaced.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use creamery_base::{Error, Result};
use creamery_device::hold_unused;
use rustix::io::Errno;

/// A shorter file holds no superblock, bytes.
pub(super) const SMALLEST_IMAGE: u64 = 65536 + 4096;

/// A file that a copy replaces. It cannot be opened as an image meanwhile.
#[derive(Debug)]
pub(crate) struct HeldFile {
    _file: File,
    /// The file behind a loop device.
    _behind: Option<File>,
}

impl HeldFile {
    /// Locks an open file that may be an image, if it is long enough for one; `path` is its name.
    ///
    /// # Errors
    /// `Busy`: another process has it open as an image.
    pub(super) fn take(file: File, path: &Path) -> Result<Option<Self>> {
        if file.metadata()?.len() < SMALLEST_IMAGE {
            return Ok(None);
        }
        let behind = hold_unused(&file, path)?;
        Ok(Some(Self { _file: file, _behind: behind }))
    }
}

/// A file of the host that is written in place. It cannot be opened as an image meanwhile, if it was long enough for one.
#[derive(Debug)]
pub(crate) struct InPlace {
    file: File,
    /// The file behind a loop device.
    _behind: Option<File>,
    is_disk: bool,
}

impl InPlace {
    /// Locks an open file that may be an image (HOSTPATH-3); `path` is its name.
    ///
    /// # Errors
    /// `Busy`: another process has it open as an image.
    pub(crate) fn hold(file: File, path: &Path) -> Result<Self> {
        let failed = |error: std::io::Error| Error::from(error).on_host(path);
        let meta = file.metadata().map_err(failed)?;
        let is_disk = meta.file_type().is_block_device();
        let behind = match is_disk || meta.is_file() && meta.len() >= SMALLEST_IMAGE {
            true => hold_unused(&file, path)?,
            false => None,
        };
        Ok(Self { file, _behind: behind, is_disk })
    }

    /// The open file.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Truncates the file to length 0, if it can be truncated. False if the file is a stream.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn cut(&self) -> std::io::Result<bool> {
        let is_file = self.file.metadata()?.is_file();
        if is_file {
            self.file.set_len(0)?;
        }
        Ok(is_file)
    }

    /// Ends the writing. A file or disk is durable then, like a file that takes a name.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn finish(&self) -> std::io::Result<()> {
        if !self.is_disk && !self.file.metadata()?.is_file() {
            return Ok(());
        }
        match self.file.sync_data() {
            // A file of /proc or /sys, which has no disk.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(()),
            outcome => outcome,
        }
    }
}
