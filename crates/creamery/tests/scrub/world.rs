//! Sets of every profile, laid out by hand: the content of an image of one device, with new trees for its places. The kernel never
//! sees them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use creamery::Image;
use creamery::extents::{FiemapFlags, FiemapRequest};
use creamery_base::{ObjectId, TreeId};
use creamery_format::{
    BlockGroupFlags, BlockMut, BlockRef, Key, KeyType, NewBlock, RawBlockGroupItem, RawDevExtent, RawDevItem,
    RawDevStats, RawFreeSpaceInfo, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, seal,
};
use zerocopy::IntoBytes;

use crate::content::{Content, ContentKind, LEN};
use crate::disk::{SECTOR, Set};
use crate::geometry::{ELEMENT, Group, MemberSpot, Profile, parity_of};

/// Offset of the first chunk on a device.
const FIRST: u64 = 1 << 20;
/// Incompatible features of profiles.
const RAID56: u64 = 1 << 7;
const RAID1C34: u64 = 1 << 11;

/// The layout of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetLayout {
    pub(crate) profile: Profile,
    pub(crate) members: usize,
    /// Block groups begin this many bytes before a multiple of 64 KiB.
    pub(crate) shift: u64,
    pub(crate) ends: DataGroupEnd,
}

/// The end of the data block group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DataGroupEnd {
    InFreeSpace,
    /// At the last sector in use; for profiles in elements, at the end of its row.
    WithData,
    /// In the midst of a row, as no kernel makes it.
    InRow,
}

/// The use of a sector of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Data at this address.
    Data {
        logical: u64,
    },
    /// A part of the tree block at `logical`; the part lies on the member in one piece from `start` on.
    Tree {
        block: u64,
        start: u64,
    },
    /// Parity of the columns of a row at this place.
    Parity {
        group: usize,
        row: u64,
        within: u64,
    },
    Superblock,
}

/// A set, and its known properties.
pub(crate) struct ScrubWorld {
    pub(crate) shape: SetLayout,
    pub(crate) set: Set,
    pub(crate) content: Content,
    pub(crate) groups: Vec<Group>,
    pub(crate) uses: BTreeMap<MemberSpot, Use>,
    /// The addresses of the sectors of each file.
    pub(crate) sectors: BTreeMap<PathBuf, Vec<u64>>,
}

type LeafItem = (Key, Vec<u8>);

impl ScrubWorld {
    pub(crate) fn new(mut content: Content, shape: SetLayout) -> Result<Self> {
        let groups = groups(&content, shape);
        for extent in &content.extents {
            let (start, end) = (*extent.0, extent.0 + extent.1.1.len() as u64);
            let is_within = |group: &Group| group.start <= start && end <= group.start + group.len;
            ensure!(groups.iter().any(is_within), "{start} lies in a group");
        }
        let uuids: Vec<[u8; 16]> = (0..shape.members).map(|member| [member as u8 + 7; 16]).collect();
        let used = |member: usize| {
            let stripes = groups.iter().flat_map(|group| {
                let own = group.stripes.iter().filter(|spot| spot.member == member);
                own.map(|_| group.stripe_bytes())
            });
            stripes.sum::<u64>()
        };
        let devices: Vec<RawDevItem> = (0..shape.members)
            .map(|member| {
                let mut item = *content.superblock.dev_item();
                item.devid = (member as u64 + 1).into();
                item.bytes_used = used(member).into();
                item.uuid = uuids[member];
                item
            })
            .collect();
        content.replace(TreeId::CHUNK, chunk_tree(&groups, &devices, &uuids))?;
        content.replace(TreeId::DEV, dev_tree(&content, &groups, shape.members))?;
        content.replace(TreeId::BLOCK_GROUP, group_tree(&content, &groups))?;
        content.replace(TreeId::FREE_SPACE, free_space(&content, &groups))?;
        let set = Set::new(shape.members, LEN);
        let (uses, sectors) = (BTreeMap::new(), BTreeMap::new());
        let mut world = Self { shape, set, content, groups, uses, sectors };
        world.write_superblocks(&devices, &uuids);
        world.write_extents();
        world.write_parity();
        world.find_sectors()?;
        Ok(world)
    }

    fn find_sectors(&mut self) -> Result<()> {
        let fs = Image::options().open_devices(self.set.devices())?;
        for path in self.content.files.keys() {
            let mut sectors = Vec::new();
            for extent in fs.open(path)?.fiemap(&FiemapRequest::default()) {
                let extent = extent?;
                if !extent.flags.contains(FiemapFlags::DATA_INLINE) {
                    let end = extent.physical + extent.length;
                    sectors.extend((extent.physical..end).step_by(SECTOR as usize));
                }
            }
            self.sectors.insert(path.clone(), sectors);
        }
        Ok(())
    }

    pub(crate) fn group_of(&self, logical: u64) -> &Group {
        self.groups.iter().find(|group| group.has(logical)).expect("a group has it")
    }

    /// The contiguous parts of a range, for each copy: the place, the offset in the range, and the length.
    fn pieces(&self, logical: u64, len: u64) -> Vec<Vec<(MemberSpot, u64, u64)>> {
        let group = self.group_of(logical);
        let mut copies: Vec<Vec<(MemberSpot, u64, u64)>> = vec![Vec::new(); group.profile.copies];
        for from in (0..len).step_by(SECTOR as usize) {
            // If the next element of a parity row lies behind the last one, it is another piece.
            let begins = group.profile.is_striped() && (logical + from - group.start).is_multiple_of(ELEMENT);
            for (pieces, spot) in copies.iter_mut().zip(group.copies(logical + from)) {
                match pieces.last_mut() {
                    Some((at, _, len))
                        if !begins && (at.member, at.offset + *len) == (spot.member, spot.offset) =>
                    {
                        *len += SECTOR;
                    }
                    _ => pieces.push((spot, from, SECTOR)),
                }
            }
        }
        copies
    }

    /// The places and lengths of the parts of a tree block, copy by copy.
    pub(crate) fn tree_pieces(&self, block: u64) -> Vec<Vec<(MemberSpot, u64)>> {
        let len = self.content.extents[&block].1.len() as u64;
        let copies = self.pieces(block, len).into_iter();
        copies.map(|pieces| pieces.into_iter().map(|(spot, _, len)| (spot, len)).collect()).collect()
    }

    fn write_superblocks(&mut self, devices: &[RawDevItem], uuids: &[[u8; 16]]) {
        for (member, item) in devices.iter().enumerate() {
            let mut superblock = self.content.superblock.clone();
            let raw = superblock.raw_mut();
            raw.dev_item = *item;
            raw.num_devices = (devices.len() as u64).into();
            raw.total_bytes = (LEN * devices.len() as u64).into();
            let name = self.shape.profile.name;
            let more = match name {
                "raid5" | "raid6" => RAID56,
                "raid1c3" | "raid1c4" => RAID1C34,
                _ => 0,
            };
            raw.incompat_flags = (raw.incompat_flags.get() | more).into();
            let system = &self.groups[0];
            assert!(superblock.remove_sys_chunk(self.content.groups[0].0.into()), "the first one is SYSTEM");
            let key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, system.start);
            assert!(superblock.push_sys_chunk(&key, &system.item(uuids)), "there is room for it");
            for offset in SUPERBLOCK_OFFSETS.into_iter().filter(|at| at + SUPERBLOCK_LEN as u64 <= LEN) {
                self.set.disks[member].poke(offset, &superblock.to_bytes(offset));
                self.uses.insert(MemberSpot { member, offset }, Use::Superblock);
            }
        }
    }

    fn write_extents(&mut self) {
        for (&logical, (kind, bytes)) in &self.content.extents {
            for (spot, from, len) in self.pieces(logical, bytes.len() as u64).into_iter().flatten() {
                let part = &bytes[from as usize..(from + len) as usize];
                self.set.disks[spot.member].poke(spot.offset, part);
                for at in (0..len).step_by(SECTOR as usize) {
                    let is = match kind {
                        ContentKind::Data => Use::Data { logical: logical + from + at },
                        ContentKind::Tree => Use::Tree { block: logical, start: spot.offset },
                    };
                    let before = self.uses.insert(MemberSpot { offset: spot.offset + at, ..spot }, is);
                    assert!(before.is_none(), "{spot:?} is in use twice");
                }
            }
        }
    }

    fn write_parity(&mut self) {
        for (number, group) in self.groups.iter().enumerate().filter(|(_, group)| group.profile.parity > 0) {
            for row in 0..group.stripe_bytes().div_ceil(ELEMENT) {
                for within in (0..ELEMENT).step_by(SECTOR as usize) {
                    let spots = group.place(row, within);
                    let data = &spots[..group.columns() as usize];
                    if !data.iter().any(|spot| self.uses.contains_key(spot)) {
                        continue;
                    }
                    let read = |spot: &MemberSpot| self.set.disks[spot.member].peek(spot.offset, SECTOR);
                    let columns: Vec<Vec<u8>> = data.iter().map(read).collect();
                    for (spot, bytes) in spots[data.len()..].iter().zip(parity_of(&columns)) {
                        self.set.disks[spot.member].poke(spot.offset, &bytes);
                        self.uses.insert(*spot, Use::Parity { group: number, row, within });
                    }
                }
            }
        }
    }
}

/// The block groups of the content, laid out again.
fn groups(content: &Content, shape: SetLayout) -> Vec<Group> {
    let mut taken = vec![FIRST; shape.members];
    let mut groups = Vec::new();
    for (number, &(start, len, flags)) in content.groups.iter().enumerate() {
        let kind = flags & BlockGroupFlags::TYPES;
        // The first one ends before the second one begins; for profiles in elements it has whole rows.
        let unit = if shape.profile.is_striped() { 24 * ELEMENT } else { SECTOR };
        let (start, len) = match number {
            0 => (start, (len - shape.shift) / unit * unit),
            _ => (start - shape.shift, len / unit * unit),
        };
        let last = content.extents.range(..start + len).next_back();
        let end = last.map_or(0, |(at, (_, bytes))| at + bytes.len() as u64);
        let is_cut = kind == BlockGroupFlags::DATA && end > start;
        let len = match shape.ends {
            DataGroupEnd::WithData if is_cut => (end - start).next_multiple_of(unit),
            // A number of bytes that divides among any number of stripes.
            DataGroupEnd::InRow if is_cut => (end - start).next_multiple_of(24 * SECTOR),
            _ => len,
        };
        groups.push(Group::lay_out((start, len), kind, shape.profile, number, &mut taken));
    }
    groups
}

fn chunk_tree(groups: &[Group], devices: &[RawDevItem], uuids: &[[u8; 16]]) -> Vec<LeafItem> {
    let device = |item: &RawDevItem| {
        (Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, item.devid.get()), item.as_bytes().to_vec())
    };
    let group = |group: &Group| {
        (Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, group.start), group.item(uuids))
    };
    devices.iter().map(device).chain(groups.iter().map(group)).collect()
}

fn dev_tree(content: &Content, groups: &[Group], members: usize) -> Vec<LeafItem> {
    let uuid = content.chunk_tree_uuid();
    let stats = |member: usize| {
        let key = Key::new(ObjectId::new(0), KeyType::PERSISTENT_ITEM, member as u64 + 1);
        (key, RawDevStats::default().as_bytes().to_vec())
    };
    let extents = groups.iter().flat_map(|group| {
        group.stripes.iter().map(move |spot| {
            let item = RawDevExtent {
                chunk_tree: TreeId::CHUNK.get().into(),
                chunk_objectid: ObjectId::FIRST_CHUNK_TREE.get().into(),
                chunk_offset: group.start.into(),
                length: group.stripe_bytes().into(),
                chunk_tree_uuid: uuid,
            };
            let key = Key::new(ObjectId::new(spot.member as u64 + 1), KeyType::DEV_EXTENT, spot.offset);
            (key, item.as_bytes().to_vec())
        })
    });
    (0..members).map(stats).chain(extents).collect()
}

fn group_tree(content: &Content, groups: &[Group]) -> Vec<LeafItem> {
    let item = |group: &Group| {
        let own = content.extents.iter().filter(|(at, _)| group.has(**at));
        let item = RawBlockGroupItem {
            used: own.map(|(_, (_, bytes))| bytes.len() as u64).sum::<u64>().into(),
            chunk_objectid: ObjectId::FIRST_CHUNK_TREE.get().into(),
            flags: group.flags().bits().into(),
        };
        let key = Key::new(ObjectId::new(group.start), KeyType::BLOCK_GROUP_ITEM, group.len);
        (key, item.as_bytes().to_vec())
    };
    groups.iter().map(item).collect()
}

fn free_space(content: &Content, groups: &[Group]) -> Vec<LeafItem> {
    let mut items = Vec::new();
    for group in groups {
        let mut free = Vec::new();
        let mut at = group.start;
        for (&start, (_, bytes)) in content.extents.range(group.start..group.start + group.len) {
            if start > at {
                free.push((at, start - at));
            }
            at = start + bytes.len() as u64;
        }
        if at < group.start + group.len {
            free.push((at, group.start + group.len - at));
        }
        let count = u32::try_from(free.len()).expect("few gaps");
        let info = RawFreeSpaceInfo { extent_count: count.into(), flags: 0.into() };
        let key = |start, kind, len| Key::new(ObjectId::new(start), kind, len);
        items.push((key(group.start, KeyType::FREE_SPACE_INFO, group.len), info.as_bytes().to_vec()));
        let free = free.into_iter();
        items.extend(free.map(|(start, len)| (key(start, KeyType::FREE_SPACE_EXTENT, len), Vec::new())));
    }
    items
}

impl Content {
    fn chunk_tree_uuid(&self) -> [u8; 16] {
        let root = self.superblock.chunk_root().0.get();
        BlockRef::new(&self.extents[&root].1).chunk_tree_uuid().into_bytes()
    }

    /// Gives a tree, which is one leaf, other items.
    fn replace(&mut self, tree: TreeId, mut items: Vec<LeafItem>) -> Result<()> {
        let leaves = self.leaves(tree);
        ensure!(leaves.len() == 1, "{tree} is one leaf and not {}", leaves.len());
        items.sort_by_key(|item| item.0);
        let checksum = self.superblock.checksum_type();
        let bytes = &mut self.extents.get_mut(&leaves[0]).expect("it was found there").1;
        let old = BlockRef::new(bytes);
        let new = NewBlock {
            logical: old.logical(),
            generation: old.generation(),
            owner: old.owner(),
            level: 0,
            fsid: old.fsid(),
            chunk_tree_uuid: old.chunk_tree_uuid(),
        };
        let mut leaf = BlockMut::init(bytes, &new);
        let heads: Vec<(Key, usize)> = items.iter().map(|(key, data)| (*key, data.len())).collect();
        leaf.insert_items(0, &heads);
        for (slot, (_, data)) in items.iter().enumerate() {
            leaf.data_mut(slot).copy_from_slice(data);
        }
        leaf.mark_written();
        seal(bytes, checksum);
        Ok(())
    }
}
