//! Points in time as Btrfs stores them.

use serde::{Deserialize, Serialize};

/// Seconds since 1970 (negative before) and nanoseconds within the second.
///
/// ```
/// use creamery_base::Timespec;
/// let before_1970 = Timespec { sec: -1, nsec: 500_000_000 };
/// assert!(before_1970 < Timespec::default());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Timespec {
    /// Whole seconds, rounded down.
    pub sec: i64,
    /// Nanoseconds on top, below 1,000,000,000.
    pub nsec: u32,
}
