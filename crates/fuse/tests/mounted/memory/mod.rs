//! A filesystem in memory, complete enough for real use: the tests mount it.
//!
//! There is one lock around everything, because the tests are about the transport. Nodes count their references, so that a
//! test can see whether `FORGET` and `RELEASE` come correctly: a node without name, reference and handle
//! is gone.

mod data;
mod operations;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use creamery_base::Timespec;
use creamery_fuse::{Attr, DeviceNumber, Entry, Errno, NewInode, NodeId, RequestContext, Result};

pub use data::Data;

pub const VALID: Duration = Duration::from_secs(60);
const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
pub const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// The content of an inode.
pub enum Content {
    File(Data),
    Directory { names: BTreeMap<Vec<u8>, u64>, order: BTreeMap<u64, (Vec<u8>, u64)>, next: u64, parent: u64 },
    Symlink(Vec<u8>),
    Special,
}

pub struct Node {
    pub content: Content,
    mode: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    rdev: DeviceNumber,
    atime: Timespec,
    mtime: Timespec,
    ctime: Timespec,
    btime: Timespec,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    flags: u32,
    /// References of the kernel.
    lookups: u64,
    /// Open handles.
    opens: u64,
}

pub struct State {
    nodes: HashMap<u64, Node>,
    handles: HashMap<u64, u64>,
    next: u64,
}

/// Counts of requests.
#[derive(Default)]
pub struct Counters {
    pub forgotten: AtomicU64,
    pub fsyncs: AtomicU64,
    pub datasyncs: AtomicU64,
    pub statx: AtomicU64,
    pub copies: AtomicU64,
    pub largest_read: AtomicU64,
    pub largest_write: AtomicU64,
    pub plus: AtomicU64,
    pub destroyed: AtomicU64,
    pub stuck: AtomicU64,
    pub interrupted: AtomicU64,
}

pub struct Memory {
    state: Mutex<State>,
    pub counters: Counters,
}

pub fn now() -> Timespec {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Timespec { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
}

impl Node {
    fn new(content: Content, mode: u32, ctx: &RequestContext<'_>) -> Self {
        let time = now();
        Self {
            content,
            mode,
            uid: ctx.uid,
            gid: ctx.gid,
            nlink: if mode & S_IFMT == S_IFDIR { 2 } else { 1 },
            rdev: DeviceNumber::default(),
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            xattrs: BTreeMap::new(),
            flags: 0,
            lookups: 0,
            opens: 0,
        }
    }

    fn directory(mode: u32, parent: u64, ctx: &RequestContext<'_>) -> Self {
        let content = Content::Directory { names: BTreeMap::new(), order: BTreeMap::new(), next: 3, parent };
        Self::new(content, S_IFDIR | (mode & 0o7777), ctx)
    }

    pub fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory { .. })
    }

    fn size(&self) -> u64 {
        match &self.content {
            Content::File(data) => data.len(),
            Content::Symlink(target) => target.len() as u64,
            _ => 0,
        }
    }

    fn data(&mut self) -> Result<&mut Data> {
        match &mut self.content {
            Content::File(data) => Ok(data),
            Content::Directory { .. } => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn touch(&mut self) {
        let time = now();
        self.mtime = time;
        self.ctime = time;
    }

    /// As the kernel does it in write(2): setuid always, setgid if the group may execute.
    fn kill_suidgid(&mut self) {
        self.mode &= !0o4000;
        if self.mode & 0o010 != 0 {
            self.mode &= !0o2000;
        }
    }
}

impl State {
    pub fn node(&mut self, id: NodeId) -> Result<&mut Node> {
        self.nodes.get_mut(&id.get()).ok_or(Errno::ESTALE)
    }

    fn attr(&self, id: u64) -> Result<Attr> {
        let node = self.nodes.get(&id).ok_or(Errno::ESTALE)?;
        let blocks = if let Content::File(data) = &node.content { data.blocks() } else { 0 };
        Ok(Attr {
            ino: id,
            size: node.size(),
            blocks: blocks * 8,
            atime: node.atime,
            mtime: node.mtime,
            ctime: node.ctime,
            mode: node.mode,
            nlink: node.nlink,
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            blksize: 4096,
            flags: 0,
        })
    }

    /// An answer that gives the kernel a reference.
    fn entry(&mut self, id: u64) -> Result<Entry> {
        let attr = self.attr(id)?;
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lookups += 1;
        }
        Ok(Entry { node: NodeId::new(id), generation: 0, attr, attr_valid: VALID, entry_valid: VALID })
    }

    fn find(&mut self, parent: NodeId, name: &[u8]) -> Result<u64> {
        match &self.node(parent)?.content {
            Content::Directory { names, order, .. } => {
                let cookie = names.get(name).ok_or(Errno::ENOENT)?;
                Ok(order[cookie].1)
            }
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Puts a name into a directory; the name must be free.
    fn add_name(&mut self, parent: NodeId, name: &[u8], id: u64) -> Result<()> {
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        if self.find(parent, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let directory = self.node(parent)?;
        directory.touch();
        let Content::Directory { names, order, next, .. } = &mut directory.content else {
            return Err(Errno::ENOTDIR);
        };
        names.insert(name.to_vec(), *next);
        order.insert(*next, (name.to_vec(), id));
        *next += 1;
        if self.nodes[&id].is_directory() {
            self.node(parent)?.nlink += 1;
            if let Content::Directory { parent: up, .. } = &mut self.node(NodeId::new(id))?.content {
                *up = parent.get();
            }
        }
        Ok(())
    }

    /// Removes a name from a directory and returns its inode.
    fn take_name(&mut self, parent: NodeId, name: &[u8]) -> Result<u64> {
        let directory = self.node(parent)?;
        directory.touch();
        let Content::Directory { names, order, .. } = &mut directory.content else {
            return Err(Errno::ENOTDIR);
        };
        let cookie = names.remove(name).ok_or(Errno::ENOENT)?;
        let (_, id) = order.remove(&cookie).expect("both maps hold the same");
        if self.nodes[&id].is_directory() {
            self.node(parent)?.nlink -= 1;
        }
        Ok(id)
    }

    /// Removes one link of `id`.
    fn drop_link(&mut self, id: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.nlink = if node.is_directory() { 0 } else { node.nlink - 1 };
            node.ctime = now();
        }
        self.reap(id);
    }

    fn reap(&mut self, id: u64) {
        let idle = |node: &Node| node.nlink == 0 && node.lookups == 0 && node.opens == 0;
        if self.nodes.get(&id).is_some_and(idle) {
            self.nodes.remove(&id);
        }
    }

    fn check_removable(&mut self, parent: NodeId, name: &[u8], directory: bool) -> Result<()> {
        let id = self.find(parent, name)?;
        match &self.node(NodeId::new(id))?.content {
            Content::Directory { .. } if !directory => Err(Errno::EISDIR),
            Content::Directory { names, .. } if !names.is_empty() => Err(Errno::ENOTEMPTY),
            Content::Directory { .. } => Ok(()),
            _ if directory => Err(Errno::ENOTDIR),
            _ => Ok(()),
        }
    }

    fn insert(&mut self, node: Node) -> u64 {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        id
    }

    /// A new inode under `name`, or without one.
    fn make(
        &mut self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: Option<&[u8]>,
        new: &NewInode,
        content: Option<Content>,
    ) -> Result<u64> {
        let directory = self.node(parent)?;
        // A default ACL takes the umask's place.
        let inherits = directory.xattrs.contains_key(DEFAULT_ACL);
        let mode = if inherits { new.mode } else { new.masked_mode() };
        let mut node = match (new.mode & S_IFMT, content) {
            (_, Some(content)) => Node::new(content, mode, ctx),
            (S_IFDIR, None) => Node::directory(mode, parent.get(), ctx),
            (S_IFREG, None) => Node::new(Content::File(Data::default()), mode, ctx),
            (_, None) => Node::new(Content::Special, mode, ctx),
        };
        node.rdev = new.rdev;
        if directory.mode & 0o2000 != 0 {
            node.gid = directory.gid;
        }
        if name.is_none() {
            node.nlink = 0;
        }
        let id = self.insert(node);
        if let Some(name) = name
            && let Err(errno) = self.add_name(parent, name, id)
        {
            self.nodes.remove(&id);
            return Err(errno);
        }
        Ok(id)
    }

    fn open_handle(&mut self, id: u64) -> Result<u64> {
        self.node(NodeId::new(id))?.opens += 1;
        let handle = self.next;
        self.next += 1;
        self.handles.insert(handle, id);
        Ok(handle)
    }

    fn close_handle(&mut self, handle: u64) {
        if let Some(id) = self.handles.remove(&handle) {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.opens -= 1;
            }
            self.reap(id);
        }
    }
}

impl Memory {
    pub fn new() -> Self {
        let root = Node::directory(0o777, 1, &RequestContext::new(0, 0, 0));
        let state =
            State { nodes: HashMap::from([(NodeId::ROOT.get(), root)]), handles: HashMap::new(), next: 2 };
        Self { state: Mutex::new(state), counters: Counters::default() }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the filesystem does not panic")
    }

    /// How many inodes there are.
    pub fn nodes(&self) -> usize {
        self.lock().nodes.len()
    }

    /// How many references the kernel holds, all inodes but the root together.
    pub fn references(&self) -> u64 {
        self.lock().nodes.values().map(|node| node.lookups).sum()
    }

    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
