//! Lengths in memory.

/// A length in memory. Those that get here were bounded before, by node size or by a slice.
pub(crate) fn index(len: impl Into<u64>) -> usize {
    usize::try_from(len.into()).expect("a length in memory fits")
}
