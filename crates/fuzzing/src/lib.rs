//! The bodies of the fuzz targets: the work on the bytes that a fuzzer makes.
//!
//! libFuzzer calls them through the thin programs in `fuzz/`. `tests/it/replay.rs` calls them with every file of the corpora and every past
//! crasher, in a plain build. `docs/internals/fuzzing.md` describes how to run both.
//!
//! | target | takes | holds |
//! |---|---|---|
//! | [`image_bytes`] | bytes written over an image | readers never panic, and change nothing |
//! | [`image_fields`] | fields of tree blocks and superblocks, sealed again | like `image_bytes`, behind the checksums; and writers never
//! panic |
//! | [`member_sets`] | superblocks, chunks and device items of members of a set, sealed, and rot; one missing | like `image_bytes` |
//! | [`tree_log`] | fields of a log, sealed again | it is refused or replayed, without a panic |
//! | [`quota_tree`] | items of a quota tree, sealed | it is refused or used, rescans end, and the filesystem without quotas is whole |
//! | [`operations`] | calls of the library | the model in memory agrees, and `check` finds nothing |
//! | [`codec`] | compressed data | decompression ends within its bounds; compressed and decompressed data is unchanged |
//! | [`tree_block`] | one block, or one superblock | a block that passed its check can be read, all can be printed |
//! | [`verity`] | a descriptor of fs-verity | its tree has one root, at the place it gives |
//! | [`partition_table`] | sectors of an MBR, of a chain of logical partitions, and of a GPT, sealed or not | reading ends, and partitions are valid |
//! | [`archive`] | an archive, or its members | it is listed and unpacked, as a layer, too, and nothing outside of its directory changes |
//! | [`fuse_request`] | requests of `/dev/fuse` | every request gets its answer, and `check` finds nothing |
//!
//! # Invariants
//! - FUZZ-1: a target is a function of its bytes: clock and randomness stand still, and only constant state is kept from one call to the
//!   next.
//! - FUZZ-2: a target never returns an error. An error of the engine about damage is a valid answer; a wrong answer, and damage that the
//!   engine itself made, are panics. Held by `Target`, which returns nothing.

mod archive;
mod base;
mod codec;
#[cfg(test)]
mod edges;
mod fuse_request;
mod image_bytes;
mod image_fields;
mod input;
mod member_sets;
mod operations;
mod partition_table;
mod quota_tree;
mod readers;
mod set_base;
mod tree_block;
mod tree_log;
mod verity;

pub use archive::archive;
pub use codec::codec;
pub use fuse_request::fuse_request;
pub use image_bytes::image_bytes;
pub use image_fields::image_fields;
pub use member_sets::member_sets;
pub use operations::operations;
pub use partition_table::partition_table;
pub use quota_tree::quota_tree;
pub use tree_block::{believing, tree_block, use_block};
pub use tree_log::tree_log;
pub use verity::verity;

/// A target: its name, which is that of the program in `fuzz/`, and its body.
///
/// ```
/// let (name, body): creamery_fuzzing::Target = creamery_fuzzing::TARGETS[0];
/// body(b"anything");
/// # assert!(!name.is_empty());
/// ```
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 12] = [
    ("image_bytes", image_bytes),
    ("image_fields", image_fields),
    ("member_sets", member_sets),
    ("operations", operations),
    ("codec", codec),
    ("tree_block", tree_block),
    ("fuse_request", fuse_request),
    ("tree_log", tree_log),
    ("verity", verity),
    ("partition_table", partition_table),
    ("quota_tree", quota_tree),
    ("archive", archive),
];
