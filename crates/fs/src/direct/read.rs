//! A direct read that nobody waits for.
//!
//! It takes its range of bytes, and looks where the data lies. What is in the tree itself, and holes, it has then. The rest goes from the
//! devices into the caller's buffer where all of it lies in one place, and else into buffers of ours, out of which it is put together in the end. Sectors are held
//! against their checksums as they come. The read carries its range until it is complete, and needs nothing else: who changes what is there
//! needs the range, and who writes back what was delayed changes other places.
//!
//! A thread has to read, in the end and as any other read is done, what takes more than asking devices once:
//!
//! | what | because |
//! |---|---|
//! | a request that is not whole sectors, or reads a file with fs-verity | whole sectors, or blocks, are read and compared |
//! | data that is compressed | it is unpacked |
//! | a range with delayed data | that is in memory |
//! | the last sector, while something is delayed that grows the file | writing that back may write the sector anew, elsewhere (`data`, DATA-4) |
//! | a range that a device had in part only, or not as its checksums say | another copy has it, and the bad one is mended; or there is an error to tell |

use std::sync::Arc;

use creamery_base::lock::{Held, Place as LockPlace, rank};
use creamery_base::{Logical, Result, Wait};
use creamery_device::AlignedBuffer;
use creamery_txn::FoundCsums;
use creamery_volume::ReadReport;

use super::DirectPart;
use super::answer::Answer;
use super::landing::{Carries, Landing};
use super::way::Buffered;
use crate::context::Context;
use crate::counters::Direct;
use crate::data::{self, Place};
use crate::file;
use crate::in_flight::{Begun, Purpose};
use crate::inode::carried::OwnedRange;
use crate::inode::{FileInode, Inode, InodeItem};

/// What devices are asked for.
type Ranges = Vec<(Logical, AlignedBuffer, FoundCsums)>;

/// Where a read gets from what it does not have when it begins.
enum From {
    /// A device fills the caller's buffer.
    OnePlace(Logical, FoundCsums),
    Places(Vec<(Place, FoundCsums)>),
    /// A thread reads all of it.
    Thread,
}

/// All that a read needs to end. The fields go from the first to the last.
struct CarriedRead {
    /// Where what devices are asked for belongs, but for what fills all of the buffer.
    places: Vec<Place>,
    /// What the read knows of the file.
    item: InodeItem,
    /// Where in the file it begins.
    offset: u64,
    range: OwnedRange,
}

/// A read that carries its range, and where it gets its bytes.
struct Flight {
    carried: CarriedRead,
    from: From,
    /// It is known until it is answered.
    begun: Begun,
}

/// Reads the inode, which is this file, from `offset` on into the buffer of `answer`.
pub(crate) fn submit(file: (&Arc<Inode>, &FileInode<'_>), offset: u64, mut answer: Answer) {
    let mut buffer = answer.lend();
    match begin(file, offset, &mut buffer) {
        Ok(Some(flight)) => flight.submit(buffer, answer),
        none => {
            answer.take_back(buffer);
            answer.give(none.map(|_| DirectPart { offset, len: 0 }));
        }
    }
}

/// Begins a read; none where there is nothing to read.
/// Errors: device errors; damage; the filesystem is being closed.
fn begin(
    (inode, file): (&Arc<Inode>, &FileInode<'_>),
    offset: u64,
    buffer: &mut AlignedBuffer,
) -> Result<Option<Flight>> {
    file.engine().check_open()?;
    let end = offset.saturating_add(buffer.len() as u64);
    let range = file.lock_range_shared(offset, end, Wait::Yes)?;
    // Who cuts the file has locked what he cuts: as long as the file is now it stays where this range is.
    let item = file.item(Wait::Yes)?;
    let counters = &file.context().counters().direct;
    Direct::count(&counters.reads);
    let buffered = Buffered::of_read(file, &item, (offset, buffer.len()));
    if let Some(why) = buffered {
        why.count(counters);
    }
    if offset >= item.size || buffer.is_empty() {
        return Ok(None);
    }
    let begun = file.context().in_flight().begin(file.id, Purpose::Read)?;
    let from = match buffered {
        None if is_on_devices(file, &item, (offset, end)) => find(file, &item, offset, buffer)?,
        _ => From::Thread,
    };
    let range = OwnedRange::carry(inode, range);
    begun.is_carried();
    Ok(Some(Flight { carried: CarriedRead { places: Vec::new(), item, offset, range }, from, begun }))
}

/// Whether all of a range that is in the file is in the tree, and stays where it is.
fn is_on_devices(file: &FileInode<'_>, item: &InodeItem, (offset, end): (u64, u64)) -> bool {
    let stored = file.tree_item().size;
    let last_sector = stored - stored % u64::from(file.engine().sector_size());
    !file.delalloc().touches(offset, end) && (stored == item.size || end <= last_sector)
}

/// Looks where the data lies, and fills `buffer` where that is nowhere. Errors: device errors; damage.
fn find(file: &FileInode<'_>, item: &InodeItem, offset: u64, buffer: &mut [u8]) -> Result<From> {
    let Some(places) = data::find(file, item, offset, buffer)? else { return Ok(From::Thread) };
    let csums = data::csums_of(item);
    // A thread that reads finds out what is the matter where there are none.
    let found = |place: Place| {
        Some((place, file.engine().find_csums(place.disk, place.len(), csums, Wait::Yes).ok()?))
    };
    let Some(mut places) = places.into_iter().map(found).collect::<Option<Vec<_>>>() else {
        return Ok(From::Thread);
    };
    let fills_all = matches!(places[..], [(place, _)] if place.len() == buffer.len());
    match places.pop_if(|_| fills_all) {
        Some((place, found)) => Ok(From::OnePlace(place.disk, found)),
        None => Ok(From::Places(places)),
    }
}

impl Flight {
    /// Asks devices, and waits for nothing. `buffer` has all that they are not asked for.
    fn submit(self, buffer: AlignedBuffer, mut answer: Answer) {
        let Self { mut carried, from, begun } = self;
        let engine = Arc::clone(carried.context().engine());
        let mut ranges = Ranges::new();
        let is_lent = matches!(from, From::OnePlace(..));
        match from {
            From::OnePlace(disk, found) => ranges.push((disk, buffer, found)),
            From::Places(places) => {
                answer.take_back(buffer);
                for (place, found) in places {
                    ranges.push((place.disk, AlignedBuffer::zeroed(place.len()), found));
                    carried.places.push(place);
                }
            }
            From::Thread => {
                answer.take_back(buffer);
                drop(Landing::new((carried, begun), None, answer)); // there is no device to wait for
                return;
            }
        }
        let landing = Landing::new((carried, begun), None, answer);
        let done = move |mut reports: Vec<ReadReport>| {
            landing.lands(|landed, answer| {
                if let Some(report) = reports.first_mut().filter(|_| is_lent) {
                    answer.take_back(std::mem::take(&mut report.buffer));
                }
                *landed = Some(reports);
            });
        };
        engine.submit_read_data(ranges, Wait::Yes, Box::new(done));
    }
}

impl Carries for CarriedRead {
    /// None where no device was asked, or none has answered.
    type Landed = Option<Vec<ReadReport>>;

    fn context(&self) -> &Context {
        self.range.context()
    }

    fn wake_those_who_wait(&self) {
        self.range.wake_those_who_wait();
    }

    fn finish(self, landed: Self::Landed, answer: &mut Answer) -> Result<DirectPart> {
        let _held = Held::wait(LockPlace::of(rank::WRITEBACK));
        // A thread that panics lets go of what is bound first last.
        let Self { range, places, item, offset } = self;
        let (file, mut buffer) = (range.file(), answer.lend());
        let is_good = |report: &ReadReport| report.is_good() && report.mended == 0;
        let read = match landed.filter(|reports| reports.iter().all(is_good)) {
            Some(reports) => {
                for (place, report) in places.iter().zip(&reports) {
                    buffer[place.bytes(offset)].copy_from_slice(&report.buffer);
                }
                Ok(cut_at_end(&mut buffer, item.size - offset))
            }
            None => file::read(&file, &item, offset, &mut buffer, Wait::Yes),
        };
        answer.take_back(buffer);
        let direct = &file.context().counters().direct;
        let read = read.inspect(|len| Direct::add(&direct.read_bytes, *len as u64));
        drop(range);
        read.map(|len| DirectPart { offset, len })
    }
}

/// Of `bytes` that were read the file has no more than `left`: what lies behind its end is nobody's (READ-1).
fn cut_at_end(bytes: &mut [u8], left: u64) -> usize {
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    bytes[len..].fill(0);
    len
}
