//! A device in memory that holds only pages that were written.

use std::collections::BTreeMap;

use creamery_base::Result;
use creamery_base::gate::{self, Reason};
use creamery_base::lock::{ProcessRwLock, rank};

use crate::device::check_range;
use crate::{BlockDevice, Completion, DeviceId, Reply, Request};

const PAGE: u64 = 16384;
static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// A device in memory. Pages never written, and pages of zeros, take no memory.
///
/// ```
/// use creamery_device::{BlockDevice, MemoryDevice};
/// let device = MemoryDevice::new(100 << 30);
/// device.write_at(99 << 30, b"far out")?;
/// assert_eq!(device.bytes_in_memory(), 16384);
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub struct MemoryDevice {
    id: DeviceId,
    state: ProcessRwLock<MemoryState, { rank::DEVICE }>,
}

struct MemoryState {
    len: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl MemoryDevice {
    /// Creates a device of `len` zero bytes.
    #[must_use]
    pub fn new(len: u64) -> Self {
        Self {
            id: DeviceId::unique(),
            state: ProcessRwLock::new(MemoryState { len, pages: BTreeMap::new() }),
        }
    }

    /// Creates a device with the length and the bytes of `other`.
    ///
    /// # Errors
    /// `other` cannot be read.
    pub fn copy_of(other: &dyn BlockDevice) -> Result<Self> {
        const STEP: u64 = 1 << 20;
        let copy = Self::new(other.len());
        let mut bytes = vec![0; 1 << 20];
        let mut at = 0;
        while at < other.len() {
            let step = index((other.len() - at).min(STEP));
            other.read_at(at, &mut bytes[..step])?;
            copy.write_at(at, &bytes[..step])?;
            at += step as u64;
        }
        Ok(copy)
    }

    /// Returns the memory of the pages, bytes.
    #[must_use]
    pub fn bytes_in_memory(&self) -> u64 {
        self.state.read().pages.len() as u64 * PAGE
    }

    fn run(&self, request: Request) -> Result<Reply> {
        match request {
            Request::Read { offset, mut buffer } => {
                self.state.read().read(offset, &mut buffer)?;
                Ok(Reply::Read(buffer))
            }
            Request::Write { offset, data } => {
                self.state.write().write_parts(offset, data.len() as u64, data.iter()).map(|()| Reply::Done)
            }
            Request::Flush => Ok(Reply::Done),
            Request::Discard { offset, len } => self.state.write().zero(offset, len).map(|()| Reply::Done),
        }
    }
}

/// A position within a page or a caller's slice, as an index.
fn index(position: u64) -> usize {
    usize::try_from(position).expect("a position in a slice fits")
}

/// Calls `visit` with the number of each page of the range, the part of that page, and the part of the range.
fn for_each_page(
    offset: u64,
    len: u64,
    mut visit: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let in_page = (offset + done) % PAGE;
        let step = (PAGE - in_page).min(len - done);
        visit((offset + done) / PAGE, index(in_page)..index(in_page + step), index(done)..index(done + step));
        done += step;
    }
}

impl MemoryState {
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        check_range(offset, out.len() as u64, self.len)?;
        for_each_page(offset, out.len() as u64, |page, of_page, of_out| match self.pages.get(&page) {
            Some(bytes) => out[of_out].copy_from_slice(&bytes[of_page]),
            None => out[of_out].fill(0),
        });
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        check_range(offset, data.len() as u64, self.len)?;
        for_each_page(offset, data.len() as u64, |page, of_page, of_data| {
            let data = &data[of_data];
            if let Some(bytes) = self.pages.get_mut(&page) {
                bytes[of_page].copy_from_slice(data);
            } else if data != &ZEROS[..data.len()] {
                let mut bytes = vec![0; index(PAGE)].into_boxed_slice();
                bytes[of_page].copy_from_slice(data);
                self.pages.insert(page, bytes);
            }
        });
        Ok(())
    }

    /// Writes parts of `total` bytes one after another: all of them or none.
    fn write_parts<'a>(
        &mut self,
        offset: u64,
        total: u64,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Result<()> {
        check_range(offset, total, self.len)?;
        let mut at = offset;
        for part in parts {
            self.write(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn zero(&mut self, offset: u64, len: u64) -> Result<()> {
        check_range(offset, len, self.len)?;
        let end = offset + len;
        // Only existing pages are visited: a range may span more pages than were ever written.
        let touched: Vec<u64> =
            self.pages.range(offset / PAGE..end.div_ceil(PAGE)).map(|(&page, _)| page).collect();
        for page in touched {
            let start = page * PAGE;
            let (from, to) = (offset.max(start), end.min(start + PAGE));
            if to - from == PAGE {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                bytes[index(from - start)..index(to - start)].fill(0);
            }
        }
        Ok(())
    }
}

impl BlockDevice for MemoryDevice {
    fn submit(&self, request: Request, done: Completion) {
        let outcome = self.run(request);
        done(outcome);
    }

    /// True: memory never makes a caller wait.
    fn has_room(&self) -> bool {
        true
    }

    fn len(&self) -> u64 {
        self.state.read().len
    }

    fn id(&self) -> DeviceId {
        self.id
    }

    fn describe(&self) -> String {
        format!("memory device {}", self.id.number)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        gate::passing(Reason::Device, || self.state.read().read(offset, out))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        gate::passing(Reason::Device, || self.state.write().write(offset, data))
    }

    fn write_vectored_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let total = parts.iter().map(|part| part.len() as u64).sum();
        gate::passing(Reason::Device, || self.state.write().write_parts(offset, total, parts.iter().copied()))
    }

    fn flush(&self) -> Result<()> {
        gate::passing(Reason::Device, || Ok(()))
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        gate::passing(Reason::Device, || self.state.write().zero(offset, len))
    }

    fn resize(&self, len: u64) -> Result<()> {
        gate::passing(Reason::Device, || {
            let mut state = self.state.write();
            if len < state.len {
                let (old, cut) = (state.len, state.len - len);
                state.zero(old - cut, cut)?;
            }
            state.len = len;
            Ok(())
        })
    }
}
