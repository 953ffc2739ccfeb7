//! Devices: `DEV_ITEM`, `DEV_EXTENT`, error counters, the state of a replacement.

use creamery_base::{DevId, Uuid};
use zerocopy::little_endian::{U32, U64};

use crate::raw::raw_struct;

raw_struct! {
    /// A device of the filesystem; also part of the superblock.
    ///
    /// ```
    /// use creamery_base::DevId;
    /// use creamery_format::RawDevItem;
    /// assert_eq!(RawDevItem { devid: 1.into(), ..Default::default() }.dev_id(), DevId::new(1));
    /// ```
    pub struct RawDevItem[98] {
        /// Its id within the filesystem.
        0 => pub devid: U64,
        /// Its size.
        8 => pub total_bytes: U64,
        /// Bytes that chunks use.
        16 => pub bytes_used: U64,
        /// Alignment of I/O.
        24 => pub io_align: U32,
        /// Width of I/O.
        28 => pub io_width: U32,
        /// Smallest I/O.
        32 => pub sector_size: U32,
        /// Unused.
        36 => pub kind: U64,
        /// Unused.
        44 => pub generation: U64,
        /// Unused.
        52 => pub start_offset: U64,
        /// Unused.
        60 => pub dev_group: U32,
        /// Unused.
        64 => pub seek_speed: u8,
        /// Unused.
        65 => pub bandwidth: u8,
        /// The device's UUID.
        66 => pub uuid: [u8; 16],
        /// The filesystem's UUID.
        82 => pub fsid: [u8; 16],
    }
}

impl RawDevItem {
    /// The device's id.
    #[must_use]
    pub fn dev_id(&self) -> DevId {
        DevId::new(self.devid.get())
    }

    /// The device's UUID.
    #[must_use]
    pub const fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.uuid)
    }
}

raw_struct! {
    /// A piece of a device that a chunk uses: key is (devid, `DEV_EXTENT`, offset on the device).
    ///
    /// ```
    /// assert_eq!(creamery_format::RawDevExtent::LEN, 48);
    /// ```
    pub struct RawDevExtent[48] {
        /// The chunk tree (3).
        0 => pub chunk_tree: U64,
        /// The chunk's objectid (256).
        8 => pub chunk_objectid: U64,
        /// The chunk's logical address.
        16 => pub chunk_offset: U64,
        /// Length of the piece.
        24 => pub length: U64,
        /// UUID of the chunk tree.
        32 => pub chunk_tree_uuid: [u8; 16],
    }
}

raw_struct! {
    /// Error counters of a device.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawDevStats::LEN, 40);
    /// ```
    pub struct RawDevStats[40] {
        /// Writes that failed.
        0 => pub write_errs: U64,
        /// Reads that failed.
        8 => pub read_errs: U64,
        /// Flushes that failed.
        16 => pub flush_errs: U64,
        /// Blocks with wrong checksums.
        24 => pub corruption_errs: U64,
        /// Blocks that were not the requested ones.
        32 => pub generation: U64,
    }
}

raw_struct! {
    /// State of a device replacement.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawDevReplace::LEN, 72);
    /// ```
    pub struct RawDevReplace[72] {
        /// The device that is replaced.
        0 => pub src_devid: U64,
        /// The start of the last copying step.
        8 => pub cursor_left: U64,
        /// The progress of the copying.
        16 => pub cursor_right: U64,
        /// 0 always, 1 avoid reading from the source.
        24 => pub cont_reading_from_srcdev_mode: U64,
        /// 0 never started, 1 started, 2 finished, 3 cancelled, 4 suspended.
        32 => pub replace_state: U64,
        /// Seconds since 1970.
        40 => pub time_started: U64,
        /// Seconds since 1970.
        48 => pub time_stopped: U64,
        /// Writes that failed.
        56 => pub num_write_errors: U64,
        /// Reads that no copy could repair.
        64 => pub num_uncorrectable_read_errors: U64,
    }
}
