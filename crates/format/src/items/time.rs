//! Points in time.

use creamery_base::Timespec;
use zerocopy::little_endian::{I64, U32};

use crate::raw::raw_struct;

raw_struct! {
    /// A point in time: seconds since 1970, negative before, and nanoseconds on top.
    ///
    /// ```
    /// use creamery_base::Timespec;
    /// use creamery_format::RawTimespec;
    /// let before_1970 = Timespec { sec: -1, nsec: 5 };
    /// assert_eq!(Timespec::from(RawTimespec::from(before_1970)), before_1970);
    /// ```
    pub struct RawTimespec[12] {
        /// Whole seconds.
        0 => pub sec: I64,
        /// Nanoseconds on top.
        8 => pub nsec: U32,
    }
}

impl From<Timespec> for RawTimespec {
    fn from(time: Timespec) -> Self {
        Self { sec: I64::new(time.sec), nsec: U32::new(time.nsec) }
    }
}

impl From<RawTimespec> for Timespec {
    fn from(raw: RawTimespec) -> Self {
        Self { sec: raw.sec.get(), nsec: raw.nsec.get() }
    }
}
