//! Whether the host's page cache is between a device and its requests, and how many went which way.

use std::ops::Add;

/// How a file or block device of the host is read and written.
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
    /// Past the page cache, by O_DIRECT, as far as requests are aligned. What a program keeps in memory anyway is not kept a second time.
    Direct,
}

/// How many reads and writes of devices that are opened with [`DeviceIo::Direct`] went which way.
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
    /// Those of which something went through the page cache: their range is not aligned, or the file refused it.
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
