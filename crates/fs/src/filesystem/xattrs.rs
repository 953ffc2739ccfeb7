//! Extended attributes.

use creamery_base::{InodeId, Result, TreeId, Wait};

use super::Filesystem;
use crate::inode::xattr::{self, XattrMode, check_name};

impl Filesystem {
    /// The value of an extended attribute.
    pub fn get_xattr(&self, id: InodeId, name: &[u8], wait: Wait) -> Result<Vec<u8>> {
        self.inodes.get(id, wait)?.get_xattr(name, wait)
    }

    /// The names of all extended attributes, in the order of the tree.
    pub fn list_xattrs(&self, id: InodeId, wait: Wait) -> Result<Vec<Vec<u8>>> {
        self.inodes.get(id, wait)?.list_xattrs(wait)
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, id: InodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        check_name(name)?;
        self.inode_to_change(id)?.set_xattr(name, value, mode)
    }

    /// The longest value that an extended attribute of this name can have, in bytes: name and value have to be in one leaf.
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn xattr_value_max(&self, name: &[u8]) -> Result<usize> {
        Ok(xattr::value_max(&*self.engine().tree(TreeId::FS)?, name))
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, id: InodeId, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.inode_to_change(id)?.remove_xattr(name)
    }

    /// Removes the attribute `security.capability` ([`CAPABILITIES`](crate::CAPABILITIES)), as a write to a program does.
    /// Append-only files lose it, too. A file without the attribute stays as it is.
    /// Errors: read-only; no space; damage; aborted.
    pub fn remove_capabilities(&self, id: InodeId) -> Result<()> {
        self.inode_to_change(id)?.remove_capabilities().map(drop)
    }
}
