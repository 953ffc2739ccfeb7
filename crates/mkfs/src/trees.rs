//! The items of every tree of an empty filesystem.

use creamery_base::{Generation, Logical, ObjectId, Timespec, TreeId, Uuid};
use creamery_codec::name_hash;
use creamery_format::{
    BlockGroupFlags, ExtentFlags, ExtentRef, FileType, Key, KeyType, RawBlockGroupItem, RawChunk,
    RawDevExtent, RawDevItem, RawDevStats, RawDirItem, RawExtentItem, RawFreeSpaceInfo, RawInodeItem,
    RawInodeRef, RawQgroupInfo, RawQgroupLimit, RawQgroupStatus, RawRootItem, RawStripe, STRIPE_LEN,
    uuid_key,
};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::bulk::Item;
use crate::layout::{Layout, PlannedChunk, Role};
use crate::options::{Geometry, Profile};

/// The id of the only device.
pub(crate) const DEVID: u64 = 1;
/// Mode of a new root directory.
const ROOT_DIR_MODE: u32 = 0o755;
/// The name of the default subvolume in the root tree's directory.
const DEFAULT_SUBVOLUME: &[u8] = b"default";

/// The layout from which the items are made.
pub(crate) struct Plan {
    pub(crate) generation: Generation,
    pub(crate) now: Timespec,
    /// Owner and group of the root directory.
    pub(crate) owner: (u32, u32),
    pub(crate) fsid: Uuid,
    pub(crate) device_uuid: Uuid,
    pub(crate) chunk_tree_uuid: Uuid,
    pub(crate) fs_tree_uuid: Uuid,
    pub(crate) geometry: Geometry,
    pub(crate) total_bytes: u64,
    pub(crate) layout: Layout,
}

/// The place of a tree block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    pub(crate) logical: Logical,
    pub(crate) level: u8,
    pub(crate) owner: TreeId,
}

/// The place of a tree's root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootAt {
    pub(crate) tree: TreeId,
    pub(crate) logical: Logical,
    pub(crate) level: u8,
    /// Bytes of all blocks of the tree.
    pub(crate) bytes: u64,
}

const fn key(objectid: ObjectId, kind: KeyType, offset: u64) -> Key {
    Key::new(objectid, kind, offset)
}

pub(crate) fn flags_of(chunk: &PlannedChunk) -> BlockGroupFlags {
    let role = match chunk.role {
        Role::System => BlockGroupFlags::SYSTEM,
        Role::Metadata => BlockGroupFlags::METADATA,
        Role::Data => BlockGroupFlags::DATA,
        Role::Mixed => BlockGroupFlags::DATA | BlockGroupFlags::METADATA,
    };
    match chunk.profile {
        Profile::Single => role,
        Profile::Dup => role | BlockGroupFlags::DUP,
    }
}

impl Plan {
    pub(crate) fn dev_item(&self) -> RawDevItem {
        let unit = self.geometry.sector_size.into();
        RawDevItem {
            devid: DEVID.into(),
            total_bytes: self.total_bytes.into(),
            bytes_used: self.layout.device_bytes().into(),
            io_align: unit,
            io_width: unit,
            sector_size: unit,
            uuid: self.device_uuid.into_bytes(),
            fsid: self.fsid.into_bytes(),
            ..Default::default()
        }
    }

    /// The key and data of a chunk's item. The superblock has a copy for SYSTEM chunks.
    pub(crate) fn chunk_item(&self, chunk: &PlannedChunk) -> Item {
        #[expect(clippy::cast_possible_truncation, reason = "a stripe element has 64 KiB")]
        let stripe_len = (STRIPE_LEN as u32).into();
        let head = RawChunk {
            length: chunk.len.into(),
            owner: TreeId::EXTENT.get().into(),
            stripe_len: STRIPE_LEN.into(),
            kind: flags_of(chunk).bits().into(),
            io_align: stripe_len,
            io_width: stripe_len,
            sector_size: self.geometry.sector_size.into(),
            num_stripes: u16::try_from(chunk.stripes.len()).expect("one or two").into(),
            sub_stripes: 1.into(),
        };
        let mut data = head.as_bytes().to_vec();
        for &offset in &chunk.stripes {
            let dev_uuid = self.device_uuid.into_bytes();
            let stripe = RawStripe { devid: DEVID.into(), offset: offset.into(), dev_uuid };
            data.extend_from_slice(stripe.as_bytes());
        }
        (key(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, chunk.logical.get()), data)
    }

    pub(crate) fn chunk_tree(&self) -> Vec<Item> {
        let device =
            (key(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, DEVID), self.dev_item().as_bytes().to_vec());
        std::iter::once(device).chain(self.layout.chunks.iter().map(|chunk| self.chunk_item(chunk))).collect()
    }

    pub(crate) fn dev_tree(&self) -> Vec<Item> {
        let stats = RawDevStats::default().as_bytes().to_vec();
        let mut items = vec![(key(ObjectId::new(0), KeyType::PERSISTENT_ITEM, DEVID), stats)];
        for chunk in &self.layout.chunks {
            let extent = RawDevExtent {
                chunk_tree: TreeId::CHUNK.get().into(),
                chunk_objectid: ObjectId::FIRST_CHUNK_TREE.get().into(),
                chunk_offset: chunk.logical.get().into(),
                length: chunk.len.into(),
                chunk_tree_uuid: self.chunk_tree_uuid.into_bytes(),
            };
            for &at in &chunk.stripes {
                items.push((key(ObjectId::new(DEVID), KeyType::DEV_EXTENT, at), extent.as_bytes().to_vec()));
            }
        }
        items.sort_by_key(|item| item.0);
        items
    }

    fn root_dir_inode(&self) -> RawInodeItem {
        RawInodeItem {
            generation: self.generation.get().into(),
            nbytes: u64::from(self.geometry.node_size).into(),
            nlink: 1.into(),
            mode: (FileType::Directory.mode_bits() | ROOT_DIR_MODE).into(),
            atime: self.now.into(),
            ctime: self.now.into(),
            mtime: self.now.into(),
            otime: self.now.into(),
            ..Default::default()
        }
    }

    /// An empty subvolume: its root directory, which is its own parent.
    pub(crate) fn subvolume_tree(&self) -> Vec<Item> {
        let root = ObjectId::FIRST_FREE;
        let (uid, gid) = self.owner;
        let inode = RawInodeItem { uid: uid.into(), gid: gid.into(), ..self.root_dir_inode() };
        vec![
            (key(root, KeyType::INODE_ITEM, 0), inode.as_bytes().to_vec()),
            (key(root, KeyType::INODE_REF, root.get()), inode_ref(b"..")),
        ]
    }

    pub(crate) fn uuid_tree(&self) -> Vec<Item> {
        vec![(uuid_key(self.fs_tree_uuid, KeyType::UUID_SUBVOL), TreeId::FS.get().to_le_bytes().to_vec())]
    }

    /// The quota tree of a new filesystem. The top level consists of its root block, which counts with both kinds of quotas.
    pub(crate) fn quota_tree(&self, simple: bool) -> Vec<Item> {
        const ON: u64 = 1;
        const SIMPLE: u64 = 8;
        let generation = self.generation.get();
        let flags = if simple { ON | SIMPLE } else { ON };
        let status = RawQgroupStatus {
            version: 1.into(),
            generation: generation.into(),
            flags: flags.into(),
            rescan: 0.into(),
        };
        // With simple quotas: the first transaction that counts. Else 0.
        let since: u64 = if simple { generation } else { 0 };
        let used: U64 = u64::from(self.geometry.node_size).into();
        let info = RawQgroupInfo {
            generation: generation.into(),
            referenced: used,
            referenced_compressed: used,
            exclusive: used,
            exclusive_compressed: used,
        };
        let (none, top) = (ObjectId::new(0), TreeId::FS.get());
        vec![
            (key(none, KeyType::QGROUP_STATUS, 0), [status.as_bytes(), &since.to_le_bytes()].concat()),
            (key(none, KeyType::QGROUP_INFO, top), info.as_bytes().to_vec()),
            (key(none, KeyType::QGROUP_LIMIT, top), vec![0; RawQgroupLimit::LEN]),
        ]
    }

    fn root_item(&self, root: &RootAt) -> RawRootItem {
        let mut item = RawRootItem {
            inode: RawInodeItem {
                generation: 1.into(),
                size: 3.into(),
                nbytes: u64::from(self.geometry.node_size).into(),
                nlink: 1.into(),
                mode: (FileType::Directory.mode_bits() | ROOT_DIR_MODE).into(),
                ..Default::default()
            },
            bytes_used: root.bytes.into(),
            refs: 1.into(),
            ..Default::default()
        };
        item.set_root(root.logical, root.level, self.generation);
        if root.tree.is_shareable() {
            item.root_dirid = ObjectId::FIRST_FREE.get().into();
        }
        if root.tree == TreeId::FS {
            item.uuid = self.fs_tree_uuid.into_bytes();
            item.ctime = self.now.into();
            item.otime = self.now.into();
        }
        item
    }

    /// The root tree: the places of all trees but the chunk tree, and the name of the default subvolume.
    pub(crate) fn root_tree(&self, roots: &[RootAt]) -> Vec<Item> {
        let mut items: Vec<Item> = roots
            .iter()
            .filter(|root| root.tree != TreeId::CHUNK)
            .map(|root| {
                let at = key(root.tree.objectid(), KeyType::ROOT_ITEM, 0);
                (at, self.root_item(root).as_bytes().to_vec())
            })
            .collect();
        let dir = ObjectId::ROOT_TREE_DIR;
        let location = key(TreeId::FS.objectid(), KeyType::ROOT_ITEM, u64::MAX);
        let head = RawDirItem {
            location: location.into(),
            transid: self.generation.get().into(),
            data_len: 0.into(),
            name_len: u16::try_from(DEFAULT_SUBVOLUME.len()).expect("a short name").into(),
            kind: FileType::Directory.to_disk(),
        };
        let dir_item = [head.as_bytes(), DEFAULT_SUBVOLUME].concat();
        items.extend([
            (key(TreeId::FS.objectid(), KeyType::INODE_REF, dir.get()), inode_ref(DEFAULT_SUBVOLUME)),
            (key(dir, KeyType::INODE_ITEM, 0), self.root_dir_inode().as_bytes().to_vec()),
            (key(dir, KeyType::INODE_REF, dir.get()), inode_ref(b"..")),
            (key(dir, KeyType::DIR_ITEM, u64::from(name_hash(DEFAULT_SUBVOLUME))), dir_item),
        ]);
        items.sort_by_key(|item| item.0);
        items
    }

    /// One item for each tree block.
    pub(crate) fn extent_items(&self, placed: &[Placed]) -> Vec<Item> {
        let head = RawExtentItem {
            refs: 1.into(),
            generation: self.generation.get().into(),
            flags: ExtentFlags::TREE_BLOCK.bits().into(),
        };
        let mut items: Vec<Item> = placed
            .iter()
            .map(|block| {
                let mut data = head.as_bytes().to_vec();
                ExtentRef::TreeBlock { root: block.owner }.write_inline(&mut data);
                let at = ObjectId::new(block.logical.get());
                (key(at, KeyType::METADATA_ITEM, block.level.into()), data)
            })
            .collect();
        items.sort_by_key(|item| item.0);
        items
    }

    /// Bytes at the start of the group that its tree blocks occupy; there are no gaps.
    fn used(&self, chunk: &PlannedChunk, placed: &[Placed]) -> u64 {
        let end = chunk.logical + chunk.len;
        let inside = placed.iter().filter(|block| block.logical >= chunk.logical && block.logical < end);
        inside.count() as u64 * u64::from(self.geometry.node_size)
    }

    pub(crate) fn block_group_items(&self, placed: &[Placed]) -> Vec<Item> {
        let item = |chunk: &PlannedChunk| {
            let data = RawBlockGroupItem {
                used: self.used(chunk, placed).into(),
                chunk_objectid: ObjectId::FIRST_CHUNK_TREE.get().into(),
                flags: flags_of(chunk).bits().into(),
            };
            let at = key(ObjectId::new(chunk.logical.get()), KeyType::BLOCK_GROUP_ITEM, chunk.len);
            (at, data.as_bytes().to_vec())
        };
        self.layout.chunks.iter().map(item).collect()
    }

    /// Free space as the kernel writes it: superblock copies inside a group count as free here; the allocator leaves them out.
    pub(crate) fn free_space_tree(&self, placed: &[Placed]) -> Vec<Item> {
        let mut items = Vec::new();
        for chunk in &self.layout.chunks {
            let used = self.used(chunk, placed);
            assert!(used < chunk.len); // a few blocks in at least a MiB
            let start = chunk.logical.get();
            let info = RawFreeSpaceInfo { extent_count: 1.into(), flags: 0.into() };
            items.push((
                key(ObjectId::new(start), KeyType::FREE_SPACE_INFO, chunk.len),
                info.as_bytes().to_vec(),
            ));
            let free = ObjectId::new(start + used);
            items.push((key(free, KeyType::FREE_SPACE_EXTENT, chunk.len - used), Vec::new()));
        }
        items
    }
}

fn inode_ref(name: &[u8]) -> Vec<u8> {
    let head =
        RawInodeRef { index: 0.into(), name_len: u16::try_from(name.len()).expect("a short name").into() };
    [head.as_bytes(), name].concat()
}

/// The root of `tree`, and the size of the tree. A tree that is not placed yet has a root of zeros.
pub(crate) fn root_of(tree: TreeId, placed: &[Placed], geometry: Geometry) -> RootAt {
    let mut root = RootAt { tree, logical: Logical::new(0), level: 0, bytes: 0 };
    for block in placed.iter().filter(|block| block.owner == tree) {
        // Levels come in order, the root last.
        root.logical = block.logical;
        root.level = block.level;
        root.bytes += u64::from(geometry.node_size);
    }
    root
}
