//! A direct read without a waiting caller.
//!
//! It takes its range of bytes, and looks where the data lies. Inline data and holes it has then. The rest goes from the devices
//! into the caller's buffer where all of it lies in one place, and else into buffers of ours, out of which it is put together in
//! the end. Sectors are verified against their checksums as they come. The read carries its range until it is complete, and needs
//! nothing else: changing these extents needs the range, and writeback of delayed data changes other places.
//!
//! Reads that take more than asking devices once end on a thread, as buffered reads do:
//!
//! | case | because |
//! |---|---|
//! | a request that is not whole sectors, or reads a file with fs-verity | whole sectors, or blocks, are read and compared |
//! | data that is compressed | it is unpacked |
//! | a range with delayed data | the data is in memory |
//! | the last sector, while delayed data grows the file | writeback may write the sector anew, elsewhere (`data`, DATA-4) |
//! | a range that a device had in part only, or that does not match its checksums | another copy has it, and the bad one is repaired; or there is an error to report |

use std::sync::Arc;

use creamery_base::lock::{HeldNote, LockPosition as LockPlace, rank};
use creamery_base::{Logical, Result, Wait};
use creamery_device::AlignedBuffer;
use creamery_txn::FoundCsums;
use creamery_volume::ReadReport;

use super::DirectPart;
use super::answer::Answer;
use super::attempt::{AttemptFailure, Attempted, at_once, unless};
use super::landing::{Carries, Landing, LandingItem};
use super::way::Buffered;
use crate::counters::{Direct, Refusal};
use crate::data::{self, PlainExtent};
use crate::fault::Fault;
use crate::file;
use crate::in_flight::{Begun, RequestPurpose};
use crate::inode::carried::OwnedRange;
use crate::inode::{FileInode, Inode, InodeItem};

/// The ranges that devices are asked for.
type DeviceRanges = Vec<(Logical, AlignedBuffer, FoundCsums)>;

/// The source of the bytes that a read does not have when it begins.
enum ByteSource {
    /// A device fills the caller's buffer.
    OnePlace(Logical, FoundCsums),
    Places(Vec<(PlainExtent, FoundCsums)>),
    /// A thread reads all of it.
    Thread,
}

impl ByteSource {
    /// Whether no device is asked.
    fn is_memory(&self) -> bool {
        matches!(self, Self::Places(places) if places.is_empty())
    }
}

/// The resources that a read carries to its end. The fields drop in order.
struct CarriedRead {
    /// The places in the buffer of the ranges that devices are asked for, except one that fills all of it.
    places: Vec<PlainExtent>,
    /// The number of ranges that devices are asked for.
    asked: usize,
    /// The inode's item as the read knows it.
    item: InodeItem,
    /// The position in the file where it begins.
    offset: u64,
    range: OwnedRange,
}

/// A read that carries its range, and where it gets its bytes.
struct ReadFlight {
    carried: CarriedRead,
    from: ByteSource,
    /// The request is known until it is answered.
    begun: Begun,
}

/// Reads the inode, which is this file, from `offset` on into the buffer of `answer`. Where no device is asked, returns the answer with
/// the outcome; without `wait` also where it would have to wait.
pub(crate) fn submit(
    file: (&Arc<Inode>, &FileInode<'_>),
    offset: u64,
    wait: Wait,
    mut answer: Answer,
) -> Option<(Answer, Attempted<DirectPart>)> {
    let mut buffer = answer.lend();
    let begun = begin(file, offset, &mut buffer, wait);
    if let Ok(Some(flight)) = begun {
        flight.submit(buffer, wait, answer);
        return None;
    }
    answer.take_back(buffer);
    Some((answer, begun.map(|_| DirectPart { offset, len: 0 })))
}

/// Begins a read; `None` where there is nothing to read.
/// Fails for device errors; damage; the filesystem is being closed.
fn begin(
    (inode, file): (&Arc<Inode>, &FileInode<'_>),
    offset: u64,
    buffer: &mut AlignedBuffer,
    wait: Wait,
) -> Attempted<Option<ReadFlight>> {
    let engine = file.engine();
    engine.check_open()?;
    let end = offset.saturating_add(buffer.len() as u64);
    let locked = if file.context().has(Fault::ReadWithoutRange) { offset } else { end };
    let range = at_once(file.lock_range_shared(offset, locked, wait), Refusal::RangeBusy)?;
    // Truncation locks the part that it cuts: so the present size holds for this range.
    let (item, stored) = at_once(file.item_and_stored_size(wait), Refusal::ItemBusy)?;
    let buffered = Buffered::of_read(file, &item, (offset, buffer.len()));
    let counters = &file.context().counters().direct;
    if offset >= item.size || buffer.is_empty() {
        count(counters, buffered);
        return Ok(None);
    }
    let from = match (from_devices(file, (&item, stored), (offset, buffer), buffered, wait)?, wait) {
        (Ok(from), _) => from,
        (Err(_), Wait::Yes) => ByteSource::Thread,
        (Err(why), Wait::No) => return Err(AttemptFailure::Refused(why)),
    };
    let must_ask_at_once = wait == Wait::No && !from.is_memory();
    unless(must_ask_at_once && !engine.volume().takes_at_once(), Refusal::DeviceBusy)?;
    let begun = file.context().in_flight().begin(file.id, RequestPurpose::Read)?;
    count(counters, buffered);
    let range = OwnedRange::carry(inode, range);
    begun.is_carried();
    Ok(Some(ReadFlight {
        carried: CarriedRead { places: Vec::new(), asked: 0, item, offset, range },
        from,
        begun,
    }))
}

/// Counts a read.
fn count(direct: &Direct, buffered: Option<Buffered>) {
    Direct::count(&direct.reads);
    if let Some(why) = buffered {
        why.count(direct);
    }
}

/// The source of a read that begins within the file, if devices have its data as the file shows it; else the reason why a thread
/// has to read. The tree has the file with `stored` bytes. Fills the parts of `buffer` that are inline or holes. Fails for device
/// errors; damage.
fn from_devices(
    file: &FileInode<'_>,
    (item, stored): (&InodeItem, u64),
    (offset, buffer): (u64, &mut [u8]),
    buffered: Option<Buffered>,
    wait: Wait,
) -> Attempted<std::result::Result<ByteSource, Refusal>> {
    match buffered {
        Some(Buffered::Sealed) => return Ok(Err(Refusal::Sealed)),
        Some(_) => return Ok(Err(Refusal::Misaligned)),
        None => {}
    }
    let end = offset.saturating_add(buffer.len() as u64);
    let last_sector = stored - stored % u64::from(file.engine().sector_size());
    let stays = stored == item.size || end <= last_sector;
    if file.delalloc().touches(offset, end) || !stays {
        return Ok(Err(Refusal::Delayed));
    }
    let found = at_once(data::find(file, item, offset, buffer, wait), Refusal::MapCold)?;
    let Some(places) = found else { return Ok(Err(Refusal::Compressed)) };
    let csums = data::csums_of(item);
    // Where there are no checksums, a thread that reads finds out why.
    let found = |place: PlainExtent| {
        Some((place, file.engine().data().find_csums(place.disk, place.len(), csums, wait).ok()?))
    };
    let Some(mut places) = places.into_iter().map(found).collect::<Option<Vec<_>>>() else {
        return Ok(Err(Refusal::ChecksumsCold));
    };
    let fills_all = matches!(places[..], [(place, _)] if place.len() == buffer.len());
    Ok(Ok(match places.pop_if(|_| fills_all) {
        Some((place, found)) => ByteSource::OnePlace(place.disk, found),
        None => ByteSource::Places(places),
    }))
}

impl ReadFlight {
    /// Asks devices, and waits for nothing. `buffer` has all other bytes already. Without `wait` this thread does no I/O itself.
    fn submit(self, buffer: AlignedBuffer, wait: Wait, mut answer: Answer) {
        let Self { mut carried, from, begun } = self;
        let engine = Arc::clone(carried.inode().context().engine());
        let mut ranges = DeviceRanges::new();
        let is_lent = matches!(from, ByteSource::OnePlace(..));
        match from {
            ByteSource::OnePlace(disk, found) => ranges.push((disk, buffer, found)),
            ByteSource::Places(places) => {
                answer.take_back(buffer);
                for (place, found) in places {
                    ranges.push((place.disk, AlignedBuffer::zeroed(place.len()), found));
                    carried.places.push(place);
                }
            }
            ByteSource::Thread => {
                answer.take_back(buffer);
                drop(Landing::new((carried, begun), None, answer)); // there is no device to wait for
                return;
            }
        }
        carried.asked = ranges.len();
        let landing = Landing::new((carried, begun), None, answer);
        let done = move |mut reports: Vec<ReadReport>| {
            landing.lands(|landed, answer| {
                if let Some(report) = reports.first_mut().filter(|_| is_lent) {
                    answer.take_back(std::mem::take(&mut report.buffer));
                }
                *landed = Some(reports);
            });
        };
        engine.data().submit_read(ranges, wait, Box::new(done));
    }
}

impl CarriedRead {
    /// Whether devices have read all ranges that they were asked for, with good checksums: nothing has to be read again or repaired.
    fn is_all_good(&self, reports: &[ReadReport]) -> bool {
        let is_good = |report: &ReadReport| report.is_good() && report.mended == 0;
        reports.len() == self.asked && reports.iter().all(is_good)
    }
}

impl Carries for CarriedRead {
    /// `None` where no device was asked, or none has answered.
    type Landed = Option<Vec<ReadReport>>;

    fn inode(&self) -> &Arc<Inode> {
        self.range.inode()
    }

    fn wake_those_who_wait(&self) {
        self.range.wake_those_who_wait();
    }

    fn ends_at_once<'i>(&self, _: &'i Inode, landed: &Self::Landed) -> Option<LandingItem<'i>> {
        landed.as_ref().filter(|reports| self.is_all_good(reports)).map(|_| LandingItem::Free)
    }

    fn finish(self, landed: Self::Landed, answer: &mut Answer, _: LandingItem<'_>) -> Result<DirectPart> {
        let landed = landed.filter(|reports| self.is_all_good(reports));
        // Only a repeated read waits.
        let _held = landed.is_none().then(|| HeldNote::wait(LockPlace::of(rank::WRITEBACK)));
        // A panicking thread drops the bindings from the last to the first.
        let Self { range, places, item, offset, .. } = self;
        let (file, mut buffer) = (range.file(), answer.lend());
        let read = match landed {
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

/// Returns the number of `bytes` that lie in the file, which has `left` more. Zeroes those past its end (DATAREAD-1).
fn cut_at_end(bytes: &mut [u8], left: u64) -> usize {
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    bytes[len..].fill(0);
    len
}
