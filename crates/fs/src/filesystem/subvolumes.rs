//! Operations on subvolumes.

use std::ops::ControlFlow;

use creamery_base::{Error, ErrorKind, Generation, InodeId, ObjectId, QgroupId, Result, TreeId, Uuid, Wait};

use super::Filesystem;
use crate::in_flight::GivesUp;
use crate::inode::Inode;
use crate::inode::permission::check_not_append_only;
use crate::items::inode_ref;
use crate::names::{NewInode, SnapshotOptions};
use crate::subvolume::{ListedSubvolume, NewExtent, NewExtents, SubvolumeInfo, SubvolumeRef, SubvolumeTable};
use crate::tree_search::{self, FoundItem, SearchKey};

/// Subvolumes.
impl Filesystem {
    /// The subvolume that is mounted when the user names none.
    #[must_use]
    pub fn default_subvolume(&self) -> TreeId {
        self.inodes.subvolumes().default()
    }

    /// Refuses to delete a subvolume that must stay: the top level, the default, or one marked immutable or append-only
    /// (`chattr +i`, `+a`).
    /// Errors: invalid; permission denied; damage.
    pub fn check_may_go(&self, id: TreeId) -> Result<()> {
        if id == TreeId::FS {
            return Err(Error::invalid(format!("cannot delete the top-level subvolume {id}")));
        }
        if id == self.default_subvolume() {
            let text = format!("cannot delete the default subvolume {id}");
            return Err(Error::invalid(format!("{text}; set another default first")));
        }
        let root = match self.inode(InodeId::new(id, ObjectId::FIRST_FREE), Wait::Yes) {
            // The deletion reports this in its own words.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => return Ok(()),
            root => root?,
        };
        let marked = check_not_append_only(&root.item(Wait::Yes)?);
        marked.map_err(|error| error.context(format_args!("deleting subvolume {id}")))
    }

    /// Gives the filesystem another label with the next commit.
    /// Errors: invalid: too long, or with a zero byte or the end of a line; read-only; no space.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > creamery_format::LABEL_LEN_MAX {
            let (len, most) = (label.len(), creamery_format::LABEL_LEN_MAX);
            return Err(Error::invalid(format!("label has {len} bytes, expected at most {most}")));
        }
        if label.iter().any(|byte| matches!(byte, 0 | b'\n')) {
            return Err(Error::invalid("label contains a newline or a NUL byte"));
        }
        self.inodes.subvolumes().set_label(label)
    }

    /// Makes `subvolume` the one that is mounted when the user names none. Number 0 stands for the top level, as on Linux.
    pub fn set_default_subvolume(&self, subvolume: TreeId) -> Result<()> {
        let subvolume = if subvolume == TreeId::new(0) { TreeId::FS } else { subvolume };
        self.inodes.subvolumes().set_default(subvolume)
    }

    /// Properties of a subvolume, as of the last commit; also of one that is being deleted.
    /// Errors: not found; damage.
    pub fn subvolume_info(&self, id: TreeId) -> Result<SubvolumeInfo> {
        self.inodes.subvolumes().info(id)
    }

    /// Properties of the subvolume that has this UUID, as of the last commit.
    /// Errors: not found; damage.
    pub fn subvolume_info_by_uuid(&self, uuid: Uuid) -> Result<SubvolumeInfo> {
        self.inodes.subvolumes().info_by_uuid(uuid)
    }

    /// All subvolumes but the top level, by their numbers, with those that are being deleted.
    /// Errors: damage.
    pub fn subvolumes(&self) -> Result<Vec<ListedSubvolume>> {
        self.inodes.subvolumes().list()
    }

    /// Properties of all subvolumes, with the top level.
    /// Errors: damage.
    pub fn subvolume_table(&self) -> Result<SubvolumeTable> {
        self.inodes.subvolumes().table()
    }

    /// The directory that has the entry of a subvolume, and its name there.
    /// Errors: not found; permission denied for the top level, which has none; damage.
    pub fn subvolume_entry(&self, id: TreeId) -> Result<(InodeId, Vec<u8>)> {
        self.inodes.subvolumes().entry_of(id)
    }

    /// The subvolumes nested in `id`, at any depth, each before the one that it is in.
    /// Errors: damage.
    pub fn nested_subvolumes(&self, id: TreeId) -> Result<Vec<TreeId>> {
        self.inodes.subvolumes().nested(id)
    }

    /// The path of an inode from the root of its subvolume, by its first name.
    /// Errors: not found; damage.
    pub fn path_in_subvolume(&self, id: InodeId) -> Result<Vec<u8>> {
        self.inodes.subvolumes().path_in(id)
    }

    /// All names of the inode `ino` in the subvolume of `beside`, which may be deleted, with the directories that have them.
    /// Errors: damage.
    pub fn names_beside(&self, beside: &Inode, ino: ObjectId) -> Result<Vec<(InodeId, Vec<u8>)>> {
        let names = inode_ref::names(beside.tree(), ino, Wait::Yes)?;
        let subvolume = beside.id.subvolume;
        Ok(names.into_iter().map(|(dir, name)| (InodeId::new(subvolume, dir), name)).collect())
    }

    /// Reports items of a tree as they are now, until `each` breaks. Delayed items, and data that was not written back, are not
    /// among them. `each` runs under a lock of the tree and must not wait.
    /// Errors: not found; damage.
    pub fn tree_search(
        &self,
        wanted: &SearchKey,
        each: &mut dyn FnMut(FoundItem<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        // As long as the subvolume is held, its tree is not dropped.
        let subvolumes = self.inodes.subvolumes();
        let _kept = wanted.tree.is_subvolume().then(|| subvolumes.get(wanted.tree, Wait::Yes)).transpose()?;
        tree_search::search(&self.engine, wanted, each)
    }

    /// Reports items of the tree of the subvolume that `inside` is in, whatever tree `wanted` names. This also works after the
    /// subvolume was deleted, while an open file keeps it.
    /// Errors: not found; damage.
    pub fn tree_search_around(
        &self,
        inside: InodeId,
        wanted: &SearchKey,
        each: &mut dyn FnMut(FoundItem<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let _kept = self.inode(inside, Wait::Yes)?;
        tree_search::search(&self.engine, &SearchKey { tree: inside.subvolume, ..*wanted }, each)
    }

    /// Reports the extents of a subvolume's files that transaction `since` or a later one made, until `each` breaks. Returns the
    /// last transaction that changed the subvolume: the next call passes it as `since`.
    /// Errors: not found; damage; earlier writes cannot be made durable.
    pub fn find_new(
        &self,
        id: TreeId,
        since: Generation,
        each: &mut dyn FnMut(NewExtent) -> ControlFlow<()>,
    ) -> Result<Generation> {
        if self.engine.read_only().is_none() {
            self.make_durable()?;
        }
        self.inodes.subvolumes().find_new(id, since, each)
    }

    /// Returns some of the extents that [`Filesystem::find_new`] reports, from `from` on, as they are now: for callers that cannot
    /// pass a closure.
    /// Errors: not found; damage.
    pub fn new_extents(
        &self,
        id: TreeId,
        since: Generation,
        from: Option<(ObjectId, u64)>,
    ) -> Result<NewExtents> {
        self.inodes.subvolumes().new_extents(id, since, from)
    }

    /// Forbids or allows changes in a subvolume, durably. After it forbids them nothing changes any more, in memory or on a device,
    /// except that open files without a name are deleted when they are closed.
    pub fn set_subvolume_read_only(&self, id: TreeId, read_only: bool) -> Result<()> {
        let subvolume = self.inodes.subvolumes().get(id, Wait::Yes)?;
        self.set_read_only(&subvolume, read_only)
    }

    fn set_read_only(&self, subvolume: &SubvolumeRef, read_only: bool) -> Result<()> {
        if self.inodes.subvolumes().is_read_only(subvolume)? == read_only {
            return Ok(());
        }
        let closed = read_only.then(|| subvolume.close_to_changes());
        if read_only {
            // Earlier changes belong to it. Open files report lost writes.
            self.cleaner.clean();
            let _ = self.context().writeback().flush_subvolume(subvolume.tree().id());
            self.write_times();
        }
        let set = self.inodes.subvolumes().set_read_only(subvolume, read_only);
        drop(closed);
        set
    }

    /// Forbids or allows changes in the subvolume that `inside` is in, also after it was deleted while an open file keeps it.
    pub fn set_read_only_around(&self, inside: InodeId, read_only: bool) -> Result<()> {
        let inode = self.inode(inside, Wait::Yes)?;
        self.set_read_only(inode.subvolume(), read_only)
    }

    /// Gives the subvolumes `ids`, which were filled since they were made, UUIDs derived from the content of the filesystem, where
    /// its environment is [reproducible](creamery_base::Env::is_reproducible).
    /// Errors: not found; device errors; damage.
    pub fn renew_uuids(&self, ids: &[TreeId]) -> Result<()> {
        self.inodes.subvolumes().renew_uuids(ids)
    }

    /// Clears the received UUID of a writable subvolume. Incremental sends that use it as their parent no longer work.
    /// Errors: [`ErrorKind::ReadOnly`](creamery_base::ErrorKind::ReadOnly), when the subvolume is read-only.
    pub fn forget_received(&self, id: TreeId) -> Result<()> {
        let subvolume = self.inodes.subvolumes().get(id, Wait::Yes)?;
        self.inodes.subvolumes().forget_received(&subvolume, false)
    }

    /// Makes a received subvolume writable, and clears its received UUID.
    pub fn set_writable_by_force(&self, id: TreeId) -> Result<()> {
        let subvolume = self.inodes.subvolumes().get(id, Wait::Yes)?;
        self.inodes.subvolumes().forget_received(&subvolume, true)
    }

    /// The root directory of a subvolume.
    pub fn root(&self, subvolume: TreeId) -> Result<InodeId> {
        self.inodes.subvolumes().get(subvolume, Wait::Yes)?;
        Ok(InodeId::new(subvolume, ObjectId::FIRST_FREE))
    }

    /// The subvolume whose root is at `path`, from the top level; an empty path is the top level itself.
    pub fn resolve_subvolume(&self, path: &[u8]) -> Result<TreeId> {
        self.names.resolve_subvolume(path)
    }

    /// Makes a new subvolume called `name` in `dir`; returns its root directory. `new` gives its owner and mode.
    pub fn create_subvolume(&self, dir: InodeId, name: &[u8], new: &NewInode<'_>) -> Result<InodeId> {
        self.names.create_subvolume(dir, name, new, &[])
    }

    /// Makes a new subvolume called `name` in `dir`, in quota groups from its beginning. With simple quotas these replace the
    /// groups that it would be in else; without quotas they have no effect.
    /// Errors: those of [`Filesystem::create_subvolume`]; a group does not exist; invalid: a group is a subvolume's.
    pub fn create_subvolume_in_groups(
        &self,
        dir: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
        groups: &[QgroupId],
    ) -> Result<InodeId> {
        self.names.create_subvolume(dir, name, new, groups)
    }

    /// Deletes the subvolume called `name` in `dir`, with all that is in it. Lookups no longer find it; a process that has a file
    /// of it open may read that. Its space comes back in steps of the [cleaner](Self::clean_step).
    /// Errors: not found; invalid, when it is no subvolume; permission denied for the default; directory not empty when there are
    /// subvolumes in it; no space.
    pub fn delete_subvolume(&self, dir: InodeId, name: &[u8]) -> Result<TreeId> {
        self.names.delete_subvolume(dir, name, crate::names::delete_subvolume::DeletableContent::Any)
    }

    /// The subvolumes that were deleted and are not gone yet.
    #[must_use]
    pub fn dead_subvolumes(&self) -> Vec<TreeId> {
        self.inodes.subvolumes().dead().ids()
    }

    /// Takes a snapshot of the subvolume `source`, called `name` in `dir`, which may be in the source itself; returns its root
    /// directory. It contains all changes and writes that ended before the call, and it is durable when this returns. It takes as
    /// long for a million files as for one: both share all blocks until one of them changes some.
    ///
    /// Subvolumes in the source are empty directories in the snapshot.
    /// Errors: those of making a name; not found; earlier writes could not be written back; no space.
    pub fn create_snapshot(
        &self,
        source: TreeId,
        dir: InodeId,
        name: &[u8],
        read_only: bool,
    ) -> Result<InodeId> {
        self.create_snapshot_in_groups(source, dir, name, read_only, &[])
    }

    /// Takes a snapshot ([`Filesystem::create_snapshot`]) in quota groups ([`Filesystem::create_subvolume_in_groups`]). The numbers
    /// of a group that has other members may be inconsistent then (`quota_report`).
    pub fn create_snapshot_in_groups(
        &self,
        source: TreeId,
        dir: InodeId,
        name: &[u8],
        read_only: bool,
        groups: &[QgroupId],
    ) -> Result<InodeId> {
        let options = SnapshotOptions { read_only, groups };
        self.names.create_snapshot(source, (dir, name), options, GivesUp::Never)
    }

    /// Takes a snapshot for a caller that may give up. `place` is its directory and its name. While the source has writes in place,
    /// `is_interrupted` is called again and again; it is not called where there is nothing to wait for.
    ///
    /// ```
    /// # fn example(fs: &creamery_fs::Filesystem, source: creamery_base::TreeId) -> creamery_base::Result<()> {
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// let (place, stop) = ((fs.root(source)?, b"before".as_slice()), AtomicBool::new(false));
    /// let options = creamery_fs::SnapshotOptions { read_only: true, groups: &[] };
    /// fs.create_snapshot_unless(source, place, options, &|| stop.load(Ordering::Relaxed))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: those of [`Filesystem::create_snapshot`]; [`ErrorKind::Interrupted`], with an inode that is written to: nothing has
    /// happened then.
    pub fn create_snapshot_unless(
        &self,
        source: TreeId,
        place: (InodeId, &[u8]),
        options: SnapshotOptions<'_>,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<InodeId> {
        self.names.create_snapshot(source, place, options, GivesUp::When(is_interrupted))
    }
}
