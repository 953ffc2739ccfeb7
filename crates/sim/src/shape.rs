//! Operations on the filesystem itself, which change nothing that is in it.

use creamery_base::{DevId, ErrorKind, Result};
use creamery_fs::{Filesystem, NewSize};
use creamery_txn::{Conversion, DeviceReport};

/// Has it tell of its space in another tree; commits, whether or not.
pub(crate) fn convert(fs: &Filesystem, conversion: Conversion) -> Result<()> {
    // Delayed data is not part of it.
    if fs.statistics().writeback.delayed_bytes > 0 {
        fs.sync()?;
    }
    match fs.engine().convert(conversion) {
        Ok(true) => Ok(()),
        Err(error) if error.kind() != ErrorKind::InvalidInput => Err(error),
        _ => fs.sync(),
    }
}

/// Has it take so many bytes more of its device, as far as there are some; commits.
pub(crate) fn grow(fs: &Filesystem, more: u64) -> Result<()> {
    let device = DevId::new(1);
    let of = |devices: Vec<DeviceReport>| devices.first().map_or(0, |device| device.total_bytes);
    let (has, len) =
        (of(fs.engine().devices()), fs.engine().volume().device(device).map_or(0, |on| on.len()));
    match has.saturating_add(more).min(len) {
        to if to > has => fs.resize(device, NewSize::Bytes(to)).map(drop),
        _ => fs.sync(),
    }
}
