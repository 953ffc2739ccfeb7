//! Quotas: `QGROUP_STATUS`, `QGROUP_INFO`, `QGROUP_LIMIT`. `QGROUP_RELATION` has no data.

use zerocopy::little_endian::U64;

use crate::raw::raw_struct;

raw_struct! {
    /// State of the quotas, in the form that every version writes; simple quotas append an eight-byte generation.
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
        /// The progress of a rescan.
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
        /// Bytes referenced.
        8 => pub referenced: U64,
        /// Bytes referenced, compressed.
        16 => pub referenced_compressed: U64,
        /// Bytes that only this group references.
        24 => pub exclusive: U64,
        /// Bytes that only this group references, compressed.
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
        /// Limit of referenced bytes.
        8 => pub max_referenced: U64,
        /// Limit of bytes that only this group references.
        16 => pub max_exclusive: U64,
        /// Reserved referenced bytes.
        24 => pub rsv_referenced: U64,
        /// Reserved bytes that only this group references.
        32 => pub rsv_exclusive: U64,
    }
}
