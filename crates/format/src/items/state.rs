//! States that outlive a mount: the running balance.

use zerocopy::little_endian::{U32, U64};

use crate::raw::raw_struct;

raw_struct! {
    /// Filters of a balance for one kind of block group.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawBalanceArgs::LEN, 136);
    /// ```
    pub struct RawBalanceArgs[136] {
        /// Profiles to work on.
        0 => pub profiles: U64,
        /// Percent used, or two 32-bit bounds.
        8 => pub usage: U64,
        /// Only groups on this device.
        16 => pub devid: U64,
        /// Range on the device.
        24 => pub pstart: U64,
        /// Its end.
        32 => pub pend: U64,
        /// Range of logical addresses.
        40 => pub vstart: U64,
        /// Its end.
        48 => pub vend: U64,
        /// Profile to convert to.
        56 => pub target: U64,
        /// Which filters are set.
        64 => pub flags: U64,
        /// Most groups, or two 32-bit bounds.
        72 => pub limit: U64,
        /// Least stripes.
        80 => pub stripes_min: U32,
        /// Most stripes.
        84 => pub stripes_max: U32,
        /// Zero.
        88 => pub unused: [U64; 6],
    }
}

raw_struct! {
    /// A balance that is running or paused.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawBalanceItem::LEN, 448);
    /// ```
    pub struct RawBalanceItem[448] {
        /// Its types of block groups.
        0 => pub flags: U64,
        /// Filters for data.
        8 => pub data: RawBalanceArgs,
        /// Filters for metadata.
        144 => pub meta: RawBalanceArgs,
        /// Filters for system.
        280 => pub sys: RawBalanceArgs,
        /// Zero.
        416 => pub unused: [U64; 4],
    }
}
