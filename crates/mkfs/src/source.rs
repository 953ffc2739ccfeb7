//! The source of a new filesystem's content, and the size it needs.
//!
//! The size is a guess: if it is too low, the caller tries again with more. It depends only on the content (not on how the host stores it),
//! because the place of every chunk follows from it, and equal content must give equal images.

use std::path::Path;
use std::sync::Arc;

use creamery_base::Result;
use creamery_codec::CompressionMethod;
use creamery_fs::Filesystem;

use crate::Progress;

/// The source that fills a new filesystem: a directory of the host ([`RootdirOptions`](crate::RootdirOptions)), or a reader of another
/// crate.
///
/// ```
/// use creamery_mkfs::{RootdirOptions, Source};
/// let source: &dyn Source = &RootdirOptions { shrink: true, ..RootdirOptions::new("./rootfs") };
/// assert!(source.shrink() && source.compress().is_none());
/// ```
pub trait Source {
    /// Whether the finished filesystem is cut to the size it needs.
    fn shrink(&self) -> bool;

    /// The compression for its files, used where it makes them shorter.
    fn compress(&self) -> Option<CompressionMethod>;

    /// Checks everything that can be checked without the target.
    ///
    /// # Errors
    /// A part of the source is missing, or the options contradict each other.
    fn check(&self) -> Result<()>;

    /// Refuses a target that is part of the source. A target that `is_new` has no name yet.
    ///
    /// # Errors
    /// The target is part of the source.
    fn check_target(&self, target: &Path, is_new: bool) -> Result<()>;

    /// Adds up the content, from sizes only.
    ///
    /// # Errors
    /// A part of the source cannot be read.
    fn measure(&self, measure: Measure) -> Result<Content>;

    /// Copies everything into an empty filesystem. `image` is the image file on the host: device and inode. A second call, with a larger
    /// filesystem, is possible.
    ///
    /// # Errors
    /// The first part that cannot be read or made.
    fn fill(&self, fs: &Arc<Filesystem>, image: Option<(u64, u64)>, progress: &dyn Progress) -> Result<()>;
}

/// The amount of content.
///
/// ```
/// assert_eq!(creamery_mkfs::Content::default().entries, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Content {
    /// Names, the root included.
    pub entries: u64,
    /// Bytes of file data in whole blocks, without holes.
    pub data: u64,
    /// Bytes of items in trees, roughly.
    pub metadata: u64,
    /// Bytes of data for which a filesystem needs space at least, unless it compresses them.
    pub least: u64,
}

/// Bytes of the items of one name: inode, reference, directory item and index with their heads, without the name itself.
const ENTRY_BYTES: u64 = (160 + 25) + (10 + 25) + (30 + 25) * 2;
/// A file extent item and its extent item with their heads.
const EXTENT_BYTES: u64 = (53 + 25) + (53 + 25);
/// The largest file that may be kept in its item, bytes.
const INLINE_MAX: u64 = 4096;
/// The longest extent in the estimate, bytes.
const EXTENT_MAX: u64 = 1 << 20;

/// Adds up the space that content needs in a filesystem.
///
/// ```
/// let mut measure = creamery_mkfs::Measure::new(4096, 4);
/// measure.entry(5);
/// measure.data(10_000);
/// assert_eq!((measure.content().entries, measure.content().data), (1, 12288));
/// ```
#[derive(Debug)]
pub struct Measure {
    content: Content,
    sector_size: u64,
    checksum_len: u64,
}

impl Measure {
    /// Begins with nothing. `sector_size` and `checksum_len` are in bytes.
    #[must_use]
    pub fn new(sector_size: u32, checksum_len: usize) -> Self {
        let checksum_len = checksum_len as u64;
        Self { content: Content::default(), sector_size: sector_size.into(), checksum_len }
    }

    /// Bytes of a block of data.
    #[must_use]
    pub const fn sector_size(&self) -> u64 {
        self.sector_size
    }

    /// Adds a name of `name_len` bytes, and its inode.
    pub const fn entry(&mut self, name_len: usize) {
        // The name is in three places.
        self.content.entries += 1;
        self.items(ENTRY_BYTES + 3 * name_len as u64);
    }

    /// Adds an extended attribute.
    pub const fn xattr(&mut self, name: &[u8], value: &[u8]) {
        self.items((30 + 25) + name.len() as u64 + value.len() as u64);
    }

    /// Adds data of a file without holes.
    pub fn data(&mut self, bytes: u64) {
        let sectors = bytes.div_ceil(self.sector_size);
        self.content.data = self.content.data.saturating_add(sectors.saturating_mul(self.sector_size));
        self.items(sectors.saturating_mul(self.checksum_len));
        self.items(bytes.div_ceil(EXTENT_MAX).max(1).saturating_mul(EXTENT_BYTES));
        if bytes <= INLINE_MAX {
            self.items(bytes);
        }
    }

    /// Adds data of a file without holes, too large to be kept in its item, that no later part of the source replaces.
    pub fn lasting_data(&mut self, bytes: u64) {
        self.data(bytes);
        self.content.least = self.content.least.saturating_add(bytes);
    }

    /// Adds other bytes of items, for example the target of a link.
    pub const fn items(&mut self, bytes: u64) {
        self.content.metadata = self.content.metadata.saturating_add(bytes);
    }

    /// The sum so far.
    #[must_use]
    pub const fn content(&self) -> Content {
        self.content
    }
}

impl Content {
    /// A size with room for the content: trees are not packed densely, and blocks that a transaction replaces are free only after its end.
    /// Data that small files keep in their items counts twice, which hardly matters in a sparse file.
    pub(crate) fn filesystem_size(&self, node_size: u32, data_copies: u64, metadata_copies: u64) -> u64 {
        const UNIT: u64 = 1 << 20;
        // An operation reserves for the worst case, in whole tree blocks.
        let spare = (u64::from(node_size) * 8192).max(64 << 20);
        let data = self.data.saturating_mul(data_copies);
        let metadata = self.metadata.saturating_mul(2).saturating_mul(metadata_copies);
        // Space is allocated in chunks of up to a tenth of the whole, in each of up to three kinds.
        let both = data.saturating_add(metadata);
        let size = both.saturating_add(both / 3).saturating_add(spare);
        size.checked_next_multiple_of(UNIT).unwrap_or(u64::MAX)
    }
}
