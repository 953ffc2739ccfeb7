//! Counts of requests that must not wait.

use serde::{Deserialize, Serialize};

use super::counts::counts;
use crate::counters::NowaitCounters;

counts! {
    /// Direct reads and writes that must not wait: how many there were, and how many were refused, by reason ([`Refusal`](crate::Refusal)).
    ///
    /// ```
    /// assert_eq!(creamery_fs::NowaitStatistics::default().blocked, 0);
    /// ```
    NowaitStatistics of NowaitCounters {
        /// Requests that must not wait.
        attempts,
        /// Requests that began, or ended at once, also with an error. All others were refused.
        begun,
        /// Waits of the threads that made them. Always 0, unless the switch for that is on.
        blocked,
        /// Refused: another operation, or a request, had the file.
        inode_busy,
        /// Refused: the inode's item was being changed.
        item_busy,
        /// Refused: the write needs new space.
        not_in_place,
        /// Refused: the file has checksums.
        checksums,
        /// Refused: the write begins behind the end of the file.
        beyond_size,
        /// Refused: the request does not begin and end with sectors.
        misaligned,
        /// Refused: the file has fs-verity.
        sealed,
        /// Refused: some of its data is in memory only.
        delayed,
        /// Refused: a device is missing or has no room, or nothing was written before.
        device_busy,
        /// Refused: too many bytes are in flight.
        too_much_in_flight,
        /// Refused: another request had some of the range.
        range_busy,
        /// Refused: a block of the file's tree was not in memory, or locked.
        map_cold,
        /// Refused: the data is stored in the tree.
        inline,
        /// Refused: the data is compressed.
        compressed,
        /// Refused: the range of a write is in more than one extent.
        several_extents,
        /// Refused: the range of a write has no space.
        hole,
        /// Refused: the data is that of a file that is not NODATACOW.
        copied,
        /// Refused: a block of the extent tree or the checksum tree was not in memory, or locked.
        owners_cold,
        /// Refused: another file or a snapshot has the extent.
        shared,
        /// Refused: the block group takes no writes.
        group_read_only,
        /// Refused: a snapshot was being taken.
        snapshot,
        /// Refused: there was no room for changing the file's item.
        no_room,
        /// Refused: the checksums of the data were not in memory, or were damaged.
        checksums_cold,
    }
}
