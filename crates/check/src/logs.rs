//! Log trees: what fsync wrote after the last commit. The next mount that may write replays them, and only then are they part
//! of the filesystem: their blocks and their data have no extent items yet.
//!
//! A file's data in a log has to have checksums: they lie in the log beside it, or in the checksum tree already.

use creamery_base::{ObjectId, TreeId};
use creamery_format::{BlockRef, FileExtent, InodeFlags, KeyType, RawInodeItem, RawRootItem};
use zerocopy::FromBytes;

use crate::problem::Problem;
use crate::ranges::Ranges;
use crate::reader::Reader;
use crate::report::{Place, Sink};
use crate::summed::summed_range;
use crate::walk::{Meta, Root, Sequence};

/// The trees that have a log, each with the log's root.
#[derive(Default)]
pub(crate) struct LogRoots(pub(crate) Vec<(TreeId, Root)>);

impl Sequence<Vec<u8>> for LogRoots {
    fn leaf(&mut self, _meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        for slot in 0..leaf.count() {
            let key = leaf.key(slot);
            let Some(item) = (key.kind == KeyType::ROOT_ITEM)
                .then(|| RawRootItem::from_item(leaf.data(slot)).ok())
                .flatten()
            else {
                continue;
            };
            let root = Root::unshared(TreeId::TREE_LOG, item.root(), item.level, item.root_generation());
            self.0.push((TreeId::new(key.offset), root));
        }
    }
}

/// What the logs say of data, in the order of their keys.
#[derive(Default)]
pub(crate) struct LogData {
    /// Blocks of all logs.
    pub(crate) blocks: u64,
    /// Extents that files have.
    data: Vec<(u64, u64)>,
    /// The parts of them that have to have checksums, with the tree and the place.
    summed: Vec<(u64, u64, TreeId, Place)>,
    /// Data that has checksums in the logs.
    sums: Vec<(u64, u64)>,
    /// A part of a log could not be read, so checksums that are not there prove nothing.
    torn: bool,
}

impl LogData {
    /// The data extents of files.
    pub(crate) fn ranges(&self) -> Ranges {
        Ranges::from_unsorted(self.data.clone())
    }

    /// All data has checksums, in the logs or in the checksum tree, whose ranges are `others`.
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

/// Walks the leaves of one log.
pub(crate) struct LogSequence<'a> {
    of: TreeId,
    checksum_size: u64,
    sector_size: u64,
    /// The inode whose items are being met, if its data has no checksums.
    unsummed: Option<ObjectId>,
    found: &'a mut LogData,
}

impl<'a> LogSequence<'a> {
    pub(crate) fn new(of: TreeId, reader: &Reader<'_>, found: &'a mut LogData) -> Self {
        let checksum_size = reader.checksum.size() as u64;
        Self { of, checksum_size, sector_size: reader.sector_size, unsummed: None, found }
    }

    fn file_extent(&mut self, data: &[u8], ino: ObjectId, place: Place) {
        let (extent, written) = match FileExtent::parse(data) {
            Ok(FileExtent::Regular(extent)) => (extent, true),
            Ok(FileExtent::Prealloc(extent)) => (extent, false),
            _ => return,
        };
        let start = extent.disk_bytenr.get();
        let (Some(end), false) = (start.checked_add(extent.disk_num_bytes.get()), extent.is_hole()) else {
            return;
        };
        self.found.data.push((start, end));
        if let Some((start, end)) = summed_range(extent).filter(|_| written && self.unsummed != Some(ino)) {
            self.found.summed.push((start, end, self.of, place));
        }
    }
}

impl Sequence<Vec<u8>> for LogSequence<'_> {
    fn leaf(&mut self, meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        for slot in 0..leaf.count() {
            let (key, data) = (leaf.key(slot), leaf.data(slot));
            match key.kind {
                KeyType::INODE_ITEM => {
                    let raw = RawInodeItem::ref_from_bytes(data).ok();
                    let unsummed = raw.is_some_and(|raw| raw.flags().contains(InodeFlags::NODATASUM));
                    self.unsummed = unsummed.then_some(key.objectid);
                }
                KeyType::EXTENT_DATA => {
                    let place = Place::slot(TreeId::TREE_LOG, meta.logical, slot, key);
                    self.file_extent(data, key.objectid, place);
                }
                KeyType::EXTENT_CSUM => {
                    let len = (data.len() as u64 / self.checksum_size).saturating_mul(self.sector_size);
                    self.found.sums.push((key.offset, key.offset.saturating_add(len)));
                }
                _ => {}
            }
        }
    }

    fn hole(&mut self) {
        self.found.torn = true;
    }
}
