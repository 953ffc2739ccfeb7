//! Trees and subvolumes: `ROOT_ITEM`, `ROOT_REF`, `ROOT_BACKREF`, `UUID_SUBVOL`.

use bitflags::bitflags;
use creamery_base::{Generation, Logical, Uuid};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::inode::RawInodeItem;
use super::time::RawTimespec;
use super::{split, take};
use crate::corrupt::CorruptKind;
use crate::key::{KeyType, RawKey};
use crate::raw::raw_struct;

raw_struct! {
    /// The root pointer of a tree, and the attributes of a subvolume.
    ///
    /// ```
    /// use creamery_format::{RawRootItem, RootFlags};
    /// let mut root = RawRootItem::default();
    /// root.set_flags(RootFlags::RDONLY);
    /// assert_eq!(root.flags(), RootFlags::RDONLY);
    /// ```
    pub struct RawRootItem[439] {
        /// Mostly unused; size and nbytes are set to fixed values.
        0 => pub inode: RawInodeItem,
        /// Transaction that last changed the tree.
        160 => pub generation: U64,
        /// Inode of the root directory: 256 in subvolumes, else 0.
        168 => pub root_dirid: U64,
        /// Address of the root block.
        176 => pub bytenr: U64,
        /// Unused.
        184 => pub byte_limit: U64,
        /// Bytes of tree blocks.
        192 => pub bytes_used: U64,
        /// Transaction of the last snapshot of this subvolume.
        200 => pub last_snapshot: U64,
        /// See [`RootFlags`].
        208 => pub flags: U64,
        /// 1, or 0 once the subvolume is being deleted.
        216 => pub refs: U32,
        /// The progress of dropping a deleted subvolume.
        220 => pub drop_progress: RawKey,
        /// Level at which dropping goes on.
        237 => pub drop_level: u8,
        /// Level of the root block.
        238 => pub level: u8,
        /// Equal to `generation` when the fields from here on are valid.
        239 => pub generation_v2: U64,
        /// UUID of the subvolume.
        247 => pub uuid: [u8; 16],
        /// UUID of the subvolume that it is a snapshot of.
        263 => pub parent_uuid: [u8; 16],
        /// UUID of the received subvolume at its sender.
        279 => pub received_uuid: [u8; 16],
        /// Transaction of the last change.
        295 => pub ctransid: U64,
        /// Transaction of its birth.
        303 => pub otransid: U64,
        /// Sender's transaction, when received.
        311 => pub stransid: U64,
        /// Transaction of receiving.
        319 => pub rtransid: U64,
        /// Last change.
        327 => pub ctime: RawTimespec,
        /// Birth.
        339 => pub otime: RawTimespec,
        /// When it was sent.
        351 => pub stime: RawTimespec,
        /// When it was received.
        363 => pub rtime: RawTimespec,
        /// Zero.
        375 => pub reserved: [U64; 8],
    }
}

bitflags! {
    /// Flags of a root item. Unknown bits are kept.
    ///
    /// ```
    /// assert_eq!(creamery_format::RootFlags::RDONLY.bits(), 1);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct RootFlags: u64 {
        /// The subvolume is read-only.
        const RDONLY = 1;
        /// The subvolume is being deleted.
        const DEAD = 1 << 48;
        const _ = !0;
    }
}

impl RawRootItem {
    /// Length of the item that kernels before 3.6 wrote: up to `generation_v2`.
    pub const LEGACY_LEN: usize = 239;

    /// Reads an item's data, of either length. Fields of the second half are zero if they are not valid.
    ///
    /// # Errors
    /// The item has another length.
    pub fn from_item(data: &[u8]) -> Result<Self, CorruptKind> {
        match data.len() {
            Self::LEN => {
                let root = Self::read_from_bytes(data).expect("the slice has a root item's length");
                if root.generation == root.generation_v2 {
                    return Ok(root);
                }
                // An old kernel changed the tree without the second half.
                Self::from_item(&data[..Self::LEGACY_LEN])
            }
            Self::LEGACY_LEN => {
                let mut root = Self::default();
                root.as_mut_bytes()[..Self::LEGACY_LEN].copy_from_slice(data);
                Ok(root)
            }
            found => Err(CorruptKind::ItemSize { kind: KeyType::ROOT_ITEM, found, want: Self::LEN }),
        }
    }

    /// The flags.
    #[must_use]
    pub fn flags(&self) -> RootFlags {
        RootFlags::from_bits_retain(self.flags.get())
    }

    /// Sets the flags.
    pub fn set_flags(&mut self, flags: RootFlags) {
        self.flags = U64::new(flags.bits());
    }

    /// Address of the root block.
    #[must_use]
    pub fn root(&self) -> Logical {
        Logical::new(self.bytenr.get())
    }

    /// Transaction that last changed the tree: the generation of the root block.
    #[must_use]
    pub fn root_generation(&self) -> Generation {
        Generation::new(self.generation.get())
    }

    /// Points to a new root block, and marks the second half valid.
    pub fn set_root(&mut self, root: Logical, level: u8, generation: Generation) {
        self.bytenr = U64::new(root.get());
        self.level = level;
        self.generation = U64::new(generation.get());
        self.generation_v2 = self.generation;
    }

    /// UUID of the subvolume.
    #[must_use]
    pub const fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.uuid)
    }
}

raw_struct! {
    /// The directory of a subvolume (`ROOT_REF`, `ROOT_BACKREF`); the name follows.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawRootRef::LEN, 18);
    /// ```
    pub struct RawRootRef[18] {
        /// Inode number of the directory.
        0 => pub dirid: U64,
        /// Directory index of the entry.
        8 => pub sequence: U64,
        /// Length of the name.
        16 => pub name_len: U16,
    }
}

/// A `ROOT_REF` or `ROOT_BACKREF`.
///
/// ```
/// use creamery_format::RootRef;
/// let mut data = [0; 19];
/// (data[16], data[18]) = (1, b's');
/// assert_eq!(RootRef::parse(&data).unwrap().name, b"s");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootRef<'a> {
    /// Inode number of the directory.
    pub dirid: u64,
    /// Directory index of the entry.
    pub sequence: u64,
    /// The subvolume's name.
    pub name: &'a [u8],
}

impl<'a> RootRef<'a> {
    /// Reads an item's data.
    ///
    /// # Errors
    /// The name does not fill the item.
    pub fn parse(data: &'a [u8]) -> Result<Self, CorruptKind> {
        let (head, rest) = split::<RawRootRef>(data, "root ref")?;
        let (name, rest) = take(rest, head.name_len.get().into(), "name")?;
        if !rest.is_empty() {
            let (found, want) = (data.len(), data.len() - rest.len());
            return Err(CorruptKind::ItemSize { kind: KeyType::ROOT_REF, found, want });
        }
        Ok(Self { dirid: head.dirid.get(), sequence: head.sequence.get(), name })
    }
}

/// The subvolume ids in a `UUID_SUBVOL` or `UUID_RECEIVED_SUBVOL` item.
///
/// ```
/// let ids: Vec<u64> = creamery_format::uuid_subvolumes(&[5, 0, 0, 0, 0, 0, 0, 0]).collect();
/// assert_eq!(ids, [5]);
/// ```
pub fn uuid_subvolumes(data: &[u8]) -> impl Iterator<Item = u64> + '_ {
    data.as_chunks::<8>().0.iter().map(|id| u64::from_le_bytes(*id))
}

/// The key of a UUID's item: its two halves as little-endian numbers.
///
/// ```
/// use creamery_base::Uuid;
/// use creamery_format::{uuid_key, KeyType};
/// let key = uuid_key(Uuid::from_bytes([1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]), KeyType::UUID_SUBVOL);
/// assert_eq!((key.objectid.get(), key.offset), (1, 2));
/// ```
#[must_use]
pub fn uuid_key(uuid: Uuid, kind: KeyType) -> crate::Key {
    let halves = U64Pair::read_from_bytes(uuid.as_bytes()).expect("a UUID has 16 bytes");
    crate::Key::new(creamery_base::ObjectId::new(halves[0].get()), kind, halves[1].get())
}

type U64Pair = [U64; 2];
