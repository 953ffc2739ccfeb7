//! The filesystems on block devices of the host, by what their superblocks say.

use std::path::PathBuf;

use creamery_base::{Generation, Uuid};
use creamery_codec::ChecksumType;
use creamery_format::Superblock;
use creamery_volume::superblocks_of_host;

use crate::volume::MemberDevice;

/// A filesystem on block devices of the host, by the newest of its superblocks. It is not opened, so it may be mounted by Linux.
///
/// ```
/// for found in creamery::volume::filesystems_of_host() {
///     println!("{} on {} of {} devices", found.uuid, found.devices.len(), found.device_count);
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HostFilesystem {
    /// Its UUID.
    pub uuid: Uuid,
    /// The UUID in its tree blocks.
    pub metadata_uuid: Uuid,
    /// Its label.
    pub label: Vec<u8>,
    /// The generation of the last commit.
    pub generation: Generation,
    /// Bytes that data and tree blocks take, each copy once.
    pub bytes_used: u64,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// Bytes of a data block.
    pub sector_size: u32,
    /// The checksum of tree blocks and data.
    pub checksum: ChecksumType,
    /// The features on disk, by the names that Linux has for them.
    pub features: Vec<String>,
    /// How many devices it has.
    pub device_count: u64,
    /// Those of them that were found, in the order of their numbers.
    pub devices: Vec<MemberDevice>,
}

/// Lists the Btrfs filesystems on the block devices of the host, as `btrfs filesystem show` does. Devices that cannot be read are left out.
///
/// ```
/// let all = creamery::volume::filesystems_of_host();
/// assert!(all.iter().all(|found| !found.devices.is_empty()));
/// ```
#[must_use]
pub fn filesystems_of_host() -> Vec<HostFilesystem> {
    let mut all = superblocks_of_host();
    // Those of one filesystem in one row, and of each of its devices the newest first.
    all.sort_by_key(|(path, superblock)| {
        let device = superblock.dev_item().dev_id();
        (superblock.fsid(), device, std::cmp::Reverse(superblock.generation()), path.clone())
    });
    all.dedup_by_key(|(_, superblock)| (superblock.fsid(), superblock.dev_item().dev_id()));
    all.chunk_by(|(_, one), (_, other)| one.fsid() == other.fsid()).filter_map(of).collect()
}

fn of(members: &[(PathBuf, Superblock)]) -> Option<HostFilesystem> {
    let (_, newest) = members.iter().max_by_key(|(_, superblock)| superblock.generation())?;
    let device = |(path, superblock): &(PathBuf, Superblock)| {
        let item = superblock.dev_item();
        MemberDevice {
            id: item.dev_id(),
            uuid: item.uuid(),
            total_bytes: item.total_bytes.get(),
            used_bytes: item.bytes_used.get(),
            len: None,
            path: Some(path.clone()),
        }
    };
    Some(HostFilesystem {
        uuid: newest.fsid(),
        metadata_uuid: newest.metadata_uuid(),
        label: newest.label().to_vec(),
        generation: newest.generation(),
        bytes_used: newest.bytes_used(),
        node_size: newest.node_size(),
        sector_size: newest.sector_size(),
        checksum: newest.checksum_type(),
        features: newest.feature_names(),
        device_count: newest.device_count(),
        devices: members.iter().map(device).collect(),
    })
}
