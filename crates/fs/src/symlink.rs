//! Symbolic links: the target is the inline data of the inode's only extent.

use creamery_base::{Error, ErrorKind, Generation, InodeId, Result};
use creamery_format::{FILE_EXTENT_INLINE, FileExtent, RawFileExtentHead};
use creamery_tree::Tree;
use zerocopy::IntoBytes;

use crate::filesystem::Filesystem;
use crate::inode::FileType;
use crate::keys;

/// The longest target that Linux takes (PATH_MAX with its NUL byte is 4096).
const TARGET_LEN_MAX: usize = 4095;
/// Refuses targets that cannot be stored.
pub(crate) fn check_target(tree: &Tree, target: &[u8]) -> Result<()> {
    let room = tree.max_item_size().saturating_sub(RawFileExtentHead::LEN);
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
    let head = RawFileExtentHead {
        generation: running.get().into(),
        ram_bytes: (target.len() as u64).into(),
        kind: FILE_EXTENT_INLINE,
        ..RawFileExtentHead::default()
    };
    [head.as_bytes(), target].concat()
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
        let target =
            inode.tree().get(&keys::extent_data(id.ino, 0), wait, |extent| {
                match FileExtent::parse(extent) {
                    Ok(FileExtent::Inline(head, target)) if head.compression == 0 => Some(target.to_vec()),
                    _ => None,
                }
            })?;
        let target = target.flatten().filter(|target| target.len() as u64 == item.size);
        target.ok_or_else(|| {
            Error::new(
                ErrorKind::Corrupt,
                format!("inode {id}: the target of the symbolic link is not stored inline"),
            )
        })
    }
}
