//! The destination of the bytes of a file when they are written over, and the reason: for users whose file has to stay where it is.
//!
//! The rules are those of a write (`data/nocow.rs`), and the check is that of a write (`data/one_extent.rs`), at each item of the
//! file for itself. So an answer is as good as one write: the first write over a snapshot's data, or into preallocated space, changes
//! it. Nothing is written but delayed data, which has no place before that.
//!
//! # Locking
//! The range of the whole file, shared, so that the items stay as they are; within it, the locks of the check. Writers of the file wait meanwhile.

use std::collections::BTreeMap;

use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_format::file_extent::{EXTENT_LEN_MAX, FileExtentItem};

use crate::counters::Refusal;
use crate::data::extent_map::ExtentItems;
use crate::data::in_one_extent;
use crate::inode::{FileInode, InodeFlags, InodeItem};
use crate::open_file::OpenFile;

/// The destination of bytes of a file that are written over.
///
/// ```
/// use creamery_fs::Overwrite;
/// assert!(Overwrite::InPlace.is_in_place() && Overwrite::Prealloc.is_in_place());
/// assert!(!Overwrite::Shared.is_in_place());
/// assert_eq!(Overwrite::Shared.name(), "shared");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Overwrite {
    /// The bytes stay where they are.
    InPlace,
    /// The bytes stay where they are this time: the space was set aside, and has no data yet.
    Prealloc,
    /// The bytes go to new space: the file is not NODATACOW.
    CopyOnWrite,
    /// The bytes go to new space: they have checksums, though the file is NODATACOW.
    Checksums,
    /// The bytes go to new space: they are compressed.
    Compressed,
    /// The bytes go to new space: a snapshot or another file has the extent, or the file itself at another place, or would have it again
    /// after a power cut.
    Shared,
    /// The bytes go to new space, or stay in the tree: they are stored there.
    Inline,
    /// The bytes go to new space: they have none.
    Hole,
    /// The bytes go to new space: their block group takes no writes.
    GroupReadOnly,
    /// The bytes cannot be written over: the subvolume is read-only, or the file is immutable, append-only or sealed by fs-verity.
    ReadOnly,
}

impl Overwrite {
    /// Whether the bytes stay where they are.
    #[must_use]
    pub const fn is_in_place(self) -> bool {
        matches!(self, Self::InPlace | Self::Prealloc)
    }

    /// The name of the destination for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InPlace => "in_place",
            Self::Prealloc => "prealloc",
            Self::CopyOnWrite => "copy_on_write",
            Self::Checksums => "checksums",
            Self::Compressed => "compressed",
            Self::Shared => "shared",
            Self::Inline => "inline",
            Self::Hole => "hole",
            Self::GroupReadOnly => "group_read_only",
            Self::ReadOnly => "read_only",
        }
    }

    /// The meaning of a refused write of an item. `None` for refusals that a writer that may wait never gets.
    const fn of(why: Refusal) -> Option<Self> {
        Some(match why {
            Refusal::Copied => Self::CopyOnWrite,
            Refusal::Checksums => Self::Checksums,
            Refusal::Compressed => Self::Compressed,
            // A snapshot that is being taken has the extent.
            Refusal::Shared | Refusal::Snapshot => Self::Shared,
            Refusal::Inline => Self::Inline,
            Refusal::Hole => Self::Hole,
            Refusal::GroupReadOnly => Self::GroupReadOnly,
            _ => return None,
        })
    }
}

/// The part of a file that has one [`Overwrite`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct OverwriteCount {
    /// Extents, as far as the file shows them, or holes.
    pub extents: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// The destinations of the bytes of a file that are written over.
///
/// ```no_run
/// # fn example(file: &creamery_fs::OpenFile) -> creamery_base::Result<()> {
/// let overwrites = file.overwrites()?;
/// for (overwrite, count) in overwrites.iter() {
///     println!("{} bytes in {} extents: {}", count.bytes, count.extents, overwrite.name());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Overwrites(BTreeMap<Overwrite, OverwriteCount>);

impl Overwrites {
    /// The part of the file with this destination.
    #[must_use]
    pub fn of(&self, overwrite: Overwrite) -> OverwriteCount {
        self.0.get(&overwrite).copied().unwrap_or_default()
    }

    /// All parts of the file; an empty file has no part.
    pub fn iter(&self) -> impl Iterator<Item = (Overwrite, OverwriteCount)> {
        self.0.iter().map(|(overwrite, count)| (*overwrite, *count))
    }

    /// Whether every byte of the file stays where it is.
    #[must_use]
    pub fn are_in_place(&self) -> bool {
        self.0.keys().all(|overwrite| overwrite.is_in_place())
    }

    fn add(&mut self, overwrite: Overwrite, extents: u64, bytes: u64) {
        let count = self.0.entry(overwrite).or_default();
        count.extents += extents;
        count.bytes += bytes;
    }
}

impl OpenFile {
    /// Returns the destination of each byte up to the end of the file when it is written over next. Delayed data is written back
    /// before, where anything can be written. For each extent of a NODATACOW file, this looks up its references in the extent tree.
    ///
    /// # Errors
    /// It is no regular file; data that could not be written back; device errors; damage.
    pub fn overwrites(&self) -> Result<Overwrites> {
        let inode = &**self.inode();
        inode.engine().check_open()?;
        let file = &inode.regular()?;
        file.flush()?;
        let locked = file.lock_range_shared(0, u64::MAX, Wait::Yes)?;
        // Writes back pages that became dirty meanwhile. No more do while the range is locked.
        file.flush()?;
        let item = file.item(Wait::Yes)?;
        let ranges = ranges(file, item.size)?;
        let mut overwrites = Overwrites::default();
        if item.size > 0 && (item.flags.intersects(FIXED) || inode.subvolume().check_writable().is_err()) {
            overwrites.add(Overwrite::ReadOnly, ranges.len() as u64, item.size);
            return Ok(overwrites);
        }
        let mut at = 0;
        for (start, end) in ranges.into_iter().chain([(item.size, item.size)]) {
            if at < start {
                overwrites.add(Overwrite::Hole, 1, start - at);
            }
            look(file, &item, (start, end), &mut overwrites)?;
            at = end;
        }
        drop(locked);
        Ok(overwrites)
    }
}

/// Flags of files that cannot be written over.
const FIXED: InodeFlags =
    InodeFlags::IMMUTABLE.union(InodeFlags::READONLY).union(InodeFlags::APPEND).union(InodeFlags::VERITY);

/// The ranges of the items before the end of a file, but for holes.
fn ranges(file: &FileInode<'_>, size: u64) -> Result<Vec<(u64, u64)>> {
    let sector = u64::from(file.engine().sector_size());
    let _still = file.hold_extents(Wait::Yes)?;
    let mut items = ExtentItems::new(file.tree(), file.id.ino, (0, size), sector, Wait::Yes)?;
    let mut ranges = Vec::new();
    while let Some(item) = items.next()? {
        if !matches!(item.extent, FileExtentItem::Hole { .. }) {
            ranges.push((item.start, item.end));
        }
    }
    Ok(ranges)
}

/// Checks one item, as a write over all of it does, or as several writes do where it is too long for one.
fn look(
    file: &FileInode<'_>,
    item: &InodeItem,
    (start, end): (u64, u64),
    overwrites: &mut Overwrites,
) -> Result<()> {
    let mut at = start;
    while at < end.min(item.size) {
        let to = end.min(at + EXTENT_LEN_MAX);
        let overwrite = match in_one_extent(file, item, (at, to), Wait::Yes)? {
            Ok(found) if found.is_prealloc() => Overwrite::Prealloc,
            Ok(_) => Overwrite::InPlace,
            Err(why) => Overwrite::of(why).ok_or_else(|| {
                let what = format!("an extent of inode {} at {at}: {}", file.id.ino, why.name());
                Error::new(ErrorKind::Corrupt, what)
            })?,
        };
        overwrites.add(overwrite, u64::from(at == start), to.min(item.size) - at);
        at = to;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
