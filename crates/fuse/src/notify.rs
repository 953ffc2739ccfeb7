//! Notifies the kernel that its cache of an inode's pages or attributes, or of a name, is invalid.
//!
//! A filesystem that only requests of its own mount change never needs this. Changes from elsewhere do:
//! by the library on the mounted image, a snapshot taken by a tool, a deleted subvolume.
//!
//! # Allowed callers
//! The kernel may have to take the inode's lock, or wait for a page that a request of *this server* is
//! reading. So a notification must never be sent
//! - from a worker thread (asserted): with all workers in it, no thread answers the request that the kernel waits for; and
//!   if the request that a worker answers holds the directory's lock, not even a second worker
//!   helps;
//! - under a lock of the filesystem that an operation takes.
//!
//! [`NotifyThread`] avoids both: it accepts notices without waiting and sends them from its own
//! thread. One notification has no such limit: dropping the attributes alone, which takes no lock of the inode and
//! waits for no page ([`Notifier::inval_attributes`]).

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno as Raw;
use zerocopy::{Immutable, IntoBytes};

use crate::errno::{Errno, Result};
use crate::protocol::{EXPIRE_ONLY, NotifyCode, wire};
use crate::transport::{Device, on_worker_thread};
use crate::types::NodeId;

/// Sends notifications and waits until the kernel has acted on them. Errors of its methods are the kernel's; an inode or a name that the
/// kernel does not know is not an error. All methods but [`inval_attributes`](Self::inval_attributes) panic on a worker thread, where
/// they could wait for themselves.
///
/// ```no_run
/// # fn example(session: creamery_fuse::Session) -> creamery_fuse::Result<()> {
/// use creamery_fuse::NodeId;
/// let notifier = session.notifier();
/// notifier.inval_entry(NodeId::ROOT, b"snapshot")
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<Device>,
}

impl Notifier {
    pub(crate) const fn new(device: Arc<Device>) -> Self {
        Self { device }
    }

    /// Drops the cached attributes of `node`, and its cached data from `offset` on for `len` bytes (0: to the
    /// end; a negative offset: no data). The kernel writes dirty pages back first, so the server gets `WRITE` requests.
    pub fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> Result<()> {
        let body = wire::NotifyInvalInode { ino: node.get(), off: offset, len };
        self.send(NotifyCode::InvalInode, &body, &[])
    }

    /// Drops the cached attributes of `node` and nothing else. Any thread may call it, also while it answers a request
    /// about that inode: the kernel then asks again after the answer.
    pub fn inval_attributes(&self, node: NodeId) -> Result<()> {
        let body = wire::NotifyInvalInode { ino: node.get(), off: -1, len: 0 };
        self.send_from_anywhere(NotifyCode::InvalInode, &body, &[])
    }

    /// Drops `name` from the kernel's cache of `parent`.
    pub fn inval_entry(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        self.entry(parent, name, 0)
    }

    /// Makes the kernel ask again for `name` at its next use, without effect on mounts and open files
    /// below it. Needs `HAS_EXPIRE_ONLY`.
    pub fn expire_entry(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        self.entry(parent, name, EXPIRE_ONLY)
    }

    fn entry(&self, parent: NodeId, name: &[u8], flags: u32) -> Result<()> {
        let body = wire::NotifyInvalEntry { parent: parent.get(), namelen: name_len(name)?, flags };
        self.send(NotifyCode::InvalEntry, &body, &[name, &[0]])
    }

    /// Notifies that `name`, which was `child`, is deleted: watchers see it, and the directory is unhashed at
    /// once.
    pub fn delete(&self, parent: NodeId, child: NodeId, name: &[u8]) -> Result<()> {
        let body = wire::NotifyDelete {
            parent: parent.get(),
            child: child.get(),
            namelen: name_len(name)?,
            padding: 0,
        };
        self.send(NotifyCode::Delete, &body, &[name, &[0]])
    }

    /// Puts `data` into the page cache of `node`, which the kernel must know.
    pub fn store(&self, node: NodeId, offset: u64, data: &[u8]) -> Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
        let body = wire::NotifyStore { nodeid: node.get(), offset, size, padding: 0 };
        self.send(NotifyCode::Store, &body, &[data])
    }

    /// Makes all names stale at once (Linux 6.16).
    pub fn inval_all_entries(&self) -> Result<()> {
        self.send(NotifyCode::IncEpoch, &(), &[])
    }

    fn send(&self, code: NotifyCode, body: &(impl IntoBytes + Immutable), tail: &[&[u8]]) -> Result<()> {
        assert!(!on_worker_thread(), "a notification from a worker thread would wait for itself");
        self.send_from_anywhere(code, body, tail)
    }

    /// Sends a notification. An unknown node or name in the kernel is not an error.
    fn send_from_anywhere(
        &self,
        code: NotifyCode,
        body: &(impl IntoBytes + Immutable),
        tail: &[&[u8]],
    ) -> Result<()> {
        let body = body.as_bytes();
        let len =
            size_of::<wire::OutHeader>() + body.len() + tail.iter().map(|piece| piece.len()).sum::<usize>();
        let len = u32::try_from(len).map_err(|_| Errno::EINVAL)?;
        let header = wire::OutHeader { len, error: code as i32, unique: 0 };
        let mut pieces = vec![IoSlice::new(header.as_bytes()), IoSlice::new(body)];
        pieces.extend(tail.iter().map(|piece| IoSlice::new(piece)));
        match self.device.write(&pieces) {
            Ok(()) | Err(Raw::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn name_len(name: &[u8]) -> Result<u32> {
    u32::try_from(name.len()).map_err(|_| Errno::ENAMETOOLONG)
}

/// A notice for a [`NotifyThread`].
///
/// ```
/// use creamery_fuse::{NodeId, Notice};
/// let notice = Notice::Entry { parent: NodeId::ROOT, name: b"gone".to_vec() };
/// assert_ne!(notice, Notice::Inode { node: NodeId::ROOT, offset: -1, len: 0 });
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// [`Notifier::inval_inode`].
    Inode {
        /// The inode.
        node: NodeId,
        /// Offset in bytes; negative: attributes only.
        offset: i64,
        /// Length in bytes; 0: to the end.
        len: i64,
    },
    /// [`Notifier::inval_entry`].
    Entry {
        /// The directory.
        parent: NodeId,
        /// The name in it.
        name: Vec<u8>,
    },
    /// [`Notifier::delete`].
    Deleted {
        /// The directory.
        parent: NodeId,
        /// The inode of the name.
        child: NodeId,
        /// The name in it.
        name: Vec<u8>,
    },
}

/// A thread that sends notices in the order in which it got them. Dropping it sends the remaining notices and ends
/// it.
///
/// ```no_run
/// # fn example(session: creamery_fuse::Session) {
/// use creamery_fuse::{NodeId, Notice, NotifyThread};
/// let thread = NotifyThread::spawn(session.notifier());
/// let queue = thread.queue(); // may go to where locks are held, and to operations
/// queue.send(Notice::Inode { node: NodeId::ROOT, offset: -1, len: 0 });
/// # }
/// ```
#[derive(Debug)]
pub struct NotifyThread {
    queue: Option<NotifyQueue>,
    thread: Option<JoinHandle<()>>,
}

/// The queue for notices; it never waits.
///
/// ```no_run
/// # fn example(queue: creamery_fuse::NotifyQueue) {
/// use creamery_fuse::{NodeId, Notice};
/// queue.send(Notice::Entry { parent: NodeId::ROOT, name: b"old".to_vec() });
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NotifyQueue {
    sender: Sender<Order>,
}

/// An order to the thread.
#[derive(Debug)]
enum Order {
    Tell(Notice),
    /// Report that everything before it was sent.
    Mark(SyncSender<()>),
    End,
}

/// A mark in the queue, to wait until the kernel was notified of everything before it.
///
/// ```no_run
/// # fn example(queue: creamery_fuse::NotifyQueue) {
/// use std::time::Duration;
/// let mark = queue.mark();
/// if !mark.is_reached_within(Duration::from_secs(1)) {
///     println!("somebody keeps a directory locked");
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct NotifyMark(Receiver<()>);

impl NotifyMark {
    /// Waits until everything before the mark is sent, or the mount is gone; false if that takes longer than `limit`.
    ///
    /// The thread may have to wait for a request that is being answered. So never let all threads that answer wait here.
    #[must_use]
    pub fn is_reached_within(&self, limit: Duration) -> bool {
        self.0.recv_timeout(limit) != Err(RecvTimeoutError::Timeout)
    }
}

impl NotifyQueue {
    /// Queues a notice. After the thread's end a notice is dropped: the mount is going away.
    pub fn send(&self, notice: Notice) {
        let _ = self.sender.send(Order::Tell(notice));
    }

    /// Queues a mark behind the notices so far.
    #[must_use]
    pub fn mark(&self) -> NotifyMark {
        let (reached, receiver) = sync_channel(1);
        let _ = self.sender.send(Order::Mark(reached));
        NotifyMark(receiver)
    }
}

impl NotifyThread {
    /// Starts the thread.
    #[must_use]
    pub fn spawn(notifier: Notifier) -> Self {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("fuse-notify".to_owned())
            .spawn(move || carry_out(&notifier, &receiver))
            .expect("the system has room for one more thread");
        Self { queue: Some(NotifyQueue { sender }), thread: Some(thread) }
    }

    /// Returns the queue of the thread.
    #[must_use]
    pub fn queue(&self) -> NotifyQueue {
        self.queue.clone().expect("the queue is there until drop")
    }
}

fn carry_out(notifier: &Notifier, receiver: &Receiver<Order>) {
    while let Ok(order) = receiver.recv() {
        let notice = match order {
            Order::Tell(notice) => notice,
            Order::Mark(reached) => {
                let _ = reached.try_send(()); // the receiver may have given up
                continue;
            }
            Order::End => return,
        };
        // An error means that the mount is gone, or that the name is too long to be cached, so that nothing
        // is stale; or that a directory is in use (ENOTEMPTY, EBUSY) and stays as it is.
        let _ = match notice {
            Notice::Inode { node, offset, len } => notifier.inval_inode(node, offset, len),
            Notice::Entry { parent, name } => notifier.inval_entry(parent, &name),
            Notice::Deleted { parent, child, name } => notifier.delete(parent, child, &name),
        };
    }
}

impl Drop for NotifyThread {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            // Other queues may exist longer, so this order ends the thread.
            let _ = queue.sender.send(Order::End);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
