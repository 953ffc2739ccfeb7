//! Filesystems as their superblocks describe them: those on block devices of the host, and those with too many devices missing to be
//! opened.

use std::path::PathBuf;

use creamery_base::{Error, Generation, Result, Uuid};
use creamery_codec::ChecksumType;
use creamery_format::Superblock;
use creamery_volume::{NamedSet, superblocks_of_host};

use crate::volume::MemberDevice;

/// A filesystem as the newest of its superblocks describes it. It is not opened, so Linux may have it mounted, and devices of it may be
/// missing.
///
/// ```
/// for found in creamery::volume::filesystems_of_host() {
///     println!("{} on {} of {} devices", found.uuid, found.devices.len(), found.device_count);
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HostFilesystem {
    /// The UUID of the filesystem.
    pub uuid: Uuid,
    /// The UUID in the tree blocks of the filesystem.
    pub metadata_uuid: Uuid,
    /// The label of the filesystem.
    pub label: Vec<u8>,
    /// The generation of the last commit.
    pub generation: Generation,
    /// Bytes in use by data and tree blocks, each copy once.
    pub bytes_used: u64,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// Bytes of a data block.
    pub sector_size: u32,
    /// The checksum of tree blocks and data.
    pub checksum: ChecksumType,
    /// The features on disk, by the names that Linux has for them.
    pub features: Vec<String>,
    /// The number of devices of the filesystem, missing ones too.
    pub device_count: u64,
    /// The devices that were found, in the order of their numbers.
    pub devices: Vec<MemberDevice>,
    /// Reasons why devices beside `devices` do not belong to the filesystem, one sentence each.
    pub notes: Vec<String>,
}

/// Lists the Btrfs filesystems on the block devices of the host, as `btrfs filesystem show` does. Devices that cannot be read are left out.
///
/// ```
/// let all = creamery::volume::filesystems_of_host();
/// assert!(all.iter().all(|found| !found.devices.is_empty()));
/// ```
#[must_use]
pub fn filesystems_of_host() -> Vec<HostFilesystem> {
    by_filesystem(superblocks_of_host())
}

/// Describes the filesystem on an image from its superblocks, with members that are named or found. No tree is read, so devices may be
/// missing.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).label("dairy").run()?;
/// let found = creamery::volume::filesystem_of_superblocks(&image)?;
/// assert_eq!((&found.label[..], found.devices.len()), (&b"dairy"[..], 1));
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// A named device cannot be opened, or has no valid superblock; two found devices are the same member.
pub fn filesystem_of_superblocks(image: impl Into<NamedSet>) -> Result<HostFilesystem> {
    let mut notes = Vec::new();
    let all = image.into().superblocks(&mut |note| notes.push(note))?;
    let fsid = all.first().map(|(_, superblock)| superblock.fsid());
    let found = by_filesystem(all).into_iter().find(|found| Some(found.uuid) == fsid);
    found.map(|found| HostFilesystem { notes, ..found }).ok_or_else(|| Error::invalid("no device given"))
}

/// Groups devices by filesystem.
fn by_filesystem(mut all: Vec<(PathBuf, Superblock)>) -> Vec<HostFilesystem> {
    // Puts the devices of one filesystem in a row, and of each device the newest superblock first.
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
        notes: Vec::new(),
    })
}
