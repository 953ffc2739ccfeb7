//! References: compares those that the extent tree records with those in the trees.
//!
//! There may be hundreds of millions, of metadata and of data. They are not listed. Each is hashed, and the hash times its count is added
//! to one of [`BUCKETS`] sums when it is recorded and subtracted when it is found. All sums are zero if both sides are equal. Only if a sum
//! is not zero, the references of its bucket are listed on a second walk ([`References::collect`]), which is slow and happens only on
//! damaged filesystems.
//!
//! A reference names its origin by Btrfs' rule: if the referring block's own extent item has the flag `FULL_BACKREF`, the reference names
//! that block (shared), otherwise it names the tree in that block's header.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Logical, TreeId};
use creamery_format::ExtentRef;

use crate::hash;
use crate::problem::Problem;
use crate::report::{ProblemSite, Sink};

/// The number of sums over which references are spread, so that a disagreement concerns a small part of them.
const BUCKETS: usize = 1 << 14;
/// Approximate memory of an entry of the list, bytes.
const ENTRY_BYTES: u64 = 160;

/// One kind of reference to one extent, without its count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Reference {
    bytenr: u64,
    /// Length of a data extent, 0 for tree blocks.
    len: u64,
    kind: u8,
    row: [u64; 3],
}

impl Reference {
    pub(crate) fn new(bytenr: Logical, len: u64, to: &ExtentRef) -> Self {
        let row = match *to {
            ExtentRef::TreeBlock { root } | ExtentRef::Owner { root } => [root.get(), 0, 0],
            ExtentRef::SharedBlock { parent } | ExtentRef::SharedData { parent, .. } => [parent.get(), 0, 0],
            ExtentRef::ExtentData { root, objectid, offset, .. } => [root.get(), objectid, offset],
        };
        Self { bytenr: bytenr.get(), len, kind: to.kind().get(), row }
    }

    fn hash(&self) -> u64 {
        let [a, b, c] = self.row;
        hash::numbers(self.kind.into(), &[self.bytenr, self.len, a, b, c])
    }

    fn bucket(&self) -> usize {
        (hash::numbers(0, &[self.bytenr]) >> 8) as usize % BUCKETS
    }

    fn describe(&self) -> String {
        let [a, b, c] = self.row;
        let by = match self.kind {
            176 => format!("by tree {}", a.cast_signed()),
            182 => format!("by tree block {a}"),
            178 => format!("by tree {} inode {b} offset {}", a.cast_signed(), c.cast_signed()),
            184 => format!("by leaf {a}"),
            other => format!("of kind {other}"),
        };
        match self.len {
            0 => format!("tree block {} {by}", self.bytenr),
            len => format!("data extent {} of {len} bytes {by}", self.bytenr),
        }
    }
}

/// The references that a second walk lists.
struct Listed {
    buckets: HashSet<usize>,
    /// Recorded count and found count.
    counts: HashMap<Reference, (u64, u64)>,
    extents: HashSet<u64>,
}

/// The sums of all recorded and found references.
pub(crate) struct References {
    sums: Vec<AtomicU64>,
    /// The number of references in the sums, an estimate for the size of a bucket.
    total: AtomicU64,
    listed: Option<RankedMutex<Listed, { rank::LEAF }>>,
}

impl References {
    pub(crate) fn new() -> Self {
        let sums = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Self { sums, total: AtomicU64::new(0), listed: None }
    }

    /// Records `count` references of this kind, from the extent tree.
    pub(crate) fn record(&self, reference: Reference, count: u64) {
        match &self.listed {
            None => {
                self.total.fetch_add(1, Ordering::Relaxed);
                self.add(&reference, count);
            }
            Some(listed) => note(listed, reference, (count, 0)),
        }
    }

    /// Counts one such reference that was found.
    pub(crate) fn find(&self, reference: Reference) {
        match &self.listed {
            None => self.add(&reference, 1_u64.wrapping_neg()),
            Some(listed) => note(listed, reference, (0, 1)),
        }
    }

    /// Records that the extent at `bytenr` has an item.
    pub(crate) fn extent(&self, bytenr: u64) {
        if let Some(listed) = &self.listed {
            let mut listed = listed.lock();
            let bucket = (hash::numbers(0, &[bytenr]) >> 8) as usize % BUCKETS;
            if listed.buckets.contains(&bucket) {
                listed.extents.insert(bytenr);
            }
        }
    }

    fn add(&self, reference: &Reference, count: u64) {
        let share = reference.hash().wrapping_mul(count);
        self.sums[reference.bucket()].fetch_add(share, Ordering::Relaxed);
    }

    /// The references to list on a second walk: `None` if both sides agree. The second value is the number of disagreeing buckets that were
    /// left out for lack of memory.
    pub(crate) fn collect(&self, memory_limit: u64) -> Option<(Self, usize)> {
        let wrong = (0..BUCKETS).filter(|&bucket| self.sums[bucket].load(Ordering::Relaxed) != 0);
        let mut buckets: Vec<usize> = wrong.collect();
        if buckets.is_empty() {
            return None;
        }
        let per_bucket = self.total.load(Ordering::Relaxed) / BUCKETS as u64 + 1;
        let room = usize::try_from(memory_limit / (per_bucket * ENTRY_BYTES)).unwrap_or(usize::MAX).max(1);
        let left_out = buckets.len().saturating_sub(room);
        buckets.truncate(room);
        let listed = Listed {
            buckets: buckets.into_iter().collect(),
            counts: HashMap::new(),
            extents: HashSet::new(),
        };
        let second =
            Self { sums: Vec::new(), total: AtomicU64::new(0), listed: Some(RankedMutex::new(listed)) };
        Some((second, left_out))
    }

    /// Reports the differences that the second walk listed. If the trees could not be read completely, a missing reference proves nothing
    /// and is ignored.
    pub(crate) fn report(self, sink: &Sink, complete: bool, extents_complete: bool) {
        let Some(listed) = self.listed else { return };
        let listed = listed.into_inner();
        let differing: BTreeMap<_, _> =
            listed.counts.into_iter().filter(|(_, (recorded, found))| recorded != found).collect();
        for (reference, (recorded, found)) in differing {
            let has_item = listed.extents.contains(&reference.bytenr);
            let problem = match (recorded, found) {
                (0, _) if !has_item => Problem::ExtentMissing,
                (0, _) => Problem::ReferenceMissing,
                (_, 0) => Problem::ReferenceStale,
                _ => Problem::ReferenceCount,
            };
            if (found < recorded && !complete) || (recorded < found && !extents_complete) {
                continue;
            }
            let message = format!("{}, expected {found}, found {recorded}", reference.describe());
            sink.add(problem, ProblemSite::tree(TreeId::EXTENT), message);
        }
    }
}

fn note(listed: &RankedMutex<Listed, { rank::LEAF }>, reference: Reference, (recorded, found): (u64, u64)) {
    let mut listed = listed.lock();
    if listed.buckets.contains(&reference.bucket()) {
        let counts = listed.counts.entry(reference).or_default();
        counts.0 = counts.0.saturating_add(recorded);
        counts.1 = counts.1.saturating_add(found);
    }
}
