//! Compressed extents that were unpacked for a small part, kept for readers of another part.
//!
//! A read of a small part of a compressed extent reads all of it from the device, and unpacks it up to that part. Reading a file piece
//! by piece would do so for each piece. So the second read of an extent unpacks it whole, and the last few unpacked extents are kept.
//! An extent never changes, and its space gets another owner only after a commit: the data there then has another generation, and so
//! another name.
//!
//! # Invariants
//! - UNPACKED-1: data that was read without checksums never reaches a reader that wants them verified. Shown by
//!   `what_was_read_without_its_checksum_is_not_taken_for_read_with_it`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Generation, Logical};
use creamery_format::Compression;
use creamery_format::file_extent::Extent;
use creamery_txn::DataCsums;

/// Upper bound of the kept extents; each has 128 KiB at most.
const KEPT_MAX: usize = 8;
/// Upper bound of the extents noted as read in part.
const ASKED_MAX: usize = 16;

/// The unpacked data of an extent.
type Unpacked = Arc<Box<[u8]>>;

/// The name of an extent as long as the filesystem is open, and whether it was read with checksums.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ExtentName {
    disk_bytenr: Logical,
    generation: Generation,
    disk_num_bytes: u64,
    len: u64,
    compression: Compression,
    csums: DataCsums,
}

impl ExtentName {
    fn of(extent: &Extent, csums: DataCsums) -> Self {
        let Extent { generation, disk_bytenr, disk_num_bytes, compression, .. } = *extent;
        Self { disk_bytenr, generation, disk_num_bytes, len: extent.unpacked_len(), compression, csums }
    }
}

/// The extents of one filesystem that are kept.
#[derive(Default)]
pub(crate) struct UnpackedExtents {
    /// The most recently used one is at the end.
    kept: RankedMutex<VecDeque<(ExtentName, Unpacked)>, { rank::LEAF }>,
    /// The most recently requested one is at the end.
    asked: RankedMutex<VecDeque<ExtentName>, { rank::LEAF }>,
    hits: AtomicU64,
    unpacked: AtomicU64,
}

impl UnpackedExtents {
    /// The unpacked data of an extent, if it is kept.
    pub(crate) fn get(&self, extent: &Extent, csums: DataCsums) -> Option<Unpacked> {
        let name = ExtentName::of(extent, csums);
        let mut kept = self.kept.lock();
        let at = kept.iter().position(|(known, _)| *known == name)?;
        let found = kept.remove(at).expect("it was just seen");
        let bytes = Arc::clone(&found.1);
        kept.push_back(found);
        drop(kept);
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(bytes)
    }

    /// Notes a read of a small part of an extent. Returns whether there was another one lately.
    pub(crate) fn is_asked_again(&self, extent: &Extent, csums: DataCsums) -> bool {
        let name = ExtentName::of(extent, csums);
        let mut asked = self.asked.lock();
        if asked.contains(&name) {
            return true;
        }
        if asked.len() >= ASKED_MAX {
            asked.pop_front();
        }
        asked.push_back(name);
        false
    }

    /// Keeps the unpacked data of an extent, in place of the least recently used one.
    pub(crate) fn keep(&self, extent: &Extent, csums: DataCsums, bytes: Vec<u8>) {
        let name = ExtentName::of(extent, csums);
        let bytes = Arc::new(bytes.into_boxed_slice());
        let mut kept = self.kept.lock();
        if kept.iter().any(|(known, _)| *known == name) {
            return; // another thread was as fast
        }
        let gone = if kept.len() >= KEPT_MAX { kept.pop_front() } else { None };
        kept.push_back((name, bytes));
        drop(kept);
        drop(gone);
    }

    /// Counts unpacked extents.
    pub(crate) fn count(&self, unpacked: usize) {
        self.unpacked.fetch_add(unpacked as u64, Ordering::Relaxed);
    }

    /// How many extents were unpacked, and how often a wanted one was kept.
    pub(crate) fn counted(&self) -> (u64, u64) {
        (self.unpacked.load(Ordering::Relaxed), self.hits.load(Ordering::Relaxed))
    }

    /// The memory of the kept extents, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.kept.lock().iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(number: u64) -> Extent {
        Extent {
            generation: Generation::new(7),
            disk_bytenr: Logical::new(number << 20),
            disk_num_bytes: 4096,
            ram_bytes: 8192,
            offset: 0,
            num_bytes: 8192,
            compression: Compression::Zstd,
        }
    }

    #[test]
    fn the_last_few_are_kept() {
        let kept = UnpackedExtents::default();
        for number in 0..KEPT_MAX as u64 {
            kept.keep(&extent(number), DataCsums::Present, vec![number as u8; 8192]);
        }
        // A request for it keeps it from going first; a part of it is the same extent.
        let part = Extent { offset: 4096, num_bytes: 4096, ..extent(0) };
        assert!(kept.get(&part, DataCsums::Present).is_some_and(|bytes| **bytes == [0; 8192][..]));
        kept.keep(&extent(100), DataCsums::Present, vec![100; 8192]);
        let is_kept = |number| kept.get(&extent(number), DataCsums::Present).is_some();
        assert!(is_kept(0) && !is_kept(1) && is_kept(2) && is_kept(100));
        assert_eq!(kept.memory(), KEPT_MAX as u64 * 8192);
    }

    #[test]
    fn what_is_at_the_same_place_later_is_another_extent() {
        let kept = UnpackedExtents::default();
        kept.keep(&extent(1), DataCsums::Present, vec![1; 8192]);
        let later = Extent { generation: Generation::new(8), ..extent(1) };
        assert!(kept.get(&later, DataCsums::Present).is_none());
    }

    #[test]
    fn what_was_read_without_its_checksum_is_not_taken_for_read_with_it() {
        let kept = UnpackedExtents::default();
        kept.keep(&extent(1), DataCsums::Absent, vec![1; 8192]);
        assert!(kept.get(&extent(1), DataCsums::Present).is_none());
        assert!(kept.get(&extent(1), DataCsums::Absent).is_some());
    }
}
