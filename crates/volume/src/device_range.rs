//! A piece of a device.

use creamery_base::Physical;

/// Consecutive bytes on one device.
///
/// ```
/// use creamery_base::{DevId, Physical};
/// use creamery_volume::DeviceRange;
/// let piece = DeviceRange { at: Physical { dev: DevId::new(1), offset: 4096 }, len: 4096 };
/// assert_eq!(piece.at.offset + piece.len, 8192);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceRange {
    /// Where it begins.
    pub at: Physical,
    /// Its length in bytes.
    pub len: u64,
}
