//! Calls the method of a request, and converts its result to an [`Answer`].
//!
//! # Invariants
//! - DISPATCH-1: every request that awaits an answer gets exactly one, also a malformed or unknown one.
//!   Shown by `every_request_that_awaits_an_answer_gets_one_and_no_other_does`, `no_mutation_of_a_request_panics_or_goes_unanswered`.
//! - DISPATCH-2: requested sizes are cut to the reply buffer's, so no method sees a slice that the kernel would
//!   not take. Shown by `sizes_past_the_reply_buffer_are_cut`.
//! - DISPATCH-3: `destroy` runs once, after the last request or on `DESTROY`, whichever comes first.
//!   Shown by `every_request_that_awaits_an_answer_gets_one_and_no_other_does`.
//! - DISPATCH-4: an operation that panics is a request that failed, with `EIO`; the filesystem is notified, and the session goes on.
//!   Shown by `an_operation_that_panics_fails_and_the_session_goes_on`.

use std::sync::{Arc, Once};
use std::time::Instant;

use creamery_base::panics::{self, Panic};
use creamery_device::SharedBytes;

use crate::counts::RequestCounts;
use crate::errno::{Errno, Result};
use crate::interrupts::Interrupts;
use crate::negotiate::Agreement;
use crate::operations::Operations;
use crate::protocol::{
    ByteSink, DirectoryPlusSink, DirectorySink, Fixed, Opcode, Operation, Request, attr_out, decode,
    entry_out, open_out, statfs_out, statx_out, wire,
};
use crate::types::RequestContext;

/// An answer to the kernel.
#[expect(clippy::large_enum_variant, reason = "made once, sent once: boxing would allocate for each request")]
pub(crate) enum Answer {
    /// Nothing: the request awaits none.
    None,
    /// An error number.
    Error(Errno),
    /// A fixed structure (or none), then this many bytes of the reply buffer.
    Reply(Fixed, usize),
}

impl From<Result<Fixed>> for Answer {
    fn from(result: Result<Fixed>) -> Self {
        match result {
            Ok(fixed) => Self::Reply(fixed, 0),
            Err(errno) => Self::Error(errno),
        }
    }
}

impl From<Result<()>> for Answer {
    fn from(result: Result<()>) -> Self {
        result.map(|()| Fixed::EMPTY).into()
    }
}

impl From<Result<usize>> for Answer {
    fn from(result: Result<usize>) -> Self {
        match result {
            Ok(len) => Self::Reply(Fixed::EMPTY, len),
            Err(errno) => Self::Error(errno),
        }
    }
}

/// A request as a transport delivers it.
pub(crate) struct Message<'a> {
    pub(crate) header: &'a wire::InHeader,
    /// The body behind the header, in one or two pieces, as for [`decode`].
    pub(crate) body: &'a [u8],
    pub(crate) rest: &'a [u8],
    /// The memory from the beginning of a `WRITE`'s data. It exists for every request.
    pub(crate) data: &'a SharedBytes,
}

/// The filesystem's interface to a transport.
pub(crate) trait Handler: Sync {
    /// Answers one request; bulk data of the answer goes into `payload`.
    fn handle(&self, worker: usize, message: &Message<'_>, payload: &mut [u8]) -> Answer;
}

/// The filesystem, with what was negotiated.
pub(crate) struct Server {
    operations: Arc<dyn Operations>,
    agreement: Agreement,
    interrupts: Interrupts,
    counts: Arc<RequestCounts>,
    destroyed: Once,
}

/// Targets of symlinks are shorter than a page.
const TARGET_MAX: usize = 4095;

impl Server {
    pub(crate) fn new(
        operations: Arc<dyn Operations>,
        agreement: Agreement,
        workers: usize,
        counts: Arc<RequestCounts>,
    ) -> Self {
        Self { operations, agreement, interrupts: Interrupts::new(workers), counts, destroyed: Once::new() }
    }

    pub(crate) fn destroy(&self) {
        self.destroyed.call_once(|| self.operations.destroy());
    }

    fn run(
        &self,
        ctx: &RequestContext<'_>,
        request: &Request<'_>,
        data: &SharedBytes,
        payload: &mut [u8],
    ) -> Answer {
        match request.operation {
            Operation::Forget { lookups } => {
                self.operations.forget(request.node, lookups);
                return Answer::None;
            }
            Operation::BatchForget { forgets } => {
                self.operations.batch_forget(forgets);
                return Answer::None;
            }
            Operation::Interrupt { unique } => {
                self.interrupts.raise(unique);
                return Answer::None;
            }
            _ => self.operations.observe(request),
        }
        let operations = self.operations.as_ref();
        names(operations, ctx, request, payload)
            .or_else(|| files(operations, ctx, request, data, payload))
            .unwrap_or_else(|| match request.operation {
                Operation::Destroy => {
                    self.destroy();
                    Ok(()).into()
                }
                // A second INIT.
                Operation::Init { .. } => Answer::Error(Errno::EIO),
                Operation::Unsupported { opcode } => refuse(opcode, Errno::ENOSYS),
                _ => Answer::Error(Errno::ENOSYS),
            })
    }
}

impl Server {
    fn answer(&self, worker: usize, message: &Message<'_>, payload: &mut [u8]) -> Answer {
        let Message { header, body, rest, data } = *message;
        let request = match decode(header, body, rest, self.agreement.flags) {
            Ok(request) => request,
            Err(malformed) => return refuse(header.opcode, malformed.errno),
        };
        let interrupted = self.interrupts.begin(worker, header.unique);
        let ctx = RequestContext::from_header(header, interrupted);
        let answer = self.run(&ctx, &request, data, payload);
        self.interrupts.end(worker);
        answer
    }

    /// Handles a panic in the middle of a request: the filesystem gives up its current work.
    fn panicked(&self, worker: usize, header: &wire::InHeader, panic: &Panic) -> Answer {
        self.interrupts.end(worker);
        self.operations.panicked(panic);
        refuse(header.opcode, Errno::EIO)
    }
}

impl Handler for Server {
    fn handle(&self, worker: usize, message: &Message<'_>, payload: &mut [u8]) -> Answer {
        let begun = Instant::now();
        let answered = panics::catch(|| self.answer(worker, message, payload));
        let answer = answered.unwrap_or_else(|panic| self.panicked(worker, message.header, &panic));
        self.counts.count(message.header.opcode, begun.elapsed());
        answer
    }
}

/// The answer to a request that cannot be run.
pub(crate) fn refuse(opcode: u32, errno: Errno) -> Answer {
    match Opcode::from_number(opcode) {
        Some(opcode) if !opcode.has_reply() => Answer::None,
        _ => Answer::Error(errno),
    }
}

/// The first `asked` bytes of the reply buffer, or all of it.
fn cut(payload: &mut [u8], asked: u32) -> &mut [u8] {
    let len = usize::try_from(asked).unwrap_or(usize::MAX).min(payload.len());
    &mut payload[..len]
}

/// A value of unknown size, or that size if the caller asked for it.
fn sized(payload: &mut [u8], asked: u32, fill: impl FnOnce(&mut ByteSink<'_>) -> Result<()>) -> Answer {
    let mut sink = ByteSink::new(cut(payload, asked));
    match fill(&mut sink) {
        Err(errno) => Answer::Error(errno),
        Ok(()) if asked == 0 => match u32::try_from(sink.len()) {
            Ok(size) => Answer::Reply(Fixed::of(&wire::GetxattrOut { size, padding: 0 }), 0),
            Err(_) => Answer::Error(Errno::E2BIG),
        },
        Ok(()) if !sink.fits() => Answer::Error(Errno::ERANGE),
        Ok(()) => Answer::Reply(Fixed::EMPTY, sink.len()),
    }
}

/// Operations on names, attributes and extended attributes.
fn names(
    o: &dyn Operations,
    ctx: &RequestContext<'_>,
    request: &Request<'_>,
    payload: &mut [u8],
) -> Option<Answer> {
    let node = request.node;
    let entry = |result: Result<crate::Entry>| result.map(|entry| Fixed::of(&entry_out(&entry))).into();
    let opened = |result: Result<(crate::Entry, crate::Opened)>| {
        result.map(|(entry, opened)| Fixed::pair(&entry_out(&entry), &open_out(&opened))).into()
    };
    let attr = |result: Result<crate::AttrReply>| result.map(|reply| Fixed::of(&attr_out(&reply))).into();
    Some(match request.operation {
        Operation::Lookup { name } => entry(o.lookup(ctx, node, name)),
        Operation::Getattr { handle } => attr(o.getattr(ctx, node, handle)),
        Operation::Statx { handle, flags, mask } => {
            o.statx(ctx, node, handle, flags, mask).map(|reply| Fixed::of(&statx_out(&reply))).into()
        }
        Operation::Setattr { changes } => attr(o.setattr(ctx, node, &changes)),
        Operation::Readlink => {
            let room = payload.len().min(TARGET_MAX);
            let mut sink = ByteSink::new(&mut payload[..room]);
            match o.readlink(ctx, node, &mut sink) {
                Ok(()) if !sink.fits() => Answer::Error(Errno::ENAMETOOLONG),
                result => result.map(|()| sink.len()).into(),
            }
        }
        Operation::Symlink { name, target } => entry(o.symlink(ctx, node, name, target)),
        Operation::Mknod { name, new } => entry(o.mknod(ctx, node, name, &new)),
        Operation::Mkdir { name, new } => entry(o.mkdir(ctx, node, name, &new)),
        Operation::Unlink { name } => o.unlink(ctx, node, name).into(),
        Operation::Rmdir { name } => o.rmdir(ctx, node, name).into(),
        Operation::Rename { name, new_parent, new_name, flags } => {
            o.rename(ctx, node, name, new_parent, new_name, flags).into()
        }
        // The header names the new parent, the body the inode.
        Operation::Link { node: target, new_name } => entry(o.link(ctx, target, node, new_name)),
        Operation::Create { name, new, open } => opened(o.create(ctx, node, name, &new, &open)),
        Operation::Tmpfile { new, open } => opened(o.tmpfile(ctx, node, &new, &open)),
        Operation::Setxattr { name, value, set } => o.setxattr(ctx, node, name, value, &set).into(),
        Operation::Getxattr { name, size } => {
            sized(payload, size, |value| o.getxattr(ctx, node, name, value))
        }
        Operation::Listxattr { size } => sized(payload, size, |names| o.listxattr(ctx, node, names)),
        Operation::Removexattr { name } => o.removexattr(ctx, node, name).into(),
        Operation::Access { mask } => o.access(ctx, node, mask).into(),
        Operation::Statfs => o.statfs(ctx, node).map(|statfs| Fixed::of(&statfs_out(&statfs))).into(),
        Operation::Syncfs => o.syncfs(ctx, node).into(),
        _ => return None,
    })
}

/// Operations on open files and directories. `shared` is the memory of a write's data.
fn files(
    o: &dyn Operations,
    ctx: &RequestContext<'_>,
    request: &Request<'_>,
    shared: &SharedBytes,
    payload: &mut [u8],
) -> Option<Answer> {
    let node = request.node;
    let opened = |result: Result<crate::Opened>| result.map(|opened| Fixed::of(&open_out(&opened))).into();
    Some(match request.operation {
        Operation::Open { open } => opened(o.open(ctx, node, &open)),
        Operation::Opendir { open } => opened(o.opendir(ctx, node, &open)),
        Operation::Read { read, size } => {
            let out = cut(payload, size);
            let answer = o.read(ctx, node, &read, out);
            assert!(answer.is_ok_and(|len| len <= out.len()) || answer.is_err(), "read more than asked");
            answer.into()
        }
        Operation::Write { write, data } => {
            let answer = o.write(ctx, node, &write, &shared.slice(0..data.len()));
            assert!(answer.is_ok_and(|len| len <= data.len()) || answer.is_err(), "wrote more than given");
            answer.map(|len| Fixed::of(&wire::WriteOut { size: len as u32, padding: 0 })).into()
        }
        Operation::Release { release } => o.release(ctx, node, &release).into(),
        Operation::Releasedir { release } => o.releasedir(ctx, node, &release).into(),
        Operation::Flush { handle, lock_owner } => o.flush(ctx, node, handle, lock_owner).into(),
        Operation::Fsync { handle, data_only } => o.fsync(ctx, node, handle, data_only).into(),
        Operation::Fsyncdir { handle, data_only } => o.fsyncdir(ctx, node, handle, data_only).into(),
        Operation::Readdir { handle, offset, size } => {
            let mut sink = DirectorySink::new(cut(payload, size));
            o.readdir(ctx, node, handle, offset, &mut sink).map(|()| sink.len()).into()
        }
        Operation::Readdirplus { handle, offset, size } => {
            let mut sink = DirectoryPlusSink::new(cut(payload, size));
            let result = o.readdirplus(ctx, node, handle, offset, &mut sink);
            // An error would take back references that the entries in the sink already gave.
            if sink.is_empty() { result.map(|()| 0).into() } else { Ok(sink.len()).into() }
        }
        Operation::Ioctl { ioctl, input, output_len } => {
            let output = cut(payload, output_len);
            match o.ioctl(ctx, node, &ioctl, input, output) {
                Err(errno) => Answer::Error(errno),
                Ok(reply) => {
                    assert!(reply.len <= output.len(), "control answered more than asked");
                    let out = wire::IoctlOut { result: reply.result, ..wire::IoctlOut::default() };
                    Answer::Reply(Fixed::of(&out), reply.len)
                }
            }
        }
        Operation::Fallocate { handle, offset, len, mode } => {
            o.fallocate(ctx, node, handle, offset, len, mode).into()
        }
        Operation::Lseek { handle, offset, to } => {
            o.lseek(ctx, node, handle, offset, to).map(|offset| Fixed::of(&wire::LseekOut { offset })).into()
        }
        Operation::CopyFileRange { from, to, len, flags, wide } => {
            // The narrow form answers with 32 bits.
            let len = if wide { len } else { len.min(u64::from(u32::MAX) & !0xfff) };
            let answer = o.copy_file_range(ctx, &from, &to, len, flags);
            assert!(answer.is_ok_and(|copied| copied <= len) || answer.is_err(), "copied more than asked");
            answer
                .map(|copied| match wide {
                    true => Fixed::of(&wire::CopyFileRangeOut { bytes_copied: copied }),
                    false => Fixed::of(&wire::WriteOut { size: copied as u32, padding: 0 }),
                })
                .into()
        }
        _ => return None,
    })
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
