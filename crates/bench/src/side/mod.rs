//! The two sides: the library on an image, and the system on a mounted directory.

mod directory;
mod library;

use std::path::Path;

use anyhow::Result;
use creamery::statistics::Statistics;

pub(crate) use directory::Directory;
pub(crate) use library::{Library, OpenSetting};

/// The operations of a workload on a filesystem. Paths are relative to its root.
pub(crate) trait Side: Sync {
    /// Makes a directory.
    fn make_dir(&self, path: &str) -> Result<()>;
    /// Makes an empty file: opens and closes it.
    fn create(&self, path: &str) -> Result<()>;
    /// The inode number of a file.
    fn stat(&self, path: &str) -> Result<u64>;
    /// The number of names in a directory.
    fn list(&self, path: &str) -> Result<usize>;
    /// Renames a file.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Changes the permissions.
    fn change_mode(&self, path: &str, mode: u32) -> Result<()>;
    /// Sets the times to now.
    fn touch(&self, path: &str) -> Result<()>;
    /// Bytes available for data.
    fn free_bytes(&self) -> Result<u64>;
    /// Removes a file's name.
    fn unlink(&self, path: &str) -> Result<()>;
    /// Opens a file.
    fn open(&self, path: &str, how: How) -> Result<Box<dyn Content>>;
    /// Copies a directory of the host with all attributes; creates `path`.
    fn copy_in(&self, host: &Path, path: &str) -> Result<()>;
    /// Copies a directory to the host with all attributes; creates `host`.
    fn copy_out(&self, path: &str, host: &Path) -> Result<()>;
    /// Asks for the attributes of everything below a directory; returns the number of regular files.
    fn walk(&self, path: &str) -> Result<usize>;
    /// Removes a directory with its content.
    fn remove_tree(&self, path: &str) -> Result<()>;
    /// Makes a file that shares all data with another one.
    fn clone_file(&self, from: &str, to: &str) -> Result<()>;
    /// Copies a directory within the filesystem and shares data where possible.
    fn copy_within(&self, from: &str, to: &str) -> Result<()>;
    /// Makes a subvolume.
    fn make_subvolume(&self, path: &str) -> Result<()>;
    /// Makes a durable snapshot of a subvolume, at the top.
    fn snapshot(&self, source: &str, path: &str) -> Result<()>;
    /// Deletes a subvolume at the top.
    fn delete_subvolume(&self, path: &str) -> Result<()>;
    /// Makes everything durable, and starts dropping deleted subvolumes.
    fn begin_dropping(&self) -> Result<()>;
    /// Waits until all deleted subvolumes are dropped.
    fn sync_subvolumes(&self) -> Result<()>;
    /// Whether a deleted subvolume is not dropped yet.
    fn is_dropping(&self) -> Result<bool>;
    /// Makes everything durable.
    fn sync(&self) -> Result<()>;
    /// Other processes that do the work.
    fn servers(&self) -> &[u32];
    /// The counters of the side, if it has any.
    fn statistics(&self) -> Option<Statistics>;
    /// Ends the work.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The way to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// A new file, for writing.
    New,
    /// An existing file, for writing.
    Write,
    /// An existing file, for reading.
    Read,
    /// A file for both. `create` and `truncate` are those of open(2).
    Load { create: bool, truncate: bool },
}

/// An open file.
pub(crate) trait Content: Send + Sync {
    /// Fills `out` from `offset` on; an early end of file is an error.
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<()>;
    /// Reads up to the length of `out` from `offset` on.
    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize>;
    /// Bytes of the file.
    fn len(&self) -> Result<u64>;
    /// Writes all of `data`.
    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()>;
    /// The start of the next data at or behind `offset`, if there is any.
    fn seek_data(&self, offset: u64) -> Result<Option<u64>>;
    /// The start of the next hole; the end of the file is one.
    fn seek_hole(&self, offset: u64) -> Result<Option<u64>>;
    /// Whether its first bytes are in memory only, where a file reports that.
    fn is_delayed(&self) -> Result<Option<bool>>;
    /// Makes the file durable.
    fn sync(&self) -> Result<()>;
}
