//! Whether an existing image lies in its own source directory.
//!
//! Such an image cannot be copied into itself, and when the walk that fills the filesystem meets it, its former filesystem is gone. So the
//! source is searched before the first write. The image is recognised by device and inode, regardless of the name that leads to it: through
//! a symbolic link, a hard link, a bind mount or a loop device.

use std::ffi::CStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use creamery_base::{Error, Result};
use creamery_device::{ImageName, backing_files};
use rustix::fs::FileType;

use super::source::{Meta, SourceDir, at_path, join};
use super::walk::{Visitor, WalkStop, walk};

/// Looks for the image by its device and inode.
struct Search {
    /// The image, and the files behind it if it is a loop device.
    wanted: Vec<(u64, u64)>,
    found: Option<Vec<u8>>,
}

impl Visitor for Search {
    fn enter(&mut self, _: &[u8], _: &SourceDir, _: Meta) -> Result<(), WalkStop> {
        Ok(())
    }

    fn leave(&mut self) -> Result<(), WalkStop> {
        Ok(())
    }

    fn file(&mut self, name: &CStr, _: FileType, dir: &Arc<SourceDir>) -> Result<(), WalkStop> {
        let path = join(&dir.path, name.to_bytes());
        let meta = dir.stat(name).map_err(at_path(&path))?;
        if !self.wanted.contains(&(meta.dev, meta.ino)) {
            return Ok(());
        }
        self.found = Some(path);
        Err(WalkStop::Enough)
    }
}

/// Refuses an image in `source`. If the image does not exist, opening it gives the error.
pub(crate) fn refuse_in_source(image: &Path, source: &Path) -> Result<()> {
    let Ok(meta) = ImageName::metadata(image) else { return Ok(()) };
    let mut wanted = backing_files(&meta);
    wanted.push((meta.dev(), meta.ino()));
    let mut search = Search { wanted, found: None };
    match walk(SourceDir::root(source)?, &mut search) {
        Ok(()) | Err(WalkStop::Enough) => {}
        Err(WalkStop::Failed(error)) => return Err(error),
    }
    let Some(path) = search.found else { return Ok(()) };
    let (image, source) = (image.display(), source.display());
    let path = String::from_utf8_lossy(&path);
    Err(Error::invalid(format!(
        "{image}: the image lies in its source directory {source}, as {path}: put it elsewhere"
    )))
}
