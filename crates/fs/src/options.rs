//! The options of opening a filesystem.

use crate::access_time::AtimeOptions;
use crate::compression::Compress;

/// The options that a caller chooses when it opens a filesystem.
///
/// ```
/// let options = creamery_fs::FsOptions { inodes_cached: 1000, ..Default::default() };
/// # assert_eq!(options.inodes_cached, 1000);
/// ```
#[derive(Clone, Debug)]
pub struct FsOptions {
    /// About how many inodes stay in memory after their last use; each takes half a kilobyte.
    pub inodes_cached: usize,
    /// The largest number of cleaner steps that an operation takes for others ([`Filesystem::clean_step`](crate::Filesystem::clean_step)). 0 suits a caller that has
    /// a thread for that.
    pub cleaning_steps: usize,
    /// Bytes of file data that may be in memory only, all files together; 0 writes everything at once.
    pub delayed_bytes: u64,
    /// Bytes of submitted direct requests that may be in flight, all files together: a call that submits more waits. A single request
    /// may be larger.
    pub direct_bytes: u64,
    /// Every requested or due commit first writes the delayed data from before it (Linux' `flushoncommit`).
    pub flush_on_commit: bool,
    /// New files are overwritten in place and have no checksums, like files in a directory with that flag (Linux' `nodatacow`).
    pub nodatacow: bool,
    /// The compression of new data, unless the file's flags or property differ (Linux' `compress` and `compress-force`).
    pub compress: Option<Compress>,
    /// The largest inline file, which the tree itself keeps, bytes; a compressed file counts with its compressed length (Linux' `max_inline`).
    pub max_inline: u64,
    /// A check whether data may be written in place keeps the file's leaf locked until its end, as in older versions. This measures the cost for other threads.
    pub nocow_keeps_leaf: bool,
    /// A direct write that must not wait reads trees like any other write, and so may wait for tree blocks, as on Linux. This measures the cost for other threads.
    pub direct_waits: bool,
    /// A submitted direct request ends on the device thread that answers it, if that needs no wait. Switching it off measures the savings.
    pub direct_ends_at_once: bool,
    /// An open file remembers where the last search for data or a hole ended. Switching it off measures the savings.
    pub seek_cursors: bool,
    /// The reported accesses ([`Filesystem::accessed`](crate::Filesystem::accessed)) that move access times.
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
