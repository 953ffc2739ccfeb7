//! A FUSE implementation: the protocol, its transport, mounting, and a trait of typed operations.
//!
//! This crate knows nothing about Btrfs. A filesystem implements [`Operations`]; [`Session::mount`] mounts
//! it; [`Session::run`] serves it until it is unmounted. [`Notifier`] notifies the kernel of changes that it did not
//! see.
//!
//! # Life of a request
//! A system call on the mount goes through the kernel's VFS, which asks its own caches first: names and attributes
//! are valid for as long as the answer said ([`Entry::entry_valid`],
//! [`AttrReply::valid`]), data for as long as its page stays. The rest becomes a request in a queue of
//! the connection. A worker's `read` of `/dev/fuse` takes it out whole: a header, a fixed structure, then
//! names or data. [`protocol::decode`] checks it and makes it an [`Operation`](protocol::Operation) that
//! borrows from the request buffer. The dispatcher calls the method of [`Operations`]. The transport sends its encoded
//! result behind a reply header, with one `writev`. Bulk data never moves inside this process:
//! `read` fills the reply buffer in place, `write` gets the request buffer, at a page.
//!
//! `FORGET`, `BATCH_FORGET` and `INTERRUPT` get no answer. Every other request gets exactly one, also a
//! malformed one (`EIO`, or `EINVAL` for an invalid value) and an unknown one (`ENOSYS`).
//!
//! # References
//! Each answer that carries an [`Entry`] (lookup, the makers of names, link, and each entry pushed into a
//! [`DirectoryPlusSink`](protocol::DirectoryPlusSink)) gives the kernel one reference to the node.
//! [`Operations::forget`] gives some back. A node lives while it has a name, a reference or an open handle;
//! when the mount ends, all references are void and no forgets come for them.
//!
//! # Threads and blocking
//! [`Session::run`] serves with N threads, including the caller's, each with a clone of the descriptor and
//! its own buffers. They share no lock except those of the kernel. An operation may block as long
//! as it likes, and blocks one worker with it. So:
//! - N workers blocked in operations that wait for an (N+1)th request are a deadlock. An operation must not
//!   wait for anything that depends on the mount: it opens no file on it, waits for no unmount, and sends no notification
//!   (asserted) except [`Notifier::inval_attributes`].
//! - a program that uses its own mount has a second trap: unmapping a dirty shared mapping writes it back
//!   under the lock of its address space, which a worker needs to get memory. Sync first, or serve from
//!   another process.
//! - a request is never cut short: killing the caller of a long operation sets
//!   [`RequestContext::is_interrupted`], and the caller lives until the operation answers.
//!
//! A panic of an operation is answered with `EIO`, and [`Operations::panicked`] is called; the filesystem decides about
//! its files. A panic of the transport itself detaches the mount and aborts the process with a message.
//!
//! # Changes that the kernel does not see
//! Changes by requests of the mount need no notification: the kernel saw them. For all other changes use a
//! [`Notifier`], never under a lock that an operation takes and never on a worker. [`NotifyThread`] is a
//! queue with its own thread, for callers that cannot ensure that.
//!
//! # Capabilities and their duties
//! Request capabilities beyond the safe ones in [`Operations::init`], with [`Negotiation::want`]. Each has a
//! duty:
//! - `POSIX_ACL`: `system.posix_acl_access` and `_default` are stored as attributes, new inodes inherit the
//!   latter, and the umask ([`NewInode::umask`]) is applied by the filesystem where there is none
//!   (`DONT_MASK` comes with it).
//! - `HANDLE_KILLPRIV_V2`: setuid, setgid and `security.capability` are cleared when `kill_suidgid` says so
//!   ([`SetAttr`], [`OpenRequest`], [`protocol::WriteFlags`]), and on every change of owner or group.
//! - `WRITEBACK_CACHE`: the kernel then owns times and sizes of files being written. And `SEEK_DATA` lies,
//!   because lseek does not flush; leave it off.
//! - `ASYNC_DIO`: direct reads and writes of libaio and io_uring return before their end, and the parts of a large one come all at once.
//!   Then the kernel drops the pages of a file before such a write, and not after it: a read through the cache meanwhile leaves old content
//!   there for every reader. So if some processes read through the cache and others write around it, drop these pages before you answer
//!   such a write ([`NotifyQueue`]).
//! - `DIRECT_IO_ALLOW_MMAP` is asked for from the start: a file opened with
//!   [`DIRECT_IO`](protocol::OpenReplyFlags::DIRECT_IO) can be mapped shared. [`Negotiation::decline`] it to forbid that.
//! - `ATOMIC_O_TRUNC`: `open` truncates when its flags say so.
//! - `EXPORT_SUPPORT`: "." and ".." are looked up in any directory.
//!
//! # Limits of FUSE
//! The server does not learn of a shared mapping, or of the pages that it changed, before they are written back. Without
//! `WRITEBACK_CACHE` their `WRITE`s come, and are answered, before the release of the mapping's handle, which was opened to
//! read and to write. `SEEK_DATA` and the number of blocks must allow for data in such pages.
//! [`Notifier::inval_inode`] makes the kernel write them back.
//!
//! `FICLONE`, `FIDEDUPERANGE` and `FIEMAP` never arrive (`copy_file_range` does); controls carry as many bytes as their
//! number announces, below 16 KiB, and nothing behind pointers; one mount has one device number;
//! `NOWAIT` is not in the request; sync(2) and syncfs(2) do not reach the server (fsync does); open_by_handle_at(2)
//! finds only nodes that the kernel still knows, unless exporting was negotiated; the kernel limits read-ahead
//! to 128 KiB unless its bdi has another setting. Poll, block maps and byte-range locks across machines
//! are not supported: the kernel keeps locks by itself.
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
