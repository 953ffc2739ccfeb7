//! Sharing: a range of one file gets the extents of a range of another, or of another place in the same file.
//!
//! This module decides which ranges may be shared, by the rules of ioctl_ficlonerange(2) and ioctl_fideduperange(2): ranges begin
//! with sectors, and end with one or with the file. Then it locks both inodes alone, in the order of their ids, and writes back
//! their delayed data, so that `data::clone_range` finds everything in the trees.
//!
//! # Invariants
//! - REMAP-1: deduplicating a range changes no byte of the file: both ranges are locked from the comparison on.
//!   Shown by `what_differs_is_not_shared_and_what_is_equal_reads_as_before`.

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};

use crate::Filesystem;
use crate::data::{self, CloneRange};
use crate::file;
use crate::inode::lock::ExclusiveInode;
use crate::inode::permission::{check_not_append_only, check_not_sealed};
use crate::inode::{FILE_SIZE_MAX, FileInode, Inode, InodeFlags, InodeItem};
use crate::names::new_file_has_checksums;
use crate::open_file::OpenFile;

/// Bytes that are compared at once.
const COMPARED: u64 = 1 << 20;

/// The outcome of deduplicating.
///
/// ```
/// use creamery_fs::Deduped;
/// assert_ne!(Deduped::Shared(4096), Deduped::Differ);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deduped {
    /// The ranges have different bytes, and stay as they are.
    Differ,
    /// So many bytes were shared before.
    Already(u64),
    /// So many bytes are shared now.
    Shared(u64),
}

/// The rules by which ranges are shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RemapRules {
    /// Shares all of the range, or nothing.
    Clone,
    /// Shares as much of the range as can be shared.
    Copy,
    /// Shares as much of the range as can be shared, if the data is equal.
    Dedupe,
}

/// A file, and its item.
type KnownFile<'a> = (&'a FileInode<'a>, &'a InodeItem);

/// The inodes of both ends, locked alone.
struct Both<'a> {
    /// `None` when it is the target.
    source: Option<ExclusiveInode<'a>>,
    target: ExclusiveInode<'a>,
}

impl<'a> Both<'a> {
    fn lock(source: &'a Inode, target: &'a Inode) -> Result<Self> {
        if source.id == target.id {
            return Ok(Self { source: None, target: target.lock_exclusive()? });
        }
        if source.id < target.id {
            let source = source.lock_exclusive()?;
            return Ok(Self { source: Some(source), target: target.lock_exclusive()? });
        }
        let target = target.lock_exclusive()?;
        Ok(Self { source: Some(source.lock_exclusive()?), target })
    }

    fn source(&self) -> &InodeItem {
        self.source.as_ref().unwrap_or(&self.target)
    }
}

impl OpenFile {
    /// Shares the `len` bytes of `source` from `from` on: this file then has them from `to` on, in place of its own, and grows if
    /// needed. A `len` of 0 means all of `source` from there on.
    /// Errors: invalid for ranges that do not begin and end with sectors (the end of `source` will do, unless this file goes on
    /// behind it), that overlap, that go beyond the end of `source`, and for files of which one has checksums and one has not;
    /// too large; no space; of another filesystem; those of writing. After an error on the way a first part is shared.
    pub fn clone_range(&self, source: &Self, from: u64, len: u64, to: u64) -> Result<()> {
        self.remap(source, CloneRange { from, to, len, keep_times: false }, RemapRules::Clone, |_, _, _| {
            Ok(true)
        })
        .map(drop)
    }

    /// Shares as much as possible of a range that is to be copied, from its front on; returns how many bytes. The caller copies the
    /// rest, or all where the error is [`ErrorKind::Unsupported`].
    /// Errors: those of [`OpenFile::clone_range`], before anything is shared; later an error only makes the shared part shorter.
    pub fn share_range(&self, source: &Self, from: u64, len: u64, to: u64) -> Result<u64> {
        if len == 0 {
            return Ok(0);
        }
        self.remap(source, CloneRange { from, to, len, keep_times: false }, RemapRules::Copy, |_, _, _| {
            Ok(true)
        })
        .map(|shared| shared.map_or(0, |range| range.len))
    }

    /// Shares the `len` bytes that `source` has from `from` on, if this file has equal bytes from `to` on, or as many of them as
    /// end with a sector. The content and the times of the file stay.
    /// Errors: those of [`OpenFile::clone_range`]; either range goes beyond the end of its file; those of reading.
    pub fn dedupe_range(&self, source: &Self, from: u64, len: u64, to: u64) -> Result<Deduped> {
        if len == 0 {
            return Ok(Deduped::Already(0));
        }
        let mut already = None;
        let range = CloneRange { from, to, len, keep_times: true };
        let shared = self.remap(source, range, RemapRules::Dedupe, |from, to, range| {
            if data::is_shared(from.0, to.0, range)? {
                already = Some(range.len);
                return Ok(false);
            }
            is_equal(from, to, range)
        })?;
        Ok(match (shared, already) {
            (Some(range), _) => Deduped::Shared(range.len),
            (None, Some(len)) => Deduped::Already(len),
            (None, None) => Deduped::Differ,
        })
    }

    /// Shares `range`, or the part of it that `purpose` lets, if `wanted` returns true once everything is locked. Returns the
    /// shared range.
    fn remap(
        &self,
        source: &Self,
        range: CloneRange,
        purpose: RemapRules,
        wanted: impl FnOnce(KnownFile<'_>, KnownFile<'_>, &CloneRange) -> Result<bool>,
    ) -> Result<Option<CloneRange>> {
        let (from, to) = (&**source.inode(), &**self.inode());
        if !std::ptr::eq(from.engine(), to.engine()) {
            return Err(Error::new(ErrorKind::CrossDevice, "sharing data with another filesystem"));
        }
        to.engine().check_open()?;
        let _change = to.begin_change()?;
        let (from, to) = (&from.regular()?, &to.regular()?);
        let mut both = Both::lock(from, to)?;
        check_not_append_only(&both.target)?;
        // Deduplicating changes no data.
        if purpose != RemapRules::Dedupe {
            check_not_sealed(&both.target)?;
        }
        let Some(range) = check(&both, range, purpose, from.id == to.id, to.engine().sector_size().into())?
        else {
            return Ok(None);
        };
        if let Some(source) = &mut both.source {
            from.settle(source)?;
        }
        // Growing over a gap changes the bytes between the old end and the range.
        let locked = to.lock_range(range.to.min(both.target.size), range.to + range.len, Wait::Yes)?;
        to.settle(&mut both.target)?;
        let source_item = both.source().clone();
        if !wanted((from, &source_item), (to, &both.target), &range)? {
            return Ok(None);
        }
        let mut reached = range.from;
        let done = data::clone_range(from, &source_item, to, both.target.item_mut(), range, &mut reached);
        drop(locked);
        match done {
            Err(_) if purpose == RemapRules::Copy && reached > range.from => {
                Ok(Some(CloneRange { len: reached - range.from, ..range }))
            }
            done => done.map(|()| Some(range)),
        }
    }
}

impl Filesystem {
    /// Whether the data of a file made in `dir` has checksums. It shares no data with a file that differs in that.
    /// Errors: not found; damage.
    pub fn new_file_has_checksums(&self, dir: InodeId) -> Result<bool> {
        let flags = self.stat(dir, Wait::Yes)?.flags;
        Ok(new_file_has_checksums(flags, self.context().policy().nodatacow))
    }
}

/// The part of `range` that may be shared; `None` when a copy, or a clone of all the rest, begins where the source has no bytes left.
fn check(
    both: &Both<'_>,
    range: CloneRange,
    purpose: RemapRules,
    is_one: bool,
    sector: u64,
) -> Result<Option<CloneRange>> {
    let CloneRange { from, to, mut len, .. } = range;
    let (source, target) = (both.source(), &both.target);
    let refuse = |why: &str| match purpose {
        RemapRules::Copy => Err(Error::unsupported(format!("sharing data: {why}"))),
        RemapRules::Clone | RemapRules::Dedupe => Err(Error::invalid(why.to_owned())),
    };
    if source.flags.contains(InodeFlags::NODATASUM) != target.flags.contains(InodeFlags::NODATASUM) {
        return refuse("only one of the files has checksums");
    }
    if len == 0 || purpose == RemapRules::Copy {
        if len == 0 && from > source.size {
            return refuse("range begins beyond the end of its file");
        }
        let left = source.size.saturating_sub(from);
        len = if len == 0 { left } else { len.min(left) };
        if len == 0 {
            return Ok(None);
        }
    }
    if !from.is_multiple_of(sector) || !to.is_multiple_of(sector) {
        return refuse("range start is not sector-aligned");
    }
    let end = |at: u64| at.checked_add(len).ok_or_else(|| Error::invalid("range end overflows"));
    let (from_end, to_end) = (end(from)?, end(to)?);
    if from_end > source.size || (purpose == RemapRules::Dedupe && to_end > target.size) {
        return refuse("range ends beyond the end of its file");
    }
    if to_end > FILE_SIZE_MAX {
        return Err(ErrorKind::FileTooLarge.into());
    }
    let ends_with_both = from_end == source.size && to_end >= target.size;
    if !len.is_multiple_of(sector) && !ends_with_both {
        if purpose == RemapRules::Clone {
            return refuse("range end is neither sector-aligned nor the end of both files");
        }
        len -= len % sector;
        if len == 0 {
            return refuse("range is shorter than a sector");
        }
    }
    if is_one && from < to + len && to < from + len {
        return refuse("the ranges overlap");
    }
    Ok(Some(CloneRange { len, ..range }))
}

/// Whether both ranges have equal bytes.
fn is_equal(from: KnownFile<'_>, to: KnownFile<'_>, range: &CloneRange) -> Result<bool> {
    let most = usize::try_from(range.len.min(COMPARED)).expect("a piece fits in memory");
    let mut bytes = [vec![0; most], vec![0; most]];
    let mut done = 0;
    while done < range.len {
        let len = usize::try_from((range.len - done).min(COMPARED)).expect("a piece fits in memory");
        let [one, other] = &mut bytes;
        let (one, other) = (&mut one[..len], &mut other[..len]);
        file::read(from.0, from.1, range.from + done, one, Wait::Yes)?;
        file::read(to.0, to.1, range.to + done, other, Wait::Yes)?;
        if one != other {
            return Ok(false);
        }
        done += len as u64;
    }
    Ok(true)
}
