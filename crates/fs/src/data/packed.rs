//! Packed data.

use creamery_format::Compression;

/// Packed data: in whole sectors for an extent, or with its own length for an inline one.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    pub(super) compression: Compression,
}
