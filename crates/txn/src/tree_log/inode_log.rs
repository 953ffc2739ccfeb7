//! What is to be said of inodes when they are synced.

use creamery_base::{Logical, ObjectId};
use creamery_format::{Key, KeyType};

/// How much of an inode its log is told.
///
/// ```
/// use creamery_txn::LogScope;
/// let first_sector = LogScope::Extents { since: 7, ranges: vec![(0, 4096)] };
/// assert_ne!(first_sector, LogScope::All);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogScope {
    /// All that there is to say.
    All,
    /// Of extents only those in some parts of the file, in order. What the log has of the rest since it was put with `since` changes
    /// stays. No extent that it has is only in part in one of them.
    Extents {
        /// The inode's number of changes then.
        since: u64,
        /// Beginnings and ends.
        ranges: Vec<(u64, u64)>,
    },
    /// What a directory is and what it is called, nothing of what is in it: it is not synced itself.
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
    /// The directory that it is in.
    pub dir: ObjectId,
    /// The number of its entry there.
    pub index: u64,
    /// The name.
    pub name: Vec<u8>,
}

/// What is known of an inode when it is synced.
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
    /// Its number of changes: what was seen later has a greater one.
    pub sequence: u64,
    /// All items that its log is to have of what `scope` says, in order of their keys.
    pub items: Vec<(Key, Vec<u8>)>,
    /// What they are all of.
    pub scope: LogScope,
    /// Where its data lies that has checksums: address and bytes.
    pub data: Vec<(Logical, u64)>,
    /// All names that it has.
    pub links: Vec<LogLink>,
}

impl InodeLog {
    /// A log that has nothing of `ino` yet.
    #[must_use]
    pub const fn of(ino: ObjectId) -> Self {
        let scope = LogScope::All;
        Self { ino, sequence: 0, items: Vec::new(), scope, data: Vec::new(), links: Vec::new() }
    }

    /// The keys that the items are all of.
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

    /// Bytes that the items take.
    fn bytes(&self) -> u64 {
        self.items.iter().map(|(_, data)| (data.len() + creamery_format::ITEM_LEN) as u64).sum()
    }

    /// Leaves that its items and its checksums, of `csum` bytes each, may be in.
    fn leaves(&self, node: u64, sector: u64, csum: u64) -> u64 {
        let sectors: u64 = self.data.iter().map(|(_, len)| len.div_ceil(sector)).sum();
        let bytes = self.bytes() + sectors * csum;
        self.key_ranges().len() as u64 + bytes.div_ceil(node / 4) + self.data.len() as u64 / 8
    }
}

/// Inodes that go into the logs together: who is synced, and those without whom a replay would get his names wrong.
///
/// ```
/// use creamery_base::ObjectId;
/// use creamery_txn::{InodeLog, LogGroup};
/// let group = LogGroup { inodes: vec![InodeLog::of(ObjectId::new(257))], gone: Vec::new() };
/// assert!(group.tells_of(ObjectId::new(257)) && !group.tells_of(ObjectId::new(258)));
/// ```
#[derive(Clone, Default, Debug)]
pub struct LogGroup {
    /// What there is to say of each.
    pub inodes: Vec<InodeLog>,
    /// Those that have no name any more and get none again. The log may have something of them.
    pub gone: Vec<ObjectId>,
}

impl LogGroup {
    /// Whether it says something of an inode.
    #[must_use]
    pub fn tells_of(&self, ino: ObjectId) -> bool {
        self.gone.contains(&ino) || self.inodes.iter().any(|inode| inode.ino == ino)
    }

    /// How many inodes it says something of.
    pub(super) fn len(&self) -> usize {
        self.inodes.len() + self.gone.len()
    }

    /// Blocks that putting it copies or makes at most: the leaves, each split once, and `per_inode` for each inode.
    pub(crate) fn blocks(&self, per_inode: u64, node: u64, sector: u64, csum: u64) -> u64 {
        let leaves: u64 = self.inodes.iter().map(|inode| inode.leaves(node, sector, csum)).sum();
        self.len() as u64 * per_inode + 2 * leaves
    }
}
