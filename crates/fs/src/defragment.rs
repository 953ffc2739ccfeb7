//! Defragmenting: puts the data of a file together that lies in many places.
//!
//! A step goes through a file from the front. A run is data that is contiguous in the file, but in pieces that are not contiguous on the volume. It is rewritten
//! (`data/rewrite`), except for pieces that would not be joined with another one: free space may be in pieces, too, and compressed extents are short. These stay
//! where they are:
//! - data in one piece;
//! - pieces that are long enough (compressed ones: of the largest length);
//! - holes, preallocated space and inline data.
//!
//! If the compression is to change, all data is rewritten, as on Linux.
//!
//! The inode is locked for one run at a time, of at most 128 MiB, so that other threads get at the file in between, and an interrupted call stops.

use creamery_base::{ErrorKind, Result, Wait};
use creamery_format::Compression;
use creamery_format::file_extent::{COMPRESSED_LEN_MAX, EXTENT_LEN_MAX, Extent, FileExtentItem};

use crate::data::extent_map::ExtentItems;
use crate::data::{self, Recompress};
use crate::inode::permission::check_not_immutable;
use crate::inode::{FileInode, Inode, InodeItem};
use crate::open_file::OpenFile;

/// Bytes that are rewritten under one lock: the length of a long enough piece, but not fewer than this.
const RUN_MIN: u64 = 32 << 20;

/// The range of a file to defragment, and how.
///
/// ```
/// use creamery_fs::Defragment;
/// assert_eq!(Defragment::default().threshold, 32 << 20);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Defragment {
    /// Where the range begins, bytes.
    pub offset: u64,
    /// Length of the range, bytes.
    pub len: u64,
    /// Pieces of at least this many bytes stay where they are, unless the compression is to change.
    pub threshold: u64,
    /// The compression of rewritten data.
    pub compress: Recompress,
}

impl Default for Defragment {
    /// All of the file; pieces of 32 MiB are long enough, as in btrfs-progs.
    fn default() -> Self {
        Self { offset: 0, len: u64::MAX, threshold: 32 << 20, compress: Recompress::AsUsual }
    }
}

/// A range of data without a gap in the file.
struct GaplessRange {
    start: u64,
    end: u64,
    /// Where the pieces end in the file. Each is in one place on the volume.
    pieces: Vec<u64>,
}

impl GaplessRange {
    /// The end of the piece that contains a range, which begins in the run; `None` if the range has several pieces.
    fn piece_around(&self, (start, end): (u64, u64)) -> Option<u64> {
        let at = self.pieces.partition_point(|piece| *piece <= start);
        self.pieces.get(at).copied().filter(|piece| end <= *piece)
    }
}

impl OpenFile {
    /// Puts data together that lies in many places, and compresses it in another way if `wanted` says so. The file's content and times stay the same. Stops between
    /// two steps if `is_interrupted` returns true. Returns how many bytes were rewritten.
    ///
    /// ```
    /// # fn example(file: &creamery_fs::OpenFile) -> creamery_base::Result<()> {
    /// use creamery_fs::{Defragment, Recompress};
    /// let compress = Recompress::With("zstd:9".parse::<creamery_fs::Compress>()?.method);
    /// file.defragment(&Defragment { compress, ..Defragment::default() }, &|| false)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// It is no regular file, or may not be changed; no space (a part may be done); data that cannot be read; aborted; interrupted.
    pub fn defragment(&self, wanted: &Defragment, is_interrupted: &dyn Fn() -> bool) -> Result<u64> {
        let (mut at, mut done) = (wanted.offset, 0);
        while let Some((reached, bytes)) = self.defragment_step(wanted, at, is_interrupted)? {
            (at, done) = (reached, done + bytes);
        }
        Ok(done)
    }

    /// One step of [`defragment`](Self::defragment), from `at` on. Returns where the next one begins, and how many bytes were rewritten; `None` at the end.
    ///
    /// # Errors
    /// Those of [`defragment`](Self::defragment).
    pub fn defragment_step(
        &self,
        wanted: &Defragment,
        at: u64,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<(u64, u64)>> {
        let inode = &**self.inode();
        inode.engine().check_open()?;
        let inode = &inode.regular()?;
        if is_interrupted() {
            return Err(ErrorKind::Interrupted.into());
        }
        let sector = u64::from(inode.engine().sector_size());
        let (at, end) = (at - at % sector, wanted.offset.saturating_add(wanted.len));
        let mut locked = inode.lock_exclusive()?;
        // The subvolume may have become read-only, or the file immutable, since the step before.
        let _change = inode.begin_change()?;
        check_not_immutable(&locked)?;
        let _range = inode.lock_range(at, u64::MAX, Wait::Yes)?;
        inode.settle(&mut locked)?;
        step(inode, locked.item_mut(), wanted, (at, end), is_interrupted)
    }
}

/// Rewrites the next run in a range of a file that has no delayed data there. Returns where the run ended, and how many of its bytes were rewritten; `None` if there
/// are no more.
pub(crate) fn step(
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    wanted: &Defragment,
    (start, end): (u64, u64),
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Option<(u64, u64)>> {
    let sector = u64::from(inode.engine().sector_size());
    let end = end.min(item.size).checked_next_multiple_of(sector).unwrap_or(u64::MAX);
    if start >= end {
        return Ok(None); // items may lie behind the end of the file
    }
    let Some(run) = next_run(inode, wanted, (start, end), sector)? else { return Ok(None) };
    let leaves = |range| match () {
        () if is_interrupted() => Err(ErrorKind::Interrupted.into()),
        () if wanted.compress != Recompress::AsUsual => Ok(None),
        () => Ok(run.piece_around(range)),
    };
    let bytes = data::rewrite(inode, item, (run.start, run.end), wanted.compress, leaves)?;
    Ok(Some((run.end, bytes)))
}

/// Finds the next run of a range that is to be rewritten.
fn next_run(
    inode: &Inode,
    wanted: &Defragment,
    range: (u64, u64),
    sector: u64,
) -> Result<Option<GaplessRange>> {
    let mut search = RunSearch::new(wanted);
    let mut items = ExtentItems::new(inode.tree(), inode.id.ino, range, sector, Wait::Yes)?;
    while let Some(item) = items.next()? {
        let is_ready = match item.extent {
            FileExtentItem::Regular(extent) => {
                search.add(ContiguousData::new((item.start, item.end), &extent, range))
            }
            _ => search.gap(),
        };
        if is_ready {
            return Ok(search.run);
        }
    }
    Ok(if search.gap() { search.run } else { None })
}

/// Data that is contiguous in the file and on the volume.
#[derive(Clone, Copy)]
struct ContiguousData {
    start: u64,
    end: u64,
    disk: (u64, u64),
    is_packed: bool,
}

impl ContiguousData {
    /// The part of an item that is in `range`.
    fn new((start, end): (u64, u64), extent: &Extent, range: (u64, u64)) -> Self {
        let (at, stop) = (start.max(range.0), end.min(range.1));
        let disk = extent.disk_bytenr.get();
        let is_packed = extent.compression != Compression::None;
        let disk = if is_packed {
            (disk, disk + extent.disk_num_bytes)
        } else {
            let shown = disk + extent.offset;
            (shown + (at - start), shown + (stop - start))
        };
        Self { start: at, end: stop, disk, is_packed }
    }

    const fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// A search for a run through the items of a file.
struct RunSearch<'a> {
    wanted: &'a Defragment,
    /// The largest length of a run, bytes.
    most: u64,
    run: Option<GaplessRange>,
    /// The present piece, which the next item may extend.
    piece: Option<ContiguousData>,
}

impl<'a> RunSearch<'a> {
    fn new(wanted: &'a Defragment) -> Self {
        Self { wanted, most: wanted.threshold.clamp(RUN_MIN, EXTENT_LEN_MAX), run: None, piece: None }
    }

    fn repacks(&self) -> bool {
        self.wanted.compress != Recompress::AsUsual
    }

    /// Adds the part of the next item. Returns whether there is a run to rewrite.
    fn add(&mut self, mut next: ContiguousData) -> bool {
        if let Some(piece) = &mut self.piece
            && (piece.end, piece.disk.1, piece.is_packed) == (next.start, next.disk.0, next.is_packed)
            && !(self.wanted.compress != Recompress::AsUsual && next.end - piece.start > self.most)
        {
            (piece.end, piece.disk.1) = (next.end, next.disk.1);
            return false;
        }
        if self.end_piece() {
            return true;
        }
        let is_cut = self.repacks() && next.len() > self.most;
        if is_cut {
            next.end = next.start + self.most;
        }
        self.piece = Some(next);
        is_cut && self.gap()
    }

    /// Ends the present piece and run. Returns whether there is a run to rewrite.
    fn gap(&mut self) -> bool {
        self.end_piece() || self.end_run()
    }

    fn end_piece(&mut self) -> bool {
        let Some(piece) = self.piece.take() else { return false };
        let most = if piece.is_packed { COMPRESSED_LEN_MAX } else { u64::MAX };
        if !self.repacks() && piece.len() >= self.wanted.threshold.min(most) {
            return self.end_run();
        }
        let goes_on = |run: &GaplessRange| run.end == piece.start && piece.end - run.start <= self.most;
        if let Some(run) = self.run.as_mut().filter(|run| goes_on(run)) {
            run.end = piece.end;
            run.pieces.push(piece.end);
            return false;
        }
        // If the run is to be rewritten, a later search begins with this piece.
        if self.end_run() {
            return true;
        }
        self.run = Some(GaplessRange { start: piece.start, end: piece.end, pieces: vec![piece.end] });
        false
    }

    /// Keeps the run if it is to be rewritten.
    fn end_run(&mut self) -> bool {
        let repacks = self.repacks();
        self.run = self.run.take().filter(|run| repacks || run.pieces.len() > 1);
        self.run.is_some()
    }
}
