//! All block groups of a filesystem, by address and by type.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedRwLock, rank};
use creamery_base::{CachePadded, Error, ErrorKind, Logical, Result, memory};
use creamery_format::BlockGroupFlags;

use super::block_group::BlockGroup;
use super::info::{Figures, SpaceInfo};
use super::kind::SpaceKind;

/// All block groups of a filesystem.
pub(crate) struct Space {
    groups: RankedRwLock<BTreeMap<Logical, Arc<BlockGroup>>, { rank::SPACE }>,
    data: Arc<SpaceInfo>,
    metadata: Arc<SpaceInfo>,
    /// Groups that hold data and metadata.
    mixed: Arc<SpaceInfo>,
    system: Arc<SpaceInfo>,
    bytes_used: CachePadded<AtomicU64>,
}

impl Space {
    /// Creates it without groups; by the superblock, `bytes_used` bytes are in extents.
    pub(crate) fn new(bytes_used: u64) -> Self {
        let info = Arc::<SpaceInfo>::default;
        Self {
            groups: RankedRwLock::new(BTreeMap::new()),
            data: info(),
            metadata: info(),
            mixed: info(),
            system: info(),
            bytes_used: CachePadded::new(AtomicU64::new(bytes_used)),
        }
    }

    /// The sums of the groups that hold this kind of space.
    fn infos(&self, kind: SpaceKind) -> impl Iterator<Item = &Arc<SpaceInfo>> {
        let (first, second) = match kind {
            SpaceKind::Data => (&self.data, Some(&self.mixed)),
            SpaceKind::Metadata => (&self.metadata, Some(&self.mixed)),
            SpaceKind::System => (&self.system, None),
        };
        [first].into_iter().chain(second)
    }

    /// The sums of all groups, except those of the chunk tree, by sort.
    pub(crate) fn removable(&self) -> [&SpaceInfo; 3] {
        [&self.data, &self.mixed, &self.metadata]
    }

    /// The sums of all groups, except those of the chunk tree and those that hold `kind`, by sort.
    pub(crate) fn removable_for(&self, kind: SpaceKind) -> impl Iterator<Item = &SpaceInfo> {
        let is_of_it =
            move |info: &SpaceInfo| self.infos(kind).any(|of_it| std::ptr::eq(&raw const **of_it, info));
        self.removable().into_iter().filter(move |info| !is_of_it(info))
    }

    fn info_of(&self, flags: BlockGroupFlags) -> &Arc<SpaceInfo> {
        let (data, metadata) = (BlockGroupFlags::DATA, BlockGroupFlags::METADATA);
        match (flags.contains(data), flags.contains(metadata)) {
            (true, true) => &self.mixed,
            (true, false) => &self.data,
            (false, true) => &self.metadata,
            (false, false) => &self.system,
        }
    }

    /// Adds `group`, from which space is handed out from now on.
    pub(crate) fn add_group(&self, mut group: BlockGroup) {
        group.join(self.info_of(group.flags));
        let group = Arc::new(group);
        let known = self.groups.write().insert(group.start, Arc::clone(&group));
        assert!(known.is_none(), "two block groups begin at {}", group.start);
        group.appear();
    }

    /// Forgets a group that has [left](BlockGroup::leave).
    pub(crate) fn remove_group(&self, start: Logical) {
        let removed = self.groups.write().remove(&start);
        assert!(removed.is_some(), "no block group begins at {start}");
    }

    /// The group that an address lies in.
    pub(crate) fn group_at(&self, at: Logical) -> Option<Arc<BlockGroup>> {
        let groups = self.groups.read();
        let (_, group) = groups.range(..=at).next_back()?;
        (at < group.end()).then(|| Arc::clone(group))
    }

    /// The first group that begins at or behind an address.
    pub(crate) fn next_group(&self, from: Logical) -> Option<Arc<BlockGroup>> {
        self.groups.read().range(from..).next().map(|(_, group)| Arc::clone(group))
    }

    /// All groups, in the order of their addresses.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Arc<BlockGroup>> {
        let mut from = Logical::new(0);
        std::iter::from_fn(move || {
            let group = self.next_group(from)?;
            from = group.end();
            Some(group)
        })
    }

    fn all_infos(&self) -> [&SpaceInfo; 4] {
        [&self.data, &self.mixed, &self.metadata, &self.system]
    }

    /// Memory of the groups' free space, bytes.
    pub(crate) fn free_space_memory(&self) -> u64 {
        self.all_infos().into_iter().map(SpaceInfo::free_space_memory).sum()
    }

    /// Memory of the groups themselves, with their indexes, bytes.
    pub(crate) fn groups_memory(&self) -> u64 {
        let groups = self.groups.read().len();
        let lists: u64 = self.all_infos().into_iter().map(SpaceInfo::lists_memory).sum();
        let index = memory::btree::<Logical, Arc<BlockGroup>>(groups);
        groups as u64 * memory::shared::<BlockGroup>() + index + lists
    }

    /// The groups whose items have outdated used bytes.
    pub(crate) fn changed_groups(&self) -> Vec<Arc<BlockGroup>> {
        let changed = self.all_infos().into_iter().flat_map(SpaceInfo::changed);
        changed.filter_map(|start| self.group_at(start)).collect()
    }

    /// The sums of this kind.
    pub(crate) fn figures(&self, kind: SpaceKind) -> Figures {
        self.infos(kind).fold(Figures::default(), |sum, info| {
            let more = info.figures();
            Figures {
                total: sum.total + more.total,
                used: sum.used + more.used,
                free: sum.free + more.free,
                pinned: sum.pinned + more.pinned,
                read_only: sum.read_only + more.read_only,
                handed_out: sum.handed_out + more.handed_out,
            }
        })
    }

    /// Most copies that a group of this kind keeps on one device.
    pub(crate) fn copies(&self, kind: SpaceKind) -> u64 {
        if self.infos(kind).any(|info| info.has_dup()) { 2 } else { 1 }
    }

    /// Type and profile of the last group of this kind.
    pub(crate) fn last_flags(&self, kind: SpaceKind) -> Option<BlockGroupFlags> {
        let last = self.infos(kind).filter_map(|info| info.last()).max_by_key(|(start, _)| *start);
        last.map(|(_, flags)| flags)
    }

    /// Bytes of this kind that can be handed out now.
    pub(crate) fn available(&self, kind: SpaceKind) -> u64 {
        self.infos(kind).map(|info| info.free()).sum()
    }

    /// Hands out one tree block of `len` bytes, first from the group that took the last one.
    pub(crate) fn allocate_block(&self, kind: SpaceKind, len: u64, hint: Logical) -> Option<Logical> {
        let groups = self.groups.read();
        let hinted = groups.range(..=hint).next_back().map(|(_, group)| group);
        let hinted = hinted.filter(|group| group.flags.contains(kind.flag()));
        if let Some(at) = hinted.and_then(|group| group.allocate_block(len)) {
            return Some(at);
        }
        drop(groups);
        loop {
            let start = self.infos(kind).find_map(|info| info.for_blocks())?;
            // A group without room is not listed any more, nor is one that is gone.
            let group = self.group_at(start);
            if let Some(at) = group.and_then(|group| group.allocate_block(len)) {
                return Some(at);
            }
        }
    }

    /// Hands out data space: `len` bytes, if possible at `hint` or in its group, else the longest extent there is, not below `min`.
    pub(crate) fn allocate_data(
        &self,
        len: u64,
        min: u64,
        hint: Option<Logical>,
    ) -> Option<(Arc<BlockGroup>, Logical, u64)> {
        if let Some(hint) = hint
            && let Some(group) =
                self.group_at(hint).filter(|group| group.flags.contains(BlockGroupFlags::DATA))
            && let Some((at, got)) = group.allocate_data_near(hint, len)
        {
            return Some((group, at, got));
        }
        loop {
            let found = self.infos(SpaceKind::Data).filter_map(|info| info.for_data(len, min));
            let (_, start) = found.max_by_key(|&(longest, _)| longest.min(len))?;
            // If another thread was faster, the group is listed with its remaining run.
            let group = self.group_at(start);
            if let Some((group, (at, got))) = group.and_then(|group| {
                let found = group.allocate_data(len, min)?;
                Some((group, found))
            }) {
                return Some((group, at, got));
            }
        }
    }

    /// The group that holds all of an extent. Extents come from the disk, so there may be none.
    fn group_of(&self, at: Logical, len: u64) -> Result<Arc<BlockGroup>> {
        let group = self.group_at(at).filter(|group| group.holds(at, len));
        group.ok_or_else(|| damaged(at, len, "is not sector-aligned in a block group"))
    }

    /// Counts bytes that an extent item now covers, or no longer.
    ///
    /// # Errors
    /// Damage: the extent lies in no block group, or the group's item and the extents in it disagree.
    pub(crate) fn count_used(&self, at: Logical, len: u64, added: bool) -> Result<()> {
        let group = self.group_of(at, len)?;
        let all = self.bytes_used.load(Ordering::Relaxed);
        let all = if added { all.checked_add(len) } else { all.checked_sub(len) };
        match all {
            // Only one thread counts at a time: the one that runs delayed refs (RUN-1).
            Some(all) if group.count_used(len, added) => self.bytes_used.store(all, Ordering::Relaxed),
            _ => {
                let what = "does not match the used bytes of its block group and the superblock";
                return Err(damaged(at, len, what));
            }
        }
        Ok(())
    }

    /// Bytes in extents, all groups together, for the superblock.
    pub(crate) fn bytes_used(&self) -> u64 {
        self.bytes_used.load(Ordering::Relaxed)
    }

    /// Gives space back that nothing durable reaches.
    ///
    /// # Errors
    /// Damage: it is free already.
    pub(crate) fn give_back(&self, at: Logical, len: u64) -> Result<()> {
        let added = self.group_of(at, len)?.give_back(at, len);
        if added { Ok(()) } else { Err(damaged(at, len, FREE_ALREADY)) }
    }

    /// Marks space as freed but still reached by the last commit.
    ///
    /// # Errors
    /// Damage: it is free already.
    pub(crate) fn pin(&self, at: Logical, len: u64) -> Result<()> {
        let pinned = self.group_of(at, len)?.pin(at, len);
        if pinned { Ok(()) } else { Err(damaged(at, len, FREE_ALREADY)) }
    }

    /// Gives pinned space back, once the superblock that no longer needs it is durable.
    ///
    /// # Errors
    /// Damage: two extents claimed the same space.
    pub(crate) fn unpin(&self, at: Logical, len: u64) -> Result<()> {
        let added = self.group_of(at, len)?.unpin(at, len);
        if added { Ok(()) } else { Err(damaged(at, len, FREE_ALREADY)) }
    }
}

const FREE_ALREADY: &str = "is freed but already free";

fn damaged(at: Logical, len: u64, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("extent {at} of {len} bytes {what}"))
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
