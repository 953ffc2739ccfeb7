//! Packed data.

use creamery_format::Compression;

/// Data that was packed: in whole sectors for an extent, or as long as it is for an inline one.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    pub(super) compression: Compression,
}
