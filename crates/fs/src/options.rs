//! How a filesystem is opened.

use crate::access_time::AtimeOptions;
use crate::compression::Compress;

/// What can be chosen when a filesystem is opened.
///
/// ```
/// let options = creamery_fs::FsOptions { inodes_cached: 1000, ..Default::default() };
/// # assert_eq!(options.inodes_cached, 1000);
/// ```
#[derive(Clone, Debug)]
pub struct FsOptions {
    /// About how many inodes stay in memory after their last use; each takes half a kilobyte.
    pub inodes_cached: usize,
    /// How many steps of the cleaner an operation takes on behalf of others at most
    /// ([`Filesystem::clean_step`](crate::Filesystem::clean_step)). Who has a thread for that may do without.
    pub cleaning_steps: usize,
    /// Bytes of file data that may be in memory only, all files together; 0 writes everything at once.
    pub delayed_bytes: u64,
    /// Bytes of submitted direct requests that may be in flight, all files together: a call that submits more waits. A single request
    /// may be larger.
    pub direct_bytes: u64,
    /// Every commit that is asked for or falls due has the data with it that was written before (Linux' `flushoncommit`).
    pub flush_on_commit: bool,
    /// New files are overwritten in place and have no checksums, as those in a directory that says so (Linux' `nodatacow`).
    pub nodatacow: bool,
    /// What new data is compressed with, where the file does not say otherwise (Linux' `compress` and `compress-force`).
    pub compress: Option<Compress>,
    /// The largest file that is kept in the tree itself, bytes; compressed ones count as what they are packed in (Linux' `max_inline`).
    pub max_inline: u64,
    /// Who looks whether data may be written in place keeps the file's leaf locked until he knows, as it once was: to see what
    /// that costs others.
    pub nocow_keeps_leaf: bool,
    /// A direct write that must not wait looks into trees as any other one, and so may wait for tree blocks there, as on Linux: to see what
    /// that costs others.
    pub direct_waits: bool,
    /// A submitted direct request ends on the thread of the device that answers it, where that waits for nothing; switched off, to see what
    /// that saves.
    pub direct_ends_at_once: bool,
    /// An open file remembers where the last search for data or a hole ended; switched off, to see what that saves.
    pub seek_cursors: bool,
    /// Which accesses, of those that are told ([`Filesystem::accessed`](crate::Filesystem::accessed)), move access times.
    pub atime: AtimeOptions,
}

impl Default for FsOptions {
    fn default() -> Self {
        Self {
            inodes_cached: 16 * 1024,
            cleaning_steps: 1,
            delayed_bytes: 256 << 20,
            direct_bytes: 256 << 20,
            flush_on_commit: false,
            nodatacow: false,
            compress: None,
            max_inline: 2048,
            nocow_keeps_leaf: false,
            direct_waits: false,
            direct_ends_at_once: true,
            seek_cursors: true,
            atime: AtimeOptions::default(),
        }
    }
}
