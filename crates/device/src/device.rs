//! The requests of a device, its answers, and the trait between.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use creamery_base::gate::{self, Reason};
use creamery_base::{Error, ErrorKind, Result};

use crate::{AlignedBuffer, DirectRequests, Parts};

/// One request to a device. Offsets and lengths are bytes.
///
/// ```
/// use creamery_device::{AlignedBuffer, Request};
/// let request = Request::Read { offset: 65536, buffer: AlignedBuffer::zeroed(4096) };
/// assert_eq!(request.to_string(), "reading 4096 bytes at 65536");
/// ```
#[derive(Debug)]
pub enum Request {
    /// Fill `buffer` from `offset` on.
    Read {
        /// Where to start.
        offset: u64,
        /// Comes back filled in [`Reply::Read`].
        buffer: AlignedBuffer,
    },
    /// Put `data` at `offset`. Not durable before a later flush succeeds.
    Write {
        /// Where to start.
        offset: u64,
        /// Shared, so that one buffer can go to several mirrors. The parts lie one after another on the device.
        data: Parts,
    },
    /// Make durable every write that was completed before this request was submitted.
    Flush,
    /// The bytes are not needed any more; reads of them afterwards return anything.
    Discard {
        /// Where to start.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { offset, buffer } => write!(f, "reading {} bytes at {offset}", buffer.len()),
            Self::Write { offset, data } => write!(f, "writing {} bytes at {offset}", data.len()),
            Self::Flush => f.write_str("flushing"),
            Self::Discard { offset, len } => write!(f, "discarding {len} bytes at {offset}"),
        }
    }
}

/// The result of a successful request.
///
/// ```
/// use creamery_device::{AlignedBuffer, Reply};
/// assert_ne!(Reply::Done, Reply::Read(AlignedBuffer::zeroed(0)));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// The buffer of the read, filled.
    Read(AlignedBuffer),
    /// Success, without data.
    Done,
}

/// Called exactly once with the outcome, on any thread, possibly before `submit` returns. It must be short, must
/// not wait, and must not need a lock that the submitter holds.
pub type Completion = Box<dyn FnOnce(Result<Reply>) + Send>;

/// A request under way whose outcome can be waited for.
///
/// ```
/// use creamery_device::{BlockDevice, MemoryDevice, Reply, Request};
/// let devices = [MemoryDevice::new(4096), MemoryDevice::new(4096)];
/// let flushes = devices.each_ref().map(|device| device.start(Request::Flush)); // both, before anybody waits
/// assert!(flushes.into_iter().all(|flush| flush.wait().unwrap() == Reply::Done));
/// ```
#[must_use = "whether a request succeeded is known when it is over"]
pub struct Pending(Receiver<Result<Reply>>);

impl Pending {
    /// Creates a request with its completion: [`wait`](Self::wait) waits for that completion.
    pub fn with_completion() -> (Self, Completion) {
        let (send, receive) = sync_channel(1);
        // There is room for one answer. If the receiver was dropped, no thread needs it.
        (Self(receive), Box::new(move |outcome| drop(send.send(outcome))))
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// Those of the device; [`ErrorKind::Io`] if the device dropped the request without an answer.
    pub fn wait(self) -> Result<Reply> {
        gate::passing(Reason::Device, || self.0.recv())
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "a request was dropped unanswered")))
    }
}

/// Identifies an open device: two devices differ, and one that was opened twice is equal.
///
/// ```
/// use creamery_device::{BlockDevice, MemoryDevice};
/// assert_ne!(MemoryDevice::new(4096).id(), MemoryDevice::new(4096).id());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DeviceId {
    /// For files the number of their filesystem, for block devices 0, for others `u64::MAX`.
    pub(crate) space: u64,
    /// For files the inode number, for block devices the device number.
    pub(crate) number: u64,
    /// The byte in the file or block device where the device begins.
    pub(crate) start: u64,
}

impl DeviceId {
    /// Returns the id of the whole file or block device with these attributes; `None` for other kinds of files.
    ///
    /// ```
    /// use creamery_device::{Access, BlockDevice, DeviceId, FileDevice};
    /// let file = tempfile::NamedTempFile::new()?;
    /// let whole = FileDevice::open(file.path(), Access::ReadOnly)?;
    /// assert_eq!(DeviceId::of_whole(&file.path().metadata()?), Some(whole.id()));
    /// # Ok::<(), creamery_base::Error>(())
    /// ```
    #[must_use]
    pub fn of_whole(meta: &std::fs::Metadata) -> Option<Self> {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        match meta.file_type() {
            kind if kind.is_block_device() => Some(Self { space: 0, number: meta.rdev(), start: 0 }),
            kind if kind.is_file() => Some(Self { space: meta.dev(), number: meta.ino(), start: 0 }),
            _ => None,
        }
    }

    /// Returns the id as numbers, for another process to compare: the filesystem and the inode number of a file, or 0 and the number of a block device;
    /// and the byte where the device begins.
    #[must_use]
    pub const fn numbers(self) -> [u64; 3] {
        [self.space, self.number, self.start]
    }

    /// Returns an id that no other device of this process has: for devices that are no file and no block device of the host.
    ///
    /// ```
    /// use creamery_device::DeviceId;
    /// assert_ne!(DeviceId::unique(), DeviceId::unique());
    /// ```
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { space: u64::MAX, number: NEXT.fetch_add(1, Ordering::Relaxed), start: 0 }
    }
}

/// A device: bytes with a fixed end. The crate's head has the rules.
///
/// ```
/// use creamery_device::{BlockDevice, MemoryDevice, Reply, Request};
/// let device = MemoryDevice::new(1 << 20);
/// device.write_at(4096, b"cream")?;
/// device.flush()?;
/// let mut bytes = [0; 5];
/// device.read_at(4096, &mut bytes)?;
/// assert_eq!(&bytes, b"cream");
/// device.submit(Request::Flush, Box::new(|outcome| assert_eq!(outcome.unwrap(), Reply::Done)));
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub trait BlockDevice: Send + Sync {
    /// Starts `request`; `done` gets the outcome. Requests in flight together complete in any order.
    fn submit(&self, request: Request, done: Completion);

    /// Starts `request` for a caller that must not wait: on a device that works by system calls, another thread runs it.
    /// Ask [`has_room`](Self::has_room) before whether such a thread is available.
    fn submit_queued(&self, request: Request, done: Completion) {
        self.submit(request, done);
    }

    /// Whether [`submit_queued`](Self::submit_queued) finds a thread that runs a request soon. The answer may be out of date at once;
    /// a request that comes too late is accepted all the same. By default false, for example for devices that run all requests on the submitter's
    /// thread.
    fn has_room(&self) -> bool {
        false
    }

    /// Runs `requests` for a caller that waits for all of them anyway: on this thread, if the device works by
    /// system calls. Each completion gets its outcome; some may come after this returns.
    fn carry_out(&self, requests: Vec<(Request, Completion)>) {
        requests.into_iter().for_each(|(request, done)| self.submit(request, done));
    }

    /// Length in bytes.
    fn len(&self) -> u64;

    /// Returns the device's identity, for comparison.
    fn id(&self) -> DeviceId;

    /// Returns a name for messages: the path, or a description.
    fn describe(&self) -> String;

    /// Returns the size of the smallest unit that the device itself reads and writes, bytes: the unit of its partition table.
    fn sector_size(&self) -> u64 {
        512
    }

    /// Returns its path on the host, or its description if it has none. Unlike a description, a path may have any bytes.
    fn host_path(&self) -> PathBuf {
        self.describe().into()
    }

    /// Returns notes about how it was found: for example, a damaged partition table of which there was another copy.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns how many of its reads and writes bypassed the page cache of the host; 0 unless it was opened for that.
    fn direct_requests(&self) -> DirectRequests {
        DirectRequests::default()
    }

    /// Whether it has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Submits `request` for a caller that waits later.
    fn start(&self, request: Request) -> Pending {
        let (pending, done) = Pending::with_completion();
        self.submit(request, done);
        pending
    }

    /// Starts to read a range ahead that is read next. Returns true if a read is then best made on the caller's own thread: the device works by
    /// system calls, and reads ahead by itself.
    fn will_read(&self, offset: u64, len: u64) -> bool {
        let _ = (offset, len);
        false
    }

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// The range ends beyond the device, or the device fails.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        match self.start(Request::Read { offset, buffer: AlignedBuffer::zeroed(out.len()) }).wait()? {
            Reply::Read(buffer) => out.copy_from_slice(&buffer),
            Reply::Done => unreachable!("a read is answered with its buffer"),
        }
        Ok(())
    }

    /// Puts `data` at `offset`. Not durable before [`flush`](Self::flush).
    ///
    /// # Errors
    /// The range ends beyond the device, the device is read-only, or it fails. Part of the data may be
    /// written then.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let data = AlignedBuffer::from_slice(data).into();
        self.start(Request::Write { offset, data }).wait().map(drop)
    }

    /// Writes the `parts` one after the other, starting at `offset`.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    fn write_vectored_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.write_at(offset, &parts.concat())
    }

    /// Makes every completed write durable.
    ///
    /// # Errors
    /// The device cannot promise it. From then on every flush fails.
    fn flush(&self) -> Result<()> {
        self.start(Request::Flush).wait().map(drop)
    }

    /// Marks bytes as not needed; reads of them afterwards return anything.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device has no discard, which is harmless.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.start(Request::Discard { offset, len }).wait().map(drop)
    }

    /// Zeroes bytes, and frees the storage behind them if the device can.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        write_zeros(self, offset, len)
    }

    /// Closes the device so that others can open it: waits for requests under way, and refuses new ones (DEV-4). Does nothing for a device that
    /// is not shared with other processes.
    fn close(&self) {}

    /// Makes the device at least `len` bytes long, and never shorter than its present length, which is read again: other processes may have
    /// made it longer. Returns its length.
    ///
    /// # Errors
    /// Those of [`BlockDevice::resize`].
    fn lengthen(&self, len: u64) -> Result<u64> {
        if self.len() < len {
            self.resize(len)?;
        }
        Ok(self.len())
    }

    /// Changes the length. Only files and memory can.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for devices of a fixed size.
    fn resize(&self, len: u64) -> Result<()> {
        let _ = len;
        Err(Error::unsupported(format!("resizing {}", self.describe())))
    }
}

/// Zeroes a range by writing zeros.
pub(crate) fn write_zeros<D: BlockDevice + ?Sized>(device: &D, offset: u64, len: u64) -> Result<()> {
    const STEP: u64 = 1 << 20;
    check_range(offset, len, device.len())?;
    let zeros = vec![0; usize::try_from(len.min(STEP)).expect("a step fits")];
    let mut done = 0;
    while done < len {
        let step = (len - done).min(STEP);
        device.write_at(offset + done, &zeros[..usize::try_from(step).expect("a step fits")])?;
        done += step;
    }
    Ok(())
}

/// DEV-1: the range must end at or before `device_len`.
pub(crate) fn check_range(offset: u64, len: u64, device_len: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= device_len => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Io,
            format!("{len} bytes at {offset} lie beyond the end of the device at {device_len}"),
        )),
    }
}
