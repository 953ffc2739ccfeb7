//! Removing space caches of the old kind when a filesystem is opened.

use creamery_base::Result;

use super::Engine;
use crate::space_caches::SpaceCaches;

impl Engine {
    /// Removes the caches, each header before its file; leftovers of other removals go, too. Part of the running
    /// transaction. It does nothing where there is a free space tree, or when the engine is read-only.
    /// Errors: no space; device errors, damage.
    pub fn drop_space_caches(&self) -> Result<()> {
        if self.read_only().is_some() || self.free_space_tree.loaded().is_some() {
            return Ok(());
        }
        SpaceCaches { root_tree: &self.root_tree, port: self }.drop_all()
    }
}
