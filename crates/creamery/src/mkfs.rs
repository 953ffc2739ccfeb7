//! Options of a new filesystem, for [`Image::make`](crate::Image::make).

pub use creamery_codec::ChecksumType;
pub use creamery_mkfs::{
    Features, KnownFeature, LinuxVersion, Made, MkfsOptions, Profile, RootdirOptions, RootdirPart,
    RootdirSubvolume, Source, SubvolumeKind, make_image,
};
