//! Kinds of use of an image.

/// What an opener wants to do, and so how it must share.
///
/// ```
/// use creamery_device::Access;
/// assert_ne!(Access::ReadOnly, Access::ReadOnlyForced);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read, beside other readers; refused while somebody may write.
    ReadOnly,
    /// Read and write, alone.
    ReadWrite,
    /// Read whoever else has it. What is read may change meanwhile; only for looking.
    ReadOnlyForced,
}
