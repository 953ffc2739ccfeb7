//! Disk usage: how much data files refer to, and how much of that they share, as `btrfs filesystem du` counts it.
//!
//! The usage of a file is the bytes that its extents show, also preallocated ones; holes and inline data do not count. An extent is shared if another file refers to
//! it, or the same file at another place. The other bytes are exclusive: they would be free if the file were deleted. If parts of an extent are not shown any more,
//! only the shown bytes count, though the whole extent takes space.
//!
//! Data that the files of a set share, with each other or with other files, counts once for the set: as many bytes as there are addresses in all their shared
//! pieces. A compressed extent's piece begins at its place on disk and is as long as it is in the file. So this figure is of the same kind as the others, and Linux
//! has the same.
//!
//! References are those of the last commit. So the start of a set commits the earlier changes. Data that is written during the count may count as exclusive.

use std::collections::{BTreeMap, HashSet};

use creamery_base::{InodeId, Logical, Result, Wait};
use creamery_format::file_extent::Extent;
use creamery_txn::Sharing;

use crate::Filesystem;
use crate::data::extents_of;
use creamery_format::Compression;

/// The usage of one file, bytes.
///
/// ```
/// let usage = creamery_fs::FileUsage { total: 8192, exclusive: 4096 };
/// assert_eq!(usage.total - usage.exclusive, 4096);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FileUsage {
    /// All data that the file refers to.
    pub total: u64,
    /// The data with no other reference, neither of another file nor of this file at another place.
    pub exclusive: u64,
}

impl std::ops::AddAssign for FileUsage {
    fn add_assign(&mut self, other: Self) {
        self.total = self.total.saturating_add(other.total);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
    }
}

/// A set of files whose usage is counted together.
///
/// ```no_run
/// # fn example(fs: &creamery_fs::Filesystem, id: creamery_base::InodeId) -> creamery_base::Result<()> {
/// let mut set = fs.usage_set()?;
/// let usage = set.add(id)?.unwrap_or_default();
/// println!("{} bytes, {} of them shared", usage.total, set.shared());
/// # Ok(())
/// # }
/// ```
pub struct UsageSet<'f> {
    fs: &'f Filesystem,
    sharing: Sharing<'f>,
    /// Counted files that have several names.
    counted: HashSet<InodeId>,
    shared: AddressRanges,
}

impl Filesystem {
    /// Begins to count the usage of a set of files. On a writable filesystem it commits the earlier changes.
    ///
    /// # Errors
    /// Those of a commit; device errors; damage.
    pub fn usage_set(&self) -> Result<UsageSet<'_>> {
        self.commit_before_walk()?;
        let sharing = self.engine().sharing()?;
        Ok(UsageSet { fs: self, sharing, counted: HashSet::new(), shared: AddressRanges::default() })
    }
}

impl Filesystem {
    /// The places of the bytes that a file shows, preallocated ones too: address and length. A compressed extent counts as a whole.
    ///
    /// # Errors
    /// Stale: the file is gone. Device errors; damage.
    pub fn data_ranges(&self, id: InodeId) -> Result<Vec<(Logical, u64)>> {
        let extents = extents_of(&*self.inode(id, Wait::Yes)?)?;
        let range = |(_, extent): (u64, Extent)| match extent.compression {
            Compression::None => (extent.disk_bytenr + extent.offset, extent.num_bytes),
            _ => (extent.disk_bytenr, extent.disk_num_bytes),
        };
        Ok(extents.into_iter().map(range).collect())
    }
}

impl UsageSet<'_> {
    /// Counts the data of a file; `None` if it was counted before, by another name.
    ///
    /// # Errors
    /// Stale: the file is gone. Device errors; damage.
    pub fn add(&mut self, id: InodeId) -> Result<Option<FileUsage>> {
        if self.fs.stat(id, Wait::Yes)?.nlink > 1 && !self.counted.insert(id) {
            return Ok(None);
        }
        let mut usage = FileUsage::default();
        // Reads all extents first, so that the file is not locked while references are walked.
        for (offset, shown) in extents_of(&*self.fs.inode(id, Wait::Yes)?)? {
            let (len, base) = (shown.num_bytes, offset.wrapping_sub(shown.offset));
            let is_shared = self.sharing.is_shared(shown.disk_bytenr, id, base)?;
            usage += FileUsage { total: len, exclusive: if is_shared { 0 } else { len } };
            if is_shared {
                let start = shown.disk_bytenr.get().saturating_add(shown.offset);
                self.shared.insert(start, start.saturating_add(len));
            }
        }
        Ok(Some(usage))
    }

    /// Bytes that the files share, with each other or with other files.
    #[must_use]
    pub fn shared(&self) -> u64 {
        self.shared.bytes()
    }
}

/// A set of addresses, as ranges that neither touch nor overlap.
///
/// ```
/// let mut shared = creamery_fs::AddressRanges::default();
/// shared.insert(4096, 12288);
/// shared.insert(8192, 16384);
/// assert_eq!(shared.bytes(), 12288);
/// ```
#[derive(Clone, Default, Debug)]
pub struct AddressRanges(BTreeMap<u64, u64>);

impl AddressRanges {
    /// Adds the addresses from `start` up to `end`.
    pub fn insert(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        // Every range that begins at or before the end of the new one and reaches its beginning becomes part of it.
        while let Some((&first, &last)) = self.0.range(..=end).next_back()
            && last >= start
        {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        if start < end {
            self.0.insert(start, end);
        }
    }

    /// The number of addresses in the set.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, (start, end)| sum + (end - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_or_touch_count_once() {
        let mut ranges = AddressRanges::default();
        for (start, end, len, count) in [
            (10, 20, 10, 1),
            (30, 40, 20, 2),
            (40, 45, 25, 2),
            (5, 6, 26, 3),
            (12, 18, 26, 3),
            (15, 35, 36, 2),
            (6, 10, 40, 1),
            (50, 50, 40, 1),
            (0, 100, 100, 1),
            (7, 9, 100, 1),
        ] {
            ranges.insert(start, end);
            assert_eq!((ranges.bytes(), ranges.0.len()), (len, count), "after {start}..{end}");
        }
    }
}
