//! Where paths begin: in the default subvolume, as on Linux, or in the chosen one. Behind `<FS_TREE>` a path always begins at the top
//! level; `btrfs subvolume list -a` prints such paths.

use creamery_base::{InodeId, ObjectId, TreeId};

/// Prefix of a path that begins at the top level.
pub const TOP_LEVEL: &str = "<FS_TREE>";

/// Returns the directory where `path` begins, which is `root` without a prefix, and the rest of the path.
pub(crate) fn begin(root: InodeId, path: &[u8]) -> (InodeId, &[u8]) {
    match path.strip_prefix(TOP_LEVEL.as_bytes()) {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => {
            (InodeId::new(TreeId::FS, ObjectId::FIRST_FREE), rest)
        }
        _ => (root, path),
    }
}
