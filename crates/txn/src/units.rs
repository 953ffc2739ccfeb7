//! What a handle asks for.

use creamery_base::TreeId;

use crate::flush_policy::FlushPolicy;

/// How many leaves a handle may change at most, for which subvolume, and how far it goes for their room.
///
/// ```
/// use creamery_base::TreeId;
/// use creamery_txn::{FlushPolicy, Units};
///
/// assert_ne!(Units::items(3), Units::freeing(3));
/// let units = Units::items(3).of(TreeId::FS);
/// assert_eq!((units.policy(), units.subvolume()), (FlushPolicy::FlushAll, Some(TreeId::FS)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Units {
    pub(crate) items: u32,
    /// References of extents that it queues besides one for each item.
    pub(crate) references: u32,
    pub(crate) policy: FlushPolicy,
    pub(crate) subvolume: Option<TreeId>,
    /// Whether the subvolume may have more afterwards.
    pub(crate) grows: bool,
}

impl Units {
    const fn with(items: u32, policy: FlushPolicy) -> Self {
        Self { items, references: 0, policy, subvolume: None, grows: true }
    }

    /// For an operation that changes up to `items` items in different leaves.
    #[must_use]
    pub const fn items(items: u32) -> Self {
        Self::with(items, FlushPolicy::FlushAll)
    }

    /// The same for an operation whose point is to free space: it may use the reserve, so that removing files
    /// works on a full filesystem.
    #[must_use]
    pub const fn freeing(items: u32) -> Self {
        Self::with(items, FlushPolicy::FlushEvict)
    }

    /// The same for deleting a subvolume, which is what frees space where snapshots share all of it.
    #[must_use]
    pub const fn dropping(items: u32) -> Self {
        Self::with(items, FlushPolicy::FlushAllSteal)
    }

    /// The same for a step of a [`Reclaimer`](crate::Reclaimer): no room does not make it ask for reclaiming.
    #[must_use]
    pub const fn reclaiming(items: u32) -> Self {
        Self::with(items, FlushPolicy::FlushLimit)
    }

    /// The same for what can be left undone: nobody is asked to make room for it.
    #[must_use]
    pub const fn spare(items: u32) -> Self {
        Self::with(items, FlushPolicy::NoFlush)
    }

    /// For queueing up to `references` references of extents besides one for each item: each makes the commit change leaves of
    /// other trees.
    #[must_use]
    pub const fn referring(self, references: u32) -> Self {
        Self { references, ..self }
    }

    /// Names the subvolume that is changed.
    #[must_use]
    pub const fn of(self, subvolume: TreeId) -> Self {
        Self { subvolume: Some(subvolume), ..self }
    }

    /// For changing items that are there: limits of quota groups are not in the way.
    #[must_use]
    pub const fn growing_nothing(self) -> Self {
        Self { grows: false, ..self }
    }

    /// How far it goes for room.
    #[must_use]
    pub const fn policy(self) -> FlushPolicy {
        self.policy
    }

    /// The subvolume that is changed, where it is one.
    #[must_use]
    pub const fn subvolume(self) -> Option<TreeId> {
        self.subvolume
    }
}
