//! The mount's end: checks the asker's rights, carries out orders, and notifies the kernel.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::lock::{RankedMutex, RankedRwLock, rank};
use creamery_base::{
    DevId, Error, ErrorKind, Generation, InodeId, Logical, ObjectId, QgroupId, TreeId, Wait,
};
use creamery_fs::{ExtentPart, FileType, Filesystem, NewInode, SnapshotOptions};
use creamery_fuse::{Errno, NodeId};

use super::SubvolumeControl;
use super::lingering::{Deleted, Lingering};
use super::notifications::NotificationQueue;
use super::orders::{DeletedSubvolume, Outcome, SubvolumeOrder};
use crate::access_times::{Watched, WriteRight};
use crate::asker::Asker;
use crate::control::KEY;
use crate::facts::LiveFacts;
use crate::handles::Handles;
use crate::lost_writes::Tell;
use crate::mapped_pages::MappedPages;
use crate::nodes::Nodes;
use crate::options::Owner;
use crate::rights::{Judged, Refused, SEARCH, WRITE};

/// Sources that may wait for their snapshot.
const SOURCES_MAX: usize = 256;

/// State between controls.
#[derive(Default)]
pub(crate) struct Subvolumes {
    /// The sources of snapshots, by the key of the asker.
    sources: RankedMutex<VecDeque<([u8; KEY], InodeId)>, { rank::LEAF }>,
    pub(crate) told: NotificationQueue,
    /// Subvolumes that were deleted.
    gone: RankedRwLock<BTreeSet<TreeId>, { rank::LEAF }>,
    any_gone: AtomicBool,
    lingering: OnceLock<Deleted>,
    /// The paths of the devices: a server changes its working directory.
    paths: OnceLock<Vec<(DevId, PathBuf)>>,
    tell: OnceLock<Tell>,
    /// Whether the log already says which command to use instead of a refused control.
    pub(super) has_refused: AtomicBool,
}

impl Subvolumes {
    /// Sets the writer of the log.
    pub(crate) fn tell_to(&self, tell: Tell) {
        let _ = self.tell.set(tell);
    }

    /// Records the paths of the devices, before the server changes its working directory.
    pub(crate) fn note_devices(&self, fs: &Filesystem) {
        let volume = fs.engine().volume();
        let path = |id| {
            let path = volume.device(id)?.host_path();
            Some((id, std::path::absolute(&path).unwrap_or(path)))
        };
        let _ = self.paths.set(fs.engine().devices().iter().filter_map(|device| path(device.id)).collect());
    }

    /// The path of a device; `None` if it is missing.
    pub(super) fn path_of(&self, id: DevId) -> Option<&Path> {
        let mut paths = self.paths.get()?.iter();
        paths.find(|(noted, _)| *noted == id).map(|(_, path)| path.as_path())
    }

    /// Handles a lookup of a name in `dir` of a subvolume. The kernel must not cache a name in a deleted subvolume: it would also keep everything
    /// above it, and the subvolume could not be dropped before. The kernel acts on the notification after it has processed the answer, because until
    /// then it has the directory locked.
    pub(crate) fn looked_up(&self, id: TreeId, dir: NodeId, name: &[u8]) {
        if self.is_gone(id) {
            self.told.forget_name(dir, name);
        }
    }

    /// Whether a subvolume is deleted.
    pub(crate) fn is_gone(&self, id: TreeId) -> bool {
        self.any_gone.load(Ordering::Acquire) && self.gone.read().contains(&id)
    }

    fn set_gone(&self, id: TreeId) {
        self.gone.write().insert(id);
        self.any_gone.store(true, Ordering::Release);
        if let Some(lingering) = self.lingering.get() {
            let _ = lingering.send(Some(id)); // the thread ends only with the mount
        }
    }

    /// Starts the thread that makes the kernel forget the names of deleted subvolumes. Dropping the returned value ends the thread.
    /// `forget` is [`Server::forget_names_of`].
    pub(crate) fn begin_forgetting(&self, forget: impl Fn(TreeId) -> bool + Send + 'static) -> Lingering {
        let lingering = Lingering::spawn(forget);
        assert!(self.lingering.set(lingering.deleted()).is_ok(), "one mount has one such thread");
        lingering
    }

    pub(super) fn say(&self, line: &str) {
        if let Some(tell) = self.tell.get() {
            tell(line);
        }
    }
}

/// The parts of the mount that answering needs.
pub(crate) struct Server<'a> {
    pub(crate) fs: &'a Filesystem,
    pub(crate) nodes: &'a Nodes,
    pub(crate) handles: &'a Handles,
    pub(crate) owner: Owner,
    pub(crate) row: &'a Watched,
    pub(crate) state: &'a Subvolumes,
    pub(crate) mapped_pages: &'a MappedPages,
}

/// A result of this module.
pub(super) type Result<T> = std::result::Result<T, Refused>;

impl Server<'_> {
    /// Carries out a control that was sent to the directory `at`.
    pub(super) fn carry_out(
        &self,
        (asker, is_interrupted): (&Asker, &dyn Fn() -> bool),
        at: InodeId,
        key: [u8; KEY],
        (what, order): (SubvolumeControl, &SubvolumeOrder),
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let done = match what {
            SubvolumeControl::Create => self.create(asker, at, &order.name, &order.groups).map(drop),
            SubvolumeControl::Source => self.remember_source(key, at),
            SubvolumeControl::Snapshot => {
                let take = |source| self.snapshot((asker, is_interrupted), source, at, order);
                self.take_source(key).and_then(take).map(drop)
            }
            SubvolumeControl::Delete => self.delete_asked(asker, at, order, &mut outcome.deleted),
            SubvolumeControl::SetDefault => self.set_default(asker, at, order.id),
            SubvolumeControl::Waiting => {
                outcome.waiting = self.fs.dead_subvolumes().into_iter().map(TreeId::get).collect();
                let asked =
                    order.id.map_or(Ok(()), |id| self.check_deleted(TreeId::new(id), &outcome.waiting));
                // The asker waits for these, so their removal does not wait for a change.
                match (asked, self.may_write(asker, at)) {
                    (Ok(()), Ok(_right)) if !outcome.waiting.is_empty() => {
                        self.fs.begin_changes().map_err(Into::into)
                    }
                    (asked, _) => asked,
                }
            }
            SubvolumeControl::Told => Ok(()),
            SubvolumeControl::Table => self.tell_all(asker, at, &mut outcome),
            SubvolumeControl::NewExtents => self.tell_new(asker, at, order, &mut outcome),
            SubvolumeControl::Quotas => self.quotas(asker, at, order, &mut outcome),
            SubvolumeControl::Whole => self.change_whole(asker, at, order, &mut outcome),
            SubvolumeControl::Users => self.tell_users(asker, order, &mut outcome),
        };
        let deleted = std::mem::take(&mut outcome.deleted);
        let outcome = done.map_or_else(|refused| Outcome::failed(&refused.into_error()), |()| outcome);
        Outcome { deleted, told: self.state.told.wait(), ..outcome }
    }

    /// Makes a subvolume called `name` in `dir`, in quota groups, which need no further rights.
    pub(super) fn create(
        &self,
        asker: &Asker,
        dir: InodeId,
        name: &[u8],
        groups: &[QgroupId],
    ) -> Result<InodeId> {
        let right = self.may_write(asker, dir)?;
        self.check_may_add(&right, asker, dir, name)?;
        let (uid, gid) = asker.fs_ids().ok_or(Errno::EPERM)?;
        let (uid, gid) = self.owner.of_new(uid, gid);
        let new = NewInode { umask: asker.umask(), uid, gid, ..NewInode::directory(0o777) };
        let made = self.fs.create_subvolume_in_groups(dir, name, &new, groups);
        self.name_changed(dir, name, None);
        Ok(made?)
    }

    fn snapshot(
        &self,
        (asker, is_interrupted): (&Asker, &dyn Fn() -> bool),
        source: InodeId,
        dir: InodeId,
        order: &SubvolumeOrder,
    ) -> Result<InodeId> {
        let right = self.may_write(asker, dir)?;
        Judged::of(self.fs, self.owner, source)?.check_owner(asker)?;
        self.check_may_add(&right, asker, dir, &order.name)?;
        check_root(source)?;
        let SubvolumeOrder { name, read_only, groups, .. } = order;
        let options = SnapshotOptions { read_only: *read_only, groups };
        let made = self.fs.create_snapshot_unless(source.subvolume, (dir, name), options, is_interrupted);
        self.name_changed(dir, &order.name, None);
        if let Err(error) = &made
            && error.kind() == ErrorKind::Interrupted
        {
            // The asker is being killed and reads no answer.
            self.state.say(&error.with_advice());
        }
        Ok(made?)
    }

    /// Deletes the subvolume called `name` in `dir`, for administrators only.
    pub(super) fn delete(
        &self,
        right: &WriteRight<'_>,
        asker: &Asker,
        dir: InodeId,
        name: &[u8],
    ) -> Result<TreeId> {
        self.check_may_delete(right, asker, dir, name)?;
        self.remove(right, dir, name)
    }

    fn delete_asked(
        &self,
        asker: &Asker,
        at: InodeId,
        order: &SubvolumeOrder,
        deleted: &mut Vec<DeletedSubvolume>,
    ) -> Result<()> {
        let SubvolumeOrder { name, id, recursive, .. } = order;
        let right = self.may_write(asker, at)?;
        let root = match id {
            None => self.check_may_delete(&right, asker, at, name)?,
            Some(_) if !asker.administrates() => return Err(Errno::EPERM.into()),
            Some(id) => InodeId::new(TreeId::new(*id), ObjectId::FIRST_FREE),
        };
        // A plain directory is in a subvolume, which is not the one that the asker named.
        if root.ino != ObjectId::FIRST_FREE {
            return Err(Error::invalid("not a subvolume").into());
        }
        let mut ids = if *recursive { self.fs.nested_subvolumes(root.subvolume)? } else { Vec::new() };
        ids.push(root.subvolume);
        // All refusals come before the first deletion.
        ids.iter().rev().try_for_each(|id| self.check_may_go(*id))?;
        if id.is_none() && !recursive {
            let id = self.remove(&right, at, name)?.get();
            deleted.push(DeletedSubvolume { id, path: name.clone() });
            return Ok(());
        }
        let listed = self.fs.subvolumes()?.into_iter();
        let mut paths: BTreeMap<TreeId, _> = listed.map(|listed| (listed.info.id, listed.path)).collect();
        for id in ids {
            let (dir, name) = self.fs.subvolume_entry(id)?;
            self.remove(&right, dir, &name)?;
            let path = paths.remove(&id).flatten().unwrap_or(name);
            deleted.push(DeletedSubvolume { id: id.get(), path });
        }
        Ok(())
    }

    /// Rejects, with a message, a subvolume that cannot be deleted.
    fn check_may_go(&self, id: TreeId) -> Result<()> {
        if id == self.nodes.root().subvolume {
            return Err(is_mounted(id).into());
        }
        Ok(self.fs.check_may_go(id)?)
    }

    fn remove(&self, _: &WriteRight<'_>, dir: InodeId, name: &[u8]) -> Result<TreeId> {
        let root = self.fs.lookup(dir, name, Wait::Yes)?;
        let is_subvolume = root.ino == ObjectId::FIRST_FREE;
        if is_subvolume && root.subvolume == self.nodes.root().subvolume {
            return Err(is_mounted(root.subvolume).into());
        }
        let known = if is_subvolume { self.keep_directories(root.subvolume) } else { Vec::new() };
        let deleted = self.fs.delete_subvolume(dir, name);
        self.name_changed(dir, name, Some(root).filter(|_| deleted.is_ok()));
        let deleted = deleted?;
        self.state.set_gone(deleted);
        for (dir, name) in known {
            self.name_changed(dir, &name, None);
        }
        Ok(deleted)
    }

    /// Keeps the inodes of directories of a subvolume as long as the kernel knows them: one may be a working directory. An open
    /// file keeps its own inode. Returns the directory and name of all inodes in use: the kernel would
    /// cache those names for long, with all directories above, and the subvolume could not be dropped before.
    fn keep_directories(&self, id: TreeId) -> Vec<(InodeId, Vec<u8>)> {
        let mut used = self.handles.open_in(id);
        for id in self.nodes.known_in(id) {
            let stat = self.fs.stat(id, Wait::Yes);
            if stat.is_ok_and(|attributes| attributes.kind == FileType::Directory)
                && let Ok(inode) = self.fs.inode(id, Wait::Yes)
            {
                self.nodes.keep(inode);
                used.push(id);
            }
        }
        used.retain(|id| id.ino != ObjectId::FIRST_FREE);
        used.into_iter().filter_map(|id| self.place_of(id).ok()).collect()
    }

    /// Notifies the kernel to forget the names that it knows in a deleted subvolume; true if there are none. The kernel forgets a name in use
    /// when it is released.
    pub(crate) fn forget_names_of(&self, id: TreeId) -> bool {
        let known = self.nodes.known_in(id);
        // The subvolume has no name any more, but its directories were kept. Without any of them, nothing keeps it.
        let Some(kept) = self.nodes.kept_in(id) else { return known.is_empty() };
        for id in known.iter().filter(|id| id.ino != ObjectId::FIRST_FREE) {
            for (dir, name) in self.fs.names_beside(&kept, id.ino).unwrap_or_default() {
                if let Ok(dir) = self.nodes.node(dir) {
                    self.state.told.forget_name(dir, &name);
                }
            }
        }
        false
    }

    /// One directory of an inode, and its name there.
    fn place_of(&self, id: InodeId) -> Result<(InodeId, Vec<u8>)> {
        let mut path = self.fs.path_in_subvolume(id)?;
        let name = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        Ok((self.fs.parent(id, Wait::Yes)?, path.split_off(name)))
    }

    pub(super) fn set_default(&self, asker: &Asker, at: InodeId, id: Option<u64>) -> Result<()> {
        if !asker.administrates() {
            return Err(Errno::EPERM.into());
        }
        let _right = self.may_write(asker, at)?;
        let id = match id {
            Some(id) => TreeId::new(id),
            None => check_root(at).map(|()| at.subvolume)?,
        };
        Ok(self.fs.set_default_subvolume(id)?)
    }

    /// Checks the right of `asker` to set or clear the read-only flag of the subvolume whose root is `at`.
    pub(super) fn may_set_read_only(&self, asker: &Asker, at: InodeId) -> Result<WriteRight<'_>> {
        Judged::of(self.fs, self.owner, at)?.check_owner(asker)?;
        let right = self.may_write(asker, at)?;
        check_root(at).map(|()| right)
    }

    /// Sets or clears the read-only flag of a subvolume. Mapped pages that changed before are written back first, because later that fails.
    /// Errors: `EBUSY` if the kernel does not hand the changed pages over: they would be lost.
    pub(super) fn set_read_only(&self, at: InodeId, read_only: bool) -> Result<()> {
        let mut mapped = if read_only { self.handles.open_in(at.subvolume) } else { Vec::new() };
        mapped.retain(|id| self.handles.may_be_mapped(*id));
        mapped.sort_unstable();
        mapped.dedup();
        for node in mapped.into_iter().filter_map(|id| self.nodes.node(id).ok()) {
            if !self.mapped_pages.hand_over_all(node, &|| false) {
                return Err(Errno::EBUSY.into());
            }
        }
        Ok(self.fs.set_read_only_around(at, read_only)?)
    }

    /// Fails for a subvolume that is not deleted.
    fn check_deleted(&self, id: TreeId, waiting: &[u64]) -> Result<()> {
        match self.fs.subvolume_info(id) {
            Ok(info) if !info.is_deleted && !waiting.contains(&id.get()) => {
                Err(Error::invalid(format!("subvolume {id} is not deleted")).into())
            }
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Returns all subvolumes, for administrators only, as on Linux.
    fn tell_all(&self, asker: &Asker, at: InodeId, outcome: &mut Outcome) -> Result<()> {
        if !asker.administrates() {
            return Err(Errno::EPERM.into());
        }
        outcome.here = Some((at.subvolume, at.ino == ObjectId::FIRST_FREE));
        outcome.table = Some(self.fs.subvolume_table()?);
        Ok(())
    }

    /// Returns the new extents of a subvolume, for administrators only, as on Linux.
    fn tell_new(
        &self,
        asker: &Asker,
        at: InodeId,
        order: &SubvolumeOrder,
        outcome: &mut Outcome,
    ) -> Result<()> {
        if !asker.administrates() {
            return Err(Errno::EPERM.into());
        }
        check_root(at)?;
        let since = Generation::new(order.since);
        outcome.extents = Some(self.fs.new_extents(at.subvolume, since, order.from)?);
        Ok(())
    }

    /// Changes or returns the quotas, for administrators only.
    fn quotas(
        &self,
        asker: &Asker,
        at: InodeId,
        order: &SubvolumeOrder,
        outcome: &mut Outcome,
    ) -> Result<()> {
        if !asker.administrates() {
            return Err(Errno::EPERM.into());
        }
        match &order.quotas {
            Some(change) => {
                let _right = self.may_write(asker, at)?;
                self.fs.change_quotas(change, at.subvolume)?;
            }
            None => {
                outcome.here = Some((at.subvolume, at.ino == ObjectId::FIRST_FREE));
                let report = self.fs.quota_report()?;
                if report.rescan.is_some()
                    && let Ok(_right) = self.may_write(asker, at)
                {
                    // The asker may wait for the rescan, so it does not wait for a change.
                    self.fs.begin_changes()?;
                }
                outcome.quotas = Some(report);
            }
        }
        Ok(())
    }

    /// Changes the filesystem as a whole, for administrators only; every user gets the information.
    fn change_whole(
        &self,
        asker: &Asker,
        at: InodeId,
        order: &SubvolumeOrder,
        outcome: &mut Outcome,
    ) -> Result<()> {
        if (order.resize.is_some() || order.label.is_some()) && !asker.administrates() {
            return Err(Errno::EPERM.into());
        }
        if let Some((device, size)) = order.resize {
            let _right = self.may_write(asker, at)?;
            outcome.resized = Some(self.fs.resize(DevId::new(device), size)?);
        }
        if let Some(label) = &order.label {
            let _right = self.may_write(asker, at)?;
            self.fs.set_label(label)?;
            self.fs.make_durable()?;
        }
        outcome.label = self.fs.engine().volume().superblock().label().to_vec();
        let sums = self.fs.engine().group_sums().into_iter();
        outcome.space = sums.map(|sum| [sum.flags.bits(), sum.total, sum.used]).collect();
        outcome.facts = Some(self.facts(asker));
        Ok(())
    }

    /// Information about the server and its filesystem. Paths outside of the mount are for administrators only.
    fn facts(&self, asker: &Asker) -> LiveFacts {
        let volume = self.fs.engine().volume();
        let superblock = volume.superblock();
        let mounted = self.nodes.root().subvolume;
        let table = if asker.administrates() { self.fs.subvolume_table().ok() } else { None };
        let path = table.as_ref().and_then(|table| table.get(mounted)?.path.clone());
        LiveFacts {
            process: std::process::id(),
            subvolume: mounted.get(),
            subvolume_path: path,
            uuid: volume.fsid().to_string(),
            metadata_uuid: volume.metadata_uuid().to_string(),
            generation: volume.generation().get(),
            aborted: Some(self.fs.engine().aborted().is_some()),
            bytes_used: superblock.bytes_used(),
            node_size: volume.node_size(),
            sector_size: self.fs.engine().sector_size(),
            checksum: volume.checksum_type().to_string(),
            features: superblock.feature_names(),
        }
    }

    /// Returns the files that refer to data, for administrators only. Earlier changes are committed first: references are those of a commit.
    fn tell_users(&self, asker: &Asker, order: &SubvolumeOrder, outcome: &mut Outcome) -> Result<()> {
        if !asker.administrates() {
            return Err(Errno::EPERM.into());
        }
        let (at, whole) = order.logical.ok_or(Errno::EINVAL)?;
        let part = if whole { ExtentPart::Whole } else { ExtentPart::Byte };
        let users = self.fs.resolve_logical(Logical::new(at), part)?;
        outcome.users = users.into_iter().map(|(id, offset)| (id.subvolume, id.ino, offset)).collect();
        Ok(())
    }

    /// The right to write for a control that `asker` sent to `at`. A mount that becomes read-only waits until the right is given back.
    /// Errors: `EROFS`.
    pub(super) fn may_write(&self, asker: &Asker, at: InodeId) -> Result<WriteRight<'_>> {
        Ok(self.row.write_unasked(asker.thread(), self.nodes.number(at)?)?)
    }

    /// Whether `asker` may make `name` in `dir`; errors come in the order in which Linux checks.
    fn check_may_add(&self, _: &WriteRight<'_>, asker: &Asker, dir: InodeId, name: &[u8]) -> Result<()> {
        if name.is_empty() || name.contains(&b'/') {
            return Err(Errno::EINVAL.into());
        }
        let judged = self.directory(dir)?;
        judged.check_access(asker, SEARCH)?;
        match self.fs.lookup(dir, name, Wait::Yes) {
            Ok(_) => return Err(Errno::EEXIST.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        self.check_subvolume_writable(dir)?;
        Ok(judged.check_access(asker, WRITE | SEARCH)?)
    }

    /// Fails for a read-only subvolume, which Linux checks before permissions.
    fn check_subvolume_writable(&self, dir: InodeId) -> Result<()> {
        match self.fs.subvolume_info(dir.subvolume)? {
            info if info.is_read_only() => {
                let text = format!("subvolume {}", dir.subvolume);
                Err(Error::new(ErrorKind::ReadOnly, text).into())
            }
            _ => Ok(()),
        }
    }

    /// Checks whether `asker` may delete the subvolume `name` of `dir`. Returns its root.
    fn check_may_delete(
        &self,
        _: &WriteRight<'_>,
        asker: &Asker,
        dir: InodeId,
        name: &[u8],
    ) -> Result<InodeId> {
        if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
            return Err(Errno::EINVAL.into());
        }
        let judged = self.directory(dir)?;
        judged.check_access(asker, SEARCH)?;
        let (id, kind) = self.fs.lookup_kind(dir, name, Wait::Yes)?;
        if !asker.administrates() {
            return Err(Errno::EPERM.into());
        }
        self.check_subvolume_writable(dir)?;
        judged.check_access(asker, WRITE | SEARCH)?;
        match kind {
            FileType::Directory => Ok(id),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    fn directory(&self, dir: InodeId) -> Result<Judged> {
        let judged = Judged::of(self.fs, self.owner, dir)?;
        match judged.attributes().kind {
            FileType::Directory => Ok(judged),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    /// Notifies the kernel of a new name, or of one that belonged to `gone`.
    fn name_changed(&self, dir: InodeId, name: &[u8], gone: Option<InodeId>) {
        let Ok(parent) = self.nodes.node(dir) else { return };
        self.nodes.name_changed(parent);
        let gone = gone.and_then(|gone| self.nodes.node(gone).ok());
        self.state.told.name_changed(parent, name, gone);
    }

    fn remember_source(&self, key: [u8; KEY], source: InodeId) -> Result<()> {
        let mut sources = self.state.sources.lock();
        if sources.len() >= SOURCES_MAX {
            sources.pop_front();
        }
        sources.push_back((key, source));
        Ok(())
    }

    fn take_source(&self, key: [u8; KEY]) -> Result<InodeId> {
        let mut sources = self.state.sources.lock();
        let at = sources.iter().position(|(of, _)| *of == key);
        let source = at.and_then(|at| sources.remove(at)).map(|(_, source)| source);
        source.ok_or_else(|| Error::invalid("the snapshot has no source").into())
    }
}

fn check_root(at: InodeId) -> Result<()> {
    match at.ino {
        ObjectId::FIRST_FREE => Ok(()),
        _ => Err(Error::invalid("not the root of a subvolume").into()),
    }
}

fn is_mounted(id: TreeId) -> Error {
    Error::new(ErrorKind::Busy, format!("subvolume {id} is mounted"))
}
