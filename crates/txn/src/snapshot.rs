//! Snapshots of subvolumes' trees, while a transaction closes.
//!
//! A snapshot contains all changes of the transaction that makes it, and none of the next one. So a
//! [participant of the commit](crate::CommitParticipant) takes it, when all handles have ended and none begins: no change is half made
//! then, and later changes belong to a transaction whose blocks are new.

use std::sync::Arc;

use creamery_base::{QgroupId, Result, Timespec, TreeId, Uuid};
use creamery_format::{Key, KeyType, RawRootItem, RawTimespec, RootFlags};
use creamery_tree::{RootPointer, Tree};
use zerocopy::IntoBytes;

use crate::handle::Handle;
use crate::qgroup::SnapshotTaken;

/// The description of a new snapshot.
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
    /// The subvolume to snapshot.
    pub source: TreeId,
    /// The subvolume that contains its name.
    pub within: TreeId,
    /// Its own id, which no other subvolume has.
    pub id: TreeId,
    /// Its own UUID.
    pub uuid: Uuid,
    /// Time of creation.
    pub otime: Timespec,
    /// Whether it is read-only.
    pub read_only: bool,
    /// The quota groups of which it becomes a member ([`QuotaAccounting::keep`](crate::QuotaAccounting::keep)).
    pub groups: Vec<QgroupId>,
}

impl NewSnapshot {
    /// Its root item, made of the source's; `root` is its root in the running transaction.
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
            // A writable copy no longer equals the received state.
            (item.received_uuid, item.stransid, item.rtransid) = ([0; 16], 0.into(), 0.into());
            (item.stime, item.rtime) = (RawTimespec::default(), RawTimespec::default());
        }
        item
    }
}

impl Handle<'_> {
    /// Takes a snapshot, with the commit's own handle. The source's tree contains all delayed changes that belong into the snapshot.
    /// Later changes of the source in the same transaction use [`Tree::copying_all`].
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
        // Before its item can be found: a thread that opened the tree by that would open it a second time.
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
