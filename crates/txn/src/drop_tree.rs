//! Dropping the trees of deleted subvolumes, a step for each handle.
//!
//! A deleted subvolume has an orphan item in the root tree and a root item without references, until nothing is left
//! of its tree ([`creamery_tree::TreeDrop`]). The root item records the progress, in the same transaction as the drop:
//! after a crash Creamery or Linux continues the drop, also one that Linux began.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, ObjectId, Result, TreeId};
use creamery_format::{Key, KeyType, RawRootItem};
use creamery_tree::{DropProgress, Dropped, Tree, TreeDrop};

use crate::handle::Handle;
use crate::reserve_items::ReserveItems;

/// Items that a step changes: the root item, and with the last one the orphan item.
const ITEMS: u32 = 2;
/// References that a step queues, unless a single block has more.
const REFERENCES: u32 = 64;
/// References for which no room is reserved: one for each level (TREEDROP-2).
const MORE_REFERENCES: u32 = creamery_format::LEVEL_MAX as u32 + 1;

/// Whether work is left after a step.
///
/// ```
/// assert_ne!(creamery_txn::Dropping::More, creamery_txn::Dropping::Done);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropping {
    /// Another step is needed.
    More,
    /// The subvolume is gone.
    Done,
}

/// The tree of a deleted subvolume that is being dropped.
///
/// ```no_run
/// # fn drop_it(engine: &creamery_txn::Engine) -> creamery_base::Result<()> {
/// use creamery_txn::Dropping;
/// let mut drop = engine.begin_drop(creamery_base::TreeId::new(257))?;
/// while engine.drop_step(&mut drop)? == Dropping::More {}
/// # Ok(())
/// # }
/// ```
pub struct SubvolumeDrop {
    tree: TreeDrop,
    /// References of the next block.
    needs: u32,
}

/// The key of a subvolume's orphan item in the root tree.
pub(crate) const fn orphan(id: TreeId) -> Key {
    Key::new(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM, id.get())
}

/// The position where dropping continues.
fn progress(id: TreeId, item: &RawRootItem) -> Result<Option<DropProgress>> {
    let progress = DropProgress { key: Key::from(item.drop_progress), level: item.drop_level };
    match (progress.key.objectid.get(), progress.level) {
        (0, _) => Ok(None),
        (_, 0) => {
            let message =
                format!("root item of tree {id}: dropping would continue in a leaf, at {}", progress.key);
            Err(Error::new(ErrorKind::Corrupt, message))
        }
        _ => Ok(Some(progress)),
    }
}

impl SubvolumeDrop {
    /// Continues with a deleted subvolume at the position in its root item.
    /// Errors: not deleted; damage.
    pub(crate) fn new(tree: Arc<Tree>, key: &Key, item: &RawRootItem) -> Result<Self> {
        let id = tree.id();
        if item.refs.get() != 0 {
            return Err(Error::invalid(format!("subvolume {id} is not deleted")));
        }
        let progress = progress(id, item)?;
        Ok(Self { tree: TreeDrop::new(tree, Generation::new(key.offset), progress), needs: REFERENCES })
    }

    /// The id of the subvolume.
    #[must_use]
    pub fn id(&self) -> TreeId {
        self.tree.tree()
    }

    /// The units of the next step's handle.
    pub(crate) fn units(&self) -> ReserveItems {
        ReserveItems::reclaiming(ITEMS).referring(self.needs + MORE_REFERENCES).of(self.id())
    }

    /// Takes a step.
    /// Errors: device errors; damage. The transaction aborts.
    pub(crate) fn step(&mut self, handle: &Handle<'_>) -> Result<Dropping> {
        let (id, room) = (self.id(), self.needs);
        self.needs = REFERENCES;
        match self.tree.step(handle, room)? {
            Dropped::NeedsRoom(references) => self.needs = references,
            Dropped::Partly(progress) => handle.update_root_item(id, |item| {
                (item.drop_progress, item.drop_level) = (progress.key.into(), progress.level);
            })?,
            Dropped::Wholly => {
                handle.remove_tree(id)?;
                return Ok(Dropping::Done);
            }
        }
        Ok(Dropping::More)
    }
}

impl Handle<'_> {
    /// Removes the root item of an empty tree, and its orphan item.
    pub(crate) fn remove_tree(&self, id: TreeId) -> Result<()> {
        // First the quota group: a thread that finds no root item must find that the group waits for the freed bytes.
        if id.is_subvolume() {
            self.qgroups().subvolume_gone(id);
        }
        let roots = self.root_tree();
        let (key, _) = roots.item(id)?;
        roots.tree().remove(self, &key)?;
        roots.tree().remove(self, &orphan(id))?;
        roots.forget(id);
        Ok(())
    }

    /// Marks a subvolume as deleted, to be dropped.
    /// Errors: not found; no space; device errors; damage.
    pub fn orphan_subvolume(&self, id: TreeId) -> Result<()> {
        self.update_root_item(id, |item| {
            item.refs = 0.into();
            let mut flags = item.flags();
            flags.insert(creamery_format::RootFlags::DEAD);
            item.set_flags(flags);
            (item.drop_progress, item.drop_level) = (Key::MIN.into(), 0);
        })?;
        self.root_tree().tree().upsert(self, &orphan(id), &[])
    }
}
