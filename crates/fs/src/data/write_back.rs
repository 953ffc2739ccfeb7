//! Writing a run of delayed data back: its pages become extents, or the inline data of a small file.

use std::sync::Arc;

use creamery_base::Result;
use creamery_device::{Parts, SharedBytes};
use creamery_txn::DelallocReservation;

use super::data_source::{DataSink, DataSource};
use super::packing::{inline_max, packing_of};
use super::tail::settle_tail_for;
use super::write::write_payload;
use super::{ReserveSource, inline};
use crate::delalloc::DelallocRange;
use crate::inode::FileInode;

impl DataSource for DelallocRange {
    fn range(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    fn data_end(&self) -> u64 {
        self.data_end()
    }

    fn write(&self, (start, end): (u64, u64), space: &mut dyn DataSink) -> Result<()> {
        let mut parts = Parts::default();
        for (at, piece) in self.pieces() {
            let stop = at + piece.len() as u64;
            if at < end && start < stop {
                let place = |part: u64| usize::try_from(part - at).expect("bounded by the length of a piece");
                let range = place(at.max(start))..place(stop.min(end));
                parts.push(SharedBytes::from(Arc::clone(piece)).slice(range));
            }
        }
        space.write_parts(parts)
    }
}

/// Writes `run`, which is in flight, into space and the tree, out of `room`. Reports each completed part, handle by handle.
/// Errors: no space; device errors; damage; aborted. The file has the front of the run then, as far as it was reported.
pub(crate) fn write_back(
    inode: &FileInode<'_>,
    run: &DelallocRange,
    room: &mut DelallocReservation,
) -> Result<()> {
    let engine = inode.engine();
    engine.check_writable()?;
    let sector = u64::from(engine.sector_size());
    let mut item = inode.tree_item();
    if run.start >= item.size && (!item.size.is_multiple_of(sector) || item.size == sector) {
        // The last sector was settled when the page became dirty, too, and that may have been lost since.
        settle_tail_for(&mut ReserveSource::BeforeRun(room), inode, &mut item)?;
    }
    let behalf = &mut ReserveSource::Writeback(room);
    let whole = run.start == 0 && run.end == sector && item.size <= run.size && run.size <= sector;
    if whole
        && run.data_end() <= inline_max(inode, &item)
        && inline::possible(inode.tree(), inode.id.ino, sector)?
    {
        let (_, page) = run.pieces().next().expect("a run is not empty");
        let content = &page[..usize::try_from(run.data_end()).expect("a sector at most")];
        let most = inline::len_max(inode.context(), inode.tree());
        let packed = packing_of(inode, &item)?.and_then(|packing| packing.pack_inline(content, most));
        if packed.is_some() || run.data_end() <= most {
            return inline::rewrite_for(behalf, inode, &mut item, content, packed.as_ref());
        }
    }
    write_payload(behalf, inode, &mut item, run, &mut { run.start })
}
