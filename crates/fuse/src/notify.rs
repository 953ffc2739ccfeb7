//! Telling the kernel unasked: an inode's pages or attributes, or a name, are not what it remembers.
//!
//! A filesystem that changes only by requests of its own mount never needs this. Changes from elsewhere do:
//! the library working on the mounted image, a snapshot taken by a tool, a deleted subvolume.
//!
//! # Who may call
//! The kernel may have to take the inode's lock, or wait for a page that is being read by a request *we* have
//! to answer. So it must never be called
//! - from a worker thread (asserted): with all workers in it nobody answers what the kernel waits for, and
//!   with the directory's lock held by the very request that is being answered, not even a second worker
//!   helps;
//! - under a lock of the filesystem that an operation takes.
//!
//! [`NotifyThread`] is the way out for both: it takes orders without waiting and carries them out in a thread
//! of its own. One notification is free of all this: dropping the attributes alone, which takes no lock of the inode's and
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

/// Sends notifications and waits until the kernel acted on them.
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
    /// end; a negative offset: no data). Dirty pages are written back first, so this sends us `WRITE`s.
    pub fn inval_inode(&self, node: NodeId, offset: i64, len: i64) -> Result<()> {
        let body = wire::NotifyInvalInode { ino: node.get(), off: offset, len };
        self.send(NotifyCode::InvalInode, &body, &[])
    }

    /// Drops the cached attributes of `node` and nothing else. Any thread may call it, also while it answers a request
    /// about that inode: the answer then finds the kernel asking again.
    pub fn inval_attributes(&self, node: NodeId) -> Result<()> {
        let body = wire::NotifyInvalInode { ino: node.get(), off: -1, len: 0 };
        self.send_from_anywhere(NotifyCode::InvalInode, &body, &[])
    }

    /// Drops `name` from what the kernel remembers of `parent`.
    pub fn inval_entry(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        self.entry(parent, name, 0)
    }

    /// Makes the kernel ask again for `name` at its next use, and does not touch what is mounted or open
    /// below it. Needs `HAS_EXPIRE_ONLY`.
    pub fn expire_entry(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        self.entry(parent, name, EXPIRE_ONLY)
    }

    fn entry(&self, parent: NodeId, name: &[u8], flags: u32) -> Result<()> {
        let body = wire::NotifyInvalEntry { parent: parent.get(), namelen: name_len(name)?, flags };
        self.send(NotifyCode::InvalEntry, &body, &[name, &[0]])
    }

    /// Says that `name`, which was `child`, is deleted: watchers see it, and the directory is unhashed at
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

    /// What the kernel does not remember is no error.
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

/// What a [`NotifyThread`] can be told.
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
        /// From where; negative: attributes only.
        offset: i64,
        /// How far; 0: to the end.
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
        /// What the name meant.
        child: NodeId,
        /// The name in it.
        name: Vec<u8>,
    },
}

/// A thread that sends notices in the order in which they were given. Dropping it sends what is left and ends
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

/// Where notices are given; never waits.
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

/// What the thread is to do.
#[derive(Debug)]
enum Order {
    Tell(Notice),
    /// Say that everything before was told.
    Mark(SyncSender<()>),
    End,
}

/// What was left before it is told to the kernel, or not yet.
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
    /// Waits until everything before it is told, or the mount is gone; false when that takes longer than `limit`.
    ///
    /// The thread may have to wait for a request that is being answered. So of the threads that answer never all may wait here.
    #[must_use]
    pub fn is_reached_within(&self, limit: Duration) -> bool {
        self.0.recv_timeout(limit) != Err(RecvTimeoutError::Timeout)
    }
}

impl NotifyQueue {
    /// Leaves a notice. One that comes after the thread's end is dropped: the mount is going.
    pub fn send(&self, notice: Notice) {
        let _ = self.sender.send(Order::Tell(notice));
    }

    /// Leaves a mark behind the notices that were left so far.
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

    /// Where to leave notices.
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
                let _ = reached.try_send(()); // who has left does not want to know
                continue;
            }
            Order::End => return,
        };
        // An error means that the mount is gone, or that the name is too long to be remembered: nothing can
        // be stale then; or that a directory is in use (ENOTEMPTY, EBUSY) and stays as it is.
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
            // Other queues may live on; this is the word to stop.
            let _ = queue.sender.send(Order::End);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
