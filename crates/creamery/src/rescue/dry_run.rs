//! A sink that makes nothing, for a dry run.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use creamery_base::Result;

use crate::salvage::Data;
use crate::sink::{Sink, Source};

/// A sink that makes nothing.
pub(super) struct DryRun {
    /// Whether the copy would replace existing files.
    pub(super) replaces: bool,
}

impl DryRun {
    fn path(parent: &Path, name: &[u8]) -> PathBuf {
        parent.join(OsStr::from_bytes(name))
    }
}

impl Sink for DryRun {
    /// The path that the directory would have on the host.
    type Dir = PathBuf;

    fn keeps(&self, parent: &PathBuf, name: &[u8]) -> Result<bool> {
        Ok(!self.replaces && Self::path(parent, name).symlink_metadata().is_ok())
    }

    fn enter(&mut self, parent: &PathBuf, name: &[u8], _: &Source) -> Result<PathBuf> {
        Ok(Self::path(parent, name))
    }

    fn leave(&mut self, _: PathBuf, _: &Source) -> Result<()> {
        Ok(())
    }

    fn file(&mut self, _: &PathBuf, _: &[u8], _: &Source, _: &Data<'_>) -> Result<()> {
        Ok(())
    }

    fn node(&mut self, _: &PathBuf, _: &[u8], _: &Source) -> Result<()> {
        Ok(())
    }

    fn link(&mut self, _: &PathBuf, _: &[u8], _: &Source) -> Result<bool> {
        Ok(true)
    }
}
