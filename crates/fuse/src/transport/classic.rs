//! Serves with threads on `/dev/fuse`: each reads a request from its own clone of the descriptor, runs it and writes the
//! answer. The [crew](super::worker_pool) decides how many of them wait for requests at a time.
//!
//! # Invariants
//! - CLASSIC-1: one request buffer and one reply buffer per thread, made once. A request of the largest size
//!   fits, or the kernel would refuse the read.
//! - CLASSIC-2: the request is read so that the data of a `WRITE` starts at a page.
//! - CLASSIC-3: a thread ends when the kernel reports that the connection is gone. The only other end is an
//!   unexpected failure, which ends all threads.
//!
//! The handler answers a panic of an operation. A panic that gets through is a bug of the transport itself, or a second panic while
//! the first one was handled. Then no thread can answer, and silence would leave the caller hanging. So the
//! panic's message is printed (by the panic hook), the mount is detached, and the process aborts; the kernel then fails
//! pending requests.

use std::io::IoSlice;
use std::sync::Arc;
use std::thread;

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{AlignedBuffer, SharedBytes};
use rustix::io::Errno as Raw;
use zerocopy::FromBytes;

use super::linger::Linger;
use super::worker_pool::{Need, Next, WorkerPool};
use super::{Device, Transport, enter_worker_thread};
use crate::dispatch::{Answer, Handler, Message, refuse};
use crate::errno::Errno;
use crate::protocol::{Fixed, wire};

const HEADER: usize = size_of::<wire::InHeader>();
const WRITE_HEAD: usize = HEADER + size_of::<wire::WriteIn>();
const PAGE: usize = 4096;
/// Bytes; the kernel rejects smaller reads (`FUSE_MIN_READ_BUFFER`).
const READ_MIN: usize = 8192;

/// The transport.
pub(crate) struct Classic<'a> {
    /// The channel that came with the mount.
    pub(crate) device: &'a Device,
    /// Number of threads.
    pub(crate) workers: usize,
    /// Largest write and read agreed on.
    pub(crate) max_write: usize,
    /// Detaches the mount, when it cannot be served any longer.
    pub(crate) detach: &'a (dyn Fn() + Sync),
}

/// The buffers of one thread.
pub(crate) struct Buffers {
    /// Shared with an operation that writes from it, until it has answered.
    request: Arc<AlignedBuffer>,
    reply: AlignedBuffer,
}

/// A request that was received.
pub(crate) struct Parts<'a> {
    pub(crate) header: wire::InHeader,
    pub(crate) body: &'a [u8],
    /// The memory from the data of a `WRITE` on.
    pub(crate) data: SharedBytes,
    /// For the answer.
    pub(crate) payload: &'a mut [u8],
}

impl Buffers {
    pub(crate) fn new(max_write: usize) -> Self {
        let request = AlignedBuffer::untouched((PAGE + max_write + PAGE).max(PAGE + READ_MIN));
        Self { request: Arc::new(request), reply: AlignedBuffer::untouched(max_write) }
    }

    fn request_space(&mut self) -> &mut [u8] {
        if Arc::get_mut(&mut self.request).is_none() {
            // An operation keeps the buffer, so the worker takes a new one.
            self.request = Arc::new(AlignedBuffer::untouched(self.request.len()));
        }
        let request = Arc::get_mut(&mut self.request).expect("nobody else has it");
        &mut request[PAGE - WRITE_HEAD..]
    }
}

/// The result of a read.
pub(crate) enum Received {
    /// A request of this length in bytes.
    Request(usize),
    /// The mount is gone.
    Gone,
}

/// Reads the next request.
pub(crate) fn receive(device: &Device, buffers: &mut Buffers) -> Result<Received> {
    loop {
        return match device.read(buffers.request_space()) {
            // The kernel never does that, but a socket in place of the device does at its end.
            Ok(0) => Ok(Received::Gone),
            Ok(len) => Ok(Received::Request(len)),
            // A signal; or the request's caller was killed before the read.
            Err(Raw::INTR | Raw::NOENT) => continue,
            Err(Raw::NODEV | Raw::CONNABORTED) => Ok(Received::Gone),
            Err(errno) => Err(failed("reading from /dev/fuse", errno)),
        };
    }
}

fn failed(what: &str, errno: Raw) -> Error {
    Error::with_source(ErrorKind::Io, what, std::io::Error::from(errno))
}

impl Buffers {
    /// A request of `len` bytes that was received, and the reply buffer.
    pub(crate) fn split(&mut self, len: usize) -> Result<Parts<'_>> {
        let bytes = &self.request[PAGE - WRITE_HEAD..][..len];
        let Ok((header, body)) = wire::InHeader::read_from_prefix(bytes) else {
            return Err(Error::new(ErrorKind::Io, format!("request is too short: {len} bytes")));
        };
        let data = SharedBytes::from(Arc::clone(&self.request)).slice(PAGE..self.request.len());
        Ok(Parts { header, body, data, payload: &mut self.reply })
    }
}

/// Sends `answer` to request `unique`.
pub(crate) fn send(device: &Device, unique: u64, answer: &Answer, payload: &[u8]) -> Result<(), Raw> {
    let (error, mut fixed, payload) = match answer {
        Answer::None => return Ok(()),
        Answer::Error(errno) => (-errno.get(), Fixed::EMPTY, &[][..]),
        Answer::Reply(fixed, len) => (0, *fixed, &payload[..*len]),
    };
    let head = fixed.headed(unique, error, payload.len());
    device.write(&[IoSlice::new(head), IoSlice::new(payload)])
}

/// Sends an answer in any case: if the kernel rejects one, the caller would wait for ever without another.
fn answer(device: &Device, unique: u64, answer: &Answer, payload: &[u8]) -> Result<()> {
    match send(device, unique, answer, payload) {
        Ok(()) => Ok(()),
        // The request was aborted meanwhile, or the mount is gone; the next read shows that.
        Err(Raw::NOENT | Raw::NODEV | Raw::CONNABORTED) => Ok(()),
        Err(refused) => match send(device, unique, &Answer::Error(Errno::EIO), &[]) {
            // The kernel had no memory for it.
            Ok(()) if refused == Raw::NOMEM => Ok(()),
            // The refused answer ended the request.
            Err(Raw::NOENT) if refused == Raw::NOMEM => Ok(()),
            _ => Err(failed("answering on /dev/fuse", refused)),
        },
    }
}

impl Classic<'_> {
    fn work(&self, worker: usize, device: &Device, crew: &WorkerPool, handler: &dyn Handler) -> Result<()> {
        enter_worker_thread();
        let mut buffers = Buffers::new(self.max_write);
        let (mut need, mut linger) = (Need::default(), Linger::default());
        let backlog = || device.is_readable();
        let mut next = if worker == 0 { Next::Duty } else { crew.park(backlog) };
        while next == Next::Duty {
            let received = crew.read(|| {
                linger.until(backlog);
                receive(device, &mut buffers)
            })?;
            let Received::Request(len) = received else { return Ok(()) };
            let Parts { header, body, data, payload } = buffers.split(len)?;
            let reply = if usize::try_from(header.len) == Ok(len) {
                let message = Message { header: &header, body, rest: &[], data: &data };
                handler.handle(worker, &message, payload)
            } else {
                refuse(header.opcode, Errno::EIO)
            };
            answer(device, header.unique, &reply, payload)?;
            next = crew.answered(&mut need, backlog);
        }
        Ok(())
    }

    fn guarded(
        &self,
        worker: usize,
        device: &Device,
        crew: &WorkerPool,
        handler: &dyn Handler,
    ) -> Result<()> {
        let guard = AbortOnPanic { detach: self.detach };
        let result = self.work(worker, device, crew, handler);
        std::mem::forget(guard);
        crew.dismiss();
        if result.is_err() {
            // Without this the other threads would wait for ever.
            (self.detach)();
        }
        result
    }
}

impl Transport for Classic<'_> {
    fn serve(&self, handler: &dyn Handler) -> Result<()> {
        assert!(self.workers > 0, "somebody must answer");
        let mut channels = Vec::new();
        for _ in 1..self.workers {
            channels.push(self.device.another().map_err(|errno| failed("cloning /dev/fuse", errno))?);
        }
        let crew = &WorkerPool::new();
        thread::scope(|scope| {
            let spawned: Vec<_> = channels
                .iter()
                .enumerate()
                .map(|(index, device)| {
                    let worker = index + 1;
                    thread::Builder::new()
                        .name(format!("fuse-{worker}"))
                        .spawn_scoped(scope, move || self.guarded(worker, device, crew, handler))
                })
                .collect();
            let mut result = self.guarded(0, self.device, crew, handler);
            for thread in spawned {
                let ended = match thread {
                    Ok(thread) => thread.join().expect("a panic aborts before it gets here"),
                    // Fewer threads than requested are slower, but every request gets an answer.
                    Err(_) => Ok(()),
                };
                result = result.and(ended);
            }
            result
        })
    }
}

/// Ends the process if it is dropped, which only unwinding does.
struct AbortOnPanic<'a> {
    detach: &'a (dyn Fn() + Sync),
}

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        eprintln!("creamery-fuse: a worker panicked; the mount is detached and the process ends");
        (self.detach)();
        std::process::abort();
    }
}
