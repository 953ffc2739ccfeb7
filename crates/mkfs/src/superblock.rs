//! The first superblock.

use creamery_base::{ObjectId, Result, TreeId};
use creamery_device::BlockDevice;
use creamery_format::{
    CompatRo, Incompat, MAGIC, RawKey, RawRootBackup, RawSuperblock, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS,
    SuperFlags, Superblock,
};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::layout::Role;
use crate::make::Trees;
use crate::trees::Plan;
use crate::{Features, MkfsOptions};

fn incompat(features: Features, node_size: u32) -> Incompat {
    const PAGE: u32 = 4096;
    let mut flags = Incompat::MIXED_BACKREF | Incompat::EXTENDED_IREF | Incompat::SKINNY_METADATA;
    // The flag means tree blocks larger than a page.
    flags.set(Incompat::BIG_METADATA, node_size > PAGE);
    flags.set(Incompat::NO_HOLES, features.no_holes);
    flags.set(Incompat::MIXED_GROUPS, features.mixed_groups);
    flags.set(Incompat::SIMPLE_QUOTA, features.simple_quota);
    flags
}

fn compat_ro(features: Features) -> CompatRo {
    let mut flags = CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID;
    flags.set(CompatRo::BLOCK_GROUP_TREE, features.block_group_tree);
    flags
}

/// The superblock that leads to `trees`.
pub(crate) fn build(plan: &Plan, options: &MkfsOptions, trees: &Trees) -> Superblock {
    let (root, chunk_root) = (trees.root(TreeId::ROOT), trees.root(TreeId::CHUNK));
    let (node_size, sector_size) = (plan.geometry.node_size, plan.geometry.sector_size);
    let generation: U64 = plan.generation.get().into();
    let mut raw = RawSuperblock {
        fsid: plan.fsid.into_bytes(),
        flags: SuperFlags::WRITTEN.bits().into(),
        magic: MAGIC,
        generation,
        root: root.logical.get().into(),
        chunk_root: chunk_root.logical.get().into(),
        total_bytes: plan.total_bytes.into(),
        bytes_used: trees.bytes().into(),
        root_dir_objectid: ObjectId::ROOT_TREE_DIR.get().into(),
        num_devices: 1.into(),
        sectorsize: sector_size.into(),
        nodesize: node_size.into(),
        leafsize: node_size.into(),
        stripesize: sector_size.into(),
        chunk_root_generation: generation,
        compat_ro_flags: compat_ro(options.features).bits().into(),
        incompat_flags: incompat(options.features, node_size).bits().into(),
        csum_type: options.checksum.to_disk().into(),
        root_level: root.level,
        chunk_root_level: chunk_root.level,
        dev_item: plan.dev_item(),
        ..Default::default()
    };
    raw.label[..options.label.len()].copy_from_slice(&options.label);
    raw.super_roots[0] = backup(plan, trees);
    let array = system_chunks(plan);
    raw.sys_chunk_array[..array.len()].copy_from_slice(&array);
    raw.sys_chunk_array_size = u32::try_from(array.len()).expect("one chunk or two").into();
    Superblock::from_raw(raw).expect("a superblock of ours passes the checks")
}

/// Keys and items of the chunks that hold the chunk tree.
fn system_chunks(plan: &Plan) -> Vec<u8> {
    let mut array = Vec::new();
    for chunk in plan.layout.chunks.iter().filter(|chunk| chunk.role == Role::System) {
        let (key, item) = plan.chunk_item(chunk);
        array.extend_from_slice(RawKey::from(key).as_bytes());
        array.extend_from_slice(&item);
    }
    array
}

fn backup(plan: &Plan, trees: &Trees) -> RawRootBackup {
    let at = |tree| U64::new(trees.root(tree).logical.get());
    let level = |tree| trees.root(tree).level;
    let generation: U64 = plan.generation.get().into();
    RawRootBackup {
        tree_root: at(TreeId::ROOT),
        tree_root_gen: generation,
        chunk_root: at(TreeId::CHUNK),
        chunk_root_gen: generation,
        extent_root: at(TreeId::EXTENT),
        extent_root_gen: generation,
        fs_root: at(TreeId::FS),
        fs_root_gen: generation,
        dev_root: at(TreeId::DEV),
        dev_root_gen: generation,
        csum_root: at(TreeId::CSUM),
        csum_root_gen: generation,
        total_bytes: plan.total_bytes.into(),
        bytes_used: trees.bytes().into(),
        num_devices: 1.into(),
        tree_root_level: level(TreeId::ROOT),
        chunk_root_level: level(TreeId::CHUNK),
        extent_root_level: level(TreeId::EXTENT),
        fs_root_level: level(TreeId::FS),
        dev_root_level: level(TreeId::DEV),
        csum_root_level: level(TreeId::CSUM),
        ..Default::default()
    }
}

/// Writes every copy for which the filesystem has room, the first one last.
pub(crate) fn write(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    for at in SUPERBLOCK_OFFSETS.into_iter().rev() {
        if at + SUPERBLOCK_LEN as u64 <= superblock.total_bytes() {
            device.write_at(at, &superblock.to_bytes(at))?;
        }
    }
    Ok(())
}
