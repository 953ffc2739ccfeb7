//! The table of all subvolumes of a filesystem at one moment; `btrfs subvolume list` and `show` print from it.

use creamery_base::{ErrorKind, Result, TreeId, Uuid};
use serde::{Deserialize, Serialize};

use super::{ListedSubvolume, Subvolumes};

/// All subvolumes of a filesystem.
///
/// ```no_run
/// # fn example(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
/// let table = fs.subvolume_table()?;
/// let default = table.get(table.default).expect("there is one");
/// println!("{:?} is mounted when none is named", default.path);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SubvolumeTable {
    /// All subvolumes by number, also those that are being deleted. The first is the top level; its path is empty.
    pub subvolumes: Vec<ListedSubvolume>,
    /// The default subvolume, which is mounted if the mount names none.
    pub default: TreeId,
    /// Whether quota groups count space.
    pub has_quota_groups: bool,
}

impl SubvolumeTable {
    /// The subvolume with this number.
    #[must_use]
    pub fn get(&self, id: TreeId) -> Option<&ListedSubvolume> {
        self.subvolumes.iter().find(|listed| listed.info.id == id)
    }

    /// The subvolume with this UUID that is not being deleted.
    #[must_use]
    pub fn get_by_uuid(&self, uuid: Uuid) -> Option<&ListedSubvolume> {
        self.subvolumes.iter().find(|listed| listed.info.uuid == Some(uuid) && !listed.info.is_deleted)
    }
}

impl Subvolumes {
    /// Reads the table. Errors: damage.
    pub(crate) fn table(&self) -> Result<SubvolumeTable> {
        let top = ListedSubvolume { info: self.info(TreeId::FS)?, path: Some(Vec::new()) };
        let subvolumes = std::iter::once(top).chain(self.list()?).collect();
        let has_quota_groups = match self.engine().root_item(TreeId::QUOTA) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        Ok(SubvolumeTable { subvolumes, default: self.default(), has_quota_groups })
    }
}
