//! The superblock: the start of every access.
//!
//! It lies at 64 KiB and, on devices large enough, again at 64 MiB and 256 GiB; the copies differ in `bytenr` and
//! checksum only. [`RawSuperblock`] is kept whole, so that fields and bits that this version does not know survive
//! a rewrite. The system chunk array in it maps the chunk tree, through which all other blocks are found.

mod backups;
mod raw;

use creamery_base::{Error, ErrorKind, Generation, Logical, Uuid};
use creamery_codec::{ChecksumType, checksum};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use crate::corrupt::{CorruptKind, SumHex};
use crate::features::{CompatRo, Incompat, SuperFlags};
use crate::items::chunk::{BlockGroupFlags, Chunk};
use crate::items::device::RawDevItem;
use crate::items::split;
use crate::key::{Key, KeyType, RawKey};

pub use raw::{MAGIC, RawRootBackup, RawSuperblock, SYS_CHUNK_ARRAY_SIZE};

/// Bytes of a superblock.
pub const SUPERBLOCK_LEN: usize = 4096;
/// The offsets of the copies on every device.
pub const SUPERBLOCK_OFFSETS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
/// The longest label, without the zero that ends it.
pub const LABEL_LEN_MAX: usize = 255;
/// Bytes of the checksum field.
const CSUM_FIELD: usize = 32;
/// The largest node and sector.
const NODE_SIZE_MAX: u32 = 65536;
/// The smallest sector.
const SECTOR_SIZE_MIN: u32 = 4096;

/// The reason why bytes are no usable superblock.
///
/// ```
/// use creamery_format::{Superblock, SuperblockError};
/// assert_eq!(Superblock::from_bytes(&[0; 4096], 65536).unwrap_err(), SuperblockError::Magic);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // the message beside each variant says what its fields are
pub enum SuperblockError {
    #[error("no Btrfs filesystem found (no superblock magic)")]
    Magic,
    #[error("superblock is cut short, expected 4096, found {found} bytes")]
    Length { found: usize },
    #[error("unknown checksum type {found} in superblock")]
    ChecksumType { found: u16 },
    #[error("corrupt superblock: checksum mismatch, expected {want}, found {found}")]
    Checksum { found: SumHex, want: SumHex },
    #[error("corrupt superblock: wrong address, expected {want}, found {found}")]
    Address { found: u64, want: u64 },
    #[error("corrupt superblock: {what} is not a possible size, found {found}")]
    Size { what: &'static str, found: u64 },
    #[error("corrupt superblock: {what} too high, expected [0, 7], found {found}")]
    Level { what: &'static str, found: u8 },
    #[error("corrupt superblock: {what} is not a possible address, found {found}")]
    Root { what: &'static str, found: u64 },
    #[error("corrupt superblock: {what}, expected {want}, found {found}")]
    Mismatch { what: &'static str, found: u64, want: u64 },
    #[error("corrupt superblock: device belongs to another filesystem, expected {want}, found {found}")]
    DeviceFsid { found: Uuid, want: Uuid },
    #[error("corrupt superblock: system chunk array, {0}")]
    SysChunkArray(CorruptKind),
}

impl From<SuperblockError> for Error {
    fn from(error: SuperblockError) -> Self {
        let kind = match error {
            SuperblockError::Magic | SuperblockError::Length { .. } => ErrorKind::InvalidInput,
            SuperblockError::ChecksumType { .. } => ErrorKind::Unsupported,
            _ => ErrorKind::Corrupt,
        };
        Self::with_source(kind, String::new(), error)
    }
}

/// A checked superblock, for reading and changing.
///
/// ```
/// use creamery_format::{RawSuperblock, Superblock};
/// fn label_of(device: &[u8]) -> Result<Vec<u8>, creamery_format::SuperblockError> {
///     Ok(Superblock::from_bytes(&device[65536..], 65536)?.label().to_vec())
/// }
/// assert!(label_of(&[0; 1 << 20]).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    raw: Box<RawSuperblock>,
    checksum: ChecksumType,
}

impl Superblock {
    /// Checks a superblock that was read at byte offset `at` of a device.
    ///
    /// Unknown features are no error here: see [`Incompat::unsupported`] and [`CompatRo::unsupported`].
    ///
    /// # Errors
    /// The first problem found.
    pub fn from_bytes(bytes: &[u8], at: u64) -> Result<Self, SuperblockError> {
        let (raw, _) = RawSuperblock::read_from_prefix(bytes)
            .map_err(|_| SuperblockError::Length { found: bytes.len() })?;
        if raw.magic != MAGIC {
            return Err(SuperblockError::Magic);
        }
        let number = raw.csum_type.get();
        let checksum =
            ChecksumType::from_disk(number).ok_or(SuperblockError::ChecksumType { found: number })?;
        verify_checksum(&raw, checksum)?;
        if raw.bytenr.get() != at {
            return Err(SuperblockError::Address { found: raw.bytenr.get(), want: at });
        }
        let superblock = Self { raw: Box::new(raw), checksum };
        superblock.check()?;
        Ok(superblock)
    }

    /// Checks a superblock that this program made. A write sets its checksum and address.
    ///
    /// # Errors
    /// The first problem found: made superblocks pass the same checks as read ones.
    pub fn from_raw(raw: RawSuperblock) -> Result<Self, SuperblockError> {
        let number = raw.csum_type.get();
        let checksum =
            ChecksumType::from_disk(number).ok_or(SuperblockError::ChecksumType { found: number })?;
        let superblock = Self { raw: Box::new(raw), checksum };
        superblock.check()?;
        Ok(superblock)
    }

    /// The bytes to write at byte offset `at` of a device, with that address and the checksum.
    #[must_use]
    pub fn to_bytes(&self, at: u64) -> Vec<u8> {
        let mut raw = (*self.raw).clone_for(at);
        let sum = checksum(self.checksum, &raw.as_bytes()[CSUM_FIELD..]);
        raw.csum = *sum.field();
        raw.as_bytes().to_vec()
    }

    /// Every field.
    #[must_use]
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Returns every field, for changing. `csum_type` must not change.
    pub fn raw_mut(&mut self) -> &mut RawSuperblock {
        &mut self.raw
    }

    /// The filesystem's UUID.
    #[must_use]
    pub fn fsid(&self) -> Uuid {
        Uuid::from_bytes(self.raw.fsid)
    }

    /// The UUID in tree blocks: usually the filesystem's.
    #[must_use]
    pub fn metadata_uuid(&self) -> Uuid {
        match self.incompat().contains(Incompat::METADATA_UUID) {
            true => Uuid::from_bytes(self.raw.metadata_uuid),
            false => self.fsid(),
        }
    }

    /// Returns the checksum type of all blocks and data.
    #[must_use]
    pub const fn checksum_type(&self) -> ChecksumType {
        self.checksum
    }

    /// The last transaction.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Generation::new(self.raw.generation.get())
    }

    /// Address and level of the root tree; its generation is the superblock's.
    #[must_use]
    pub fn root(&self) -> (Logical, u8) {
        (Logical::new(self.raw.root.get()), self.raw.root_level)
    }

    /// Address, level and generation of the chunk tree.
    #[must_use]
    pub fn chunk_root(&self) -> (Logical, u8, Generation) {
        let generation = Generation::new(self.raw.chunk_root_generation.get());
        (Logical::new(self.raw.chunk_root.get()), self.raw.chunk_root_level, generation)
    }

    /// Sets the root of the tree of log trees.
    pub fn set_log_root(&mut self, root: Logical, level: u8) {
        self.raw.log_root = root.get().into();
        self.raw.log_root_level = level;
    }

    /// Returns address and level of the tree of log trees, if there is a log to replay.
    #[must_use]
    pub fn log_root(&self) -> Option<(Logical, u8)> {
        let log_root = self.raw.log_root.get();
        (log_root != 0).then(|| (Logical::new(log_root), self.raw.log_root_level))
    }

    /// Unit of data.
    #[must_use]
    pub fn sector_size(&self) -> u32 {
        self.raw.sectorsize.get()
    }

    /// Unit of metadata.
    #[must_use]
    pub fn node_size(&self) -> u32 {
        self.raw.nodesize.get()
    }

    /// Size of all devices.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.raw.total_bytes.get()
    }

    /// Bytes in use.
    #[must_use]
    pub fn bytes_used(&self) -> u64 {
        self.raw.bytes_used.get()
    }

    /// Number of devices.
    #[must_use]
    pub fn device_count(&self) -> u64 {
        self.raw.num_devices.get()
    }

    /// The device that this copy was on.
    #[must_use]
    pub fn dev_item(&self) -> &RawDevItem {
        &self.raw.dev_item
    }

    /// The label, without the zero that ends it.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        self.raw.label.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Returns the features that the filesystem uses, by the names of Linux below `/sys/fs/btrfs/UUID/features`, or by those that Linux had
    /// there before every filesystem had them.
    #[must_use]
    pub fn feature_names(&self) -> Vec<String> {
        let (incompat, compat_ro) = (self.incompat(), self.compat_ro());
        let names = incompat.iter_names().map(|(name, _)| name);
        names.chain(compat_ro.iter_names().map(|(name, _)| name)).map(str::to_ascii_lowercase).collect()
    }

    /// Sets the label, of at most [`LABEL_LEN_MAX`] bytes without a zero among them.
    pub fn set_label(&mut self, label: &[u8]) {
        assert!(label.len() <= LABEL_LEN_MAX && !label.contains(&0), "a label that was checked");
        self.raw.label.fill(0);
        self.raw.label[..label.len()].copy_from_slice(label);
    }

    /// Features needed to open.
    #[must_use]
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(self.raw.incompat_flags.get())
    }

    /// Features needed to write.
    #[must_use]
    pub fn compat_ro(&self) -> CompatRo {
        CompatRo::from_bits_retain(self.raw.compat_ro_flags.get())
    }

    /// Flags.
    #[must_use]
    pub fn flags(&self) -> SuperFlags {
        SuperFlags::from_bits_retain(self.raw.flags.get())
    }

    /// Returns the system chunks: the places of the chunk tree.
    #[must_use]
    pub fn sys_chunks(&self) -> SysChunks<'_> {
        SysChunks { rest: self.raw.sys_chunk_bytes() }
    }

    /// Appends a chunk to the system chunk array; `false` if it is full.
    pub fn push_sys_chunk(&mut self, key: &Key, chunk: &[u8]) -> bool {
        let used = self.raw.sys_chunk_bytes().len();
        let end = used + RawKey::LEN + chunk.len();
        if end > SYS_CHUNK_ARRAY_SIZE {
            return false;
        }
        let room = &mut self.raw.sys_chunk_array[used..end];
        room[..RawKey::LEN].copy_from_slice(RawKey::from(*key).as_bytes());
        room[RawKey::LEN..].copy_from_slice(chunk);
        self.raw.sys_chunk_array_size = U32::new(end as u32);
        true
    }

    /// Removes the chunk at logical address `start` from the system chunk array; `false` if it is not there.
    pub fn remove_sys_chunk(&mut self, start: Logical) -> bool {
        let mut kept = Vec::new();
        let mut found = false;
        for entry in self.sys_chunks() {
            let Ok((key, chunk)) = entry else { return false };
            if key.offset == start.get() {
                found = true;
                continue;
            }
            kept.extend_from_slice(RawKey::from(key).as_bytes());
            kept.extend_from_slice(chunk.head.as_bytes());
            kept.extend_from_slice(chunk.stripes.as_bytes());
        }
        self.raw.sys_chunk_array.fill(0);
        self.raw.sys_chunk_array[..kept.len()].copy_from_slice(&kept);
        self.raw.sys_chunk_array_size = U32::new(kept.len() as u32);
        found
    }

    fn check(&self) -> Result<(), SuperblockError> {
        self.check_sizes()?;
        let raw = self.raw();
        for (what, found) in [
            ("root level", raw.root_level),
            ("chunk root level", raw.chunk_root_level),
            ("log root level", raw.log_root_level),
        ] {
            if found > crate::LEVEL_MAX {
                return Err(SuperblockError::Level { what, found });
            }
        }
        let sector = u64::from(self.sector_size());
        for (what, found, may_be_zero) in [
            ("root", raw.root.get(), false),
            ("chunk root", raw.chunk_root.get(), false),
            ("log root", raw.log_root.get(), true),
        ] {
            if !found.is_multiple_of(sector) || (found == 0 && !may_be_zero) {
                return Err(SuperblockError::Root { what, found });
            }
        }
        let found = Uuid::from_bytes(raw.dev_item.fsid);
        // During a change it has the old one.
        if found != self.metadata_uuid() && !self.flags().contains(SuperFlags::CHANGING_FSID) {
            return Err(SuperblockError::DeviceFsid { found, want: self.metadata_uuid() });
        }
        if raw.num_devices.get() == 0 {
            return Err(SuperblockError::Mismatch { what: "no devices", found: 0, want: 1 });
        }
        if raw.generation.get() == u64::MAX {
            let (found, want) = (u64::MAX, u64::MAX - 1);
            return Err(SuperblockError::Mismatch { what: "a generation that none can follow", found, want });
        }
        let (found, want) = (raw.chunk_root_generation.get(), raw.generation.get());
        if found > want {
            return Err(SuperblockError::Mismatch {
                what: "chunk root is newer than the superblock",
                found,
                want,
            });
        }
        self.check_sys_chunks()
    }

    fn check_sizes(&self) -> Result<(), SuperblockError> {
        let raw = self.raw();
        let (sector, node) = (raw.sectorsize.get(), raw.nodesize.get());
        if !sector.is_power_of_two() || !(SECTOR_SIZE_MIN..=NODE_SIZE_MAX).contains(&sector) {
            return Err(SuperblockError::Size { what: "sector size", found: sector.into() });
        }
        if !node.is_power_of_two() || !(sector..=NODE_SIZE_MAX).contains(&node) {
            return Err(SuperblockError::Size { what: "node size", found: node.into() });
        }
        if raw.leafsize.get() != node {
            let (found, want) = (raw.leafsize.get().into(), node.into());
            return Err(SuperblockError::Mismatch { what: "leaf size differs from node size", found, want });
        }
        if self.incompat().contains(Incompat::MIXED_GROUPS) && node != sector {
            let (found, want) = (node.into(), sector.into());
            let what = "node size differs from sector size in a filesystem with mixed groups";
            return Err(SuperblockError::Mismatch { what, found, want });
        }
        if raw.total_bytes.get() < u64::from(node) {
            return Err(SuperblockError::Size { what: "total bytes", found: raw.total_bytes.get() });
        }
        Ok(())
    }

    fn check_sys_chunks(&self) -> Result<(), SuperblockError> {
        let found = self.raw.sys_chunk_array_size.get();
        if found == 0 || found as usize > SYS_CHUNK_ARRAY_SIZE {
            return Err(SuperblockError::Size { what: "system chunk array", found: found.into() });
        }
        self.sys_chunks().try_for_each(|entry| entry.map(drop)).map_err(SuperblockError::SysChunkArray)
    }
}

fn verify_checksum(raw: &RawSuperblock, kind: ChecksumType) -> Result<(), SuperblockError> {
    let sum = checksum(kind, &raw.as_bytes()[CSUM_FIELD..]);
    if raw.csum[..kind.size()] == *sum.as_bytes(kind) {
        return Ok(());
    }
    let (found, want) = (SumHex::new(raw.csum, kind.size()), SumHex::new(*sum.field(), kind.size()));
    Err(SuperblockError::Checksum { found, want })
}

/// The chunks of the system chunk array: keys and chunks. Ends at the first that is damaged.
///
/// ```
/// use creamery_format::Superblock;
/// fn chunk_tree_is_on(superblock: &Superblock) -> Vec<u64> {
///     superblock.sys_chunks().flatten().flat_map(|(_, chunk)| chunk.stripes).map(|s| s.devid.get()).collect()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SysChunks<'a> {
    rest: &'a [u8],
}

impl<'a> SysChunks<'a> {
    fn parse(&self) -> Result<((Key, Chunk<'a>), &'a [u8]), CorruptKind> {
        let (key, rest) = split::<RawKey>(self.rest, "key of a system chunk")?;
        let key = Key::from(*key);
        if key.kind != KeyType::CHUNK_ITEM {
            return Err(CorruptKind::Unknown {
                what: "key type of a system chunk",
                found: key.kind.get().into(),
            });
        }
        let (chunk, rest) = Chunk::parse_prefix(rest)?;
        if !chunk.flags().contains(BlockGroupFlags::SYSTEM) {
            return Err(CorruptKind::Unknown {
                what: "type of a system chunk",
                found: chunk.head.kind.get(),
            });
        }
        crate::check::chunk_range(&key, &chunk)?;
        Ok(((key, chunk), rest))
    }
}

impl<'a> Iterator for SysChunks<'a> {
    type Item = Result<(Key, Chunk<'a>), CorruptKind>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match self.parse() {
            Ok((entry, rest)) => {
                self.rest = rest;
                Some(Ok(entry))
            }
            Err(kind) => {
                self.rest = &[];
                Some(Err(kind))
            }
        }
    }
}

impl std::iter::FusedIterator for SysChunks<'_> {}

#[cfg(test)]
mod tests;
