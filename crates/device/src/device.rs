//! What a device is asked, what it answers, and the trait between.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use creamery_base::gate::{self, Reason};
use creamery_base::{Error, ErrorKind, Result};

use crate::{AlignedBuffer, DirectRequests, Parts};

/// One thing a device is asked to do. Offsets and lengths are bytes.
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
    /// The bytes are not needed any more; what is read there afterwards is unspecified.
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

/// What a successful request gives back.
///
/// ```
/// use creamery_device::{AlignedBuffer, Reply};
/// assert_ne!(Reply::Done, Reply::Read(AlignedBuffer::zeroed(0)));
/// ```
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// The buffer of the read, filled.
    Read(AlignedBuffer),
    /// Nothing but success.
    Done,
}

/// Called exactly once with the outcome, on any thread, possibly before `submit` returns. It must be short, must
/// not wait, and must not need a lock that the submitter holds.
pub type Completion = Box<dyn FnOnce(Result<Reply>) + Send>;

/// A request under way, of which somebody wants to know the outcome.
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
    /// One that waits for the completion that comes with it.
    pub fn with_completion() -> (Self, Completion) {
        let (send, receive) = sync_channel(1);
        // There is room for one answer; who dropped the receiver wants none.
        (Self(receive), Box::new(move |outcome| drop(send.send(outcome))))
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// What the device answers; [`ErrorKind::Io`] when it dropped the request without an answer.
    pub fn wait(self) -> Result<Reply> {
        gate::passing(Reason::Device, || self.0.recv())
            .unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "a request was dropped unanswered")))
    }
}

/// Tells two open devices apart, and recognises one that was opened twice.
///
/// ```
/// use creamery_device::{BlockDevice, MemoryDevice};
/// assert_ne!(MemoryDevice::new(4096).id(), MemoryDevice::new(4096).id());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct DeviceId {
    /// Of files the filesystem they lie on, of block devices 0, of all else `u64::MAX`.
    pub(crate) space: u64,
    /// Of files the inode number, of block devices the device number.
    pub(crate) number: u64,
    /// Where in that it begins.
    pub(crate) start: u64,
}

impl DeviceId {
    /// Of all of the file or block device with these attributes; none for what is neither.
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

    /// As numbers, for another process to compare: the filesystem and the inode number of a file, or 0 and the number of a block device;
    /// and the byte in that where it begins.
    #[must_use]
    pub const fn numbers(self) -> [u64; 3] {
        [self.space, self.number, self.start]
    }

    /// One that no other device of this process has: for what lies neither in a file nor on a device of the host.
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

/// A row of bytes with an end. See the crate's head for the rules.
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

    /// Starts `request` for a caller that must not wait: another thread carries it out, if the device is one that is asked by system calls.
    /// [`has_room`](Self::has_room) says before whether there is one.
    fn submit_queued(&self, request: Request, done: Completion) {
        self.submit(request, done);
    }

    /// Whether [`submit_queued`](Self::submit_queued) finds a thread that carries a request out soon. The answer may be out of date at once:
    /// a request that comes all the same is taken. A device that does not say so, such as one that carries out all on the submitter's
    /// thread, has none.
    fn has_room(&self) -> bool {
        false
    }

    /// Has `requests` carried out for a caller that waits for all of them anyway: on this thread, if the device is one that is asked by
    /// system calls. Each completion gets its outcome; some may come after this returns.
    fn carry_out(&self, requests: Vec<(Request, Completion)>) {
        requests.into_iter().for_each(|(request, done)| self.submit(request, done));
    }

    /// Length in bytes.
    fn len(&self) -> u64;

    /// Who this is, for comparing.
    fn id(&self) -> DeviceId;

    /// A name for messages: the path, or what stands for one.
    fn describe(&self) -> String;

    /// The smallest piece that the device itself reads and writes, bytes: what its partition table counts in.
    fn sector_size(&self) -> u64 {
        512
    }

    /// Its path on the host, where it has one; else what it is described as. Unlike a description, a path may have any bytes.
    fn host_path(&self) -> PathBuf {
        self.describe().into()
    }

    /// What is to be known of how it was found: a damaged partition table of which there was another copy.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// How many of its reads and writes went past the page cache of the host; 0 unless it was opened for that.
    fn direct_requests(&self) -> DirectRequests {
        DirectRequests::default()
    }

    /// Whether it has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Submits `request` for somebody who waits later.
    fn start(&self, request: Request) -> Pending {
        let (pending, done) = Pending::with_completion();
        self.submit(request, done);
        pending
    }

    /// Has the device begin to fetch a range that is read next. True when a read is then best made on the caller's own thread: the device is asked by
    /// system calls, and fetches ahead by itself.
    fn will_read(&self, offset: u64, len: u64) -> bool {
        let _ = (offset, len);
        false
    }

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// When the range ends beyond the device, or the device fails.
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
    /// When the range ends beyond the device, the device is read-only, or it fails. Part of the data may be
    /// written then.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let data = AlignedBuffer::from_slice(data).into();
        self.start(Request::Write { offset, data }).wait().map(drop)
    }

    /// Puts the `parts` one after the other, starting at `offset`.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn write_vectored_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.write_at(offset, &parts.concat())
    }

    /// Makes durable every write that was completed before.
    ///
    /// # Errors
    /// When the device cannot promise it. From then on every flush fails.
    fn flush(&self) -> Result<()> {
        self.start(Request::Flush).wait().map(drop)
    }

    /// Says that the bytes are not needed any more; what is read there afterwards is unspecified.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when the device has no such thing, which is no harm.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.start(Request::Discard { offset, len }).wait().map(drop)
    }

    /// Makes the bytes read as zeros, without storage behind them where the device can do that.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        write_zeros(self, offset, len)
    }

    /// Gives the device back to others: waits for what is under way, and refuses what comes (DEV-4). A device that nobody
    /// else can have has nothing to give back.
    fn close(&self) {}

    /// Has the device be at least `len` bytes long, and never shorter than it is, which is asked anew: it may have been made longer
    /// by others. Gives its length.
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

/// Zeros by writing them.
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
            format!("{len} bytes at {offset} lie beyond the end of the device, which has {device_len} bytes"),
        )),
    }
}
