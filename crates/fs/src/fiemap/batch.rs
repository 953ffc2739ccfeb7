//! Making a batch: the layout under the locks, then, without any, who shares what.

use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_txn::Engine;

use super::extent::{FiemapExtent, FiemapFlags};
use super::layout::{BatchStart, Layout, LayoutEntry};
use super::listing::{Fiemap, FiemapBatch};
use crate::inode::{FILE_SIZE_MAX, Inode};
use crate::open_file::OpenFile;

/// What is to be listed of a file.
///
/// ```
/// use creamery_fs::FiemapRequest;
/// let all = FiemapRequest::default();
/// assert_eq!((all.offset, all.len, all.sync), (0, u64::MAX, false));
/// let some = FiemapRequest { offset: 4096, len: 1 << 20, sync: true };
/// assert_ne!(some, all);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FiemapRequest {
    /// Where the range begins, bytes. An extent that it begins in is listed whole.
    pub offset: u64,
    /// Bytes of the range; what is delayed behind it is not listed, an extent that reaches over its end is, whole.
    pub len: u64,
    /// Delayed data is written back first, so that every entry says where it lies.
    pub sync: bool,
}

impl Default for FiemapRequest {
    /// All of the file, as it is.
    fn default() -> Self {
        Self { offset: 0, len: u64::MAX, sync: false }
    }
}

impl OpenFile {
    /// Which extents the file has in a range, and where they lie, as FIEMAP tells it: without holes, delayed data included. Where
    /// anything can be written, what was done before is committed first, to tell what is shared; what is delayed stays so, unless
    /// `sync` is wanted.
    ///
    /// ```no_run
    /// # fn example(file: &creamery_fs::OpenFile) -> creamery_base::Result<()> {
    /// for extent in file.fiemap(&creamery_fs::FiemapRequest::default()) {
    ///     let extent = extent?;
    ///     println!("{} bytes of {} at {}", extent.length, extent.logical, extent.physical);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Each item: those of [`OpenFile::fiemap_batch`]; nothing follows one.
    #[must_use]
    pub fn fiemap(&self, request: &FiemapRequest) -> Fiemap<'_> {
        let request = *request;
        Fiemap::new(move |next| self.fiemap_batch(&request, next))
    }

    /// Some of that: from the beginning, or from where the last batch ended.
    ///
    /// # Errors
    /// It is no regular file; a range without a length; one that begins where no file has anything; those of a commit; data that
    /// could not be written back; device errors; damage.
    pub fn fiemap_batch(&self, request: &FiemapRequest, next: Option<u64>) -> Result<FiemapBatch> {
        let inode = &**self.inode();
        let engine = inode.engine();
        engine.check_open()?;
        let inode = &inode.regular()?;
        let (from, end) = range(request, next, u64::from(engine.sector_size()))?;
        let from_here = || inode.lock_range_shared(from.offset(), u64::MAX, Wait::Yes);
        if request.sync {
            inode.flush()?;
        }
        let locked = from_here()?;
        if request.sync && inode.delalloc().any() {
            // What became dirty meanwhile. Nothing more does where the range is.
            inode.flush()?;
        }
        inode.item(Wait::Yes)?; // it lives
        // What is freed from here on is not handed out again as long as this is kept (FIEMAP-6).
        let still = engine.commit_root_guard();
        let layout = Layout::of(inode, from, end)?;
        drop(locked);
        let extents = shared(inode, engine, &layout.pieces, matches!(from, BatchStart::Anew(_)))?;
        drop(still);
        Ok(FiemapBatch { extents, next: layout.next, ends_file: layout.ends_file })
    }
}

/// Where a batch begins, and where the listing ends, in whole sectors.
fn range(request: &FiemapRequest, next: Option<u64>, sector: u64) -> Result<(BatchStart, u64)> {
    if request.len == 0 {
        return Err(Error::invalid("empty range"));
    }
    if request.offset > FILE_SIZE_MAX {
        return Err(Error::new(ErrorKind::FileTooLarge, "range begins beyond the maximum file size"));
    }
    let end = request.offset.saturating_add(request.len);
    let end = end.checked_next_multiple_of(sector).unwrap_or(u64::MAX);
    Ok((next.map_or(BatchStart::Anew(request.offset), BatchStart::Behind), end))
}

/// The entries, with who shares them (FIEMAP-3); the first ones of a listing as of now, which takes a commit.
pub(super) fn shared(
    inode: &Inode,
    engine: &Engine,
    pieces: &[LayoutEntry],
    first: bool,
) -> Result<Vec<FiemapExtent>> {
    if pieces.iter().all(|piece| piece.extent.is_none()) {
        return Ok(pieces.iter().map(|piece| piece.entry).collect());
    }
    if first && engine.read_only().is_none() {
        engine.commit()?;
    }
    let mut sharing = engine.sharing()?;
    let mut tell = |piece: &LayoutEntry| {
        let mut entry = piece.entry;
        if let Some((at, base)) = piece.extent
            && sharing.is_shared(at, inode.id, base)?
        {
            entry.flags |= FiemapFlags::SHARED;
        }
        Ok(entry)
    };
    pieces.iter().map(&mut tell).collect()
}
