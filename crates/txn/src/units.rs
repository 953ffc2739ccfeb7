//! What a handle asks for.

/// How many leaves a handle may change at most.
///
/// ```
/// use creamery_txn::Units;
/// assert_ne!(Units::items(3), Units::freeing(3));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Units {
    pub(crate) items: u32,
    pub(crate) point: Point,
}

/// What an operation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Point {
    Change,
    /// Removing things: may use the reserve.
    Free,
    /// Doing what frees space for somebody who may be waiting for it.
    Reclaim,
}

impl Units {
    /// For an operation that changes up to `items` items in different leaves.
    #[must_use]
    pub const fn items(items: u32) -> Self {
        Self { items, point: Point::Change }
    }

    /// The same for an operation whose point is to free space: it may use the reserve, so that removing files
    /// works on a full filesystem.
    #[must_use]
    pub const fn freeing(items: u32) -> Self {
        Self { items, point: Point::Free }
    }

    /// The same for a step of a [`Reclaimer`](crate::Reclaimer): no room does not make it ask for reclaiming.
    #[must_use]
    pub const fn reclaiming(items: u32) -> Self {
        Self { items, point: Point::Reclaim }
    }
}
