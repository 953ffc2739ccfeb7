//! Quotas: `QGROUP_STATUS`, `QGROUP_INFO`, `QGROUP_LIMIT`. `QGROUP_RELATION` has no data.

use zerocopy::little_endian::U64;

use crate::raw::raw_struct;

raw_struct! {
    /// State of the quotas, as every version writes it; simple quotas append an eight-byte generation.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawQgroupStatus::LEN, 32);
    /// ```
    pub struct RawQgroupStatus[32] {
        /// 1.
        0 => pub version: U64,
        /// Transaction of the last update.
        8 => pub generation: U64,
        /// 1 on, 2 rescan, 4 inconsistent, 8 simple.
        16 => pub flags: U64,
        /// Where a rescan is.
        24 => pub rescan: U64,
    }
}

raw_struct! {
    /// Numbers of a quota group.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawQgroupInfo::LEN, 40);
    /// ```
    pub struct RawQgroupInfo[40] {
        /// Transaction of the last update.
        0 => pub generation: U64,
        /// Bytes referred to.
        8 => pub referenced: U64,
        /// The same, compressed.
        16 => pub referenced_compressed: U64,
        /// Bytes of nobody else.
        24 => pub exclusive: U64,
        /// The same, compressed.
        32 => pub exclusive_compressed: U64,
    }
}

raw_struct! {
    /// Limits of a quota group.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawQgroupLimit::LEN, 40);
    /// ```
    pub struct RawQgroupLimit[40] {
        /// Which limits are set.
        0 => pub flags: U64,
        /// Most bytes referred to.
        8 => pub max_referenced: U64,
        /// Most bytes of nobody else.
        16 => pub max_exclusive: U64,
        /// Reserved bytes referred to.
        24 => pub rsv_referenced: U64,
        /// Reserved bytes of nobody else.
        32 => pub rsv_exclusive: U64,
    }
}
