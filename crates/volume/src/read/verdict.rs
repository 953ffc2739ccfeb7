//! The verdict on a sector of data.

/// The result of checking a sector that was read.
///
/// ```
/// use creamery_volume::Verdict;
/// assert_eq!(Verdict::of_checksum(1 == 2), Verdict::Bad);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It agrees with its checksum.
    Good,
    /// It does not agree with its checksum.
    Bad,
    /// It has no checksum. A device that missed writes is not trusted then.
    Unknown,
}

impl Verdict {
    /// Returns the verdict on a sector with a checksum.
    #[must_use]
    pub const fn of_checksum(agrees: bool) -> Self {
        if agrees { Self::Good } else { Self::Bad }
    }
}
