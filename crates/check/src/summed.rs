//! The data that a file extent's checksums cover.

use creamery_format::{Compression, RawFileExtent};

/// Whether an extent is compressed.
pub(crate) fn is_compressed(extent: &RawFileExtent) -> bool {
    Compression::from_disk(extent.compression) != Some(Compression::None)
}

/// The data whose checksums reading an extent needs; for a compressed extent all of it.
pub(crate) fn summed_range(extent: &RawFileExtent) -> Option<(u64, u64)> {
    let disk = extent.disk_bytenr.get();
    let (start, len) = match is_compressed(extent) {
        false => (disk.checked_add(extent.offset.get())?, extent.num_bytes.get()),
        true => (disk, extent.disk_num_bytes.get()),
    };
    Some((start, start.checked_add(len)?))
}
