//! Printing.
pub(crate) mod flags;
