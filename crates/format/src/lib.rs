//! The disk format of Btrfs, down to every byte: layouts, keys, checks and printing. No I/O.
//!
//! Structures that begin with `Raw` are views of unchecked bytes; the same name without `Raw` is checked.
//! Tree blocks become trusted in one place, [`verify_block`], which runs after every read and before every write
//! alike; [`BlockRef`] and [`BlockMut`] then work on them. Each structure is declared once, with its size and
//! offsets asserted beside it at compile time.

mod block;
mod block_mut;
mod check;
mod corrupt;
pub mod dir_item;
pub mod dump;
mod features;
pub mod file_extent;
mod items;
mod key;
mod key_names;
mod leaf_mut;
mod name_bytes;
mod raw;
mod signature;
mod superblock;
mod verify;

pub use block::{
    BlockRef, HEADER_FLAG_RELOC, HEADER_FLAG_WRITTEN, HEADER_LEN, ITEM_LEN, KEY_PTR_LEN, LEVEL_MAX,
    MIXED_BACKREF_REV, RawHeader, RawItem, RawKeyPtr, leaf_data_max, node_ptr_max,
};
pub use block_mut::{BlockMut, NewBlock};
pub use check::{WritingRules, check_item, check_leaf_for_writing};
pub use corrupt::{BlockSite, CorruptKind, Corruption, SumHex};
pub use features::{CompatRo, Incompat, SuperFlags};
pub use items::chunk::{BlockGroupFlags, Chunk, RawBlockGroupItem, RawChunk, RawStripe, STRIPE_LEN};
pub use items::device::{RawDevExtent, RawDevItem, RawDevReplace, RawDevStats};
pub use items::dir::{DirEntries, DirEntryRef, FileType, RawDirItem, RawDirLogItem};
pub use items::extent::{
    ExtentFlags, ExtentItem, ExtentRef, ExtentRefs, RawExtentDataRef, RawExtentItem, RawInlineRef,
    RawSharedDataRef, RawTreeBlockInfo,
};
pub use items::file_extent::{
    Compression, FILE_EXTENT_INLINE, FILE_EXTENT_PREALLOC, FILE_EXTENT_REGULAR, FileExtent, RawFileExtent,
    RawFileExtentHead,
};
pub use items::free_space::{
    FREE_SPACE_BITMAP_SIZE, FREE_SPACE_USING_BITMAPS, RawFreeSpaceHeader, RawFreeSpaceInfo,
};
pub use items::inode::{
    InodeExtref, InodeExtrefs, InodeFlags, InodeRef, InodeRefs, LINK_MAX, NAME_LEN_MAX, RawInodeExtref,
    RawInodeItem, RawInodeRef,
};
pub use items::qgroup::{RawQgroupInfo, RawQgroupLimit, RawQgroupStatus};
pub use items::root::{RawRootItem, RawRootRef, RootFlags, RootRef, uuid_key, uuid_subvolumes};
pub use items::state::{RawBalanceArgs, RawBalanceItem};
pub use items::time::RawTimespec;
pub use items::verity::{
    MerklePlace, MerkleTree, RawVerityDescriptor, RawVerityDescriptorItem, VerityDescriptor,
    verity_descriptor_len,
};
pub use key::{Key, KeyType, RawKey};
pub use leaf_mut::Keep;
pub use name_bytes::position_of_any;
pub use raw::Field;
pub use signature::{SIGNATURES_END, Signature, find_another_signature, find_signature};
pub use superblock::{
    LABEL_LEN_MAX, MAGIC, RawRootBackup, RawSuperblock, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS,
    SYS_CHUNK_ARRAY_SIZE, Superblock, SuperblockError, SysChunks,
};
pub use verify::{CSUM_FIELD, Expected, seal, verify_block, verify_block_but_checksum};
