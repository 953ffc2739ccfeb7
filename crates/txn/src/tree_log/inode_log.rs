//! The input of the logs: the items of inodes that are synced.

use creamery_base::{Logical, ObjectId};
use creamery_format::{Key, KeyType};

/// The part of an inode that its log contains.
///
/// ```
/// use creamery_txn::LogScope;
/// let first_sector = LogScope::Extents { since: 7, ranges: vec![(0, 4096)] };
/// assert_ne!(first_sector, LogScope::All);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogScope {
    /// The whole inode.
    All,
    /// Of extents only those in some parts of the file, in order. The log keeps the rest from its put with `since` changes.
    /// No extent in the log lies only partly in one of the ranges.
    Extents {
        /// The inode's number of changes then.
        since: u64,
        /// Starts and ends.
        ranges: Vec<(u64, u64)>,
    },
    /// A directory's inode and names, without its entries: it is not synced itself.
    Names,
}

/// A name of an inode.
///
/// ```
/// use creamery_base::ObjectId;
/// let link = creamery_txn::LogLink { dir: ObjectId::FIRST_FREE, index: 2, name: b"file".to_vec() };
/// assert_eq!(link.name, b"file");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LogLink {
    /// The directory that contains it.
    pub dir: ObjectId,
    /// The number of its entry there.
    pub index: u64,
    /// The name.
    pub name: Vec<u8>,
}

/// The state of an inode when it is synced.
///
/// ```
/// use creamery_base::ObjectId;
/// let log = creamery_txn::InodeLog { sequence: 7, ..creamery_txn::InodeLog::of(ObjectId::new(257)) };
/// assert!(log.items.is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct InodeLog {
    /// The inode.
    pub ino: ObjectId,
    /// Its number of changes: a later state has a greater one.
    pub sequence: u64,
    /// All items of `scope` for the log, in order of their keys.
    pub items: Vec<(Key, Vec<u8>)>,
    /// The part of the inode that the items cover.
    pub scope: LogScope,
    /// Location of its data that has checksums: address and bytes.
    pub data: Vec<(Logical, u64)>,
    /// All names of the inode.
    pub links: Vec<LogLink>,
}

impl InodeLog {
    /// Creates a log of `ino` without items.
    #[must_use]
    pub const fn of(ino: ObjectId) -> Self {
        let scope = LogScope::All;
        Self { ino, sequence: 0, items: Vec::new(), scope, data: Vec::new(), links: Vec::new() }
    }

    /// The key ranges that the items cover completely.
    pub(super) fn key_ranges(&self) -> Vec<(Key, Key)> {
        let at = |kind, offset| Key::new(self.ino, kind, offset);
        let before = |kind: KeyType| (at(KeyType::UNTYPED, 0), at(KeyType::new(kind.get() - 1), u64::MAX));
        match &self.scope {
            LogScope::All => vec![(at(KeyType::UNTYPED, 0), at(KeyType::new(u8::MAX), u64::MAX))],
            LogScope::Extents { ranges, .. } => {
                let extent = |offset| at(KeyType::EXTENT_DATA, offset);
                let mut all = vec![before(KeyType::EXTENT_DATA)];
                all.extend(ranges.iter().map(|(start, end)| (extent(*start), extent(end - 1))));
                all
            }
            LogScope::Names => vec![before(KeyType::DIR_LOG_ITEM)],
        }
    }

    /// Bytes of the items.
    fn bytes(&self) -> u64 {
        self.items.iter().map(|(_, data)| (data.len() + creamery_format::ITEM_LEN) as u64).sum()
    }

    /// Leaves that may contain its items and its checksums, of `csum` bytes each.
    fn leaves(&self, node: u64, sector: u64, csum: u64) -> u64 {
        let sectors: u64 = self.data.iter().map(|(_, len)| len.div_ceil(sector)).sum();
        let bytes = self.bytes() + sectors * csum;
        self.key_ranges().len() as u64 + bytes.div_ceil(node / 4) + self.data.len() as u64 / 8
    }
}

/// Inodes that go into the logs together: the synced one, and those without which a replay would get its names wrong.
///
/// ```
/// use creamery_base::ObjectId;
/// use creamery_txn::{InodeLog, LogGroup};
/// let group = LogGroup { inodes: vec![InodeLog::of(ObjectId::new(257))], gone: Vec::new() };
/// assert!(group.tells_of(ObjectId::new(257)) && !group.tells_of(ObjectId::new(258)));
/// ```
#[derive(Clone, Default, Debug)]
pub struct LogGroup {
    /// The log of each inode.
    pub inodes: Vec<InodeLog>,
    /// Inodes that have no name any more and get none again. The log may contain them.
    pub gone: Vec<ObjectId>,
}

impl LogGroup {
    /// Whether the group contains an inode.
    #[must_use]
    pub fn tells_of(&self, ino: ObjectId) -> bool {
        self.gone.contains(&ino) || self.inodes.iter().any(|inode| inode.ino == ino)
    }

    /// Number of inodes in the group.
    pub(super) fn len(&self) -> usize {
        self.inodes.len() + self.gone.len()
    }

    /// Blocks that putting it copies or makes at most: the leaves, each split once, and `per_inode` for each inode.
    pub(crate) fn blocks(&self, per_inode: u64, node: u64, sector: u64, csum: u64) -> u64 {
        let leaves: u64 = self.inodes.iter().map(|inode| inode.leaves(node, sector, csum)).sum();
        self.len() as u64 * per_inode + 2 * leaves
    }
}
