//! A server that does nothing as fast as it can: the baseline of the benchmarks. Its time is that of the kernel and the
//! transport; additional time of a filesystem is the filesystem's own.
//!
//! It remembers the names that were made, their nodes, and the lengths of files, because otherwise the kernel would send more or fewer
//! requests than to a filesystem; it keeps nothing else. Reads return zeros, writes are dropped, and a sync is done at once. For a caller
//! that asks, every file has 4 KiB of data and a hole of 4 KiB in turn. A file that is opened again is read again: the kernel drops its
//! pages. With `--exists` every name is a file already.
//!
//!     null [--threads N] [--exists] DIR

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use creamery_device::SharedBytes;
use creamery_fuse::protocol::{DirectoryEntry, DirectorySink, Pushed};
use creamery_fuse::{
    Attr, AttrReply, Entry, Errno, FileHandle, MountOptions, NewInode, NodeId, OpenRequest, Opened,
    Operations, ReadRequest, ReleaseRequest, RequestContext, Result, SeekTo, Session, SetAttr, Statfs,
    WriteRequest,
};

const VALID: Duration = Duration::from_secs(3600);

/// A directory and a name in it.
type Name = (NodeId, Box<[u8]>);
type Names = HashMap<Name, (NodeId, u32)>;
const SHARDS: usize = 64;
/// Bytes of data, and of the hole behind them.
const PIECE: u64 = 4096;

struct Null {
    next: AtomicU64,
    /// Node and mode of each name, in shards.
    names: [Mutex<Names>; SHARDS],
    /// Lengths of files that were written to, in shards.
    sizes: [Mutex<HashMap<NodeId, u64>>; SHARDS],
    hasher: RandomState,
    exists: bool,
    uid: u32,
    gid: u32,
}

impl Null {
    fn attr(&self, node: NodeId, mode: u32) -> Attr {
        let (ino, nlink, blksize) = (node.get(), 1, 4096);
        Attr {
            ino,
            mode,
            nlink,
            blksize,
            uid: self.uid,
            gid: self.gid,
            size: self.size(node),
            ..Attr::default()
        }
    }

    fn entry(&self, node: NodeId, mode: u32) -> Entry {
        Entry { node, generation: 0, attr: self.attr(node, mode), attr_valid: VALID, entry_valid: VALID }
    }

    fn shard(&self, name: &Name) -> MutexGuard<'_, Names> {
        let shard = self.hasher.hash_one(name) as usize % self.names.len();
        self.names[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sizes(&self, node: NodeId) -> MutexGuard<'_, HashMap<NodeId, u64>> {
        self.sizes[node.get() as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn size(&self, node: NodeId) -> u64 {
        self.sizes(node).get(&node).copied().unwrap_or(0)
    }

    fn make(&self, parent: NodeId, name: &[u8], mode: u32) -> Result<Entry> {
        let name: Name = (parent, name.into());
        let node = NodeId::new(self.next.fetch_add(1, Ordering::Relaxed));
        match self.shard(&name).entry(name) {
            Slot::Occupied(_) => Err(Errno::EEXIST),
            Slot::Vacant(slot) => {
                slot.insert((node, mode));
                Ok(self.entry(node, mode))
            }
        }
    }

    fn remove(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        let name: Name = (parent, name.into());
        self.shard(&name).remove(&name).map(drop).ok_or(Errno::ENOENT)
    }
}

impl Operations for Null {
    fn lookup(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Result<Entry> {
        let name: Name = (parent, name.into());
        match self.shard(&name).get(&name) {
            Some((node, mode)) => Ok(self.entry(*node, *mode)),
            None if self.exists => {
                Ok(self.entry(NodeId::new(self.next.fetch_add(1, Ordering::Relaxed)), 0o100_644))
            }
            None => Err(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &RequestContext<'_>, node: NodeId, _: Option<FileHandle>) -> Result<AttrReply> {
        let mode = if node == NodeId::ROOT { 0o040_777 } else { 0o100_644 };
        Ok(AttrReply { attr: self.attr(node, mode), valid: VALID })
    }

    fn setattr(&self, ctx: &RequestContext<'_>, node: NodeId, changes: &SetAttr) -> Result<AttrReply> {
        if let Some(size) = changes.size {
            self.sizes(node).insert(node, size);
        }
        self.getattr(ctx, node, None)
    }

    fn mkdir(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8], new: &NewInode) -> Result<Entry> {
        self.make(parent, name, new.masked_mode())
    }

    fn mknod(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8], new: &NewInode) -> Result<Entry> {
        self.make(parent, name, new.masked_mode())
    }

    fn create(
        &self,
        _: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        new: &NewInode,
        _: &OpenRequest,
    ) -> Result<(Entry, Opened)> {
        Ok((self.make(parent, name, new.masked_mode())?, Opened::default()))
    }

    fn open(&self, _: &RequestContext<'_>, _: NodeId, _: &OpenRequest) -> Result<Opened> {
        Ok(Opened::default())
    }

    fn release(&self, _: &RequestContext<'_>, _: NodeId, _: &ReleaseRequest) -> Result<()> {
        Ok(())
    }

    fn unlink(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Result<()> {
        self.remove(parent, name)
    }

    fn rmdir(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Result<()> {
        self.remove(parent, name)
    }

    fn read(&self, _: &RequestContext<'_>, _: NodeId, _: &ReadRequest, out: &mut [u8]) -> Result<usize> {
        out.fill(0);
        Ok(out.len())
    }

    fn write(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        at: &WriteRequest,
        data: &SharedBytes,
    ) -> Result<usize> {
        let end = at.offset + data.len() as u64; // at most `i64::MAX`
        self.sizes(node).entry(node).and_modify(|size| *size = end.max(*size)).or_insert(end);
        Ok(data.len())
    }

    fn lseek(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        _: FileHandle,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        let size = self.size(node);
        let is_data = (offset / PIECE).is_multiple_of(2);
        let found = match to {
            SeekTo::Data if is_data => offset,
            SeekTo::Hole if !is_data => offset,
            SeekTo::Data => (offset / PIECE + 1) * PIECE,
            SeekTo::Hole => size.min((offset / PIECE + 1) * PIECE),
            SeekTo::Start | SeekTo::End => return Err(Errno::EINVAL),
        };
        if offset < size && (found < size || to == SeekTo::Hole) { Ok(found) } else { Err(Errno::ENXIO) }
    }

    fn fsync(&self, _: &RequestContext<'_>, _: NodeId, _: FileHandle, _: bool) -> Result<()> {
        Ok(())
    }

    fn readdir(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        _: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        for (cookie, name) in [(1, &b"."[..]), (2, b"..")] {
            let entry = DirectoryEntry { ino: node.get(), offset: cookie, kind: 4, name };
            if cookie > offset && sink.push(&entry) == Pushed::Full {
                break;
            }
        }
        Ok(())
    }

    fn statfs(&self, _: &RequestContext<'_>, _: NodeId) -> Result<Statfs> {
        Ok(Statfs::default())
    }
}

const USAGE: &str = "usage: null [--threads N] [--exists] DIR";

fn main() -> ExitCode {
    let (mut threads, mut exists, mut point) = (2, false, None);
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--help") => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            Some("--exists") => exists = true,
            Some("--threads") => {
                let number = words.next().and_then(|word| word.to_str()?.parse().ok());
                threads = number.filter(|&number| number > 0).unwrap_or(threads);
            }
            _ => point = Some(PathBuf::from(word)),
        }
    }
    let Some(point) = point else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let (names, sizes) =
        (std::array::from_fn(|_| Mutex::default()), std::array::from_fn(|_| Mutex::default()));
    let (next, hasher) = (AtomicU64::new(2), RandomState::new());
    let null = Arc::new(Null { next, names, sizes, hasher, exists, uid, gid });
    let options = MountOptions::new("null", "creamery-null");
    let served = Session::mount(null, &point, &options).and_then(|session| {
        println!("mounted on {}", session.mount_point().display());
        session.run(threads)
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("null: {error}");
            ExitCode::FAILURE
        }
    }
}
