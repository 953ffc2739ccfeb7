//! The used parts of a range of addresses, from the extent tree: forward only.

use creamery_base::{Error, ErrorKind, Generation, Logical, ObjectId, Result, Wait};
use creamery_format::{ExtentFlags, ExtentItem, Key, KeyType};
use creamery_tree::{CommitCursor, Walk};
use creamery_txn::DurableTrees;

use super::searches::Trees;

/// The content of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Used {
    Data,
    Tree { generation: Generation, level: u8 },
}

/// An extent, clipped to the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    pub(super) start: Logical,
    pub(super) end: Logical,
    pub(super) used: Used,
}

/// Goes over the extents of a range.
pub(super) struct ExtentWalk<'t> {
    cursor: CommitCursor<'t>,
    current: Option<Extent>,
    /// The beginning of the current extent; before the first one, that of the range.
    reached: Logical,
    end: Logical,
    node_size: u64,
    sector: u64,
}

impl<'t> ExtentWalk<'t> {
    /// Begins at a range. Errors: device errors; damage.
    pub(super) fn new(
        durable: &DurableTrees<'_>,
        trees: &Trees<'t>,
        (start, end): (Logical, Logical),
    ) -> Result<Self> {
        let first = Key { objectid: ObjectId::new(start.get()), ..Key::MIN };
        trees.searches.count_of_extents();
        let cursor = durable.cursor(trees.extents, &first, Walk::new(Wait::Yes, trees.ahead))?;
        let (node_size, sector) = (durable.superblock().node_size(), durable.superblock().sector_size());
        Ok(Self {
            cursor,
            current: None,
            reached: start,
            end,
            node_size: node_size.into(),
            sector: sector.into(),
        })
    }

    /// Extents that begin before this address are not needed any more.
    pub(super) const fn reached(&self) -> Logical {
        self.reached
    }

    /// The first extent that ends behind `at`, which must never decrease; `None` behind the last.
    /// Errors: device errors; damage.
    pub(super) fn ending_behind(&mut self, at: Logical) -> Result<Option<Extent>> {
        while self.current.is_none_or(|extent| extent.end <= at) {
            match self.read_next()? {
                Some(extent) => {
                    self.current = Some(extent);
                    self.reached = extent.start;
                }
                None => {
                    self.current = None;
                    return Ok(None);
                }
            }
        }
        Ok(self.current)
    }

    fn read_next(&mut self) -> Result<Option<Extent>> {
        while let Some((key, data)) = self.cursor.item() {
            let start = Logical::new(key.objectid.get());
            if start >= self.end {
                return Ok(None);
            }
            let found = match key.kind {
                KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => Some(self.extent(&key, data)?),
                _ => None,
            };
            self.cursor.advance()?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn extent(&self, key: &Key, data: &[u8]) -> Result<Extent> {
        let corrupt = |what: String| Error::new(ErrorKind::Corrupt, format!("extent item {key}: {what}"));
        let item = ExtentItem::parse(key.kind, data).map_err(|kind| corrupt(kind.to_string()))?;
        let is_tree = item.head.flags().contains(ExtentFlags::TREE_BLOCK);
        let is_skinny = key.kind == KeyType::METADATA_ITEM;
        let len = if is_skinny { self.node_size } else { key.offset };
        let start = Logical::new(key.objectid.get());
        let is_whole = len > 0 && len.is_multiple_of(self.sector) && (!is_tree || len == self.node_size);
        let end = start.checked_add(len).filter(|_| is_whole && start.is_aligned(self.sector));
        let end = end.ok_or_else(|| corrupt(format!("wrong place or length {len}")))?;
        let level = match item.tree_block {
            Some(info) => Some(info.level),
            None => u8::try_from(key.offset).ok().filter(|_| is_skinny),
        };
        let used = match (is_tree, level) {
            (false, _) => Used::Data,
            (true, Some(level)) => {
                Used::Tree { generation: Generation::new(item.head.generation.get()), level }
            }
            (true, None) => return Err(corrupt(format!("wrong level {}", key.offset))),
        };
        Ok(Extent { start, end: end.min(self.end), used })
    }
}
