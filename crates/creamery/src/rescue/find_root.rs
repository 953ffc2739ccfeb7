//! Searches all blocks of all metadata chunks for roots of a tree that no other block leads to.
//!
//! A commit leaves the blocks of the commit before in place until their space is used again. Of the blocks of one tree
//! with one generation, only those of the highest level can be its root.

use std::collections::BTreeMap;
use std::sync::Arc;

use creamery_base::{Generation, Logical, Result, TreeId, Wait};
use creamery_device::Access;
use creamery_format::{BlockGroupFlags, BlockRef, Expected, Superblock};
use creamery_volume::{Chunk, NamedSet, Rescue, Volume};

use crate::inspect::open_mapped;

/// Criteria of a search for roots of a tree ([`find_roots`]); default: the root tree.
///
/// ```
/// use creamery::id::TreeId;
/// use creamery::rescue::FindRoot;
/// let what = FindRoot { tree: TreeId::FS, level: 1, ..FindRoot::default() };
/// assert!(!what.all);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FindRoot {
    /// The tree whose roots are searched.
    pub tree: TreeId,
    /// The lowest generation of a block that counts.
    pub generation: Generation,
    /// The lowest level of a block that counts.
    pub level: u8,
    /// Goes on after the root that the superblock leads to.
    pub all: bool,
}

impl Default for FindRoot {
    fn default() -> Self {
        Self { tree: TreeId::ROOT, generation: Generation::new(0), level: 0, all: false }
    }
}

/// A block that may be the root of a tree.
///
/// ```
/// fn line(root: &creamery::rescue::RootCandidate) -> String {
///     format!("{} of generation {}, level {}", root.logical, root.generation, root.level)
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootCandidate {
    /// The address of the block.
    pub logical: Logical,
    /// The generation of the block.
    pub generation: Generation,
    /// The level of the block.
    pub level: u8,
}

/// The result of [`find_roots`].
///
/// ```
/// assert!(creamery::rescue::Roots::default().others.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Roots {
    /// Generation and level of the tree in the superblock, which has them for the root tree and the chunk tree only.
    pub wanted: Option<(Generation, u8)>,
    /// The first block with the wanted generation and level, if it ended the search.
    pub found: Option<RootCandidate>,
    /// The other blocks: the newest first, and of those with one generation the last.
    pub others: Vec<RootCandidate>,
    /// The error if parts of the chunk tree could not be read: the search only covers known chunks.
    pub unread: Option<String>,
}

/// Searches an image for roots of a tree. The image may be open elsewhere.
///
/// ```
/// use creamery::rescue::{FindRoot, find_roots};
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let roots = find_roots(&image, &FindRoot::default())?;
/// assert_eq!(roots.found.map(|root| (root.generation, root.level)), roots.wanted);
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// No superblock is valid; an unknown feature; no part of the chunk tree can be read; a device is missing.
pub fn find_roots(image: impl Into<NamedSet>, what: &FindRoot) -> Result<Roots> {
    let image = image.into();
    // A chunk that is lost with missing devices only hides its own content.
    let rescue =
        Rescue { ignore_super_flags: true, ignore_bad_roots: image.is_degraded(), ..Rescue::default() };
    let (volume, unread) = image.open(Access::ReadOnlyForced, |devices| open_mapped(devices, rescue))?;
    let unread = unread.map(|error| error.to_string());
    Ok(Roots { unread, ..search(&volume, &volume.superblock(), what) })
}

fn search(volume: &Volume, superblock: &Superblock, what: &FindRoot) -> Roots {
    let wanted = match what.tree {
        TreeId::ROOT => Some((superblock.generation(), superblock.root().1)),
        TreeId::CHUNK => Some(superblock.chunk_root()).map(|(_, level, generation)| (generation, level)),
        _ => None,
    };
    let mut by_generation: BTreeMap<Generation, (u8, Vec<Logical>)> = BTreeMap::new();
    for candidate in
        tree_block_places(volume, superblock).filter_map(|at| candidate_at(volume, superblock, what.tree, at))
    {
        let RootCandidate { logical, generation, level } = candidate;
        if generation < what.generation || level < what.level {
            continue;
        }
        if !what.all && wanted == Some((generation, level)) {
            return Roots {
                wanted,
                found: Some(candidate),
                others: newest_first(by_generation),
                unread: None,
            };
        }
        let (highest, found) = by_generation.entry(generation).or_default();
        if level > *highest {
            found.clear();
            *highest = level;
        }
        if level == *highest {
            found.push(logical);
        }
    }
    Roots { wanted, found: None, others: newest_first(by_generation), unread: None }
}

fn newest_first(found: BTreeMap<Generation, (u8, Vec<Logical>)>) -> Vec<RootCandidate> {
    let of = |(generation, (level, found)): (Generation, (u8, Vec<Logical>))| {
        found.into_iter().rev().map(move |logical| RootCandidate { logical, generation, level })
    };
    found.into_iter().rev().flat_map(of).collect()
}

/// The possible addresses of tree blocks, in order. Chunks that share no byte of the devices have no more of them than fit there.
pub(crate) fn tree_block_places(volume: &Volume, superblock: &Superblock) -> impl Iterator<Item = Logical> {
    let node_size = u64::from(superblock.node_size());
    let of_trees = BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM;
    let there = volume.devices_len() / node_size;
    let chunks = volume.chunks().into_iter().filter(move |chunk| chunk.flags.intersects(of_trees));
    let each = move |chunk: Arc<Chunk>| {
        (0..chunk.len / node_size).map(move |number| chunk.start + number * node_size)
    };
    chunks.flat_map(each).take(usize::try_from(there).unwrap_or(usize::MAX))
}

/// Returns the block at an address, if it is valid and belongs to the tree.
pub(crate) fn candidate_at(
    volume: &Volume,
    superblock: &Superblock,
    tree: TreeId,
    at: Logical,
) -> Option<RootCandidate> {
    let want = Expected::anything(at, superblock);
    let bytes = volume.read_tree_block(at, &want, Wait::Yes).ok()?;
    let block = BlockRef::new(&bytes);
    let found = RootCandidate { logical: at, generation: block.generation(), level: block.level() };
    (block.owner() == tree).then_some(found)
}
