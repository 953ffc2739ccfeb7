//! FUSE of our own: the protocol, the way requests travel, mounting, and a trait of typed operations.
//!
//! This crate knows nothing about Btrfs. A filesystem implements [`Operations`]; [`Session::mount`] mounts
//! it; [`Session::run`] serves it until it is unmounted. [`Notifier`] tells the kernel what changed behind
//! its back.
//!
//! # Life of a request
//! A system call on the mount goes through the kernel's VFS, which asks its own caches first: names it looked
//! up and attributes it got are believed for as long as the answer said ([`Entry::entry_valid`],
//! [`AttrReply::valid`]), data for as long as its page stays. What is left becomes a request in a queue of
//! the connection. A worker's `read` of `/dev/fuse` takes it out whole: a header, a fixed structure, then
//! names or data. [`protocol::decode`] checks it and makes it an [`Operation`](protocol::Operation) that
//! borrows from the request buffer; the dispatcher calls the method of [`Operations`]; what that returns is
//! encoded behind a reply header and sent with one `writev`. Bulk data never moves inside this process:
//! `read` fills the reply buffer in place, `write` is handed the request buffer, at a page.
//!
//! `FORGET`, `BATCH_FORGET` and `INTERRUPT` get no answer. Everything else gets exactly one, also what is
//! malformed (`EIO`, or `EINVAL` where a value makes no sense) or unknown (`ENOSYS`).
//!
//! # References
//! Each answer that carries an [`Entry`] (lookup, the makers of names, link, and each entry pushed into a
//! [`DirectoryPlusSink`](protocol::DirectoryPlusSink)) gives the kernel one reference to the node.
//! [`Operations::forget`] gives some back. A node lives while it has a name, a reference or an open handle;
//! when the mount ends, all references are void and no forgets come for them.
//!
//! # Threads, and who may block
//! [`Session::run`] serves with N threads, the caller's included, each with a clone of the descriptor and
//! buffers of its own. No lock is shared between them but what the kernel has. An operation may block as long
//! as it likes, and blocks one worker with it. So:
//! - N workers blocked in operations that wait for an (N+1)th request are a deadlock. Nothing an operation
//!   waits for may depend on the mount: no file on it may be opened, no unmount waited for, no notification
//!   sent (asserted).
//! - a program that uses its own mount has a second trap: unmapping a dirty shared mapping writes it back
//!   under the lock of its address space, which a worker needs to get memory. Sync first, or serve from
//!   another process.
//! - a request is never cut short: killing the caller of a long operation sets
//!   [`RequestContext::is_interrupted`], and the caller lives until the operation answers.
//!
//! An operation that panics is answered with `EIO`, and [`Operations::panicked`] hears of it; what that means for the files
//! is the filesystem's to say. Panics of the transport itself end the process, loudly, after the mount was detached.
//!
//! # What the kernel must be told
//! Changes made by requests of the mount need no telling: the kernel saw them. Everything else does, by a
//! [`Notifier`], never under a lock that an operation takes and never on a worker; [`NotifyThread`] is a
//! queue with a thread behind it for those who can promise neither.
//!
//! # What must be promised
//! Capabilities beyond the safe ones are asked for in [`Operations::init`], by [`Negotiation::want`], each a
//! promise:
//! - `POSIX_ACL`: `system.posix_acl_access` and `_default` are stored as attributes, new inodes inherit the
//!   latter, and the umask ([`NewInode::umask`]) is applied by the filesystem where there is none
//!   (`DONT_MASK` comes with it).
//! - `HANDLE_KILLPRIV_V2`: setuid, setgid and `security.capability` are cleared when `kill_suidgid` says so
//!   ([`SetAttr`], [`OpenRequest`], [`protocol::WriteFlags`]), and on every change of owner or group.
//! - `WRITEBACK_CACHE`: the kernel then owns times and sizes of files being written. And `SEEK_DATA` lies,
//!   because lseek does not flush; leave it off.
//! - `ASYNC_DIO`: direct reads and writes of libaio and io_uring return before their end, and the parts of a large one come all at once. Then the
//!   kernel drops the pages of a file before such a write, and not after it: a read through the cache meanwhile leaves old content there for everybody.
//!   So where anybody reads through the cache what others write around it, have these pages dropped before such a write is answered
//!   ([`NotifyQueue`]).
//! - `DIRECT_IO_ALLOW_MMAP` is asked for from the start: a file opened with
//!   [`DIRECT_IO`](protocol::OpenReplyFlags::DIRECT_IO) can be mapped shared. [`Negotiation::decline`] it to forbid that.
//! - `ATOMIC_O_TRUNC`: `open` truncates when its flags say so.
//! - `EXPORT_SUPPORT`: "." and ".." are looked up in any directory.
//!
//! # What FUSE cannot carry
//! Of a shared mapping, and of the pages that it changed, nobody hears before they are written back. Without
//! `WRITEBACK_CACHE` they are, and their `WRITE`s are answered, before the handle of the mapping is released, which was opened to
//! read and to write. `SEEK_DATA` and the number of blocks must not deny what may be in such pages.
//! [`Notifier::inval_inode`] has the kernel write them back.
//!
//! `FICLONE`, `FIDEDUPERANGE` and `FIEMAP` never arrive (`copy_file_range` does); controls carry what their
//! number tells of their size, below 16 KiB, and nothing behind pointers; one mount has one device number;
//! `NOWAIT` is not in the request; sync(2) and syncfs(2) do not reach us (fsync does); open_by_handle_at(2)
//! finds only nodes the kernel still knows, unless exporting was negotiated; reading ahead is capped by the
//! kernel at 128 KiB unless its bdi is told otherwise. Poll, block maps and byte-range locks across machines
//! are not offered: the kernel keeps locks by itself.
//!
//! # Unsafe code
//! Two controls go through a pointer: cloning the descriptor, and [`control`], which programs beside a mount send to it.
//! Everything else is safe Rust over system calls.
#![allow(unsafe_code, reason = "cloning /dev/fuse is an ioctl, and so is asking a mount")]

mod control;
mod counts;
mod dispatch;
mod errno;
mod interrupts;
mod mount;
mod negotiate;
mod notify;
mod operations;
pub mod protocol;
mod responder;
mod session;
mod transport;
mod types;

pub use control::{control, control_number};
pub use counts::{RequestCount, RequestCounts};
pub use errno::{Errno, Result};
pub use mount::{HeldMount, MountNumber, MountOptions, PinnedPoint, Unmount};
pub use negotiate::{Agreement, Negotiation};
pub use notify::{Notice, Notifier, NotifyMark, NotifyQueue, NotifyThread};
pub use operations::Operations;
pub use responder::Responder;
pub use session::{Session, Unmounter};
pub use types::{
    Attr, AttrReply, CopySide, DeviceNumber, Entry, FileHandle, IoctlReply, IoctlRequest, NewInode, NodeId,
    OpenRequest, Opened, ReadRequest, ReleaseRequest, RequestContext, SeekTo, SetAttr, SetTime,
    SetXattrRequest, Statfs, StatxReply, WriteRequest,
};
