//! Compression of data: algorithms and their levels, for a filesystem or for a file.

pub use creamery_codec::{CompressionMethod, CompressionType, ParseCompressionMethodError};
pub use creamery_fs::Compress;
