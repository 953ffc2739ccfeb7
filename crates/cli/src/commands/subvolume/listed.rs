//! One subvolume with its path.

use creamery::{ListedSubvolume, SubvolumeInfo, TreeId};

/// A subvolume with its path, which `all` knows; that of the top level is empty.
pub(super) fn listed(all: &[ListedSubvolume], info: SubvolumeInfo) -> ListedSubvolume {
    let path = if info.id == TreeId::FS {
        Some(Vec::new())
    } else {
        all.iter().find(|other| other.info.id == info.id).and_then(|other| other.path.clone())
    };
    ListedSubvolume { info, path }
}
