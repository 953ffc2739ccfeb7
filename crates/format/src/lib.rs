//! Every byte of Btrfs on disk: layouts, keys, checks and printing. No input or output.
//!
//! Structures that begin with `Raw` are views of bytes that prove nothing; the same name without `Raw` is checked.
//! Tree blocks become trusted in one place, [`verify_block`], which runs after every read and before every write
//! alike; [`BlockRef`] and [`BlockMut`] then work on them. Each structure is declared once, with its size and
//! offsets asserted beside it at compile time.

mod block;
mod block_mut;
mod corrupt;
mod key;
mod key_names;
mod verify;

pub use block::{
    BlockRef, HEADER_FLAG_RELOC, HEADER_FLAG_WRITTEN, HEADER_LEN, ITEM_LEN, KEY_PTR_LEN, LEVEL_MAX,
    MIXED_BACKREF_REV, RawHeader, RawItem, RawKeyPtr, leaf_data_max, node_ptr_max,
};
pub use block_mut::{BlockMut, Keep, NewBlock};
pub use corrupt::{BlockSite, CorruptKind, Corruption, SumHex};
pub use key::{Key, KeyType, RawKey};
pub use verify::{Expected, seal, verify_block};
