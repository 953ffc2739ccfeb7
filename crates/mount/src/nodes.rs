//! Node ids: the inode of each node id, and the inodes that the kernel still knows.
//!
//! An inode's node id is computed if possible: its number, with the id of its subvolume in the upper 16 bits unless
//! that is the mounted one. Subvolume ids from 65536 on and inode numbers from 2^48 on do not fit. They share values of the upper bits that no
//! subvolume's id uses, 6 to 255: a *window* stands for a subvolume and the upper half of an inode
//! number, and its number lies above the lower half. A window is allocated at first use, and kept.
//!
//! # References
//! Each entry in an answer gives the kernel a reference to the node, and a FORGET returns some of them later.
//! A FORGET overtakes nothing, but everything may overtake it. The kernel may drop an inode and look its name
//! up again, and the FORGET of the first comes after the answer to the second. So only the sum shows whether the
//! kernel still knows a node. It matters for inodes that lost their last name: they must live until it is 0. Lookups do not know which inodes
//! these will be, so every reference is counted. That costs an uncontended lock and a place in a
//! table, 24 bytes a node where the kernel itself has a kilobyte.
//!
//! Counting happens before the answer is sent, and a FORGET can only follow an answer that the kernel received, so the sum is
//! never too small. It is too large if the kernel does not take an answer: then the connection is broken, or the kernel was
//! out of memory; an inode without a name may live on until the mount ends. It is an orphan on disk all the while.
//!
//! # Invariants
//! - NODES-1: two inodes never have the same node id in the life of a mount, and an id leads back to its inode.
//!   Shown by `every_inode_of_every_subvolume_has_a_number_that_leads_back`.
//! - NODES-2: an inode that is kept is released with the last reference.
//!   Shown by `an_unlinked_inode_lives_as_long_as_the_kernel_has_references`,
//!   `a_forget_that_a_lookup_overtook_forgets_no_more_than_it_says`.
//!
//! # Locking
//! One short mutex per shard; the windows have a lock that is never taken for an id that can be computed.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::RangeInclusive;
use std::sync::Arc;

use creamery_base::lock::{RankedMutex, RankedRwLock, rank};
use creamery_base::{CachePadded, IdHasher, InodeId, ObjectId, TreeId};
use creamery_fs::Inode;
use creamery_fuse::{Errno, NodeId};

use crate::kept_listings::{Directory, Keeping};

/// Bits of a computed node id that hold the inode number.
const INO_BITS: u32 = 48;
const INO_MASK: u64 = (1 << INO_BITS) - 1;
/// Upper 16 bits of a node id in a window; ids of trees that are not subvolumes.
const WINDOWS: RangeInclusive<u64> = 6..=255;
/// Bits of a node id in a window that hold the lower half of the inode number.
const LOW_BITS: u32 = 32;
/// The largest number of windows: each prefix has 16 more bits.
const WINDOWS_MAX: usize = 250 << (INO_BITS - LOW_BITS);
const SHARDS: usize = 64;
const NO_SUBVOLUME: TreeId = TreeId::new(0);

/// Whether a directory of a mount with this `st_ino` begins a subvolume, as on Linux.
///
/// ```
/// assert!(creamery_mount::begins_subvolume(256) && !creamery_mount::begins_subvolume(257));
/// ```
#[must_use]
pub const fn begins_subvolume(st_ino: u64) -> bool {
    st_ino & ((1 << LOW_BITS) - 1) == ObjectId::FIRST_FREE.get()
}

/// Translates between inodes and node ids of one mount, and counts the kernel's references.
pub(crate) struct Nodes {
    subvolume: TreeId,
    root: InodeId,
    windows: RankedRwLock<Windows, { rank::TABLE }>,
    shards: Vec<CachePadded<RankedMutex<Shard, { rank::TABLE }>>>,
}

/// A subvolume and the upper half of an inode number.
type Window = (TreeId, u64);

#[derive(Default)]
struct Windows {
    numbers: HashMap<Window, u64>,
    windows: Vec<Window>,
}

#[derive(Default)]
struct Shard {
    /// The kernel's references; an inode without an entry has none.
    references: HashMap<NodeId, u64, BuildHasherDefault<IdHasher>>,
    /// Inodes that lost a name, perhaps the last, while the kernel could still name them.
    kept: HashMap<NodeId, Arc<Inode>, BuildHasherDefault<IdHasher>>,
    /// State of listings.
    directories: HashMap<NodeId, Directory, BuildHasherDefault<IdHasher>>,
}

impl Nodes {
    pub(crate) fn new(root: InodeId) -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        Self { subvolume: root.subvolume, root, windows: RankedRwLock::default(), shards }
    }

    /// The number of an inode in this mount: its `st_ino`, and its node id except for the root.
    pub(crate) fn number(&self, id: InodeId) -> Result<u64, Errno> {
        let (subvolume, ino) = (id.subvolume.get(), id.ino.get());
        if ino <= NodeId::ROOT.get() {
            return Err(Errno::EOVERFLOW); // no inode has these numbers
        }
        if ino > INO_MASK {
            return self.windowed(id);
        }
        if id.subvolume == self.subvolume {
            return Ok(ino);
        }
        if subvolume > u64::MAX >> INO_BITS || WINDOWS.contains(&subvolume) {
            return self.windowed(id);
        }
        Ok(subvolume << INO_BITS | ino)
    }

    /// The number of an inode whose number cannot be computed.
    fn windowed(&self, id: InodeId) -> Result<u64, Errno> {
        let window = (id.subvolume, id.ino.get() >> LOW_BITS);
        let known = self.windows.read().numbers.get(&window).copied();
        let number = known.map_or_else(|| self.windows.write().open(window), Ok)?;
        let low = id.ino.get() & ((1 << LOW_BITS) - 1);
        Ok((WINDOWS.start() << INO_BITS) + (number << LOW_BITS) + low)
    }

    pub(crate) fn node(&self, id: InodeId) -> Result<NodeId, Errno> {
        if id == self.root { Ok(NodeId::ROOT) } else { self.number(id).map(NodeId::new) }
    }

    /// The inode of a node id; for an unknown node id an inode that does not exist.
    pub(crate) fn inode(&self, node: NodeId) -> InodeId {
        if node == NodeId::ROOT {
            return self.root;
        }
        let ino = ObjectId::new(node.get() & INO_MASK);
        match node.get() >> INO_BITS {
            0 => InodeId::new(self.subvolume, ino),
            prefix if WINDOWS.contains(&prefix) => self.windows.read().inode(node.get()),
            subvolume => InodeId::new(TreeId::new(subvolume), ino),
        }
    }

    fn shard(&self, node: NodeId) -> &RankedMutex<Shard, { rank::TABLE }> {
        // Neighbours go to different shards: a thread that makes inodes meets no shard twice in a row.
        &self.shards[node.get() as usize % SHARDS]
    }

    /// Counts a reference that the kernel is about to get.
    pub(crate) fn refer(&self, node: NodeId) {
        *self.shard(node).lock().references.entry(node).or_default() += 1;
    }

    /// Keeps an inode that is about to lose a name, until the kernel forgets it, if the kernel knows it.
    pub(crate) fn keep(&self, inode: Arc<Inode>) {
        let Ok(node) = self.node(inode.id) else { return };
        let mut shard = self.shard(node).lock();
        let not_wanted = match shard.references.contains_key(&node) {
            true => shard.kept.insert(node, inode),
            false => Some(inode),
        };
        drop(shard);
        drop(not_wanted); // outside the lock: the release may wake the cleaner
    }

    /// The inodes of a subvolume that the kernel knows.
    pub(crate) fn known_in(&self, subvolume: TreeId) -> Vec<InodeId> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let known: Vec<NodeId> = shard.lock().references.keys().copied().collect();
            found.extend(
                known.into_iter().map(|node| self.inode(node)).filter(|id| id.subvolume == subvolume),
            );
        }
        found
    }

    /// One of the kept inodes of a subvolume.
    pub(crate) fn kept_in(&self, subvolume: TreeId) -> Option<Arc<Inode>> {
        let of_it = |inode: &&Arc<Inode>| inode.id.subvolume == subvolume;
        self.shards.iter().find_map(|shard| shard.lock().kept.values().find(of_it).cloned())
    }

    /// The mounted directory.
    pub(crate) const fn root(&self) -> InodeId {
        self.root
    }

    /// The end of the listing of the directory that is in progress.
    pub(crate) fn listing_end(&self, node: NodeId) -> Option<u64> {
        self.shard(node).lock().directories.get(&node).and_then(|dir| dir.end)
    }

    /// Begins a listing of the directory that ends at `end`. Listings in progress at the same time all end at the last of
    /// their ends: none misses entries that existed when it began.
    pub(crate) fn listing_begins(&self, node: NodeId, end: u64) -> u64 {
        let mut shard = self.shard(node).lock();
        let last = &mut shard.directories.entry(node).or_default().end;
        let end = last.map_or(end, |last| end.max(last));
        *last = Some(end);
        end
    }

    /// Opens a directory with a unique number.
    pub(crate) fn directory_opened(&self, node: NodeId, number: u64) -> Keeping {
        self.shard(node).lock().directories.entry(node).or_default().open(number)
    }

    /// Closes the directory that was opened with this number.
    pub(crate) fn directory_closed(&self, node: NodeId, number: u64) {
        if let Some(dir) = self.shard(node).lock().directories.get_mut(&node) {
            dir.close(number);
        }
    }

    /// Records that a name in a directory may have changed: call this before the kernel is notified.
    pub(crate) fn name_changed(&self, node: NodeId) {
        if let Some(dir) = self.shard(node).lock().directories.get_mut(&node) {
            dir.name_changed();
        }
    }

    /// Returns `references` references of the kernel. After the last one the kernel does not name the node again.
    pub(crate) fn forget(&self, node: NodeId, references: u64) {
        let mut shard = self.shard(node).lock();
        let left = shard.references.get_mut(&node).map(|count| {
            *count = count.saturating_sub(references);
            *count
        });
        if left != Some(0) {
            return;
        }
        shard.references.remove(&node);
        shard.directories.remove(&node);
        let kept = shard.kept.remove(&node);
        drop(shard);
        drop(kept); // outside the lock: the release may wake the cleaner
    }
}

impl Windows {
    /// The number of a window, a new one unless another thread has made it meanwhile.
    fn open(&mut self, window: Window) -> Result<u64, Errno> {
        if let Some(number) = self.numbers.get(&window) {
            return Ok(*number);
        }
        if self.windows.len() >= WINDOWS_MAX {
            return Err(Errno::EOVERFLOW);
        }
        let number = self.windows.len() as u64;
        self.windows.push(window);
        self.numbers.insert(window, number);
        Ok(number)
    }

    fn inode(&self, number: u64) -> InodeId {
        let number = number - (WINDOWS.start() << INO_BITS);
        let window = usize::try_from(number >> LOW_BITS).ok().and_then(|at| self.windows.get(at));
        // A handle of an earlier mount can have a window that is not open yet: it is stale.
        let (subvolume, high) = window.copied().unwrap_or((NO_SUBVOLUME, 0));
        InodeId::new(subvolume, ObjectId::new(high << LOW_BITS | number & ((1 << LOW_BITS) - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(subvolume: u64, ino: u64) -> InodeId {
        InodeId::new(TreeId::new(subvolume), ObjectId::new(ino))
    }

    #[test]
    fn every_inode_of_every_subvolume_has_a_number_that_leads_back() {
        let subvolumes = [5, 256, 257, 65_535, 65_536, 70_000, 1 << 48, u64::MAX - 256];
        let inos = [2, 256, 257, 1 << 32, 1 << 40, (1 << 48) - 1, 1 << 48, 1 << 60, u64::MAX - 256];
        for mounted in [5, 300, 1 << 20] {
            let root = id(mounted, 256);
            let nodes = Nodes::new(root);
            let mut seen = std::collections::HashSet::new();
            for subvolume in subvolumes.into_iter().chain([mounted]) {
                for ino in inos {
                    let id = id(subvolume, ino);
                    let node = nodes.node(id).expect("any can be named");
                    assert_eq!(nodes.inode(node), id);
                    assert_eq!(nodes.node(id), Ok(node), "asked again");
                    seen.insert((id, node));
                }
            }
            let numbers: std::collections::HashSet<NodeId> = seen.iter().map(|(_, node)| *node).collect();
            assert_eq!(numbers.len(), seen.len(), "no two have the same");
            assert_eq!(nodes.node(root), Ok(NodeId::ROOT));
            assert_eq!(nodes.number(root), Ok(256));
        }
    }

    #[test]
    fn numbers_of_small_subvolumes_do_not_depend_on_who_was_seen_before() {
        let (fresh, used) = (Nodes::new(id(5, 256)), Nodes::new(id(5, 256)));
        for subvolume in 100_000..100_300 {
            used.node(id(subvolume, 257)).expect("any can be named");
        }
        for (subvolume, ino) in [(5, 257), (256, 256), (256, 1 << 40), (65_535, 300)] {
            assert_eq!(fresh.number(id(subvolume, ino)), used.number(id(subvolume, ino)));
        }
        assert_eq!(fresh.number(id(300, 257)), Ok(300 << 48 | 257));
    }

    #[test]
    fn a_number_of_an_earlier_mount_names_no_inode_of_another() {
        let nodes = Nodes::new(id(5, 256));
        let stale = NodeId::new((WINDOWS.start() << INO_BITS) + (7 << LOW_BITS) + 257);
        assert!(!nodes.inode(stale).subvolume.is_subvolume());
    }
}
