//! One inode, from the neighbouring items under its number.
//!
//! The keys of an inode's own items, names, attributes and extents begin with its number, so these items are neighbours; a directory's
//! entries lie under the directory. One pass over them judges everything about one inode, without any table. A group may extend over
//! several leaves, and leaves may be digested out of order: [`Group::join`] joins two neighbouring parts.

use creamery_base::{ObjectId, TreeId};
use creamery_format::{FileType, InodeFlags, Key, KeyType, RawInodeItem};

use crate::hash;
use crate::problem::Problem;
use crate::report::{ProblemSite, Sink};

/// The rules by which all groups of a tree are judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupRules {
    pub(crate) tree: TreeId,
    pub(crate) generation: u64,
    pub(crate) sector_size: u64,
    pub(crate) no_holes: bool,
    /// Whether files of this tree need checksums.
    pub(crate) checksums: bool,
}

/// The judged fields of an inode item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeFacts {
    size: u64,
    nbytes: u64,
    links: u32,
    mode: u32,
    flags: InodeFlags,
    generation: u64,
    transid: u64,
}

impl From<&RawInodeItem> for InodeFacts {
    fn from(raw: &RawInodeItem) -> Self {
        Self {
            size: raw.size.get(),
            nbytes: raw.nbytes.get(),
            links: raw.nlink.get(),
            mode: raw.mode.get(),
            flags: raw.flags(),
            generation: raw.generation.get(),
            transid: raw.transid.get(),
        }
    }
}

impl InodeFacts {
    /// Whether it is a deleted directory. Linux removes its items one after the other, over several transactions.
    fn is_deleted_directory(&self) -> bool {
        self.links == 0 && FileType::from_mode(self.mode) == Some(FileType::Directory)
    }
}

/// A sequence of neighbouring extents of a file.
#[derive(Clone, Copy, Default, Debug)]
struct NeighbourExtents {
    count: u64,
    /// File offsets: `start` of the first extent, `end` behind the last one.
    start: u64,
    end: u64,
    bytes: u64,
    /// The first place at which an extent begins before the last has ended.
    overlap: Option<u64>,
    /// The first place between two extents that no item describes.
    gap: Option<u64>,
    without_sums: Option<u64>,
    with_sums: Option<u64>,
    packed_without_sums: Option<u64>,
    /// Whether an inline extent has a zero byte.
    has_zero: bool,
}

impl NeighbourExtents {
    fn join(self, next: Self) -> Self {
        if self.count == 0 || next.count == 0 {
            return if self.count == 0 { next } else { self };
        }
        let overlap = (next.start < self.end).then_some(next.start);
        let gap = (next.start > self.end).then_some(self.end);
        Self {
            count: self.count + next.count,
            start: self.start,
            end: self.end.max(next.end),
            bytes: self.bytes.wrapping_add(next.bytes),
            overlap: self.overlap.or(overlap).or(next.overlap),
            gap: self.gap.or(gap).or(next.gap),
            without_sums: self.without_sums.or(next.without_sums),
            with_sums: self.with_sums.or(next.with_sums),
            packed_without_sums: self.packed_without_sums.or(next.packed_without_sums),
            has_zero: self.has_zero || next.has_zero,
        }
    }
}

/// The items under one inode number, or a part of neighbouring ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) ino: u64,
    inode: Option<InodeFacts>,
    /// The number of the inode's names, from its refs.
    names: u32,
    /// The number of these that are the root directory's name in itself.
    own_names: u32,
    entries: u64,
    indexes: u64,
    name_bytes: u64,
    /// Sum over entries by name minus sum over entries by index.
    entry_sum: u64,
    /// Shares of the entries by index in the sums over links and types.
    links: u64,
    types: u64,
    extents: NeighbourExtents,
    /// Whether items may be missing, since a neighbouring leaf cannot be read.
    pub(crate) torn: bool,
}

/// One file extent item.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct FileExtentSlice {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) bytes: u64,
    pub(crate) without_sums: Option<u64>,
    pub(crate) with_sums: Option<u64>,
    /// Like `without_sums`, for compressed data.
    pub(crate) packed_without_sums: Option<u64>,
    /// Whether the inline data has a zero byte before its last byte; that one may be zero.
    pub(crate) has_zero: bool,
}

impl Group {
    pub(crate) const fn new(ino: u64) -> Self {
        let extents = NeighbourExtents {
            count: 0,
            start: 0,
            end: 0,
            bytes: 0,
            overlap: None,
            gap: None,
            without_sums: None,
            with_sums: None,
            packed_without_sums: None,
            has_zero: false,
        };
        Self {
            ino,
            inode: None,
            names: 0,
            own_names: 0,
            entries: 0,
            indexes: 0,
            name_bytes: 0,
            entry_sum: 0,
            links: 0,
            types: 0,
            extents,
            torn: false,
        }
    }

    pub(crate) fn set_inode(&mut self, raw: &RawInodeItem) {
        self.inode = Some(InodeFacts::from(raw));
    }

    pub(crate) fn add_name(&mut self, parent: u64) {
        self.names = self.names.saturating_add(1);
        self.own_names += u32::from(parent == self.ino);
    }

    pub(crate) fn add_entry(&mut self, entry_hash: u64, name_len: usize, by_index: bool) {
        self.name_bytes = self.name_bytes.wrapping_add(name_len as u64);
        if by_index {
            self.indexes += 1;
            self.entry_sum = self.entry_sum.wrapping_sub(entry_hash);
        } else {
            self.entries += 1;
            self.entry_sum = self.entry_sum.wrapping_add(entry_hash);
        }
    }

    /// Adds an entry by index that names inode `child`.
    pub(crate) fn add_link(&mut self, link_hash: u64, child: u64, kind: u8) {
        self.links = self.links.wrapping_add(link_hash);
        self.types = self.types.wrapping_add(type_hash(child, kind));
    }

    pub(crate) fn add_piece(&mut self, piece: &FileExtentSlice) {
        let next = NeighbourExtents {
            count: 1,
            start: piece.start,
            end: piece.end,
            bytes: piece.bytes,
            overlap: None,
            gap: None,
            without_sums: piece.without_sums,
            with_sums: piece.with_sums,
            packed_without_sums: piece.packed_without_sums,
            has_zero: piece.has_zero,
        };
        self.extents = self.extents.join(next);
    }

    /// Joins this part and the next one of the same inode.
    pub(crate) fn join(self, next: Self) -> Self {
        Self {
            ino: self.ino,
            inode: self.inode.or(next.inode),
            names: self.names.saturating_add(next.names),
            own_names: self.own_names.saturating_add(next.own_names),
            entries: self.entries + next.entries,
            indexes: self.indexes + next.indexes,
            name_bytes: self.name_bytes.wrapping_add(next.name_bytes),
            entry_sum: self.entry_sum.wrapping_add(next.entry_sum),
            links: self.links.wrapping_add(next.links),
            types: self.types.wrapping_add(next.types),
            extents: self.extents.join(next.extents),
            torn: self.torn || next.torn,
        }
    }

    /// Whether inodes can have the number.
    pub(crate) const fn is_inode(&self) -> bool {
        self.ino >= ObjectId::FIRST_FREE.get() && self.ino <= ObjectId::LAST_FREE.get()
    }

    pub(crate) const fn has_inode(&self) -> bool {
        self.inode.is_some()
    }

    /// Shares of its entries in the sums over links and types. A directory that is being deleted may have entries left, which have no
    /// effect any more.
    pub(crate) fn entry_shares(&self) -> (u64, u64) {
        match &self.inode {
            Some(inode) if inode.is_deleted_directory() => (0, 0),
            _ => (self.links, self.types),
        }
    }

    /// Its share in the sum over types, which the directory entries of its names must match.
    pub(crate) fn type_share(&self) -> u64 {
        let Some(inode) = &self.inode else { return 0 };
        let kind = FileType::from_mode(inode.mode).unwrap_or(FileType::Unknown);
        let names = u64::from(self.names.saturating_sub(self.own_names));
        type_hash(self.ino, kind.to_disk()).wrapping_mul(names)
    }

    /// Its share in the sum over orphans.
    pub(crate) fn orphan_share(&self) -> u64 {
        match &self.inode {
            Some(inode) if inode.links == 0 => orphan_hash(self.ino),
            _ => 0,
        }
    }

    /// Judges a complete group.
    pub(crate) fn judge(&self, rules: &GroupRules, sink: &Sink) {
        if self.torn || !self.is_inode() {
            return;
        }
        let key = Key::new(ObjectId::new(self.ino), KeyType::INODE_ITEM, 0);
        let say = |problem, message: String| sink.add(problem, ProblemSite::key(rules.tree, key), message);
        let Some(inode) = &self.inode else {
            return say(Problem::InodeMissing, String::new());
        };
        let newest = rules.generation.saturating_add(1);
        if inode.generation > newest || inode.transid > newest {
            let (born, changed) = (inode.generation, inode.transid);
            let message = format!("generation {born} and transid {changed}, expected at most {newest}");
            say(Problem::InodeGeneration, message);
        }
        if inode.links != self.names {
            say(Problem::InodeLinks, format!("expected {}, found {}", self.names, inode.links));
        }
        match FileType::from_mode(inode.mode) {
            Some(FileType::Directory) => self.judge_directory(inode, &say),
            Some(FileType::File | FileType::Symlink) => self.judge_file(inode, rules, &say),
            _ if self.extents.count > 0 => {
                say(Problem::InodeItems, format!("file extents with mode 0o{:o}", inode.mode));
            }
            _ if inode.size > 0 => say(Problem::SpecialSize, format!("expected 0, found {}", inode.size)),
            _ => {}
        }
        if FileType::from_mode(inode.mode) == Some(FileType::Symlink) && inode.links > 0 {
            self.judge_target(inode, &say);
        }
        let fixed = inode.flags & (InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        if FileType::from_mode(inode.mode) == Some(FileType::Symlink) && !fixed.is_empty() {
            say(
                Problem::InodeFlags,
                format!("expected neither immutable nor append, found 0x{:x}", fixed.bits()),
            );
        }
        let directory = FileType::from_mode(inode.mode) == Some(FileType::Directory);
        if !directory && self.entries + self.indexes > 0 {
            say(Problem::InodeItems, format!("directory entries with mode 0o{:o}", inode.mode));
        }
    }

    fn judge_directory(&self, inode: &InodeFacts, say: &dyn Fn(Problem, String)) {
        if self.extents.count > 0 {
            say(Problem::InodeItems, "file extents of a directory".to_owned());
        }
        if inode.is_deleted_directory() {
            return; // half of its entries may be gone already, which is valid
        }
        if self.entry_sum != 0 || self.entries != self.indexes {
            let message = format!("{} by name, {} by index", self.entries, self.indexes);
            say(Problem::DirectoryIndexes, message);
        }
        if inode.size != self.name_bytes {
            say(Problem::DirectorySize, format!("expected {}, found {}", self.name_bytes, inode.size));
        }
    }

    /// Checks the target of a symbolic link. btrfs-progs store a zero byte behind the target, which does not count.
    fn judge_target(&self, inode: &InodeFacts, say: &dyn Fn(Problem, String)) {
        let held = self.extents.bytes;
        if held != inode.size && held != inode.size.saturating_add(1) {
            say(Problem::SymlinkSize, format!("expected {held}, found {}", inode.size));
        } else if self.extents.has_zero {
            say(Problem::SymlinkTarget, format!("of {} bytes", inode.size));
        }
    }

    fn judge_file(&self, inode: &InodeFacts, rules: &GroupRules, say: &dyn Fn(Problem, String)) {
        let extents = &self.extents;
        if i64::try_from(inode.size).is_err() {
            say(Problem::BlockItem, format!("size {}, expected at most {}", inode.size, i64::MAX));
        }
        // While a file without links is being truncated, its number of bytes does not change.
        if inode.links > 0 && inode.nbytes != extents.bytes {
            say(Problem::InodeBytes, format!("expected {}, found {}", extents.bytes, inode.nbytes));
        }
        if let Some(at) = extents.overlap {
            say(Problem::FileExtentOverlap, format!("at file offset {at}"));
        }
        if !rules.no_holes && inode.links > 0 {
            let first = (extents.start > 0 && extents.count > 0).then_some(0);
            let last = (extents.end < inode.size).then_some(extents.end);
            let hole = first.or(extents.gap).or(last).filter(|hole| *hole < inode.size);
            if let Some(at) = hole {
                say(Problem::FileHole, format!("at file offset {at} of {}", inode.size));
            }
        }
        if !rules.checksums {
            return;
        }
        let unsummed = inode.flags.contains(InodeFlags::NODATASUM);
        if let Some(at) = extents.packed_without_sums.filter(|_| unsummed) {
            say(Problem::ChecksumCompressed, format!("at logical {at}"));
        }
        match (unsummed, extents.with_sums, extents.without_sums) {
            (true, Some(at), _) => say(Problem::ChecksumUnwanted, format!("at logical {at}")),
            (false, _, Some(at)) => say(Problem::ChecksumMissing, format!("at logical {at}")),
            _ => {}
        }
    }
}

/// The hash of a directory entry that calls inode `ino` a `kind`.
pub(crate) fn type_hash(ino: u64, kind: u8) -> u64 {
    hash::numbers(2, &[ino, kind.into()])
}

/// The hash of an orphan inode.
pub(crate) fn orphan_hash(ino: u64) -> u64 {
    hash::numbers(3, &[ino])
}
