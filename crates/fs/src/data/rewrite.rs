//! Rewriting: existing data of a file gets new space, in one piece where there is room, or another compression.
//!
//! The file's bytes and times stay. It no longer shares the rewritten data with other files.
//!
//! ```text
//!   before  |-a-|-b-|---c---|-d-|     four fragments, anywhere on the volume
//!   after   |---------e---------|     read in pieces, written to new space, and shown in their place
//! ```
//!
//! The caller has the inode alone, and nothing of it is delayed.
//!
//! # Invariants
//! - REWRITE-1: the file reads as before, whatever becomes of it on the way.
//!   Shown by `what_is_defragmented_reads_as_before_and_lies_in_one_piece`, `random_changes_read_back_as_a_vector_of_bytes`.

use creamery_base::{Result, Wait};
use creamery_codec::CompressionMethod;

use super::completion::Completion;
use super::data_source::{DataSink, DataSource};
use super::new_extent::new_extent;
use super::ordered_extent::SizeAfter;
use super::packing::{Packing, packing_of};
use super::{ReserveSource, read};
use crate::inode::{FileInode, Inode, InodeItem};

/// The compression of rewritten data.
///
/// ```
/// use creamery_fs::Recompress;
/// assert_eq!(Recompress::default(), Recompress::AsUsual);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Recompress {
    /// The compression that new data of the file would get.
    #[default]
    AsUsual,
    /// This method, whatever the mount and the file say, where that makes it shorter; not in a file that is overwritten in place,
    /// or has no checksums.
    With(CompressionMethod),
    /// No compression.
    Plain,
}

/// Number of bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// Gives the data of `range`, which is whole sectors of nothing but data, new space. Returns the number of bytes rewritten. `leaves`
/// is called with the range of each new extent. Where it returns an offset, the file stays as it is up to there, and the extent is
/// dropped.
/// Errors: those of `leaves`; no space; those of reading; aborted.
pub(crate) fn rewrite(
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    range: (u64, u64),
    how: Recompress,
    leaves: impl Fn((u64, u64)) -> Result<Option<u64>>,
) -> Result<u64> {
    let mut packing = match how {
        Recompress::AsUsual => packing_of(inode, item)?,
        Recompress::With(method) => Packing::forced(inode.context(), item, method),
        Recompress::Plain => None,
    };
    let content = RangeContent { inode, item: item.clone(), range };
    let behalf = &mut ReserveSource::Rearranging;
    let (mut reached, mut done) = (range.0, 0);
    let mut completion = Completion::new(behalf, inode, item, &mut reached);
    while completion.reached() < range.1 {
        let (file, at) = (completion.file(), completion.reached());
        let ordered = new_extent(completion.behalf(), &file, &mut packing, &content, (at, range.1))?;
        if let Some(stop) = leaves((ordered.start(), ordered.end()))? {
            assert!(at < stop && stop <= range.1, "what stays is the front of what is left");
            completion.skip_to(stop);
            continue;
        }
        inode.set_data_behind(ordered.space_end());
        done += ordered.end() - ordered.start();
        ordered.complete(&mut completion, SizeAfter::AtLeast(0))?;
    }
    Ok(done)
}

/// The content of a file in a range.
struct RangeContent<'i> {
    inode: &'i Inode,
    item: InodeItem,
    range: (u64, u64),
}

impl DataSource for RangeContent<'_> {
    fn range(&self) -> (u64, u64) {
        self.range
    }

    fn data_end(&self) -> u64 {
        self.range.1.min(self.item.size)
    }

    fn write(&self, (mut at, end): (u64, u64), space: &mut dyn DataSink) -> Result<()> {
        let mut bytes = Vec::new();
        while at < end {
            // Bytes past the end of the file are zero.
            bytes.clear();
            bytes.resize(usize::try_from(PIECE.min(end - at)).expect("a piece fits in memory"), 0);
            let len = read(self.inode, &self.item, at, &mut bytes, Wait::Yes)?;
            bytes[len..].fill(0);
            space.write(&bytes)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }
}
