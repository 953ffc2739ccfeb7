//! A snapshot of a subvolume is a second tree with all its items (`creamery_txn::NewSnapshot`), an entry in a directory that
//! points to it, the references between the two in the root tree, and the UUID's entry in the UUID tree.
//!
//! ```text
//!   delayed data of the source is written back               so earlier writes are in the snapshot
//!   writes in place to the source are barred                 so the snapshot's data stays (`subvolume/in_place`); only this wait can be
//!                                                            given up by the caller, because nothing is done yet
//!   the directory is locked, space is reserved               so the rest cannot fail for want of a name or of space
//!   the transaction closes: the tree, then the entry         no other thread changes anything meanwhile (`subvolume/at_close`)
//!   inodes without a name in the snapshot are deleted        so they keep no space, and the first use changes nothing in it
//! ```
//! The entry comes after the tree, so a snapshot inside its own source does not contain itself. Inodes without a name are open in the
//! source, or wait for the cleaner there; no thread can have them open in the snapshot. There may be many, so their deletion takes
//! transactions of its own. A crash in between leaves orphans, which go at the first use of the snapshot (SUBVOL-1), as those of the
//! source do.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, QgroupId, Result, TreeId, Wait};
use creamery_format::dir_item::{self, Head};
use creamery_txn::{Handle, NewSnapshot, ReserveItems};

use super::Names;
use super::create::check_may_add;
use super::create_subvolume::items_of_groups;
use crate::directory::{self, EntryTarget};
use crate::in_flight::GivesUp;
use crate::inode::{FileType, Inode, Inodes};
use crate::items::Name;
use crate::keys;
use crate::subvolume::{SubvolumeEntry, orphan_item};

/// Items that change: the root items of both, the references, the UUID, the entry's two and the directory; and the blocks of the
/// directory's tree that are copied again when the directory is in the source.
const ITEMS: u32 = 16;

/// Options for a new snapshot.
///
/// ```
/// use creamery_fs::SnapshotOptions;
/// assert!(!SnapshotOptions::default().read_only && SnapshotOptions::default().groups.is_empty());
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct SnapshotOptions<'a> {
    /// The snapshot is read-only.
    pub read_only: bool,
    /// The quota groups that contain it from the start.
    pub groups: &'a [QgroupId],
}

/// The work for the close of the transaction.
struct Pending {
    inodes: Arc<Inodes>,
    new: NewSnapshot,
    dir: Arc<Inode>,
    name: Vec<u8>,
    index: u64,
    /// The size of the directory after that.
    size: u64,
}

impl Pending {
    fn make(self, handle: &Handle<'_>) -> Result<()> {
        let subvolumes = self.inodes.subvolumes();
        let tree = subvolumes.engine().create_snapshot(handle, &self.new)?;
        let entry = SubvolumeEntry { dir: self.dir.id, index: self.index, name: &self.name };
        subvolumes.insert_refs(handle, self.new.id, &entry)?;
        subvolumes.insert_uuid(handle, self.new.uuid, self.new.id)?;
        drop(tree);
        if self.dir.id.subvolume == self.new.source {
            self.dir.tree().copying_all(|| self.add_entry(handle))
        } else {
            self.add_entry(handle)
        }
    }

    fn add_entry(&self, handle: &Handle<'_>) -> Result<()> {
        let (location, name) = (EntryTarget::Subvolume(self.new.id).location(), Name::to_make(&self.name)?);
        let head = Head { location, transid: handle.generation(), kind: FileType::Directory };
        directory::add_item(handle, &self.dir, name, &head)?;
        let index = keys::dir_index(self.dir.id.ino, self.index);
        self.dir.tree().insert(handle, &index, &dir_item::single(&head, name.bytes()))?;
        self.dir.update(handle, |item| directory::touch(item, self.size, self.new.otime))?;
        Ok(())
    }
}

impl Names {
    /// Takes a snapshot of the subvolume `source`, called `name` in `dir`; returns its root directory. It is durable then.
    /// Errors: interrupted, when the caller gives up while a write in place is under way; those of making a name; not found; earlier
    /// writes could not be written back; no space.
    pub(crate) fn create_snapshot(
        &self,
        source: TreeId,
        place: (InodeId, &[u8]),
        options: SnapshotOptions<'_>,
        gives_up: GivesUp<'_>,
    ) -> Result<InodeId> {
        let id = self.take_snapshot(source, place, options, gives_up)?;
        // The snapshot is made. An orphan that cannot be deleted now goes at the first use after the next open.
        let _ = self.delete_orphans(id);
        Ok(InodeId::new(id, ObjectId::FIRST_FREE))
    }

    fn take_snapshot(
        &self,
        source: TreeId,
        (dir, name): (InodeId, &[u8]),
        SnapshotOptions { read_only, groups }: SnapshotOptions<'_>,
        gives_up: GivesUp<'_>,
    ) -> Result<TreeId> {
        let name = Name::to_make(name)?;
        if dir.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                "the directory is a subvolume's placeholder",
            ));
        }
        let of = self.subvolumes().get(source, Wait::Yes)?;
        self.subvolumes().context().writeback().flush_subvolume(source)?;
        let _barred = of.bar_writes_in_place(gives_up)?;
        self.subvolumes().context().overwrite_times().write_all()?;
        let dir = self.dir_to_change(dir)?;
        let dir_item = dir.lock_exclusive()?;
        let parent = check_may_add(&dir, &dir_item)?;
        let _kept = self.engine().quotas().keep(groups)?;
        let slot = directory::find(dir.tree(), dir.id, name, Wait::Yes)?;
        if slot.found.is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        slot.check_room(dir.tree(), name)?;
        // One thread at a time: two would take the same id.
        let changing = self.subvolumes().changing();
        dir.subvolume().check_not_dead()?;
        // No thread deletes it until the transaction is closed.
        of.check_not_dead()?;
        let index = directory::next_index(&parent)?;
        let engine = self.engine();
        let id = self.subvolumes().next_id(&changing)?;
        let new = NewSnapshot {
            source,
            within: dir.id.subvolume,
            id,
            uuid: self.subvolumes().new_uuid(id, dir.id, name.bytes(), Some(source))?,
            otime: engine.env().now(),
            read_only,
            groups: groups.to_vec(),
        };
        let items = ReserveItems::items(ITEMS.saturating_add(items_of_groups(groups)));
        let handle = engine.start(
            items.referring(ReserveItems::references_of_a_block(engine.node_size())).of(dir.id.subvolume),
        )?;
        let size = dir_item.size.saturating_add(name.size_in_directory());
        let (inodes, name) = (Arc::clone(&self.inodes), name.bytes().to_vec());
        let pending = Pending { inodes, new, dir: Arc::clone(&dir), name, index, size };
        let at_close = self.subvolumes().at_close();
        at_close.push(Box::new(|handle| pending.make(handle)), handle.keep_all());
        let running = handle.generation();
        handle.end();
        engine.commit_through(running).inspect_err(|_| at_close.forget())?;
        parent.set_next_index(index + 1);
        Ok(id)
    }

    /// Deletes the inodes without a name in a new snapshot. The caller has no inode locked. The deletion is durable then.
    /// Errors: device errors; damage; those of a commit.
    fn delete_orphans(&self, snapshot: TreeId) -> Result<()> {
        if !orphan_item::any(&*self.engine().tree(snapshot)?)? {
            return Ok(());
        }
        // Opening it hands its orphans to the cleaner.
        self.subvolumes().get(snapshot, Wait::Yes)?;
        self.cleaner.clean();
        self.engine().commit()
    }
}
