//! Log trees: the data that fsync wrote after the last commit. The next mount that may write replays them, and only then are they part of
//! the filesystem: their blocks and their data have no extent items yet.
//!
//! A file's data in a log needs checksums, in the log beside it or already in the checksum tree. A replay copies items of a log into
//! subvolumes, so an item that no subvolume may have prevents the replay.

use creamery_base::{Generation, Logical, ObjectId, TreeId};
use creamery_format::{
    BlockGroupFlags, BlockRef, FileExtent, FileType, InodeFlags, KeyType, RawInodeItem, RawRootItem,
};
use zerocopy::FromBytes;

use crate::problem::Problem;
use crate::ranges::Ranges;
use crate::reader::Reader;
use crate::report::{ProblemSite, Sink};
use crate::summed::summed_range;
use crate::walk::{Meta, Root, Sequence};

/// The trees that have a log, each with the log's root.
pub(crate) struct LogRoots<'a> {
    pub(crate) sink: &'a Sink,
    /// The transaction of the logs.
    pub(crate) generation: Generation,
    pub(crate) found: Vec<(TreeId, Root)>,
}

impl Sequence<Vec<u8>> for LogRoots<'_> {
    fn leaf(&mut self, meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        for slot in 0..leaf.count() {
            let key = leaf.key(slot);
            let is_one = key.objectid == TreeId::TREE_LOG.objectid() && key.kind == KeyType::ROOT_ITEM;
            let item = is_one.then(|| RawRootItem::from_item(leaf.data(slot)).ok()).flatten();
            let Some(item) = item.filter(|_| TreeId::new(key.offset).is_subvolume()) else {
                let place = ProblemSite::slot(TreeId::TREE_LOG, meta.logical, slot, key);
                self.sink.add(Problem::LogRefused, place, "the root of no subvolume's log");
                continue;
            };
            if item.root_generation() != self.generation {
                let place = ProblemSite::slot(TreeId::TREE_LOG, meta.logical, slot, key);
                let (found, want) = (item.root_generation(), self.generation);
                self.sink.add(
                    Problem::LogRefused,
                    place,
                    format!("expected generation {want}, found {found}"),
                );
            }
            let root = Root::unshared(TreeId::TREE_LOG, item.root(), item.level, item.root_generation());
            self.found.push((TreeId::new(key.offset), root));
        }
    }
}

/// The data in the logs, in the order of keys.
#[derive(Default)]
pub(crate) struct LogData {
    /// The number of blocks of all logs.
    pub(crate) blocks: u64,
    /// Extents of files, with the tree and the place.
    data: Vec<(u64, u64, TreeId, ProblemSite)>,
    /// The parts of them that need checksums, with the tree and the place.
    summed: Vec<(u64, u64, TreeId, ProblemSite)>,
    /// Data that has checksums in the logs.
    sums: Vec<(u64, u64)>,
    /// Whether a part of a log could not be read; then missing checksums prove nothing.
    torn: bool,
}

impl LogData {
    /// The data extents of files.
    pub(crate) fn ranges(&self) -> Ranges {
        Ranges::from_unsorted(self.data.iter().map(|(start, end, ..)| (*start, *end)).collect())
    }

    /// Checks that each extent is in the extent tree, or its place is free. `used` is the space in use.
    pub(crate) fn judge_places(&self, used: &Ranges, sink: &Sink) {
        for (start, end, of, place) in &self.data {
            let covered = used.covered(*start, *end);
            if covered > 0 && covered < end - start {
                let message = format!("of tree {of}: logical [{start}, {end}) is already in use");
                sink.add(Problem::LogRefused, place.clone(), message);
            }
        }
    }

    /// Checks that all data has checksums, in the logs or in the checksum tree, whose ranges are `others`.
    pub(crate) fn judge(&self, others: &Ranges, sink: &Sink) {
        if self.torn {
            return;
        }
        let own = Ranges::from_unsorted(self.sums.clone());
        for (start, end, of, place) in &self.summed {
            let gap = others.gaps(*start, *end).find_map(|(from, to)| own.first_gap(from, to));
            if let Some((from, to)) = gap {
                let message = format!("of tree {of}, logical [{from}, {to})");
                sink.add(Problem::ChecksumLog, place.clone(), message);
            }
        }
    }
}

/// Reads the leaves of one log.
pub(crate) struct LogSequence<'a> {
    of: TreeId,
    reader: &'a Reader<'a>,
    checksum_size: u64,
    /// The inode whose items are being read.
    inode: Option<LoggedInode>,
    found: &'a mut LogData,
}

/// An inode in a log.
#[derive(Clone, Copy)]
struct LoggedInode {
    ino: ObjectId,
    kind: Option<FileType>,
    /// Whether its data has no checksums.
    is_unsummed: bool,
    /// Whether it has no name; then it and its items are ignored.
    is_passed_over: bool,
}

impl LoggedInode {
    fn new(ino: ObjectId, raw: &RawInodeItem) -> Self {
        Self {
            ino,
            kind: FileType::from_mode(raw.mode.get()),
            is_unsummed: raw.flags().contains(InodeFlags::NODATASUM),
            is_passed_over: raw.nlink.get() == 0,
        }
    }

    /// Whether inodes of this kind may have such items in a log.
    fn may_have(&self, kind: KeyType) -> bool {
        let is_file = self.kind == Some(FileType::File);
        match kind {
            _ if self.is_passed_over => true,
            KeyType::INODE_REF | KeyType::INODE_EXTREF | KeyType::XATTR_ITEM => true,
            KeyType::EXTENT_DATA => is_file || self.kind == Some(FileType::Symlink),
            KeyType::VERITY_DESC_ITEM | KeyType::VERITY_MERKLE_ITEM => is_file,
            KeyType::DIR_ITEM | KeyType::DIR_INDEX | KeyType::DIR_LOG_ITEM | KeyType::DIR_LOG_INDEX => {
                self.kind == Some(FileType::Directory)
            }
            _ => false,
        }
    }
}

impl<'a> LogSequence<'a> {
    pub(crate) fn new(of: TreeId, reader: &'a Reader<'a>, found: &'a mut LogData) -> Self {
        Self { of, reader, checksum_size: reader.checksum.size() as u64, inode: None, found }
    }

    /// Reports an item that prevents the replay of the whole log.
    fn refuse(&self, place: ProblemSite, why: &str) {
        self.reader.sink.add(Problem::LogRefused, place, format!("of tree {}: {why}", self.of));
    }

    fn file_extent(&mut self, data: &[u8], inode: LoggedInode, place: ProblemSite) {
        let (extent, written) = match FileExtent::parse(data) {
            Ok(FileExtent::Regular(extent)) => (extent, true),
            Ok(FileExtent::Prealloc(extent)) => (extent, false),
            Ok(FileExtent::Inline(head, _)) => {
                return self.head(head.generation.get(), head.other_encoding.get(), &place);
            }
            Err(_) => return,
        };
        let start = extent.disk_bytenr.get();
        let (Some(end), false) = (start.checked_add(extent.disk_num_bytes.get()), extent.is_hole()) else {
            return;
        };
        self.head(extent.generation.get(), extent.other_encoding.get(), &place);
        let shown = extent.offset.get().saturating_add(extent.num_bytes.get());
        if shown > extent.ram_bytes.get() {
            self.refuse(place.clone(), "the file shows more of an extent than it holds");
        }
        let chunk = self.reader.volume.chunk_at(Logical::new(start));
        let is_there = chunk.is_some_and(|chunk| {
            chunk.flags.contains(BlockGroupFlags::DATA) && chunk.start.get().saturating_add(chunk.len) >= end
        });
        if !is_there {
            self.refuse(place.clone(), "no data chunk contains the extent");
        }
        self.found.data.push((start, end, self.of, place.clone()));
        if let Some((start, end)) = summed_range(extent).filter(|_| written && !inode.is_unsummed) {
            self.found.summed.push((start, end, self.of, place));
        }
    }

    fn head(&self, generation: u64, other_encoding: u16, place: &ProblemSite) {
        if generation == 0 {
            self.refuse(place.clone(), "generation of a file extent, expected at least 1, found 0");
        }
        if other_encoding != 0 {
            self.refuse(place.clone(), &format!("other encoding, expected 0, found {other_encoding}"));
        }
    }
}

impl Sequence<Vec<u8>> for LogSequence<'_> {
    fn leaf(&mut self, meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        if let Some(refusal) = self.reader.refusal(leaf) {
            self.refuse(ProblemSite::from(refusal.site()), &refusal.kind().to_string());
        }
        for slot in 0..leaf.count() {
            let (key, data) = (leaf.key(slot), leaf.data(slot));
            let place = || ProblemSite::slot(TreeId::TREE_LOG, meta.logical, slot, key);
            if key.objectid == ObjectId::EXTENT_CSUM && key.kind == KeyType::EXTENT_CSUM {
                let len = (data.len() as u64 / self.checksum_size).saturating_mul(self.reader.sector_size);
                self.found.sums.push((key.offset, key.offset.saturating_add(len)));
                continue;
            }
            if let Some(raw) =
                (key.kind == KeyType::INODE_ITEM).then(|| RawInodeItem::ref_from_bytes(data).ok()).flatten()
            {
                self.inode = Some(LoggedInode::new(key.objectid, raw));
                continue;
            }
            match self.inode.filter(|inode| inode.ino == key.objectid) {
                None if self.found.torn => {}
                Some(inode) if inode.may_have(key.kind) => {
                    if key.kind == KeyType::EXTENT_DATA && !inode.is_passed_over {
                        self.file_extent(data, inode, place());
                    }
                }
                _ => self.refuse(place(), "the log has no inode of a fitting type for this item"),
            }
        }
    }

    fn hole(&mut self) {
        self.found.torn = true;
    }
}
