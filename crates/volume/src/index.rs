//! Lengths in memory.

/// Converts a length in memory to an index. The length must be bounded already, by node size or by a slice.
pub(crate) fn index(len: impl Into<u64>) -> usize {
    usize::try_from(len.into()).expect("a length in memory fits")
}
