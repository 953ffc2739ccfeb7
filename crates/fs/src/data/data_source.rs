//! Data to write, and its destination: a row of sectors, and space that takes them.

use creamery_base::Result;
use creamery_device::Parts;

/// Whole sectors that are to be written.
pub(crate) trait DataSource: Sync {
    /// The range of the sectors in the file.
    fn range(&self) -> (u64, u64);

    /// The end of the data in them; zeros follow.
    fn data_end(&self) -> u64;

    /// Gives the sectors of a part of the range to `space`, one after another.
    fn write(&self, part: (u64, u64), space: &mut dyn DataSink) -> Result<()>;
}

/// Space on a device that takes data from the front on.
pub(crate) trait DataSink {
    /// Writes the next sectors.
    fn write(&mut self, data: &[u8]) -> Result<()>;

    /// Writes the next sectors from shared buffers.
    fn write_parts(&mut self, data: Parts) -> Result<()>;
}
