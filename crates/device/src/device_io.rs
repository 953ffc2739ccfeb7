//! Buffered or direct I/O of a device, and counts of the requests of each kind.

use std::ops::Add;

/// The way to read and write a file or block device of the host.
///
/// ```
/// use creamery_device::{Access, DeviceIo, FileDevice};
/// # fn example() -> creamery_base::Result<()> {
/// let device = FileDevice::open_with("/dev/sdb", Access::ReadWrite, DeviceIo::Direct)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DeviceIo {
    /// Through the page cache of the host.
    #[default]
    Buffered,
    /// Past the page cache, by O_DIRECT, as far as requests are aligned. Data that the program caches itself is then not cached twice.
    Direct,
}

/// How many reads and writes of devices that are opened with [`DeviceIo::Direct`] went each way.
///
/// ```
/// let none = creamery_device::DirectRequests::default();
/// assert_eq!((none + none).straight, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DirectRequests {
    /// Between the caller's memory and the storage.
    pub straight: u64,
    /// By way of an aligned buffer, past the page cache.
    pub bounced: u64,
    /// Partly or wholly through the page cache: the range is not aligned, or the file refused it.
    pub cached: u64,
}

impl Add for DirectRequests {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            straight: self.straight + other.straight,
            bounced: self.bounced + other.bounced,
            cached: self.cached + other.cached,
        }
    }
}
