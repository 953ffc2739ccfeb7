//! Counts of direct requests.

use serde::{Deserialize, Serialize};

use super::counts::counts;
use crate::counters::DirectCounters;

counts! {
    /// Direct reads and writes: between a device and the caller's own buffer.
    ///
    /// ```
    /// assert_eq!(creamery_fs::DirectStatistics::default().writes, 0);
    /// ```
    DirectStatistics of DirectCounters {
        /// Reads of files.
        reads,
        /// Bytes that reads returned, whichever way.
        read_bytes,
        /// Writes to files.
        writes,
        /// Bytes that went from the caller's buffer to a device. Bytes that went through memory are not among them.
        write_bytes,
        /// Bytes of direct writes over existing extents.
        in_place_bytes,
        /// Bytes of direct writes to new space.
        to_new_space_bytes,
        /// Writes that asked for space on their way, because there was too little to keep some before.
        at_once,
        /// Writes in place that changed no tree when they ended: the times of their files followed later.
        times_later,
        /// Submitted requests that ended where their device answered, without the way to another thread.
        ended_at_once,
        /// Writes that were answered when they were durable, as their callers asked.
        durable,
        /// Reads and writes whose callers did not wait for them.
        submitted,
        /// Writes that failed in whole or in part on their way: a device failed, or completing them.
        failed,
        /// Reads and writes that went through memory because they did not begin and end with sectors.
        buffered_misaligned,
        /// Writes that went through memory because they were to go over inline data. Reads of inline data are counted nowhere.
        buffered_inline,
        /// Writes that went through memory because they were to go over compressed data. Reads of such data are counted nowhere.
        buffered_compressed,
        /// Reads that went through memory because the file has fs-verity.
        buffered_verity,
    }
}
