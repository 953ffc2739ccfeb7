//! The operations of the filesystem in memory.

use std::sync::atomic::Ordering;

use creamery_device::SharedBytes;
use creamery_fuse::protocol::{
    ByteSink, DirectoryEntry, DirectoryPlusSink, DirectorySink, InitFlags, OpenReplyFlags, Pushed,
    RenameFlags, StatxMask,
};
use creamery_fuse::{
    AttrReply, CopySide, Entry, Errno, FileHandle, IoctlReply, IoctlRequest, Negotiation, NewInode, NodeId,
    OpenRequest, Opened, Operations, ReadRequest, ReleaseRequest, RequestContext, Result, SeekTo, SetAttr,
    SetXattrRequest, Statfs, StatxReply, WriteRequest,
};

use creamery_testkit::until;

use super::{Content, Memory, S_IFLNK, S_IFMT, State, VALID, now};

type MemoryContext<'a> = &'a RequestContext<'a>;

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
/// The kernel sends this before it lets a process change the flags.
const FSGETXATTR: u32 = 0x801c_581f;
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

fn opened(handle: u64) -> Opened {
    Opened { handle: FileHandle::new(handle), flags: OpenReplyFlags::KEEP_CACHE }
}

/// Entries after `offset`: inode, cookie, type, name. "." and ".." have cookies 1 and 2.
fn entries(state: &mut State, node: NodeId, offset: u64) -> Result<Vec<(u64, u64, Vec<u8>)>> {
    let Content::Directory { order, parent, .. } = &state.node(node)?.content else {
        return Err(Errno::ENOTDIR);
    };
    let dots = [(node.get(), 1, b".".to_vec()), (*parent, 2, b"..".to_vec())];
    let names = order.range(offset.max(2) + 1..).map(|(&cookie, (name, id))| (*id, cookie, name.clone()));
    Ok(dots.into_iter().filter(|(_, cookie, _)| *cookie > offset).chain(names).collect())
}

impl Memory {
    fn wait_for_signal(&self, ctx: MemoryContext<'_>) -> Result<Entry> {
        Self::count(&self.counters.stuck);
        match until("a signal", || Ok(ctx.is_interrupted())) {
            Ok(()) => {
                Self::count(&self.counters.interrupted);
                Err(Errno::EINTR)
            }
            Err(_) => Err(Errno::EIO),
        }
    }
}

impl Operations for Memory {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        negotiation.want(InitFlags::POSIX_ACL | InitFlags::HANDLE_KILLPRIV_V2);
        Ok(())
    }

    fn destroy(&self) {
        Self::count(&self.counters.destroyed);
    }

    fn lookup(&self, ctx: MemoryContext<'_>, parent: NodeId, name: &[u8]) -> Result<Entry> {
        if name == crate::STUCK {
            return self.wait_for_signal(ctx);
        }
        let mut state = self.lock();
        match state.find(parent, name) {
            Ok(id) => state.entry(id),
            Err(Errno::ENOENT) => Ok(Entry::negative(VALID)),
            Err(errno) => Err(errno),
        }
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.counters.forgotten.fetch_add(lookups, Ordering::SeqCst);
        let mut state = self.lock();
        if let Ok(known) = state.node(node) {
            assert!(known.lookups >= lookups || node == NodeId::ROOT, "forgot more than was looked up");
            known.lookups = known.lookups.saturating_sub(lookups);
        }
        state.reap(node.get());
    }

    fn getattr(&self, _: MemoryContext<'_>, node: NodeId, _: Option<FileHandle>) -> Result<AttrReply> {
        Ok(AttrReply { attr: self.lock().attr(node.get())?, valid: VALID })
    }

    fn statx(
        &self,
        _: MemoryContext<'_>,
        node: NodeId,
        _: Option<FileHandle>,
        _: u32,
        mask: StatxMask,
    ) -> Result<StatxReply> {
        assert!(mask.contains(StatxMask::BTIME));
        Self::count(&self.counters.statx);
        let mut state = self.lock();
        let btime = state.node(node)?.btime;
        Ok(StatxReply::new(state.attr(node.get())?, Some(btime), VALID))
    }

    fn setattr(&self, _: MemoryContext<'_>, id: NodeId, changes: &SetAttr) -> Result<AttrReply> {
        let mut state = self.lock();
        let node = state.node(id)?;
        let time = now();
        if let Some(mode) = changes.mode {
            node.mode = (node.mode & S_IFMT) | (mode & 0o7777);
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            node.uid = changes.uid.unwrap_or(node.uid);
            node.gid = changes.gid.unwrap_or(node.gid);
            if !node.is_directory() {
                node.kill_suidgid();
            }
        }
        if let Some(size) = changes.size {
            node.data()?.truncate(size);
            node.mtime = time;
        }
        if changes.kill_suidgid {
            node.kill_suidgid();
        }
        node.atime = changes.atime.map_or(node.atime, |atime| atime.resolve(time));
        node.mtime = changes.mtime.map_or(node.mtime, |mtime| mtime.resolve(time));
        node.ctime = changes.ctime.unwrap_or(time);
        Ok(AttrReply { attr: state.attr(id.get())?, valid: VALID })
    }

    fn readlink(&self, _: MemoryContext<'_>, node: NodeId, target: &mut ByteSink<'_>) -> Result<()> {
        match &self.lock().node(node)?.content {
            Content::Symlink(bytes) => target.put(bytes),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn mknod(&self, ctx: MemoryContext<'_>, parent: NodeId, name: &[u8], new: &NewInode) -> Result<Entry> {
        let mut state = self.lock();
        let id = state.make(ctx, parent, Some(name), new, None)?;
        state.entry(id)
    }

    fn mkdir(&self, ctx: MemoryContext<'_>, parent: NodeId, name: &[u8], new: &NewInode) -> Result<Entry> {
        self.mknod(ctx, parent, name, new)
    }

    fn unlink(&self, _: MemoryContext<'_>, parent: NodeId, name: &[u8]) -> Result<()> {
        let mut state = self.lock();
        state.check_removable(parent, name, false)?;
        let id = state.take_name(parent, name)?;
        state.drop_link(id);
        Ok(())
    }

    fn rmdir(&self, _: MemoryContext<'_>, parent: NodeId, name: &[u8]) -> Result<()> {
        let mut state = self.lock();
        state.check_removable(parent, name, true)?;
        let id = state.take_name(parent, name)?;
        state.drop_link(id);
        Ok(())
    }

    fn symlink(&self, ctx: MemoryContext<'_>, parent: NodeId, name: &[u8], target: &[u8]) -> Result<Entry> {
        let mut state = self.lock();
        let new = NewInode { mode: S_IFLNK | 0o777, ..NewInode::default() };
        let content = Content::Symlink(target.to_vec());
        let id = state.make(ctx, parent, Some(name), &new, Some(content))?;
        state.entry(id)
    }

    fn rename(
        &self,
        ctx: MemoryContext<'_>,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let mut state = self.lock();
        let target = state.find(new_parent, new_name).ok();
        if flags.contains(RenameFlags::NOREPLACE) && target.is_some() {
            return Err(Errno::EEXIST);
        }
        if flags.contains(RenameFlags::EXCHANGE) {
            target.ok_or(Errno::ENOENT)?;
            let (a, b) = (state.take_name(parent, name)?, state.take_name(new_parent, new_name)?);
            state.add_name(parent, name, b)?;
            return state.add_name(new_parent, new_name, a);
        }
        let source = state.find(parent, name)?;
        if target == Some(source) {
            return Ok(());
        }
        if target.is_some() {
            let directory = state.node(NodeId::new(source))?.is_directory();
            state.check_removable(new_parent, new_name, directory)?;
            let old = state.take_name(new_parent, new_name)?;
            state.drop_link(old);
        }
        let id = state.take_name(parent, name)?;
        state.add_name(new_parent, new_name, id)?;
        if flags.contains(RenameFlags::WHITEOUT) {
            let whiteout = NewInode { mode: 0o020_000, ..NewInode::default() };
            state.make(ctx, parent, Some(name), &whiteout, None)?;
        }
        Ok(())
    }

    fn link(&self, _: MemoryContext<'_>, node: NodeId, new_parent: NodeId, new_name: &[u8]) -> Result<Entry> {
        let mut state = self.lock();
        state.add_name(new_parent, new_name, node.get())?;
        let known = state.node(node)?;
        known.nlink += 1;
        known.ctime = now();
        state.entry(node.get())
    }

    fn open(&self, _: MemoryContext<'_>, node: NodeId, _: &OpenRequest) -> Result<Opened> {
        self.lock().open_handle(node.get()).map(opened)
    }

    fn read(&self, _: MemoryContext<'_>, node: NodeId, read: &ReadRequest, out: &mut [u8]) -> Result<usize> {
        self.counters.largest_read.fetch_max(out.len() as u64, Ordering::Relaxed);
        Ok(self.lock().node(node)?.data()?.read(read.offset, out))
    }

    fn write(
        &self,
        _: MemoryContext<'_>,
        id: NodeId,
        write: &WriteRequest,
        data: &SharedBytes,
    ) -> Result<usize> {
        self.counters.largest_write.fetch_max(data.len() as u64, Ordering::Relaxed);
        assert_eq!(data.as_ptr() as usize % 4096, 0, "write data lies at a page");
        let mut state = self.lock();
        let node = state.node(id)?;
        node.data()?.write(write.offset, data);
        if write.write_flags.contains(creamery_fuse::protocol::WriteFlags::KILL_SUIDGID) {
            node.kill_suidgid();
        }
        node.touch();
        Ok(data.len())
    }

    fn statfs(&self, _: MemoryContext<'_>, _: NodeId) -> Result<Statfs> {
        Ok(Statfs { blocks: 1 << 20, free: 1 << 19, available: 1 << 18, files: 77, ..Statfs::default() })
    }

    fn release(&self, _: MemoryContext<'_>, _: NodeId, release: &ReleaseRequest) -> Result<()> {
        self.lock().close_handle(release.handle.get());
        Ok(())
    }

    fn flush(&self, _: MemoryContext<'_>, _: NodeId, _: FileHandle, _: u64) -> Result<()> {
        Ok(())
    }

    fn fsync(&self, _: MemoryContext<'_>, _: NodeId, _: FileHandle, data_only: bool) -> Result<()> {
        Self::count(if data_only { &self.counters.datasyncs } else { &self.counters.fsyncs });
        Ok(())
    }

    fn setxattr(
        &self,
        _: MemoryContext<'_>,
        id: NodeId,
        name: &[u8],
        value: &[u8],
        set: &SetXattrRequest,
    ) -> Result<()> {
        let mut state = self.lock();
        let node = state.node(id)?;
        match node.xattrs.contains_key(name) {
            true if set.create() => return Err(Errno::EEXIST),
            false if set.replace() => return Err(Errno::ENODATA),
            _ => {}
        }
        if set.kill_sgid {
            node.mode &= !0o2000;
        }
        node.xattrs.insert(name.to_vec(), value.to_vec());
        node.ctime = now();
        Ok(())
    }

    fn getxattr(
        &self,
        _: MemoryContext<'_>,
        node: NodeId,
        name: &[u8],
        value: &mut ByteSink<'_>,
    ) -> Result<()> {
        value.put(self.lock().node(node)?.xattrs.get(name).ok_or(Errno::ENODATA)?);
        Ok(())
    }

    fn listxattr(&self, _: MemoryContext<'_>, node: NodeId, names: &mut ByteSink<'_>) -> Result<()> {
        for name in self.lock().node(node)?.xattrs.keys() {
            names.put_name(name);
        }
        Ok(())
    }

    fn removexattr(&self, _: MemoryContext<'_>, node: NodeId, name: &[u8]) -> Result<()> {
        self.lock().node(node)?.xattrs.remove(name).map(drop).ok_or(Errno::ENODATA)
    }

    fn opendir(&self, _: MemoryContext<'_>, node: NodeId, _: &OpenRequest) -> Result<Opened> {
        self.lock().open_handle(node.get()).map(opened)
    }

    fn readdir(
        &self,
        _: MemoryContext<'_>,
        node: NodeId,
        _: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let mut state = self.lock();
        for (ino, cookie, name) in entries(&mut state, node, offset)? {
            let kind = state.attr(ino)?.kind();
            if sink.push(&DirectoryEntry { ino, offset: cookie, kind, name: &name }) == Pushed::Full {
                break;
            }
        }
        Ok(())
    }

    fn readdirplus(
        &self,
        _: MemoryContext<'_>,
        node: NodeId,
        _: FileHandle,
        offset: u64,
        sink: &mut DirectoryPlusSink<'_>,
    ) -> Result<()> {
        Self::count(&self.counters.plus);
        let mut state = self.lock();
        for (ino, cookie, name) in entries(&mut state, node, offset)? {
            let kind = state.attr(ino)?.kind();
            let named = DirectoryEntry { ino, offset: cookie, kind, name: &name };
            if !sink.has_room(name.len()) {
                break;
            }
            let pushed = match cookie {
                1 | 2 => sink.names().push(&named),
                _ => sink.push(&named, &state.entry(ino)?),
            };
            assert_eq!(pushed, Pushed::Yes);
        }
        Ok(())
    }

    fn releasedir(&self, _: MemoryContext<'_>, _: NodeId, release: &ReleaseRequest) -> Result<()> {
        self.lock().close_handle(release.handle.get());
        Ok(())
    }

    fn fsyncdir(&self, _: MemoryContext<'_>, _: NodeId, _: FileHandle, _: bool) -> Result<()> {
        Self::count(&self.counters.fsyncs);
        Ok(())
    }

    fn create(
        &self,
        ctx: MemoryContext<'_>,
        parent: NodeId,
        name: &[u8],
        new: &NewInode,
        _: &OpenRequest,
    ) -> Result<(Entry, Opened)> {
        let mut state = self.lock();
        let id = state.make(ctx, parent, Some(name), new, None)?;
        let handle = state.open_handle(id)?;
        Ok((state.entry(id)?, opened(handle)))
    }

    fn tmpfile(
        &self,
        ctx: MemoryContext<'_>,
        parent: NodeId,
        new: &NewInode,
        _: &OpenRequest,
    ) -> Result<(Entry, Opened)> {
        let mut state = self.lock();
        let id = state.make(ctx, parent, None, new, None)?;
        let handle = state.open_handle(id)?;
        Ok((state.entry(id)?, opened(handle)))
    }

    fn ioctl(
        &self,
        _: MemoryContext<'_>,
        id: NodeId,
        ioctl: &IoctlRequest,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<IoctlReply> {
        let mut state = self.lock();
        let node = state.node(id)?;
        assert_eq!(ioctl.flags.on_directory(), node.is_directory());
        match ioctl.command {
            GETFLAGS => {
                let bytes = node.flags.to_ne_bytes();
                output.get_mut(..4).ok_or(Errno::EINVAL)?.copy_from_slice(&bytes);
                Ok(IoctlReply { result: 0, len: 4 })
            }
            FSGETXATTR => {
                output.fill(0);
                Ok(IoctlReply { result: 0, len: output.len() })
            }
            SETFLAGS => {
                let bytes = input.first_chunk().ok_or(Errno::EINVAL)?;
                node.flags = u32::from_ne_bytes(*bytes);
                Ok(IoctlReply::default())
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn fallocate(
        &self,
        _: MemoryContext<'_>,
        id: NodeId,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Result<()> {
        let mut state = self.lock();
        let data = state.node(id)?.data()?;
        if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            data.punch(offset, len);
        }
        if mode & KEEP_SIZE == 0 {
            data.extend(offset + len);
        }
        Ok(())
    }

    fn lseek(&self, _: MemoryContext<'_>, id: NodeId, _: FileHandle, offset: u64, to: SeekTo) -> Result<u64> {
        self.lock().node(id)?.data()?.seek(offset, to)
    }

    fn copy_file_range(
        &self,
        _: MemoryContext<'_>,
        from: &CopySide,
        to: &CopySide,
        len: u64,
        _: u64,
    ) -> Result<u64> {
        Self::count(&self.counters.copies);
        let mut state = self.lock();
        let mut bytes = vec![0; len.min(1 << 20) as usize];
        let read = state.node(from.node)?.data()?.read(from.offset, &mut bytes);
        let node = state.node(to.node)?;
        node.data()?.write(to.offset, &bytes[..read]);
        node.touch();
        Ok(read as u64)
    }
}
