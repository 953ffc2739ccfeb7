//! Data that is marked as unwritten but has checksums.
//!
//! Writing makes checksums, so an extent that a file has only allocated has none, unless another file has written the same data: a clone
//! from before the write may do that. So such parts of files are listed, and only if there are any, a second walk over the subvolumes looks
//! for written data there.

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Result, TreeId};
use creamery_format::{BlockRef, Expected, FileExtent, Key, KeyType};

use crate::problem::Problem;
use crate::ranges::Ranges;
use crate::reader::Reader;
use crate::references::References;
use crate::report::{ProblemSite, Sink};
use crate::summed::summed_range;
use crate::walk::{Again, Leaf, Meta, Root, Sequence, Walker};

/// Start and end of the data, and the file extent.
type DataSpan = (u64, u64, TreeId, Key);

/// Parts of files that are unwritten and have checksums.
pub(crate) struct Unwritten(RankedMutex<Vec<DataSpan>, { rank::LEAF }>);

impl Unwritten {
    pub(crate) const fn new() -> Self {
        Self(RankedMutex::new(Vec::new()))
    }

    pub(crate) fn add(&self, (start, end): (u64, u64), tree: TreeId, key: Key) {
        self.0.lock().push((start, end, tree, key));
    }

    /// Reports the parts whose data no file of these trees has written.
    pub(crate) fn report(&self, reader: &Reader<'_>, roots: &[Root], threads: usize) -> Result<()> {
        let mut pieces = std::mem::take(&mut *self.0.lock());
        if pieces.is_empty() {
            return Ok(());
        }
        pieces.sort_unstable();
        let wanted = merged(pieces.iter().map(|piece| (piece.0, piece.1)));
        let quiet = Sink::new(0);
        let quiet_reader = Reader::new(reader.volume, &quiet);
        let references = References::new();
        let mut walker = Walker::new(&quiet_reader, &references, threads);
        walker.count(false);
        let mut found = Written::default();
        for root in roots {
            walker.walk(root, &|leaf: &Leaf<'_>| written(leaf.block, &wanted), &mut found)?;
        }
        found.0.sort_unstable();
        let written = merged(found.0.into_iter());
        for (start, end, tree, key) in pieces {
            // An unreadable block may have written it.
            if walker.complete && written.covered(start, end) == 0 {
                let message = format!("at logical {start}");
                reader.sink.add(Problem::ChecksumUnwritten, ProblemSite::key(tree, key), message);
            }
        }
        Ok(())
    }
}

/// The set of ascending ranges.
fn merged(ranges: impl Iterator<Item = (u64, u64)>) -> Ranges {
    let mut set = Ranges::default();
    ranges.for_each(|(start, end)| set.push(start, end));
    set
}

/// The written ranges of a leaf within `wanted`.
fn written(leaf: BlockRef<'_>, wanted: &Ranges) -> Vec<(u64, u64)> {
    let extents = (0..leaf.count()).filter(|slot| leaf.key(*slot).kind == KeyType::EXTENT_DATA);
    let ranges = extents.filter_map(|slot| match FileExtent::parse(leaf.data(slot)) {
        Ok(FileExtent::Regular(extent)) if !extent.is_hole() => summed_range(extent),
        _ => None,
    });
    ranges.filter(|(start, end)| wanted.covered(*start, *end) > 0).collect()
}

#[derive(Default)]
struct Written(Vec<(u64, u64)>);

impl Sequence<Vec<(u64, u64)>> for Written {
    fn leaf(&mut self, _meta: &Meta, ranges: Vec<(u64, u64)>) {
        self.0.extend(ranges);
    }

    fn again(&mut self, _want: &Expected, _upper: Option<Key>) -> Again {
        Again::Known
    }
}
