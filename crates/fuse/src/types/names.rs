//! Callers of requests, and the numbers of inodes and open files.

use std::fmt;
use std::time::Duration;

use super::Attr;
use crate::interrupts::Interrupted;
use crate::protocol::wire;

/// The number of an inode for the kernel, from the first lookup to the last forget.
///
/// ```
/// use creamery_fuse::NodeId;
/// assert_eq!(NodeId::ROOT.get(), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u64);

impl NodeId {
    /// The root directory. It needs no lookup and is never forgotten.
    pub const ROOT: Self = Self(1);
    /// No inode: a negative entry.
    pub(crate) const NONE: Self = Self(0);

    /// The node `id`.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The bare number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({})", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number of an open file or directory: any number that `open` answered.
///
/// ```
/// use creamery_fuse::FileHandle;
/// assert_eq!(FileHandle::new(3).get(), 3);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FileHandle(u64);

impl FileHandle {
    /// The handle `id`.
    #[must_use]
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The bare number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The caller of a request. Zero for requests that the kernel makes on its own (writing back pages, releasing).
///
/// ```
/// use creamery_fuse::RequestContext;
/// let ctx = RequestContext::new(1000, 100, 4321);
/// assert!(ctx.uid == 1000 && !ctx.is_interrupted());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    /// The caller's filesystem user id.
    pub uid: u32,
    /// The caller's filesystem group id.
    pub gid: u32,
    /// The caller's thread id in the namespace of the mounter; 0 if it has none there.
    pub pid: u32,
    interrupted: Option<Interrupted<'a>>,
}

impl<'a> RequestContext<'a> {
    /// The context of a caller that is never interrupted.
    #[must_use]
    pub const fn new(uid: u32, gid: u32, pid: u32) -> Self {
        Self { uid, gid, pid, interrupted: None }
    }

    pub(crate) fn from_header(header: &wire::InHeader, interrupted: Interrupted<'a>) -> Self {
        Self { uid: header.uid, gid: header.gid, pid: header.pid, interrupted: Some(interrupted) }
    }

    /// Whether the caller got a signal meanwhile. A long operation may check this now and then, undo its changes
    /// and answer [`Errno::EINTR`](crate::Errno::EINTR); a short one may ignore it.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.is_some_and(Interrupted::get)
    }
}

/// A name that was found or made. An answer with it gives the kernel one reference to `node`, which it returns with
/// [`forget`](crate::Operations::forget).
///
/// ```
/// use std::time::Duration;
/// use creamery_fuse::Entry;
/// assert!(Entry::negative(Duration::from_secs(1)).is_negative());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The inode.
    pub node: NodeId,
    /// Distinguishes two lives of one node id (for NFS); may stay 0 if ids are not reused.
    pub generation: u64,
    /// Its attributes.
    pub attr: Attr,
    /// Lifetime of the attributes in the kernel's cache.
    pub attr_valid: Duration,
    /// Lifetime of the name in the kernel's cache.
    pub entry_valid: Duration,
}

impl Entry {
    /// The answer "there is no such name", valid for `valid`. Unlike
    /// [`ENOENT`](crate::Errno::ENOENT), the kernel caches it.
    #[must_use]
    pub fn negative(valid: Duration) -> Self {
        Self {
            node: NodeId::NONE,
            generation: 0,
            attr: Attr::default(),
            attr_valid: Duration::ZERO,
            entry_valid: valid,
        }
    }

    /// Whether it says "no such name".
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.node == NodeId::NONE
    }
}
