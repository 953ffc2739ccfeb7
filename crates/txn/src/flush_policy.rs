//! How far somebody goes for room that is not there.
//!
//! | policy | who asks | the reserve | stands in line | has others reclaim | commits |
//! |---|---|---|---|---|---|
//! | `NoFlush` | who can do without: access times, delayed data | no | no | no | no |
//! | `FlushLimit` | reclaimers, writing data back | yes | no | no | yes |
//! | `FlushAll` | operations | no | yes | yes | yes |
//! | `FlushData` | operations, for space of data before their handle | no | - | yes | yes |
//! | `FlushEvict` | operations that free space | but for a part | yes | yes | yes |
//! | `FlushAllSteal` | who deletes a subvolume | yes | yes | yes | yes |
//!
//! The reserve is room for [`FlushEvict`](FlushPolicy::FlushEvict) when all else is full, so that a full filesystem can be emptied. Where a
//! snapshot shares the leaves, removing a file takes space instead: what it changes is copied. So a part of the reserve is for
//! deleting subvolumes alone, which frees some then. The line is that of [`Reservations`](crate::space_info::Reservations). All of them allocate a chunk where one has room. The names are
//! those of Linux (`btrfs_reserve_flush_enum`).

/// How far somebody goes for room that is not there.
///
/// ```
/// use creamery_txn::FlushPolicy;
/// assert!(FlushPolicy::FlushAll.reclaims() && !FlushPolicy::NoFlush.commits());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushPolicy {
    /// Takes what there is.
    NoFlush,
    /// Commits, but asks nobody who may be waiting for it.
    FlushLimit,
    /// Does all there is.
    FlushAll,
    /// The same for space of data.
    FlushData,
    /// The same, and takes from the reserve, but for what is there for deleting subvolumes.
    FlushEvict,
    /// The same, and takes that, too.
    FlushAllSteal,
}

impl FlushPolicy {
    /// Whether others are to write data back and to free what they put off.
    #[must_use]
    pub const fn reclaims(self) -> bool {
        matches!(self, Self::FlushAll | Self::FlushData | Self::FlushEvict | Self::FlushAllSteal)
    }

    /// Whether a commit is made, so that what it frees can be handed out.
    #[must_use]
    pub const fn commits(self) -> bool {
        !matches!(self, Self::NoFlush)
    }

    /// Whether others who hold a promise are waited for.
    pub(crate) const fn stands_in_line(self) -> bool {
        matches!(self, Self::FlushAll | Self::FlushEvict | Self::FlushAllSteal)
    }

    /// Whether the room may be taken that is left for those who free space.
    pub(crate) const fn takes_reserve(self) -> bool {
        matches!(self, Self::FlushLimit | Self::FlushEvict | Self::FlushAllSteal)
    }

    /// Whether an operation asks that frees space.
    pub(crate) const fn frees(self) -> bool {
        matches!(self, Self::FlushEvict | Self::FlushAllSteal)
    }

    /// Whether that is all of it.
    pub(crate) const fn takes_all_of_the_reserve(self) -> bool {
        matches!(self, Self::FlushLimit | Self::FlushAllSteal)
    }
}
