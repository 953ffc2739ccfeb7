//! A device that keeps writes in memory until its owner releases them.
//!
//! Reads show the device as if the writes were on it. [`HeldDevice::release`] writes them, in the order in which they came and with
//! the flushes between them. So a power cut in the middle leaves a state that was possible without this device, too. From then on every
//! request goes straight to the device below. A device that is dropped or closed before that forgets its held writes.
//!
//! A repair of a bad copy is held like a write, but its failure fails no other request.
//!
//! # Invariants
//! - HELD-1: until `release` begins, the device below gets reads alone. Shown by `nothing_is_written_before_the_release`.
//! - HELD-2: no later write reaches the device below before all held writes. Shown by `what_was_held_is_written_in_its_order`.
//! - HELD-3: the failure of a held write is tolerated like that of a direct write: if another copy of its bytes was written before
//!   the same flush, or if the owner can do without it. Shown by `one_copy_of_two_is_enough`.
//! - HELD-4: requests that were written and flushed are not written again, because later writes may have used their space. Shown by
//!   `a_release_goes_on_behind_the_last_flush`.
//! - HELD-5: reads return held bytes, even if the device below fails at their place. Shown by
//!   `what_is_held_is_read_where_the_device_is_unreadable`.
//! - HELD-6: a read past repairs returns the device's own bytes if only a repair is held there. Shown by
//!   `a_repair_that_is_held_is_not_on_the_device`.

mod overlay;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, Result, memory};

use crate::device::{check_range, write_zeros};
use crate::{
    AlignedBuffer, BlockDevice, Completion, DeviceId, DirectRequests, Parts, Pending, Reply, Request,
    SharedBytes,
};
use overlay::Overlay;

/// A device whose writes are held in memory until [`release`](Self::release).
///
/// ```
/// use std::sync::Arc;
/// use creamery_device::{BlockDevice, HeldDevice, MemoryDevice};
/// let below = Arc::new(MemoryDevice::new(4096));
/// let held = HeldDevice::new(Arc::clone(&below) as _);
/// held.write_at(512, b"cream")?;
/// let read = |device: &dyn BlockDevice| {
///     let mut bytes = [0; 5];
///     device.read_at(512, &mut bytes).map(|()| bytes)
/// };
/// assert_eq!((&read(&held)?, read(&*below)?), (b"cream", [0; 5]));
/// held.release(&|_| false)?;
/// assert_eq!(&read(&*below)?, b"cream");
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub struct HeldDevice {
    below: Arc<dyn BlockDevice>,
    /// Whether every request goes to the device below. It never becomes false again.
    passes: AtomicBool,
    /// How many of the held requests are written and flushed.
    flushed: AtomicUsize,
    held: RankedMutex<HeldRequests, { rank::LEAF }>,
}

/// The waiting requests, and the bytes that reads see of them.
#[derive(Default)]
struct HeldRequests {
    /// In the order in which they came.
    requests: Vec<HeldRequest>,
    overlay: Overlay,
    /// Without repairs.
    unrepaired: Overlay,
    /// Bytes of all writes.
    bytes: u64,
}

impl HeldRequests {
    fn push(&mut self, request: HeldRequest) {
        if let HeldRequest::Write { offset, data, repairs } = &request {
            self.bytes += data.len() as u64;
            self.overlay.write(*offset, data.clone());
            if repairs.is_none() {
                self.unrepaired.write(*offset, data.clone());
            }
        }
        self.requests.push(request);
    }
}

/// A request for the device below.
#[derive(Clone)]
enum HeldRequest {
    Write {
        offset: u64,
        data: SharedBytes,
        /// For a repair, the number of blocks or sectors that it mends.
        repairs: Option<u64>,
    },
    Flush,
}

/// The outcome of the writes that a device held.
///
/// ```
/// assert_eq!(creamery_device::Released::default().spares_failed, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Released {
    /// Blocks or sectors that repairs mended.
    pub repaired: u64,
    /// Blocks or sectors whose repair failed.
    pub repairs_failed: u64,
    /// Writes that failed while another write of the same bytes did not: one copy is enough.
    pub copies_failed: u64,
    /// Writes that failed and that the caller can do without.
    pub spares_failed: u64,
}

impl std::ops::AddAssign for Released {
    fn add_assign(&mut self, other: Self) {
        self.repaired += other.repaired;
        self.repairs_failed += other.repairs_failed;
        self.copies_failed += other.copies_failed;
        self.spares_failed += other.spares_failed;
    }
}

/// A held write in the range of a read.
type HeldWrite = (u64, SharedBytes);

impl HeldDevice {
    /// Creates a device that holds all writes to `below`.
    #[must_use]
    pub fn new(below: Arc<dyn BlockDevice>) -> Self {
        Self {
            below,
            passes: AtomicBool::new(false),
            flushed: AtomicUsize::new(0),
            held: RankedMutex::default(),
        }
    }

    /// Writes all held requests; from then on nothing is held any more. Returns the outcome of the writes. `is_spare` returns whether the
    /// owner can do without the bytes at an offset.
    ///
    /// # Errors
    /// Those of the device below, except for repairs, for spares, and for one of two writes of the same bytes (HELD-3). All requests stay
    /// held then, and may be released again: that goes on behind the last flush that succeeded (HELD-4).
    pub fn release(&self, is_spare: &dyn Fn(u64) -> bool) -> Result<Released> {
        let mut released = Released::default();
        loop {
            let done = self.flushed.load(Ordering::Acquire);
            let Some(rest) = self.rest_behind(done) else { return Ok(released) };
            // HELD-4: a part that ends with a flush is over, whatever the outcome of the next one.
            let is_flush = |request: &HeldRequest| matches!(request, HeldRequest::Flush);
            let end = rest.iter().position(is_flush).map_or(rest.len(), |flush| flush + 1);
            self.write_part(&rest[..end], is_spare, &mut released)?;
            self.flushed.store(done + end, Ordering::Release);
        }
    }

    /// Writes requests, of which only the last one may be a flush.
    fn write_part(
        &self,
        part: &[HeldRequest],
        is_spare: &dyn Fn(u64) -> bool,
        released: &mut Released,
    ) -> Result<()> {
        let (mut written, mut failed): (Vec<&SharedBytes>, Vec<_>) = (Vec::new(), Vec::new());
        for request in part {
            let HeldRequest::Write { offset, data, repairs } = request else { continue };
            match (self.below.write_at(*offset, data), repairs) {
                (Ok(()), Some(count)) => released.repaired += count,
                (Err(_), Some(count)) => released.repairs_failed += count,
                (Ok(()), None) => written.push(data),
                (Err(error), None) => failed.push((*offset, data, error)),
            }
        }
        // HELD-3
        for (offset, data, error) in failed {
            match () {
                () if is_spare(offset) => released.spares_failed += 1,
                () if written.iter().any(|copy| ***copy == **data) => released.copies_failed += 1,
                () => return Err(error),
            }
        }
        match part.last() {
            Some(HeldRequest::Flush) => self.below.flush(),
            _ => Ok(()),
        }
    }

    /// Writes a repair of `count` blocks or sectors, or holds it. Returns false if it is held: [`release`](Self::release) then returns its
    /// outcome.
    ///
    /// # Errors
    /// Those of the device below.
    pub fn repair_at(&self, offset: u64, data: &[u8], count: u64) -> Result<bool> {
        check_range(offset, data.len() as u64, self.len())?;
        let copy = SharedBytes::from(AlignedBuffer::from_slice(data));
        if !self.passes() && self.hold(&HeldRequest::Write { offset, data: copy, repairs: Some(count) }) {
            return Ok(false);
        }
        self.below.write_at(offset, data).map(|()| true)
    }

    /// Returns the held requests after the first `done`. If there are none, all were written, and nothing is held any more.
    fn rest_behind(&self, done: usize) -> Option<Vec<HeldRequest>> {
        let mut held = self.held.lock();
        if held.requests.len() > done {
            return Some(held.requests[done..].to_vec());
        }
        self.passes.store(true, Ordering::Release);
        let written = std::mem::take(&mut *held);
        drop(held);
        drop(written); // dropping memory takes locks
        None
    }

    /// Bytes of held writes.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held.lock().bytes
    }

    /// Returns the memory of all held requests, bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let held = self.held.lock();
        held.bytes
            + held.overlay.memory()
            + held.unrepaired.memory()
            + memory::vec::<HeldRequest>(held.requests.capacity())
    }

    fn passes(&self) -> bool {
        self.passes.load(Ordering::Acquire)
    }

    /// Holds a request. Returns false if nothing is held any more.
    fn hold(&self, request: &HeldRequest) -> bool {
        let mut held = self.held.lock();
        if self.passes() {
            return false;
        }
        held.push(request.clone());
        true
    }

    /// Fills `out` with bytes of the device and of held writes other than repairs: for callers that look for bad copies (HELD-6).
    ///
    /// # Errors
    /// Those of the device below.
    pub fn read_unrepaired_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        if self.passes() {
            return self.below.read_at(offset, out);
        }
        let writes = self.held.lock().unrepaired.overlapping(offset, out.len());
        let (pending, done) = Pending::with_completion();
        self.read(
            (offset, AlignedBuffer::zeroed(out.len())),
            writes,
            |below, request, done| below.submit(request, done),
            done,
        );
        match pending.wait()? {
            Reply::Read(buffer) => out.copy_from_slice(&buffer),
            Reply::Done => unreachable!("a read is answered with its buffer"),
        }
        Ok(())
    }

    /// Returns the pieces of held writes in a range.
    fn overlapping(&self, offset: u64, len: usize) -> Vec<HeldWrite> {
        self.held.lock().overlay.overlapping(offset, len)
    }

    /// Reads the device below with `ask`, and puts `writes` over the result.
    fn read(
        &self,
        (offset, mut buffer): (u64, AlignedBuffer),
        writes: Vec<HeldWrite>,
        ask: Ask,
        done: Completion,
    ) {
        if cover(&writes, offset, buffer.len()) {
            patch(&mut buffer, offset, &writes);
            return done(Ok(Reply::Read(buffer)));
        }
        let request = Request::Read { offset, buffer };
        if writes.is_empty() {
            return ask(&*self.below, request, done);
        }
        let patched = move |outcome: Result<Reply>| {
            outcome.map(|reply| match reply {
                Reply::Read(mut buffer) => {
                    patch(&mut buffer, offset, &writes);
                    Reply::Read(buffer)
                }
                Reply::Done => Reply::Done,
            })
        };
        ask(&*self.below, request, Box::new(move |outcome| done(patched(outcome))));
    }

    fn write(&self, offset: u64, data: Parts, done: Completion) {
        if let Err(error) = check_range(offset, data.len() as u64, self.len()) {
            drop(data); // DEV-3
            return done(Err(error));
        }
        // The caller may reuse its memory once this is answered (DEV-3).
        let copy = SharedBytes::from(AlignedBuffer::from_slice(&data.contiguous()));
        if !self.hold(&HeldRequest::Write { offset, data: copy, repairs: None }) {
            return self.below.submit(Request::Write { offset, data }, done);
        }
        drop(data);
        done(Ok(Reply::Done));
    }

    fn flush_later(&self, done: Completion) {
        if !self.hold(&HeldRequest::Flush) {
            return self.below.submit(Request::Flush, done);
        }
        done(Ok(Reply::Done));
    }
}

/// Whether pieces that do not overlap cover a range. Then the device below, which may be unreadable there, is not read.
fn cover(pieces: &[HeldWrite], offset: u64, len: usize) -> bool {
    let end = offset.saturating_add(len as u64);
    let within = |(at, data): &HeldWrite| end.min(at + data.len() as u64).saturating_sub(offset.max(*at));
    len > 0 && pieces.iter().map(within).sum::<u64>() == len as u64
}

/// Puts held writes over the bytes that were read from `offset` on.
fn patch(buffer: &mut [u8], offset: u64, writes: &[HeldWrite]) {
    let end = offset + buffer.len() as u64;
    let index = |position: u64| usize::try_from(position).expect("a position in a buffer fits");
    for (at, data) in writes {
        let (first, last) = (offset.max(*at), end.min(at + data.len() as u64));
        if first < last {
            let from = &data[index(first - at)..index(last - at)];
            buffer[index(first - offset)..index(last - offset)].copy_from_slice(from);
        }
    }
}

/// A way to send a request to the device below.
type Ask = fn(&dyn BlockDevice, Request, Completion);

impl HeldDevice {
    fn answer(&self, request: Request, ask: Ask, done: Completion) {
        if self.passes() {
            return ask(&*self.below, request, done);
        }
        match request {
            Request::Read { offset, buffer } => {
                let writes = self.overlapping(offset, buffer.len());
                self.read((offset, buffer), writes, ask, done);
            }
            Request::Write { offset, data } => self.write(offset, data, done),
            Request::Flush => self.flush_later(done),
            // A discard would take bytes off the device while the writes that make them unneeded are only held.
            Request::Discard { .. } => done(Err(Error::unsupported("discarding while writes are held"))),
        }
    }
}

impl BlockDevice for HeldDevice {
    fn submit(&self, request: Request, done: Completion) {
        self.answer(request, |below, request, done| below.submit(request, done), done);
    }

    fn submit_queued(&self, request: Request, done: Completion) {
        self.answer(request, |below, request, done| below.submit_queued(request, done), done);
    }

    fn has_room(&self) -> bool {
        self.below.has_room()
    }

    fn carry_out(&self, requests: Vec<(Request, Completion)>) {
        if self.passes() {
            return self.below.carry_out(requests);
        }
        requests.into_iter().for_each(|(request, done)| self.submit(request, done));
    }

    fn len(&self) -> u64 {
        self.below.len()
    }

    fn id(&self) -> DeviceId {
        self.below.id()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn host_path(&self) -> PathBuf {
        self.below.host_path()
    }

    fn sector_size(&self) -> u64 {
        self.below.sector_size()
    }

    fn notes(&self) -> Vec<String> {
        self.below.notes()
    }

    fn direct_requests(&self) -> DirectRequests {
        self.below.direct_requests()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let writes = if self.passes() { Vec::new() } else { self.overlapping(offset, out.len()) };
        if !cover(&writes, offset, out.len()) {
            self.below.read_at(offset, out)?;
        }
        patch(out, offset, &writes);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        if self.passes() {
            return self.below.write_at(offset, data);
        }
        let data = AlignedBuffer::from_slice(data).into();
        self.start(Request::Write { offset, data }).wait().map(drop)
    }

    fn write_vectored_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        if self.passes() {
            return self.below.write_vectored_at(offset, parts);
        }
        self.write_at(offset, &parts.concat())
    }

    fn flush(&self) -> Result<()> {
        if self.passes() {
            return self.below.flush();
        }
        self.start(Request::Flush).wait().map(drop)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        if self.passes() {
            return self.below.discard(offset, len);
        }
        self.start(Request::Discard { offset, len }).wait().map(drop)
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        if self.passes() { self.below.zero(offset, len) } else { write_zeros(self, offset, len) }
    }

    fn close(&self) {
        self.below.close();
    }

    fn lengthen(&self, len: u64) -> Result<u64> {
        self.below.lengthen(len)
    }

    fn resize(&self, len: u64) -> Result<()> {
        self.below.resize(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hook, Hooked, MemoryDevice};

    /// Notes every request that reaches the device below, except reads.
    #[derive(Default)]
    struct Notes(RankedMutex<Vec<String>, { rank::LEAF }>);

    impl Hook for Notes {
        fn before(&self, request: &Request) -> Result<()> {
            if !matches!(request, Request::Read { .. }) {
                self.0.lock().push(request.to_string());
            }
            Ok(())
        }
    }

    fn noted() -> (Arc<Hooked<Notes>>, HeldDevice) {
        let below = Arc::new(Hooked::new(Arc::new(MemoryDevice::new(1 << 20)), Notes::default()));
        let held = HeldDevice::new(Arc::<Hooked<Notes>>::clone(&below));
        (below, held)
    }

    fn bytes<const N: usize>(device: &dyn BlockDevice, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        device.read_at(offset, &mut bytes).expect("it lies on the device");
        bytes
    }

    #[test]
    fn a_repair_that_is_held_is_not_on_the_device() {
        let (_, held) = noted();
        held.write_at(4096, b"written").unwrap();
        assert!(!held.repair_at(8192, b"mended!", 1).unwrap());
        let unrepaired = |offset| {
            let mut bytes = [1; 7];
            held.read_unrepaired_at(offset, &mut bytes).unwrap();
            bytes
        };
        assert_eq!((&bytes(&held, 8192), &unrepaired(8192)), (b"mended!", &[0; 7]));
        assert_eq!(&unrepaired(4096), b"written");
        held.release(&|_| false).unwrap();
        assert_eq!(&unrepaired(8192), b"mended!");
    }

    #[test]
    fn nothing_is_written_before_the_release() {
        let (below, held) = noted();
        held.write_at(4096, &[1; 4096]).unwrap();
        held.write_vectored_at(6144, &[&[2; 512], &[3; 512]]).unwrap();
        held.zero(4096, 512).unwrap();
        held.flush().unwrap();
        assert_eq!(held.discard(4096, 4096).unwrap_err().kind(), creamery_base::ErrorKind::Unsupported);
        assert!(below.0.lock().is_empty(), "HELD-1");
        assert_eq!((bytes(&held, 4607), bytes(&held, 6143)), ([0, 1], [1, 2]));
        assert_eq!((bytes(&held, 6655), bytes(&held, 7167), bytes(&held, 8190)), ([2, 3], [3, 1], [1, 1, 0]));
        assert_eq!(held.held_bytes(), 4096 + 1024 + 512);
        assert!(held.memory() > held.held_bytes());
        let read = Request::Read { offset: 4608, buffer: AlignedBuffer::zeroed(512) };
        assert_eq!(held.start(read).wait().unwrap(), Reply::Read(AlignedBuffer::from_slice(&[1; 512])));
    }

    /// Reads nothing.
    struct Unreadable;

    impl Hook for Unreadable {
        fn before(&self, request: &Request) -> Result<()> {
            match request {
                Request::Read { .. } => Err(Error::from(creamery_base::ErrorKind::Io)),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn what_is_held_is_read_where_the_device_is_unreadable() {
        let held = HeldDevice::new(Arc::new(Hooked::new(Arc::new(MemoryDevice::new(1 << 20)), Unreadable)));
        held.write_at(4096, &[1; 512]).unwrap();
        held.repair_at(4608, &[2; 512], 1).unwrap();
        assert_eq!(bytes(&held, 4607), [1, 2], "HELD-5");
        let read = |offset| held.start(Request::Read { offset, buffer: AlignedBuffer::zeroed(512) }).wait();
        assert_eq!(read(4608).unwrap(), Reply::Read(AlignedBuffer::from_slice(&[2; 512])), "HELD-5");
        for offset in [3584, 4864, 5120, u64::MAX - 512] {
            assert!(read(offset).is_err() && held.read_at(offset, &mut [0; 512]).is_err(), "at {offset}");
        }
        assert!(held.read_at(4095, &mut [0; 1024]).is_err());
    }

    #[test]
    fn what_was_held_is_written_in_its_order() {
        let (below, held) = noted();
        held.write_at(4096, &[1; 512]).unwrap();
        held.flush().unwrap();
        held.write_at(0, &[2; 512]).unwrap();
        held.release(&|_| false).unwrap();
        held.write_at(8192, &[3; 512]).unwrap();
        held.discard(8192, 512).unwrap();
        let order = [
            "writing 512 bytes at 4096",
            "flushing",
            "writing 512 bytes at 0",
            "writing 512 bytes at 8192",
            "discarding 512 bytes at 8192",
        ];
        assert_eq!(*below.0.lock(), order, "HELD-2");
        assert_eq!((held.held_bytes(), held.memory(), bytes(&*below, 4096)), (0, 0, [1; 4]));
    }

    /// A device on which writes at one offset fail; a test changes the offset.
    #[derive(Default)]
    struct Bad(AtomicUsize);

    impl Hook for Bad {
        fn before(&self, request: &Request) -> Result<()> {
            match request {
                Request::Write { offset, .. } if *offset == self.0.load(Ordering::Relaxed) as u64 => {
                    Err(creamery_base::ErrorKind::Io.into())
                }
                _ => Ok(()),
            }
        }
    }

    fn with_bad(offset: usize) -> (Arc<Hooked<Bad>>, HeldDevice) {
        let bad = Bad(AtomicUsize::new(offset));
        let below = Arc::new(Hooked::new(Arc::new(MemoryDevice::new(1 << 20)), bad));
        let held = HeldDevice::new(Arc::<Hooked<Bad>>::clone(&below));
        (below, held)
    }

    #[test]
    fn one_copy_of_two_is_enough() {
        let (below, held) = with_bad(4096);
        for (offset, content) in [(4096, 1), (8192, 1), (12288, 2)] {
            held.write_at(offset, &[content; 512]).unwrap();
        }
        held.flush().unwrap();
        let released = held.release(&|_| false).unwrap();
        assert_eq!((released.copies_failed, released.spares_failed), (1, 0), "HELD-3");
        assert_eq!((bytes(&*below, 8192), bytes(&*below, 12288)), ([1; 4], [2; 4]));

        let (_, held) = with_bad(4096);
        held.write_at(4096, &[1; 512]).unwrap();
        held.flush().unwrap();
        // A copy behind the flush comes too late.
        held.write_at(8192, &[1; 512]).unwrap();
        assert_eq!(held.release(&|_| false).unwrap_err().kind(), creamery_base::ErrorKind::Io);
        assert_eq!(held.release(&|offset| offset == 4096).unwrap().spares_failed, 1);
    }

    #[test]
    fn a_release_goes_on_behind_the_last_flush() {
        let (below, held) = with_bad(8192);
        held.write_at(4096, &[1; 512]).unwrap();
        held.flush().unwrap();
        held.write_at(8192, &[2; 512]).unwrap();
        held.release(&|_| false).unwrap_err();
        below.write_at(4096, &[9; 512]).unwrap();
        below.0.store(0, Ordering::Relaxed);
        held.release(&|_| false).unwrap();
        assert_eq!((bytes(&*below, 4096), bytes(&*below, 8192)), ([9; 4], [2; 4]), "HELD-4");
    }

    #[test]
    fn a_write_behind_the_end_is_refused_while_held() {
        let (_, held) = noted();
        assert!(held.write_at((1 << 20) - 1, &[1; 2]).is_err());
        assert_eq!(held.held_bytes(), 0);
    }
}
