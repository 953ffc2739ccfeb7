//! Lists the trees in a root tree.

use std::fmt;

use creamery_base::{Generation, Logical, Result, TreeId};
use creamery_device::Access;
use creamery_format::{Key, KeyType, RawRootItem};
use creamery_volume::{NamedSet, Rescue};

use super::Start;
use crate::inspect::{leaves, map_all};

/// A tree, from its root item. `Display` prints it like btrfs-progs.
///
/// ```no_run
/// # fn example() -> creamery::Result<()> {
/// use creamery::rescue::{Start, tree_roots};
/// for root in tree_roots("disk.img", Start::default(), "all".parse()?)?.roots {
///     println!("{root}, of generation {}", root.generation);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TreeRoot {
    /// The id of the tree.
    pub tree: TreeId,
    /// The offset of the root item: for a snapshot the transaction that made it, for most others 0.
    pub offset: u64,
    /// The address of the tree's root block.
    pub logical: Logical,
    /// The level of the root block.
    pub level: u8,
    /// The generation of the root block.
    pub generation: Generation,
}

impl fmt::Display for TreeRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = Key::new(self.tree.objectid(), KeyType::ROOT_ITEM, self.offset);
        write!(f, "tree key {key} {} level {}", self.logical, self.level)
    }
}

/// The trees in a root tree.
///
/// ```
/// assert!(creamery::rescue::TreeRoots::default().roots.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct TreeRoots {
    /// The trees, in the order of their keys.
    pub roots: Vec<TreeRoot>,
    /// The error if parts of the root tree could not be read.
    pub unread: Option<String>,
}

/// Lists the trees in the root tree of an image, which may be open elsewhere. Does not check whether they can be read.
///
/// ```
/// use creamery::rescue::{Start, tree_roots};
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let trees = tree_roots(&image, Start::default(), creamery::rescue::Rescue::default())?;
/// assert!(trees.roots.iter().any(|root| root.tree == creamery::id::TreeId::FS) && trees.unread.is_none());
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// Those of opening, except for ignored damage; no part of the root tree can be read.
pub fn tree_roots(image: impl Into<NamedSet>, start: Start, rescue: Rescue) -> Result<TreeRoots> {
    let (volume, unmapped) = image.into().open(Access::ReadOnlyForced, |devices| {
        let volume = start.volume(devices, rescue)?;
        let unmapped = map_all(&volume)?;
        Ok((volume, unmapped))
    })?;
    let name = volume.describe();
    let superblock = volume.superblock();
    let (logical, level) = superblock.root();
    let root = (logical, level, superblock.generation());
    let mut roots = Vec::new();
    let unread = leaves(&volume, &superblock, TreeId::ROOT, root, &mut |leaf| {
        let items = (0..leaf.count()).filter(|slot| leaf.key(*slot).kind == KeyType::ROOT_ITEM);
        roots.extend(items.filter_map(|slot| {
            // Verification of the block has rejected anything that is not a root item.
            let item = RawRootItem::from_item(leaf.data(slot)).ok()?;
            let Key { objectid, offset, .. } = leaf.key(slot);
            Some(TreeRoot {
                tree: objectid.into(),
                offset,
                logical: item.root(),
                level: item.level,
                generation: item.root_generation(),
            })
        }));
        Ok(())
    });
    let unread = unread.or(unmapped);
    match unread {
        Some(error) if roots.is_empty() => Err(error.context(name)),
        unread => Ok(TreeRoots { roots, unread: unread.map(|error| error.to_string()) }),
    }
}
