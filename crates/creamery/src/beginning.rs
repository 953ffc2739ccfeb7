//! Where paths begin: in the default subvolume, as on Linux, or in the one that was chosen. Behind `<FS_TREE>` a path begins at the top level in any
//! case; `btrfs subvolume list -a` shows such paths so.

use creamery_base::{InodeId, ObjectId, TreeId};

/// What a path begins with that begins at the top level.
pub const TOP_LEVEL: &str = "<FS_TREE>";

/// The directory that `path` begins in where others begin in `root`, and the rest of it.
pub(crate) fn begin(root: InodeId, path: &[u8]) -> (InodeId, &[u8]) {
    match path.strip_prefix(TOP_LEVEL.as_bytes()) {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => {
            (InodeId::new(TreeId::FS, ObjectId::FIRST_FREE), rest)
        }
        _ => (root, path),
    }
}
