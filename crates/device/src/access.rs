//! Kinds of use of an image.

/// The intended use by an opener, and so the way it shares the image.
///
/// ```
/// use creamery_device::Access;
/// assert_ne!(Access::ReadOnly, Access::ReadOnlyForced);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read, beside other readers; refused while a writer has it.
    ReadOnly,
    /// Read and write, alone.
    ReadWrite,
    /// Read, even while other users have it. Data may change during a read; only for inspection.
    ReadOnlyForced,
}
