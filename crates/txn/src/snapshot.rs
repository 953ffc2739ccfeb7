//! Snapshots of subvolumes' trees, while a transaction closes.
//!
//! A snapshot has what the transaction has that makes it, all of it and nothing of the next one. So it is taken by a
//! [participant of the commit](crate::CommitParticipant), when all handles have ended and none begins: no change is half made
//! then, and what is changed after it belongs to a transaction whose blocks are new.

use std::sync::Arc;

use creamery_base::{QgroupId, Result, Timespec, TreeId, Uuid};
use creamery_format::{Key, KeyType, RawRootItem, RawTimespec, RootFlags};
use creamery_tree::{RootPointer, Tree};
use zerocopy::IntoBytes;

use crate::handle::Handle;
use crate::qgroup::SnapshotTaken;

/// What a snapshot is to be.
///
/// ```
/// use creamery_base::{Timespec, TreeId, Uuid};
/// let snapshot = creamery_txn::NewSnapshot {
///     source: TreeId::FS,
///     within: TreeId::FS,
///     id: TreeId::new(256),
///     uuid: Uuid::from_bytes([7; 16]),
///     otime: Timespec::default(),
///     read_only: true,
///     groups: Vec::new(),
/// };
/// assert!(snapshot.id.is_subvolume());
/// ```
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// The subvolume that it is of.
    pub source: TreeId,
    /// The subvolume in which its name is.
    pub within: TreeId,
    /// Its own id, which no other has.
    pub id: TreeId,
    /// Its own UUID.
    pub uuid: Uuid,
    /// When it was made.
    pub otime: Timespec,
    /// Whether it is to stay as it is.
    pub read_only: bool,
    /// The quota groups that it is in ([`Engine::keep_qgroups`](crate::Engine::keep_qgroups)).
    pub groups: Vec<QgroupId>,
}

impl NewSnapshot {
    /// Its root item, made of the source's, where its root is `root` in the running transaction.
    fn root_item(&self, source: &RawRootItem, root: RootPointer) -> RawRootItem {
        let mut item = *source;
        item.set_root(root.logical, root.level, root.generation);
        item.otransid = item.generation;
        item.otime.sec = self.otime.sec.into();
        item.otime.nsec = self.otime.nsec.into();
        item.uuid = self.uuid.into_bytes();
        item.parent_uuid = source.uuid;
        item.refs = 1.into();
        let mut flags = RootFlags::empty();
        flags.set(RootFlags::RDONLY, self.read_only);
        item.set_flags(flags);
        if !self.read_only {
            // What was received is not what it may become.
            (item.received_uuid, item.stransid, item.rtransid) = ([0; 16], 0.into(), 0.into());
            (item.stime, item.rtime) = (RawTimespec::default(), RawTimespec::default());
        }
        item
    }
}

impl Handle<'_> {
    /// Takes a snapshot, with the commit's own handle. What delayed changes of the source have to be in it are in the tree.
    /// Whoever changes the source after this in the same transaction does so by [`Tree::copying_all`].
    /// Errors: not found; already exists; no space; device errors; damage. The transaction aborts.
    pub(crate) fn create_snapshot(&self, new: &NewSnapshot) -> Result<Arc<Tree>> {
        let roots = self.root_tree();
        let source = roots.get(new.source)?;
        let source_root = source.root_pointer()?.logical;
        let tree = source.snapshot(new.id, self)?;
        let (source_key, mut source_item) = roots.item(new.source)?;
        source_item.last_snapshot = self.generation().get().into();
        roots.tree().upsert(self, &source_key, source_item.as_bytes())?;
        let mut item = new.root_item(&source_item, tree.root_pointer()?);
        let node_size = u64::from(source.store().volume().node_size());
        item.bytes_used = source.blocks().saturating_mul(node_size).into();
        // Before anybody can find its item: opened by that, it would be there twice.
        let tree = roots.keep(tree);
        let key = Key::new(new.id.objectid(), KeyType::ROOT_ITEM, self.generation().get());
        roots.tree().insert(self, &key, item.as_bytes())?;
        let generation = self.generation();
        let NewSnapshot { source, id, within, .. } = *new;
        let taken = SnapshotTaken { source, id, within, generation, root: source_root, node_size };
        self.qgroups().with(|state| state.snapshot(taken, &new.groups));
        Ok(tree)
    }
}
