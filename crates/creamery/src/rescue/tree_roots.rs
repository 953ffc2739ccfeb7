//! The trees that a root tree knows.

use std::fmt;

use creamery_base::{Generation, Logical, Result, TreeId};
use creamery_device::Access;
use creamery_format::{Key, KeyType, RawRootItem};
use creamery_volume::{NamedSet, Rescue};

use super::Start;
use crate::inspect::{leaves, map_all};

/// A tree, as its root item has it. It is displayed as btrfs-progs does.
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
    /// Which tree it is.
    pub tree: TreeId,
    /// The offset of the root item: of a snapshot the transaction that made it, 0 of most others.
    pub offset: u64,
    /// Where its root block is.
    pub logical: Logical,
    /// The level of that.
    pub level: u8,
    /// The generation of that.
    pub generation: Generation,
}

impl fmt::Display for TreeRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = Key::new(self.tree.objectid(), KeyType::ROOT_ITEM, self.offset);
        write!(f, "tree key {key} {} level {}", self.logical, self.level)
    }
}

/// What was found.
///
/// ```
/// assert!(creamery::rescue::TreeRoots::default().roots.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct TreeRoots {
    /// In the order of their keys.
    pub roots: Vec<TreeRoot>,
    /// Why not all of the root tree could be read.
    pub unread: Option<String>,
}

/// Lists the trees that the root tree of an image knows, which may be open elsewhere. Whether they can be read is not asked.
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
/// As opening, but for what is passed over; nothing of the root tree can be read.
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
            // The check of the block has refused what is no root item.
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
