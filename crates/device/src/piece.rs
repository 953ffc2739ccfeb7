//! The right to a piece of memory, apart from those who hand pieces out: even they make no second one without saying so.

use std::ptr::NonNull;

/// A piece of memory of a size that its pool knows. Whoever has this has the memory, with any content, and nobody else does.
#[must_use = "a piece that is not given back is lost"]
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    start: NonNull<u8>,
}

impl Piece {
    /// The piece that begins at `start`.
    ///
    /// # Safety
    /// Nobody uses the memory from now on but by this piece: no other one was made for it, or [`Piece::into_start`] was called of
    /// that one.
    pub(crate) const unsafe fn from_start(start: NonNull<u8>) -> Self {
        Self { start }
    }

    /// Where the memory begins, for whoever takes over.
    pub(crate) const fn into_start(self) -> NonNull<u8> {
        self.start
    }

    /// Where it begins; nothing may be done there with this alone.
    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }
}
