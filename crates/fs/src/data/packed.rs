//! Packed data, and what says that there is such.

use creamery_format::{Compression, Incompat};

/// Data that was packed: in whole sectors for an extent, or as long as it is for an inline one.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    pub(super) compression: Compression,
}

/// What has to be able to read a filesystem with data that is packed so.
pub(crate) const fn incompat(compression: Compression) -> Incompat {
    match compression {
        Compression::Lzo => Incompat::COMPRESS_LZO,
        Compression::Zstd => Incompat::COMPRESS_ZSTD,
        Compression::None | Compression::Zlib => Incompat::empty(),
    }
}
