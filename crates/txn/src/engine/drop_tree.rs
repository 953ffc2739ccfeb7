//! Dropping deleted subvolumes: the list of them, and the handles of the steps (`drop_tree`).

use creamery_base::{ObjectId, Result, TreeId, Wait};
use creamery_format::KeyType;

use super::Engine;
use crate::drop_tree::{Dropping, SubvolumeDrop, orphan};

impl Engine {
    /// The deleted subvolumes in the root tree that are not dropped yet. Orphan items of other objects are ignored.
    /// Errors: device errors; damage.
    pub fn orphan_subvolumes(&self) -> Result<Vec<TreeId>> {
        let mut found = Vec::new();
        let mut cursor = self.root_tree.tree().cursor(&orphan(TreeId::new(0)), Wait::Yes)?;
        while let Some((key, _)) = cursor.item() {
            if key.objectid != ObjectId::ORPHAN || key.kind != KeyType::ORPHAN_ITEM {
                break;
            }
            found.push(TreeId::new(key.offset));
            cursor.advance()?;
        }
        drop(cursor);
        let is_deleted = |id: &TreeId| self.root_item(*id).is_ok_and(|item| item.refs.get() == 0);
        found.retain(|id| id.is_subvolume() && is_deleted(id));
        Ok(found)
    }

    /// Begins to drop a deleted subvolume, or continues that. The subvolume must be unused: no inode of it is in memory, and
    /// the transaction that deleted it is durable.
    /// Errors: not found; not deleted; device errors; damage.
    pub fn begin_drop(&self, id: TreeId) -> Result<SubvolumeDrop> {
        let (key, item) = self.root_tree.item(id)?;
        SubvolumeDrop::new(self.tree(id)?, &key, &item)
    }

    /// Takes a step of dropping a subvolume, in a handle of its own.
    /// Errors: no space, after which it may be tried again; damage and device errors, and then the transaction aborts.
    pub fn drop_step(&self, drop: &mut SubvolumeDrop) -> Result<Dropping> {
        let handle = self.start(drop.units())?;
        match drop.step(&handle) {
            Ok(dropping) => {
                handle.end();
                Ok(dropping)
            }
            Err(error) => Err(handle.abort(error.context(format!("dropping subvolume {}", drop.id())))),
        }
    }
}
