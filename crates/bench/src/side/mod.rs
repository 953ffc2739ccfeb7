//! The two sides: the library on an image, and the system on a mounted directory.

mod directory;
mod library;

use std::path::Path;

use anyhow::Result;
use creamery::statistics::Statistics;

pub(crate) use directory::Directory;
pub(crate) use library::{Library, Setting};

/// What a workload does to a filesystem. Paths are relative to its root.
pub(crate) trait Side: Sync {
    /// A directory.
    fn make_dir(&self, path: &str) -> Result<()>;
    /// An empty file, opened and closed.
    fn create(&self, path: &str) -> Result<()>;
    /// The inode number of what has the name.
    fn stat(&self, path: &str) -> Result<u64>;
    /// How many names a directory has.
    fn list(&self, path: &str) -> Result<usize>;
    /// Another name for the same.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Other permissions.
    fn change_mode(&self, path: &str, mode: u32) -> Result<()>;
    /// Times of now.
    fn touch(&self, path: &str) -> Result<()>;
    /// Room for data.
    fn free_bytes(&self) -> Result<u64>;
    /// The end of a file's name.
    fn unlink(&self, path: &str) -> Result<()>;
    /// A file with its content.
    fn open(&self, path: &str, how: How) -> Result<Box<dyn Content>>;
    /// Copies a directory of the host with all attributes; `path` is made.
    fn copy_in(&self, host: &Path, path: &str) -> Result<()>;
    /// The other way; `host` is made.
    fn copy_out(&self, path: &str, host: &Path) -> Result<()>;
    /// Asks for the attributes of everything below a directory; gives back how many regular files there are.
    fn walk(&self, path: &str) -> Result<usize>;
    /// The end of a directory with all that is in it.
    fn remove_tree(&self, path: &str) -> Result<()>;
    /// A new file that shares all data with another one.
    fn clone_file(&self, from: &str, to: &str) -> Result<()>;
    /// A copy of a directory in the filesystem that shares what can be shared.
    fn copy_within(&self, from: &str, to: &str) -> Result<()>;
    /// A subvolume.
    fn make_subvolume(&self, path: &str) -> Result<()>;
    /// A snapshot of a subvolume, at the top; durable.
    fn snapshot(&self, source: &str, path: &str) -> Result<()>;
    /// The end of a subvolume at the top.
    fn delete_subvolume(&self, path: &str) -> Result<()>;
    /// Everything durable, and those that were deleted begin to be dropped.
    fn begin_dropping(&self) -> Result<()>;
    /// Nothing is left of those that were deleted.
    fn sync_subvolumes(&self) -> Result<()>;
    /// Whether something is left of one.
    fn is_dropping(&self) -> Result<bool>;
    /// Everything durable.
    fn sync(&self) -> Result<()>;
    /// Processes beside this one that do the work.
    fn servers(&self) -> &[u32];
    /// What it counted, if it counts.
    fn statistics(&self) -> Option<Statistics>;
    /// The end of the work.
    fn close(self: Box<Self>) -> Result<()>;
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// A new one, for writing.
    New,
    /// One that exists, for writing.
    Write,
    /// One that exists, for reading.
    Read,
    /// For both, made or made empty before.
    Load { create: bool, truncate: bool },
}

/// An open file.
pub(crate) trait Content: Send + Sync {
    /// Fills `out` from `offset` on; that there is less is an error.
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<()>;
    /// Reads what there is from `offset` on, `out` at most.
    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize>;
    /// Bytes of the file.
    fn len(&self) -> Result<u64>;
    /// Writes all of `data`.
    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Where the next data begins, at `offset` or behind it, if there is any.
    fn seek_data(&self, offset: u64) -> Result<Option<u64>>;
    /// Where the next hole begins; the end of the file is one.
    fn seek_hole(&self, offset: u64) -> Result<Option<u64>>;
    /// Whether its first bytes are in memory only, where that is told of a file.
    fn is_delayed(&self) -> Result<Option<bool>>;
    /// What was written is durable.
    fn sync(&self) -> Result<()>;
}
