//! Writing whole sectors out of a buffer that the caller gave away: no byte of it is copied.

use creamery_base::Result;
use creamery_device::{Parts, SharedBytes};

use super::ReserveSource;
use super::data_source::{DataSink, DataSource};
use super::tail::settle_tail;
use super::write::{Front, write_pieces};
use crate::inode::{FileInode, InodeItem};

/// The written part, from the front on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirectlyWritten {
    /// The number of bytes.
    pub(crate) len: usize,
    /// The number of them that were written in place.
    pub(crate) in_place: u64,
}

impl DirectlyWritten {
    /// The outcome of a write of which the file has `[start, reached)`: as much as there was space for.
    pub(super) fn up_to((start, reached): (u64, u64), in_place: u64, done: Result<()>) -> Result<Self> {
        match done {
            Err(error) if !error.kind().is_no_room() || reached == start => Err(error),
            _ => Ok(Self { len: as_len(reached - start), in_place }),
        }
    }
}

/// Whole sectors of a file.
struct WholeSectors<'d> {
    start: u64,
    data: &'d SharedBytes,
}

impl DataSource for WholeSectors<'_> {
    fn range(&self) -> (u64, u64) {
        (self.start, self.data_end())
    }

    fn data_end(&self) -> u64 {
        self.start + self.data.len() as u64
    }

    fn write(&self, (start, end): (u64, u64), space: &mut dyn DataSink) -> Result<()> {
        let part = as_len(start - self.start)..as_len(end - self.start);
        space.write_parts(Parts::from(self.data.slice(part)))
    }
}

/// Writes `data` at `offset`, both whole sectors, as it is: in place where that is allowed, else to new space, and never packed. The
/// file is not stored inline. Less than all is written only when space ran out on the way.
/// Errors: no space; device errors; damage; aborted.
pub(crate) fn write_direct(
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    offset: u64,
    data: &SharedBytes,
) -> Result<DirectlyWritten> {
    let payload = WholeSectors { start: offset, data };
    if offset >= item.size && offset > 0 {
        settle_tail(inode, item)?;
    }
    let mut front = Front::at(offset);
    let done = write_pieces(&mut ReserveSource::Operation, inode, item, &payload, None, &mut front);
    DirectlyWritten::up_to((offset, front.reached), front.in_place, done)
}

/// A length that is bounded by a buffer's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer")
}
