//! The operations of the FUSE protocol, one by one, translated to calls of the filesystem.

mod answers;
mod controls;
mod data;
mod listing;
mod mapped;
mod opening;
mod privileges;

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use creamery_base::panics::Panic;
use creamery_base::{ErrorKind, InodeId, Wait};
use creamery_device::SharedBytes;
use creamery_fs::{
    CAPABILITIES, Filesystem, Inherit, NewInode, NewKind, RenameMode, SetAttributes, XattrMode,
};
use creamery_fuse::protocol::{
    ByteSink, DirectoryPlusSink, DirectorySink, InitFlags, RenameFlags, StatxMask,
};
use creamery_fuse::{
    AttrReply, CopySide, Entry, Errno, FileHandle, IoctlReply, IoctlRequest, Negotiation,
    NewInode as NewNode, NodeId, Notifier, OpenRequest, Opened, Operations, ReadRequest, ReleaseRequest,
    RequestContext, RequestCounts, Result, SeekTo, SetAttr, SetXattrRequest, Statfs, StatxReply,
    WriteRequest,
};

use crate::access_times::Watched;
use crate::asker;
use crate::attributes::from_device;
use crate::control::Control;
use crate::flags;
use crate::handles::Handles;
use crate::mapped_pages::MappedPages;
use crate::nodes::Nodes;
use crate::options::{Options, Owner, Writing};
use crate::ranges::{self, Seek};
use crate::scrub::Scrubbing;
use crate::subvolumes::{Server, Subvolumes};

/// Time that the kernel may cache answers: only the server changes the filesystem.
const VALID: Duration = Duration::from_secs(60);
/// Type bits of a mode.
const MODE_TYPE: u32 = 0o170_000;

/// A filesystem as a FUSE server.
///
/// ```no_run
/// # fn example(fs: std::sync::Arc<creamery_fs::Filesystem>) -> creamery_base::Result<()> {
/// let root = fs.root(fs.default_subvolume())?;
/// let adapter = creamery_mount::Adapter::new(fs, root, creamery_mount::Owner::default());
/// # let _ = adapter;
/// # Ok(())
/// # }
/// ```
pub struct Adapter {
    fs: Arc<Filesystem>,
    nodes: Nodes,
    handles: Handles,
    owner: Owner,
    control: Control,
    row: Arc<Watched>,
    subvolumes: Arc<Subvolumes>,
    mapped_pages: MappedPages,
    scrubbing: Arc<Scrubbing>,
    /// Set after the mount is established.
    session: OnceLock<(Notifier, Arc<RequestCounts>)>,
    /// Numbers for open directories.
    directories_opened: AtomicU64,
}

impl Adapter {
    /// Serves the directory `root` and everything below it.
    #[must_use]
    pub fn new(fs: Arc<Filesystem>, root: InodeId, owner: Owner) -> Self {
        let (nodes, handles, control) =
            (Nodes::new(root), Handles::default(), Control::new(None, Writing::default()));
        let (row, subvolumes, session) = (Arc::<Watched>::default(), Arc::default(), OnceLock::new());
        let (mapped_pages, directories_opened) = (MappedPages::default(), AtomicU64::new(0));
        let scrubbing = Arc::new(Scrubbing::new(&fs, &row, None));
        Self {
            fs,
            nodes,
            handles,
            owner,
            control,
            row,
            subvolumes,
            mapped_pages,
            scrubbing,
            session,
            directories_opened,
        }
    }

    /// Takes the options for writing and the log, to report them, and the directory for scrubs.
    pub(crate) fn with_options(self, options: &Options, point: &Path) -> Self {
        let kept = options.state.clone().map(|dir| (dir, point.to_owned()));
        let scrubbing = Arc::new(Scrubbing::new(&self.fs, &self.row, kept));
        Self { control: Control::new(options.log.clone(), options.writing()), scrubbing, ..self }
    }

    /// The scrub of the mount.
    pub(crate) const fn scrubbing(&self) -> &Arc<Scrubbing> {
        &self.scrubbing
    }

    /// The server of controls about subvolumes.
    pub(crate) fn server(&self) -> Server<'_> {
        let Self { fs, nodes, handles, owner, row, subvolumes, mapped_pages, .. } = self;
        Server { fs, nodes, handles, owner: *owner, row, state: subvolumes, mapped_pages }
    }

    /// The control channel.
    pub(crate) const fn control(&self) -> &Control {
        &self.control
    }

    /// The mount's row in the mount table.
    pub(crate) fn row(&self) -> &Watched {
        &self.row
    }

    /// Makes the kernel hand over pages of mappings.
    pub(crate) const fn mapped_pages(&self) -> &MappedPages {
        &self.mapped_pages
    }

    /// The node id of an inode.
    pub(crate) fn node(&self, id: InodeId) -> Option<NodeId> {
        self.nodes.node(id).ok()
    }

    /// Sets the notifier of the kernel, and the counters of its requests.
    pub(crate) fn serves(&self, notifier: Notifier, requests: Arc<RequestCounts>) {
        self.scrubbing.rest_for(Arc::clone(&requests));
        assert!(self.session.set((notifier, requests)).is_ok(), "one mount has one session");
    }

    fn new_inode<'a>(&self, ctx: &RequestContext<'_>, new: &NewNode, kind: NewKind<'a>) -> NewInode<'a> {
        let (uid, gid) = self.owner.of_new(ctx.uid, ctx.gid);
        NewInode {
            kind,
            mode: new.mode & 0o7777,
            umask: new.umask,
            uid,
            gid,
            times: None,
            xattrs: &[],
            inherit: Inherit::FromDirectory,
        }
    }

    fn make(&self, dir: NodeId, name: &[u8], new: &NewInode<'_>) -> Result<Entry> {
        let made = self.fs.create(self.nodes.inode(dir), name, new);
        self.nodes.name_changed(dir);
        self.entry(&made?)
    }

    /// Keeps the inode of `name` alive when it loses its last name: the kernel may still ask about it.
    fn keep_target(&self, dir: InodeId, name: &[u8]) -> Result<()> {
        let id = self.fs.lookup(dir, name, Wait::Yes)?;
        let inode = self.fs.inode(id, Wait::Yes)?;
        self.nodes.keep(inode);
        Ok(())
    }
}

impl Operations for Adapter {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        // A kernel that knows ACLs, or maps ids, checks permissions with them, whatever the mount's options say.
        if !self.owner.is_fakeroot {
            negotiation.want(InitFlags::POSIX_ACL | InitFlags::ALLOW_IDMAP);
        }
        negotiation.want(
            InitFlags::PARALLEL_DIROPS
                | InitFlags::DO_READDIRPLUS
                | InitFlags::READDIRPLUS_AUTO
                | InitFlags::ATOMIC_O_TRUNC
                | InitFlags::EXPORT_SUPPORT
                | InitFlags::HANDLE_KILLPRIV_V2
                | InitFlags::SETXATTR_EXT
                | InitFlags::CACHE_SYMLINKS
                | InitFlags::ASYNC_READ
                | InitFlags::ASYNC_DIO
                | InitFlags::BIG_WRITES
                | InitFlags::MAX_PAGES,
        );
        // See `open` for append-only files.
        negotiation.decline(InitFlags::DIRECT_IO_ALLOW_MMAP);
        Ok(())
    }

    fn panicked(&self, panic: &Panic) {
        self.fs.engine().abort_after_panic(panic);
    }

    fn lookup(&self, _: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Result<Entry> {
        let parent = self.nodes.inode(node);
        self.subvolumes.looked_up(parent.subvolume, node, name);
        // The kernel asks in this way for an inode of which it has only a handle (open_by_handle_at(2), NFS), also for files.
        let found = if name == b"." { Ok(parent) } else { self.fs.lookup(parent, name, Wait::Yes) };
        match found.and_then(|id| self.fs.stat(id, Wait::Yes)) {
            Ok(attributes) => self.entry(&attributes),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Entry::negative(VALID)),
            Err(error) => Err(error.into()),
        }
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        self.nodes.forget(node, lookups);
    }

    fn getattr(&self, _: &RequestContext<'_>, node: NodeId, handle: Option<FileHandle>) -> Result<AttrReply> {
        self.attr_reply(&self.attributes(node, handle)?)
    }

    fn statx(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
        _flags: u32,
        _mask: StatxMask,
    ) -> Result<StatxReply> {
        let attributes = self.attributes(node, handle)?;
        let attr = self.attr_reply(&attributes)?.attr;
        Ok(StatxReply::new(attr, Some(attributes.times.birth), VALID))
    }

    fn setattr(&self, ctx: &RequestContext<'_>, node: NodeId, changes: &SetAttr) -> Result<AttrReply> {
        let attributes = self.set_attributes(ctx, node, changes)?;
        self.attr_reply(&attributes)
    }

    fn readlink(&self, _: &RequestContext<'_>, node: NodeId, target: &mut ByteSink<'_>) -> Result<()> {
        let id = self.nodes.inode(node);
        target.put(&self.fs.read_link(id, Wait::Yes)?);
        self.fs.accessed(id);
        Ok(())
    }

    fn mknod(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        let device = from_device(new.rdev);
        let kind = match new.mode & MODE_TYPE {
            0 | 0o100_000 => NewKind::File,
            0o010_000 => NewKind::Fifo,
            0o020_000 => NewKind::CharDevice(device),
            0o060_000 => NewKind::BlockDevice(device),
            0o140_000 => NewKind::Socket,
            _ => return Err(Errno::EINVAL),
        };
        self.make(parent, name, &self.new_inode(ctx, new, kind))
    }

    fn mkdir(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8], new: &NewNode) -> Result<Entry> {
        self.make(parent, name, &self.new_inode(ctx, new, NewKind::Directory))
    }

    fn unlink(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Result<()> {
        let dir = self.nodes.inode(parent);
        self.keep_target(dir, name)?;
        let unlinked = self.fs.unlink(dir, name);
        self.nodes.name_changed(parent);
        Ok(unlinked?)
    }

    fn rmdir(&self, _: &RequestContext<'_>, parent: NodeId, name: &[u8]) -> Result<()> {
        let dir = self.nodes.inode(parent);
        self.keep_target(dir, name)?;
        let removed = self.fs.rmdir(dir, name);
        self.nodes.name_changed(parent);
        Ok(removed?)
    }

    fn symlink(&self, ctx: &RequestContext<'_>, parent: NodeId, name: &[u8], target: &[u8]) -> Result<Entry> {
        let new = NewNode { mode: 0o777, ..NewNode::default() };
        self.make(parent, name, &self.new_inode(ctx, &new, NewKind::Symlink(target)))
    }

    fn rename(
        &self,
        _: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let mode = if flags == RenameFlags::empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::NOREPLACE {
            RenameMode::NoReplace
        } else if flags == RenameFlags::EXCHANGE {
            RenameMode::Exchange
        } else if flags == RenameFlags::WHITEOUT {
            RenameMode::Whiteout
        } else {
            return Err(Errno::EINVAL);
        };
        let (from, to) = (self.nodes.inode(parent), self.nodes.inode(new_parent));
        if matches!(mode, RenameMode::Replace | RenameMode::Whiteout) {
            match self.keep_target(to, new_name) {
                Err(errno) if errno == Errno::ENOENT => {}
                other => other?,
            }
        }
        let renamed = self.fs.rename(from, name, to, new_name, mode);
        self.names_moved((parent, name), (new_parent, new_name));
        Ok(renamed?)
    }

    fn link(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: &[u8],
    ) -> Result<Entry> {
        let linked = self.fs.link(self.nodes.inode(node), self.nodes.inode(new_parent), new_name);
        self.nodes.name_changed(new_parent);
        self.entry(&linked?)
    }

    fn open(&self, ctx: &RequestContext<'_>, node: NodeId, open: &OpenRequest) -> Result<Opened> {
        self.open_file(ctx, node, open)
    }

    fn read(
        &self,
        _: &RequestContext<'_>,
        _node: NodeId,
        read: &ReadRequest,
        out: &mut [u8],
    ) -> Result<usize> {
        self.read_from(read, out)
    }

    fn write(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        write: &WriteRequest,
        data: &SharedBytes,
    ) -> Result<usize> {
        let outcome = self.write_to(ctx, node, write, data);
        if self.control.lost_writes().look(self.nodes.inode(node), write, data.len(), &outcome) {
            self.mapped_pages.drop_lost(node, (write.offset, data.len() as u64));
        }
        outcome
    }

    fn statfs(&self, _: &RequestContext<'_>, _: NodeId) -> Result<Statfs> {
        let figures = self.fs.statfs();
        Ok(Statfs {
            blocks: figures.blocks,
            free: figures.blocks_free,
            available: figures.blocks_available,
            files: 0,
            files_free: 0,
            block_size: figures.block_size,
            name_len_max: figures.name_len_max,
        })
    }

    fn release(&self, _: &RequestContext<'_>, node: NodeId, release: &ReleaseRequest) -> Result<()> {
        let file = self.handles.remove(release.handle);
        if let Some(file) = file.filter(|_| flags::maps(release.flags)) {
            self.users_moved(node, &file);
        }
        Ok(())
    }

    fn flush(&self, _: &RequestContext<'_>, _: NodeId, _: FileHandle, _: u64) -> Result<()> {
        // The close does not need to wait: data was written when write(2) returned, and the kernel writes back pages that mmap dirtied
        // before it sends this request. After this answer it does not send it again; close(2) succeeds nevertheless.
        Err(Errno::ENOSYS)
    }

    fn fsync(&self, _: &RequestContext<'_>, _: NodeId, handle: FileHandle, _: bool) -> Result<()> {
        let file = self.handles.get(handle)?;
        Ok(file.sync()?)
    }

    fn setxattr(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        set: &SetXattrRequest,
    ) -> Result<()> {
        let mode = match (set.create(), set.replace()) {
            (true, true) => XattrMode::CreateAndReplace,
            (true, false) => XattrMode::Create,
            (false, true) => XattrMode::Replace,
            (false, false) => XattrMode::Any,
        };
        let id = self.nodes.inode(node);
        self.fs.set_xattr(id, name, value, mode)?;
        if name == CAPABILITIES {
            self.handles.capabilities_given(id);
        }
        if set.kill_sgid {
            let mode = self.fs.stat(id, Wait::Yes)?.mode & 0o7777 & !0o2000;
            self.fs.set_attributes(id, &SetAttributes { mode: Some(mode), ..SetAttributes::default() })?;
        }
        Ok(())
    }

    fn getxattr(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        name: &[u8],
        value: &mut ByteSink<'_>,
    ) -> Result<()> {
        value.put(&self.fs.get_xattr(self.nodes.inode(node), name, Wait::Yes)?);
        Ok(())
    }

    fn listxattr(&self, _: &RequestContext<'_>, node: NodeId, names: &mut ByteSink<'_>) -> Result<()> {
        for name in self.fs.list_xattrs(self.nodes.inode(node), Wait::Yes)? {
            names.put_name(&name);
        }
        Ok(())
    }

    fn removexattr(&self, _: &RequestContext<'_>, node: NodeId, name: &[u8]) -> Result<()> {
        Ok(self.fs.remove_xattr(self.nodes.inode(node), name)?)
    }

    fn opendir(&self, _: &RequestContext<'_>, node: NodeId, open: &OpenRequest) -> Result<Opened> {
        Ok(self.open_directory(node, open))
    }

    fn releasedir(&self, _: &RequestContext<'_>, node: NodeId, release: &ReleaseRequest) -> Result<()> {
        self.nodes.directory_closed(node, release.handle.get());
        Ok(())
    }

    fn readdir(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        self.list_names(node, offset, sink)?;
        self.listed(node, handle);
        Ok(())
    }

    fn readdirplus(
        &self,
        _: &RequestContext<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        sink: &mut DirectoryPlusSink<'_>,
    ) -> Result<()> {
        self.list_entries(node, offset, sink)?;
        self.listed(node, handle);
        Ok(())
    }

    fn fsyncdir(&self, _: &RequestContext<'_>, node: NodeId, _: FileHandle, _: bool) -> Result<()> {
        Ok(self.fs.open_file(self.nodes.inode(node))?.sync()?)
    }

    fn syncfs(&self, ctx: &RequestContext<'_>, _: NodeId) -> Result<()> {
        Ok(self.control.sync(&self.fs, ctx.pid)?)
    }

    fn create(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
        new: &NewNode,
        open: &OpenRequest,
    ) -> Result<(Entry, Opened)> {
        let new = self.new_inode(ctx, new, NewKind::File);
        let made = self.fs.create_open(self.nodes.inode(parent), name, &new);
        self.nodes.name_changed(parent);
        let (attributes, file) = made?;
        Ok((self.entry(&attributes)?, self.opened(file, open)))
    }

    fn tmpfile(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        new: &NewNode,
        open: &OpenRequest,
    ) -> Result<(Entry, Opened)> {
        let new = self.new_inode(ctx, new, NewKind::File);
        let (attributes, file) = self.fs.tmpfile(self.nodes.inode(parent), &new)?;
        let entry = self.entry(&attributes)?;
        self.nodes.keep(Arc::clone(file.inode()));
        Ok((entry, self.opened(file, open)))
    }

    fn ioctl(
        &self,
        context: &RequestContext<'_>,
        node: NodeId,
        ioctl: &IoctlRequest,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<IoctlReply> {
        self.answer_control(context, node, ioctl, input, output)
    }

    fn fallocate(
        &self,
        context: &RequestContext<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Result<()> {
        let (file, mode) = (self.handles.get(handle)?, ranges::fallocate(mode)?);
        // For this request the kernel names only the caller.
        if file.kill_privileges(|group| self.writer(context, group))? {
            self.attributes_moved(node);
        }
        let done = file.fallocate(mode, offset, len);
        if done.is_err() {
            // The operation may have done a part, and the kernel drops only the pages of a complete one.
            self.mapped_pages.hand_over(node, (offset, offset.saturating_add(len)), &|| false);
        }
        Ok(done?)
    }

    fn copy_file_range(
        &self,
        context: &RequestContext<'_>,
        from: &CopySide,
        to: &CopySide,
        len: u64,
        flags: u64,
    ) -> Result<u64> {
        let source = self.handles.get(from.handle)?;
        let (target, is_durable) = self.handles.get_to_copy(to.handle)?;
        // For this request the kernel names only the caller.
        if target.kill_privileges(|group| self.writer(context, group))? {
            self.attributes_moved(to.node);
        }
        ranges::copy((&source, from.offset), (&target, to.offset), len, flags, is_durable)
    }

    fn lseek(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        to: SeekTo,
    ) -> Result<u64> {
        let file = self.handles.get(handle)?;
        let is_interrupted = || asker::gives_up(ctx);
        let hand_over = |range| self.mapped_pages.hand_over(node, range, &is_interrupted);
        let may_be_mapped = self.handles.may_be_mapped(file.id());
        let hand_over = may_be_mapped.then_some(&hand_over as &dyn Fn((u64, u64)) -> bool);
        Seek { file: &file, hand_over, is_interrupted: &is_interrupted }.run(offset, to)
    }
}
