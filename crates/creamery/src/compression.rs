//! How data is compressed: algorithms, their levels, and what a filesystem or a file is told of them.

pub use creamery_codec::{CompressionMethod, CompressionType, ParseCompressionMethodError};
pub use creamery_fs::Compress;
