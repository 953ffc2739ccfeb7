//! How far a thread goes for room that is not there.
//!
//! | policy | used by | the reserve | stands in line | runs reclaimers | commits |
//! |---|---|---|---|---|---|
//! | `NoFlush` | changes that can be left out: access times, delayed data | no | no | no | no |
//! | `FlushLimit` | reclaimers, writing data back | yes | no | no | yes |
//! | `FlushAll` | operations | no | yes | yes | yes |
//! | `FlushData` | operations, for space of data before their handle | no | - | yes | yes |
//! | `FlushEvict` | operations that free space | but for a part | yes | yes | yes |
//! | `FlushAllSteal` | deletion of a subvolume | yes | yes | yes | yes |
//!
//! The reserve is room for [`FlushEvict`](FlushPolicy::FlushEvict) when all else is full, so that a full filesystem can be emptied. Where a
//! snapshot shares the leaves, removing a file takes space instead, because it copies them. So a part of the reserve is for
//! deleting subvolumes alone, which does free space then. The line is that of
//! [`Reservations`](crate::space_info::Reservations). Every policy allocates a chunk where one has room. The names
//! are those of Linux (`btrfs_reserve_flush_enum`).

/// How far a thread goes for room that is not there.
///
/// ```
/// use creamery_txn::FlushPolicy;
/// assert!(FlushPolicy::FlushAll.reclaims() && !FlushPolicy::NoFlush.commits());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushPolicy {
    /// Takes available room only.
    NoFlush,
    /// Commits, but runs no reclaimer, which may have to wait for the caller.
    FlushLimit,
    /// Reclaims and commits.
    FlushAll,
    /// Reclaims and commits, for space of data.
    FlushData,
    /// Reclaims and commits, and takes the reserve except the part for deleting subvolumes.
    FlushEvict,
    /// Reclaims and commits, and takes all of the reserve.
    FlushAllSteal,
}

impl FlushPolicy {
    /// Whether it runs the reclaimers, which write data back and free space that was put off.
    #[must_use]
    pub const fn reclaims(self) -> bool {
        matches!(self, Self::FlushAll | Self::FlushData | Self::FlushEvict | Self::FlushAllSteal)
    }

    /// Whether it commits, so that freed space becomes available.
    #[must_use]
    pub const fn commits(self) -> bool {
        !matches!(self, Self::NoFlush)
    }

    /// Whether it waits for other reservations to end.
    pub(crate) const fn stands_in_line(self) -> bool {
        matches!(self, Self::FlushAll | Self::FlushEvict | Self::FlushAllSteal)
    }

    /// Whether it may take the reserve, which is room for freeing space.
    pub(crate) const fn takes_reserve(self) -> bool {
        matches!(self, Self::FlushLimit | Self::FlushEvict | Self::FlushAllSteal)
    }

    /// Whether an operation asks that frees space.
    pub(crate) const fn frees(self) -> bool {
        matches!(self, Self::FlushEvict | Self::FlushAllSteal)
    }

    /// Whether it may take all of the reserve.
    pub(crate) const fn takes_all_of_the_reserve(self) -> bool {
        matches!(self, Self::FlushLimit | Self::FlushAllSteal)
    }
}
