//! Searches a device for filesystems whose superblocks may all be lost, by what tree blocks and superblocks say about themselves.
//!
//! The scan looks for a tree block or a superblock at each multiple of 4 KiB. A tree block has no magic number, but a checksum over all of
//! it. The scan tries the possible lengths and checksum types, after it has skipped everything that does not look like a header.

use std::collections::BTreeMap;
use std::path::Path;

use creamery_base::{Error, Generation, Result, TreeId, Uuid};
use creamery_codec::{ChecksumType, checksum};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_format::{BlockRef, MAGIC, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock};

use crate::history::SearchProgress;

/// Bytes from one position to the next.
const STEP: usize = 4096;
/// Lengths of tree blocks, the usual ones first.
const NODE_SIZES: [usize; 5] = [16 << 10, 4 << 10, 8 << 10, 32 << 10, 64 << 10];
const NODE_MAX: usize = 64 << 10;
/// Bytes of one read.
const WINDOW: usize = 4 << 20;
/// Filesystems that are listed. Blocks of further ones only count as `others`.
const FOUND_MAX: usize = 256;
/// Superblocks that are listed for each filesystem.
const SUPERBLOCKS_MAX: usize = 8;
/// The checksum field of a block.
const CSUM_FIELD: usize = 32;
const MAGIC_AT: usize = 64;
const BYTENR_AT: usize = 48;
const HEADER_LEN: usize = 101;
const ITEM_LEN: usize = 25;
const KEY_PTR_LEN: usize = 33;
const LEVEL_MAX: u8 = 7;

/// A superblock with a valid checksum.
///
/// ```
/// fn shown(found: &creamery::rescue::FoundSuperblock) -> String {
///     format!("copy {} of the filesystem that begins at {}", found.copy, found.start)
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FoundSuperblock {
    /// The number of the copy, 0 to 2, from its own address field.
    pub copy: usize,
    /// The offset in the file where the filesystem would begin, bytes.
    pub start: u64,
}

/// A filesystem of which tree blocks or superblocks are left.
///
/// ```
/// fn shown(found: &creamery::rescue::FoundFilesystem) -> String {
///     format!("{}: {} tree blocks of {} bytes", found.fsid, found.blocks, found.node_size)
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FoundFilesystem {
    /// The UUID in the tree blocks of the filesystem: the metadata UUID.
    pub fsid: Uuid,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// The checksum type of the tree blocks.
    pub checksum: ChecksumType,
    /// The newest commit that has a tree block or superblock left.
    pub generation: Generation,
    /// The number of valid tree blocks. A block with two copies counts twice.
    pub blocks: u64,
    /// The number of valid blocks of the root tree.
    pub root_blocks: u64,
    /// The number of devices, from its superblocks; 0 without a superblock.
    pub devices: u64,
    /// The valid superblocks, in the order of their positions; the first eight.
    pub superblocks: Vec<FoundSuperblock>,
}

/// The result of [`scan`].
///
/// ```
/// assert!(creamery::rescue::Scan::default().filesystems.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Scan {
    /// The filesystem with the most tree blocks comes first; 256 at most.
    pub filesystems: Vec<FoundFilesystem>,
    /// Tree blocks and superblocks of further filesystems.
    pub others: u64,
    /// Bytes that could not be read.
    pub unread: u64,
}

type FoundFilesystems = BTreeMap<Uuid, FoundFilesystem>;

/// Scans a whole file or device, which may be open elsewhere.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::history::NoSearchProgress;
/// let found = creamery::rescue::scan(&image, &NoSearchProgress)?.filesystems;
/// assert!(found.len() == 1 && found[0].superblocks[0].start == 0);
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// The file cannot be opened, or no part of its first 4 MiB can be read. Other unreadable parts are skipped and counted.
pub fn scan(file: impl AsRef<Path>, progress: &dyn SearchProgress) -> Result<Scan> {
    scan_device(&FileDevice::open(file.as_ref(), Access::ReadOnlyForced)?, progress)
}

/// Scans a device that is open already. For tests of this project; not part of the stability promise.
///
/// # Errors
/// Those of [`scan`].
#[doc(hidden)]
pub fn scan_device(device: &dyn BlockDevice, progress: &dyn SearchProgress) -> Result<Scan> {
    let len = device.len();
    let (mut found, mut scan) = (FoundFilesystems::new(), Scan::default());
    let mut window = vec![0; WINDOW + NODE_MAX];
    for start in (0..len).step_by(WINDOW) {
        progress.at(start / STEP as u64, Some(len / STEP as u64));
        let there = usize::try_from(len - start).unwrap_or(usize::MAX).min(window.len());
        let bytes = &mut window[..there];
        scan.unread += read(device, start, bytes)?;
        for at in (0..there.min(WINDOW)).step_by(STEP) {
            let place = &bytes[at..];
            // Most of most disks is zeros.
            if place.len() < STEP || place[CSUM_FIELD..CSUM_FIELD + 16] == [0; 16] {
                continue;
            }
            scan.others += u64::from(!look(place, start + at as u64, &mut found));
        }
    }
    scan.filesystems = found.into_values().collect();
    scan.filesystems.sort_by_key(|one| std::cmp::Reverse((one.blocks, one.superblocks.len())));
    Ok(scan)
}

/// Reads what the device gives; the rest is zeros. Returns the number of unreadable bytes.
fn read(device: &dyn BlockDevice, start: u64, out: &mut [u8]) -> Result<u64> {
    if device.read_at(start, out).is_ok() {
        return Ok(0);
    }
    let mut unread = 0;
    for (number, piece) in (0..).zip(out.chunks_mut(STEP)) {
        if device.read_at(start + number * STEP as u64, piece).is_err() {
            piece.fill(0);
            unread += piece.len() as u64;
        }
    }
    match unread == out.len() as u64 && start == 0 {
        true => Err(Error::new(creamery_base::ErrorKind::Io, device.describe())),
        false => Ok(unread),
    }
}

/// Counts a tree block or superblock at a position, if there is one. False when there is no room to count it.
fn look(place: &[u8], at: u64, found: &mut FoundFilesystems) -> bool {
    if place[MAGIC_AT..MAGIC_AT + 8] == MAGIC {
        return superblock(place, at).is_none_or(|(superblock, copy, start)| {
            let Some(one) = slot(found, superblock.metadata_uuid()) else { return false };
            if one.blocks == 0 {
                one.node_size = superblock.node_size();
                one.checksum = superblock.checksum_type();
            }
            one.devices = one.devices.max(superblock.device_count());
            one.generation = one.generation.max(superblock.generation());
            if one.superblocks.len() < SUPERBLOCKS_MAX {
                one.superblocks.push(FoundSuperblock { copy, start });
            }
            true
        });
    }
    let Some((node_size, kind)) = tree_block(place, found) else { return true };
    let block = BlockRef::new(&place[..node_size]);
    let Some(one) = slot(found, block.fsid()) else { return false };
    if one.blocks == 0 {
        one.node_size = u32::try_from(node_size).unwrap_or(u32::MAX);
        one.checksum = kind;
    }
    one.generation = one.generation.max(block.generation());
    one.blocks += 1;
    one.root_blocks += u64::from(block.owner() == TreeId::ROOT);
    true
}

fn slot(found: &mut FoundFilesystems, fsid: Uuid) -> Option<&mut FoundFilesystem> {
    if found.len() == FOUND_MAX && !found.contains_key(&fsid) {
        return None;
    }
    Some(found.entry(fsid).or_insert_with(|| FoundFilesystem {
        fsid,
        node_size: 0,
        checksum: ChecksumType::default(),
        generation: Generation::new(0),
        blocks: 0,
        root_blocks: 0,
        devices: 0,
        superblocks: Vec::new(),
    }))
}

/// Parses a superblock; returns it with the number of its copy and the start of its filesystem.
fn superblock(place: &[u8], at: u64) -> Option<(Superblock, usize, u64)> {
    let bytenr = u64::from_le_bytes(place[BYTENR_AT..BYTENR_AT + 8].try_into().ok()?);
    let copy = SUPERBLOCK_OFFSETS.iter().position(|offset| *offset == bytenr)?;
    let superblock = Superblock::from_bytes(&place[..SUPERBLOCK_LEN], bytenr).ok()?;
    Some((superblock, copy, at.checked_sub(bytenr)?))
}

/// The length and the checksum type of the tree block at a position, if there is one.
fn tree_block(place: &[u8], found: &FoundFilesystems) -> Option<(usize, ChecksumType)> {
    let head = BlockRef::new(&place[..STEP]);
    let (level, count, logical) = (head.level(), head.count(), head.logical().get());
    let looks_so =
        level <= LEVEL_MAX && logical != 0 && logical.is_multiple_of(STEP as u64) && head.is_written();
    if !looks_so {
        return None;
    }
    let each = if level == 0 { ITEM_LEN } else { KEY_PTR_LEN };
    let is_whole = |(node_size, kind): (usize, ChecksumType)| {
        let room = node_size - HEADER_LEN;
        let is_there = count <= room / each && place.len() >= node_size;
        is_there && {
            let sum = checksum(kind, &place[CSUM_FIELD..node_size]);
            place[..kind.size()] == *sum.as_bytes(kind)
        }
    };
    // The length and checksum type of the filesystem's other blocks come first.
    let like_others = found.get(&head.fsid()).filter(|one| one.blocks > 0);
    let like_others = like_others.map(|one| (one.node_size as usize, one.checksum));
    let all =
        NODE_SIZES.into_iter().flat_map(|size| ChecksumType::ALL.into_iter().map(move |kind| (size, kind)));
    like_others.into_iter().chain(all).find(|form| is_whole(*form))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;
    use crate::history::NoSearchProgress;

    #[test]
    fn filesystems_are_found_with_and_without_superblocks() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole.img");
        let disk = dir.path().join("disk.raw");
        let mut all = Vec::new();
        for kind in ChecksumType::ALL {
            let with = |options: &mut creamery_mkfs::MkfsOptions| options.checksum = kind;
            Image::make(&whole).size(128 << 20).force().with(with).run().unwrap();
            let uuid = Image::open(&whole).unwrap().volume().metadata_uuid();
            let mut bytes = std::fs::read(&whole).unwrap();
            if kind == ChecksumType::Crc32c {
                SUPERBLOCK_OFFSETS[..2]
                    .iter()
                    .for_each(|at| bytes[usize::try_from(*at).unwrap()..][..4096].fill(0));
            }
            all.push((kind, uuid, bytes));
        }
        let joined: Vec<u8> = all.iter().flat_map(|(.., bytes)| bytes.clone()).collect();
        std::fs::write(&disk, joined).unwrap();
        let found = scan(&disk, &NoSearchProgress).unwrap();
        assert_eq!((found.filesystems.len(), found.others, found.unread), (4, 0, 0));
        for (number, (kind, uuid, _)) in (0..).zip(&all) {
            let one = found.filesystems.iter().find(|one| one.fsid == *uuid).unwrap();
            assert_eq!((one.checksum, one.node_size), (*kind, 16384));
            assert!(one.blocks > 4 && one.root_blocks > 0 && one.generation > Generation::new(0), "{one:?}");
            let start = number * (128 << 20);
            let copies = [0, 1].map(|copy| FoundSuperblock { copy, start });
            assert_eq!(one.superblocks, if number == 0 { &[][..] } else { &copies[..] });
        }
    }
}
