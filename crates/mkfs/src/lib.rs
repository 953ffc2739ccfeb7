//! New filesystems.
//!
//! [`make_filesystem`] writes an empty one: it computes the place of the first chunks, builds the few blocks of
//! every tree by hand, and writes the superblocks last.

mod bulk;
mod features;
mod held;
mod layout;
mod make;
mod options;
mod rootdir;
mod signature;
mod superblock;
mod trees;

pub use features::{Features, KnownFeature};
pub use make::{Made, make_filesystem};
pub use options::{MkfsOptions, Profile};
pub use rootdir::{NoProgress, Progress, RootdirSubvolume, SubvolumeKind};
pub use signature::find_signature;
