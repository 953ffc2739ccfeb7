//! Writing into memory.

use std::sync::Arc;

use creamery_base::{Result, Wait};
use creamery_txn::{DelallocReservation, Engine};
use smallvec::SmallVec;

use super::read;
use crate::data::{self, reserve};
use crate::delalloc::{Delayed, DelayedData, PageRanges, without};
use crate::inode::{FileInode, Inode, InodeItem};

/// A sector that a write covers in part, with its content before the write.
struct Edge {
    start: u64,
    /// `None` while the sector is delayed: its content is in memory.
    old: Option<Vec<u8>>,
}

/// Writes `data`, which is not empty, at `offset` into memory. `item` is the inode's item with the delayed changes. The caller has
/// locked the inode, alone if it grows, and the range from the end of the file on; and kept `room` for it.
/// Errors: those of reading, where a sector is written in part. Nothing has changed then.
pub(crate) fn write(
    (inode, shared): (&FileInode<'_>, &Arc<Inode>),
    item: &InodeItem,
    offset: u64,
    data: &[u8],
    room: DelallocReservation,
) -> Result<()> {
    let engine = inode.engine();
    let sector = u64::from(engine.sector_size());
    let end = offset + data.len() as u64;
    let (first, stop) = (offset - offset % sector, end.next_multiple_of(sector));
    let mut partial: SmallVec<[u64; 3]> = SmallVec::new();
    if let Some(tail) = tail_to_settle(inode, item, first, sector)? {
        partial.push(tail);
    }
    if !offset.is_multiple_of(sector) {
        partial.push(first);
    }
    if !end.is_multiple_of(sector) && (stop - sector != first || offset.is_multiple_of(sector)) {
        partial.push(stop - sector);
    }
    let holes = holes(inode, item, (first, stop))?;
    let mut room = Some(room);
    let now = (engine.env().now(), engine.env().monotonic());
    loop {
        let edges = partial
            .iter()
            .map(|&start| Ok(Edge { start, old: old_sector(inode, item, start, sector)? }))
            .collect::<Result<SmallVec<[Edge; 3]>>>()?;
        let added = inode.delalloc().begin(item.size, now.1, |state| {
            // A sector that was delayed at the first look may be on disk by now: then it is read.
            let known = |edge: &Edge| edge.old.is_some() || state.has(edge.start, edge.start + sector);
            if !edges.iter().all(known) {
                return None;
            }
            let before = state.pages().bytes();
            let mut write = Write { state, sector, holes: &holes, runs: 0 };
            edges.iter().for_each(|edge| write.put_edge(edge));
            write.put(offset, data);
            let runs = write.runs;
            let added = state.pages().bytes() - before;
            inode.context().writeback().count(added);
            let mine = room.take().and_then(|mut room| needed(engine, &mut room, (before, added), runs));
            state.written(end, now.0, mine);
            Some((added, before == 0))
        });
        if let Some((added, begins)) = added {
            let file: Arc<dyn Delayed> = Arc::<Inode>::clone(shared);
            inode.context().writeback().note_dirty(&file, engine, added, begins);
            return Ok(());
        }
    }
}

/// The room that `added` newly dirty bytes need of the room that their write kept, in so many runs of their own, where `before`
/// bytes were dirty already.
fn needed(
    engine: &Engine,
    room: &mut DelallocReservation,
    (before, added): (u64, u64),
    runs: u32,
) -> Option<DelallocReservation> {
    let per_item = room.metadata_bytes() / u64::from(reserve::items_kept(engine, room.data_bytes()));
    let per_csum = reserve::data_per_csum_item(engine);
    let csums = (before + added) / per_csum - before / per_csum;
    let items = u64::from(runs * reserve::ITEMS_PER_RUN) + csums;
    (added > 0).then(|| room.take(added, items * per_item))
}

/// One write, with the state locked.
struct Write<'a> {
    state: &'a mut DelayedData,
    sector: u64,
    holes: &'a PageRanges,
    /// The number of runs that it begins, without pages beside them.
    runs: u32,
}

impl Write<'_> {
    /// Makes a sector dirty that the write covers in part.
    fn put_edge(&mut self, edge: &Edge) {
        let (start, end) = (edge.start, edge.start + self.sector);
        if self.state.pages().has(start, end) {
            return;
        }
        let mut bytes = vec![0; usize::try_from(self.sector).expect("a sector fits in memory")];
        match &edge.old {
            // Data that was on its way by then is newer than the data that was read.
            Some(old) if !self.state.has(start, end) => bytes.copy_from_slice(old),
            _ => drop(self.state.copy_out(start, &mut bytes)),
        }
        self.insert(start, &bytes);
    }

    /// Copies the data in: over dirty pages, and as new pages between.
    fn put(&mut self, offset: u64, data: &[u8]) {
        self.state.overwrite(offset, data);
        let end = offset + data.len() as u64;
        let whole = (offset.next_multiple_of(self.sector), end - end % self.sector);
        if whole.0 >= whole.1 {
            return;
        }
        for (start, stop) in self.state.pages().missing(whole.0, whole.1) {
            let at = |place: u64| usize::try_from(place - offset).expect("bounded by the length of the data");
            self.insert(start, &data[at(start)..at(stop)]);
        }
    }

    fn insert(&mut self, start: u64, bytes: &[u8]) {
        // Pages in flight were counted when they became dirty.
        let flying = self.state.in_flight_range();
        let new: PageRanges = self.holes.iter().flat_map(|hole| without(*hole, flying)).collect();
        self.runs += u32::from(self.state.insert(start, bytes, &new));
    }
}

/// The last sector of the file, if the file grows over it from elsewhere and it is not settled: the tail may be stored inline, or
/// have nonzero bytes past the end (DATA-4).
fn tail_to_settle(inode: &FileInode<'_>, item: &InodeItem, first: u64, sector: u64) -> Result<Option<u64>> {
    if item.size == 0 || first < item.size {
        return Ok(None);
    }
    let last = (item.size - 1) / sector * sector;
    let unsettled = if inode.delalloc().has(last, last + sector) {
        // It may be on its way to be stored inline, or be so next: then it goes on with the data behind it.
        item.size <= data::inline_max(inode, item)
    } else {
        data::is_tail_unsettled(inode, item)?
    };
    Ok(unsettled.then_some(last))
}

/// The content of the sector at `start`; `None` when it is delayed.
fn old_sector(inode: &FileInode<'_>, item: &InodeItem, start: u64, sector: u64) -> Result<Option<Vec<u8>>> {
    if inode.delalloc().has(start, start + sector) {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(sector).expect("a sector fits in memory")];
    read(inode, item, start, &mut bytes, Wait::Yes)?;
    Ok(Some(bytes))
}

/// The parts of a range that have no space on a device.
fn holes(inode: &FileInode<'_>, item: &InodeItem, range: (u64, u64)) -> Result<PageRanges> {
    let sector = u64::from(inode.engine().sector_size());
    let on_disk = inode.tree_item();
    let known = on_disk.size.next_multiple_of(sector);
    let prealloc = data::has_prealloc(item);
    // As many bytes on disk as in the file: there is no hole below its end.
    let full = on_disk.nbytes >= on_disk.size && !prealloc;
    let looked_at = match () {
        () if prealloc => range,
        () if full => (range.0, range.0),
        () => (range.0, range.1.min(known).max(range.0)),
    };
    let behind = if prealloc { (range.1, range.1) } else { (range.0.max(known), range.1) };
    let mut holes = PageRanges::new();
    if looked_at.0 < looked_at.1 {
        holes.extend(data::holes_of(inode, looked_at)?);
    }
    holes.extend(Some(behind).filter(|(start, end)| start < end));
    Ok(holes)
}
