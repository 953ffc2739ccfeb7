//! What direct requests came to.

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
        /// Bytes that they returned, whichever way.
        read_bytes,
        /// Writes to files.
        writes,
        /// Bytes that went from the caller's buffer to a device. What went through memory is not among them.
        write_bytes,
        /// Those of them that were written over what was there.
        in_place_bytes,
        /// Those of them that were written to new space.
        to_new_space_bytes,
        /// Writes that asked for space on their way, because there was too little to keep some before.
        at_once,
        /// Writes in place that changed no tree when they ended: the times of their files followed later.
        times_later,
        /// Submitted requests that ended where their device answered, without the way to another thread.
        ended_at_once,
        /// Writes that were answered when they were durable, as those were asked to be.
        durable,
        /// Reads and writes whose callers did not wait for them.
        submitted,
        /// Writes that came to nothing, or to a part, when they were on their way: a device failed, or completing them.
        failed,
        /// Reads and writes that went through memory because they did not begin and end with sectors.
        buffered_misaligned,
        /// Writes that did because what they were to go over is stored in the tree itself. Reads of that are counted nowhere.
        buffered_inline,
        /// Writes that did because what they were to go over is compressed. Reads of that are counted nowhere.
        buffered_compressed,
        /// Reads of files with fs-verity.
        buffered_verity,
    }
}
