//! The superblock's layout.

use zerocopy::little_endian::{U16, U32, U64};

use crate::items::device::RawDevItem;
use crate::raw::raw_struct;

/// The magic number, "_BHRfS_M".
pub const MAGIC: [u8; 8] = *b"_BHRfS_M";
/// Bytes of the system chunk array.
pub const SYS_CHUNK_ARRAY_SIZE: usize = 2048;
raw_struct! {
    /// The roots of a few transactions ago; the four backups are used in turn.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawRootBackup::LEN, 168);
    /// ```
    pub struct RawRootBackup[168] {
        /// Root tree.
        0 => pub tree_root: U64,
        /// Its generation.
        8 => pub tree_root_gen: U64,
        /// Chunk tree.
        16 => pub chunk_root: U64,
        /// Its generation.
        24 => pub chunk_root_gen: U64,
        /// Extent tree.
        32 => pub extent_root: U64,
        /// Its generation.
        40 => pub extent_root_gen: U64,
        /// Top-level subvolume.
        48 => pub fs_root: U64,
        /// Its generation.
        56 => pub fs_root_gen: U64,
        /// Device tree.
        64 => pub dev_root: U64,
        /// Its generation.
        72 => pub dev_root_gen: U64,
        /// Checksum tree.
        80 => pub csum_root: U64,
        /// Its generation.
        88 => pub csum_root_gen: U64,
        /// Size of the filesystem.
        96 => pub total_bytes: U64,
        /// Bytes in use.
        104 => pub bytes_used: U64,
        /// Number of devices.
        112 => pub num_devices: U64,
        /// Zero.
        120 => pub unused_64: [U64; 4],
        /// Level of the root tree.
        152 => pub tree_root_level: u8,
        /// Level of the chunk tree.
        153 => pub chunk_root_level: u8,
        /// Level of the extent tree.
        154 => pub extent_root_level: u8,
        /// Level of the top-level subvolume.
        155 => pub fs_root_level: u8,
        /// Level of the device tree.
        156 => pub dev_root_level: u8,
        /// Level of the checksum tree.
        157 => pub csum_root_level: u8,
        /// Zero.
        158 => pub unused_8: [u8; 10],
    }
}

raw_struct! {
    /// The superblock as it is on disk.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawSuperblock::LEN, 4096);
    /// ```
    pub struct RawSuperblock[4096] {
        /// Checksum of everything after it.
        0 => pub csum: [u8; 32],
        /// UUID of the filesystem.
        32 => pub fsid: [u8; 16],
        /// The place of this copy on the device.
        48 => pub bytenr: U64,
        /// See [`SuperFlags`](crate::SuperFlags).
        56 => pub flags: U64,
        /// [`MAGIC`].
        64 => pub magic: [u8; 8],
        /// The last transaction.
        72 => pub generation: U64,
        /// Root tree.
        80 => pub root: U64,
        /// Chunk tree.
        88 => pub chunk_root: U64,
        /// Tree of log trees, or 0.
        96 => pub log_root: U64,
        /// Unused.
        104 => pub log_root_transid: U64,
        /// Size of all devices.
        112 => pub total_bytes: U64,
        /// Bytes in use.
        120 => pub bytes_used: U64,
        /// Objectid of the root tree's directory (6).
        128 => pub root_dir_objectid: U64,
        /// Number of devices.
        136 => pub num_devices: U64,
        /// Unit of data.
        144 => pub sectorsize: U32,
        /// Unit of metadata.
        148 => pub nodesize: U32,
        /// Equal to `nodesize`.
        152 => pub leafsize: U32,
        /// Equal to `sectorsize`.
        156 => pub stripesize: U32,
        /// Used bytes of `sys_chunk_array`.
        160 => pub sys_chunk_array_size: U32,
        /// Generation of the chunk tree's root.
        164 => pub chunk_root_generation: U64,
        /// Unused.
        172 => pub compat_flags: U64,
        /// See [`CompatRo`](crate::CompatRo).
        180 => pub compat_ro_flags: U64,
        /// See [`Incompat`](crate::Incompat).
        188 => pub incompat_flags: U64,
        /// See [`ChecksumType`](creamery_codec::ChecksumType).
        196 => pub csum_type: U16,
        /// Level of the root tree.
        198 => pub root_level: u8,
        /// Level of the chunk tree.
        199 => pub chunk_root_level: u8,
        /// Level of the tree of log trees.
        200 => pub log_root_level: u8,
        /// The device that this copy is on.
        201 => pub dev_item: RawDevItem,
        /// Label, ended by a zero.
        299 => pub label: [u8; 256],
        /// Generation of the old free space cache; all ones if it must not be used, 0 with a free space tree.
        555 => pub cache_generation: U64,
        /// Generation up to which the UUID tree is complete.
        563 => pub uuid_tree_generation: U64,
        /// UUID in tree blocks, with [`Incompat::METADATA_UUID`](crate::Incompat::METADATA_UUID).
        571 => pub metadata_uuid: [u8; 16],
        /// With [`Incompat::EXTENT_TREE_V2`](crate::Incompat::EXTENT_TREE_V2).
        587 => pub nr_global_roots: U64,
        /// For later versions.
        595 => pub reserved: [U64; 27],
        /// Keys and chunks of the system block groups, packed.
        811 => pub sys_chunk_array: [u8; SYS_CHUNK_ARRAY_SIZE],
        /// Older roots.
        2859 => pub super_roots: [RawRootBackup; 4],
        /// Zero.
        3531 => pub padding: [u8; 565],
    }
}

impl RawSuperblock {
    /// The used part of the system chunk array; never more than the array.
    #[must_use]
    pub fn sys_chunk_bytes(&self) -> &[u8] {
        let used = (self.sys_chunk_array_size.get() as usize).min(SYS_CHUNK_ARRAY_SIZE);
        &self.sys_chunk_array[..used]
    }

    /// Returns a copy with another address.
    pub(super) fn clone_for(&self, at: u64) -> Self {
        Self { bytenr: U64::new(at), ..*self }
    }
}
