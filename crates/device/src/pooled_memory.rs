//! The right to a piece of memory, as a value: even the allocator makes no second one without an explicit call.

use std::ptr::NonNull;

/// A piece of memory of a size that its pool knows. The owner of this value alone has the memory, with any content.
#[must_use = "a piece that is not given back is lost"]
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct PooledMemory {
    start: NonNull<u8>,
}

impl PooledMemory {
    /// Creates the piece that begins at `start`.
    ///
    /// # Safety
    /// From now on the memory is used only through this piece: there is no other piece for it, or [`PooledMemory::into_start`] was called on
    /// that other piece.
    pub(crate) const unsafe fn from_start(start: NonNull<u8>) -> Self {
        Self { start }
    }

    /// Returns the start of the memory and passes the right to it on.
    pub(crate) const fn into_start(self) -> NonNull<u8> {
        self.start
    }

    /// Returns the start of the memory; the pointer alone gives no right to use it.
    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }
}
