//! The request of a handle.

use creamery_base::TreeId;

use crate::flush_policy::FlushPolicy;

/// Blocks reserved per changed leaf: a path of four levels copied, and each split once.
pub(crate) const BLOCKS_PER_ITEM: u64 = 8;

/// How many leaves a handle may change at most, for which subvolume, and how far it goes for their room.
///
/// ```
/// use creamery_base::TreeId;
/// use creamery_txn::{FlushPolicy, ReserveItems};
///
/// assert_ne!(ReserveItems::items(3), ReserveItems::freeing(3));
/// let units = ReserveItems::items(3).of(TreeId::FS);
/// assert_eq!((units.policy(), units.subvolume()), (FlushPolicy::FlushAll, Some(TreeId::FS)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReserveItems {
    pub(crate) items: u32,
    /// References of extents that it queues besides one for each item.
    pub(crate) references: u32,
    pub(crate) policy: FlushPolicy,
    pub(crate) subvolume: Option<TreeId>,
    /// Whether the subvolume may have more afterwards.
    pub(crate) grows: bool,
}

impl ReserveItems {
    const fn with(items: u32, policy: FlushPolicy) -> Self {
        Self { items, references: 0, policy, subvolume: None, grows: true }
    }

    /// Units for an operation that changes up to `items` items in different leaves.
    #[must_use]
    pub const fn items(items: u32) -> Self {
        Self::with(items, FlushPolicy::FlushAll)
    }

    /// Units for an operation that frees space and changes up to `items` items: it may use the reserve, so that removing files
    /// works on a full filesystem.
    #[must_use]
    pub const fn freeing(items: u32) -> Self {
        Self::with(items, FlushPolicy::FlushEvict)
    }

    /// Units for deleting a subvolume, which frees space even where snapshots share all of it: it may use all of the reserve.
    #[must_use]
    pub const fn dropping(items: u32) -> Self {
        Self::with(items, FlushPolicy::FlushAllSteal)
    }

    /// Units for a step of a [`Reclaimer`](crate::Reclaimer): without room it commits, but runs no reclaimer.
    #[must_use]
    pub const fn reclaiming(items: u32) -> Self {
        Self::with(items, FlushPolicy::FlushLimit)
    }

    /// Units for a change that can be left out: it takes available room only, and neither reclaims nor commits.
    #[must_use]
    pub const fn spare(items: u32) -> Self {
        Self::with(items, FlushPolicy::NoFlush)
    }

    /// Adds up to `references` references of extents that the handle queues besides one for each item. Each makes the commit change leaves of
    /// other trees.
    #[must_use]
    pub const fn referring(self, references: u32) -> Self {
        Self { references, ..self }
    }

    /// References that the items or children of one tree block of `node_size` bytes make at most.
    #[must_use]
    pub const fn references_of_a_block(node_size: u32) -> u32 {
        node_size / creamery_format::KEY_PTR_LEN as u32
    }

    /// Bytes that changing an item may take, with tree blocks of `node_size` bytes.
    pub(crate) const fn bytes_of_an_item(node_size: u32) -> u64 {
        BLOCKS_PER_ITEM * node_size as u64
    }

    /// Names the subvolume that the handle changes.
    #[must_use]
    pub const fn of(self, subvolume: TreeId) -> Self {
        Self { subvolume: Some(subvolume), ..self }
    }

    /// Marks changes of existing items only: limits of quota groups do not apply.
    #[must_use]
    pub const fn growing_nothing(self) -> Self {
        Self { grows: false, ..self }
    }

    /// How far it goes for room.
    #[must_use]
    pub const fn policy(self) -> FlushPolicy {
        self.policy
    }

    /// The subvolume that the handle changes, if it changes one.
    #[must_use]
    pub const fn subvolume(self) -> Option<TreeId> {
        self.subvolume
    }
}
