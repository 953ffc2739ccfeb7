//! Makes new filesystems, empty or filled from a directory or another [`Source`].
//!
//! [`make_filesystem`] writes an empty one: it plans the first chunks, builds the few blocks of every tree directly, and writes the
//! superblocks last. [`make_image`] does the whole job on a path: it creates the image file, fills the filesystem through the operations
//! and transactions that a mount uses too, and after a failure leaves nothing that looks whole.
//!
//! Everything is deterministic: equal options, UUID, environment and source tree give equal bytes.

mod bulk;
mod compat;
mod features;
mod held;
mod image;
mod layout;
mod make;
mod options;
mod rootdir;
mod shrink;
mod signature;
mod source;
mod superblock;
mod trees;

pub use compat::LinuxVersion;
pub use features::{Features, KnownFeature};
pub use image::{make_image, make_on};
pub use make::{Made, make_filesystem};
pub use options::{MkfsOptions, Profile};
pub use rootdir::{
    CopyIn, Lost, NoProgress, OnError, Progress, RootdirOptions, RootdirPart, RootdirSubvolume, Skipped,
    SubvolumeKind, copy_in,
};
pub use signature::find_signature;
pub use source::{Content, Measure, Source};
