//! Symbolic links: the target is the inline data of the inode's only extent.

use creamery_base::{Error, ErrorKind, Generation, InodeId, Result};
use creamery_tree::Tree;

use crate::filesystem::Filesystem;
use crate::inode::FileType;
use crate::keys;

/// The longest target that Linux takes (PATH_MAX with its NUL byte is 4096).
const TARGET_LEN_MAX: usize = 4095;
/// Bytes in front of inline data.
const INLINE_HEADER_LEN: usize = 21;

/// Refuses targets that cannot be stored.
pub(crate) fn check_target(tree: &Tree, target: &[u8]) -> Result<()> {
    let room = tree.max_item_size().saturating_sub(INLINE_HEADER_LEN);
    if target.is_empty() {
        return Err(ErrorKind::NotFound.into());
    }
    if target.len() > TARGET_LEN_MAX.min(room) {
        return Err(Error::new(ErrorKind::NameTooLong, "the target of a symbolic link"));
    }
    if target.contains(&0) {
        return Err(Error::invalid("a symbolic link's target with a NUL byte"));
    }
    Ok(())
}

/// The extent item that holds `target`.
pub(crate) fn inline_extent(running: Generation, target: &[u8]) -> Vec<u8> {
    let mut item = Vec::with_capacity(INLINE_HEADER_LEN + target.len());
    item.extend_from_slice(&running.get().to_le_bytes());
    item.extend_from_slice(&(target.len() as u64).to_le_bytes());
    // Compression, encryption, other encoding (two bytes): none. Type 0: inline.
    item.extend_from_slice(&[0; 5]);
    item.extend_from_slice(target);
    item
}

impl Filesystem {
    /// The target of a symbolic link.
    pub fn read_link(&self, id: InodeId) -> Result<Vec<u8>> {
        self.read_link_with(id, creamery_base::Wait::Yes)
    }

    /// The target of a symbolic link.
    pub fn read_link_with(&self, id: InodeId, wait: creamery_base::Wait) -> Result<Vec<u8>> {
        let inode = self.inode(id, wait)?;
        let item = inode.read(wait)?;
        if item.kind() != FileType::Symlink {
            return Err(Error::invalid("reading the target of something that is no symbolic link"));
        }
        let target = inode.tree.get(&keys::extent_data(id.ino, 0), wait, |extent| match extent.get(16..21) {
            Some([0, 0, 0, 0, 0]) => Some(extent[INLINE_HEADER_LEN..].to_vec()),
            _ => None,
        })?;
        let target = target.flatten().filter(|target| target.len() as u64 == item.size);
        target.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("inode {id}: the target of the symbolic link is not stored inline"))
        })
    }
}
