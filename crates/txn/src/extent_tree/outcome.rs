//! What became of an extent.

/// What running one head did to its extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The extent is new.
    Inserted,
    /// Only its references changed.
    Changed,
    /// The last reference went.
    Freed,
    /// It was new and lost its references before anything was recorded.
    NeverThere,
}
