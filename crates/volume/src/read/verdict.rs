//! How a sector of data is judged.

/// What is known of a sector that was read.
///
/// ```
/// use creamery_volume::Verdict;
/// assert_eq!(Verdict::of_checksum(1 == 2), Verdict::Bad);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It agrees with its checksum.
    Good,
    /// It does not.
    Bad,
    /// It has no checksum. A device that missed writes is not believed then.
    Unknown,
}

impl Verdict {
    /// That of a sector with a checksum.
    #[must_use]
    pub const fn of_checksum(agrees: bool) -> Self {
        if agrees { Self::Good } else { Self::Bad }
    }
}
