//! Faults that tests plant, under the scheduler and elsewhere. Each is an easy mistake: a harness that finds nothing proves little,
//! so it has to find these. Without the features `shuttle` and `faults` none can be planted, and no code of them is left.

#[cfg(any(feature = "shuttle", feature = "faults"))]
use std::sync::OnceLock;

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(any(feature = "shuttle", feature = "faults")),
    allow(unreachable_pub, reason = "named outside only by those who plant it")
)]
pub enum Fault {
    /// Delayed changes are forgotten after the INODE_ITEM in the tree was written or deleted, not with that.
    DelayedForgottenLate,
    /// A thread that has read an item does not check whether an object with newer facts left memory meanwhile.
    LossUnnoticed,
    /// A lookup of an entry without a type asks the inode while the directory is locked.
    DirectoryKeptLocked,
    /// The end of a file is looked up in one step and written at in another.
    EndLookedUpBefore,
    /// Attributes are reported as the tree has them, without the delayed changes of an object.
    ObjectPassedOver,
    /// Making a file durable leaves its delayed data in memory.
    SyncedWithoutData,
    /// Changes of extents are not noted for the log.
    ChangesUnnoted,
    /// Locking an inode does not wait for requests that carry its lock.
    CarriedNotWaitedFor,
    /// A request that writes in place lets snapshots begin before its device has answered.
    InPlaceGivenBackEarly,
    /// Making a file durable does not wait for direct writes that began before.
    SyncedBesideDirect,
    /// An fsync leaves the times of overwriting writes in memory.
    TimesLeftBehind,
    /// A request does not count as a change of its subvolume.
    ChangeNotCarried,
    /// A submitted direct read locks no byte.
    ReadWithoutRange,
    /// A direct write shares the inode though delayed data makes the file longer.
    SharedBesideGrowth,
    /// A newly opened file skips all errors of writeback so far, also those not reported yet.
    OpenedBehindErrors,
}

/// The fault that was planted, if there is one.
#[derive(Default)]
pub(crate) struct Planted {
    #[cfg(any(feature = "shuttle", feature = "faults"))]
    fault: OnceLock<Fault>,
}

#[cfg(any(feature = "shuttle", feature = "faults"))]
impl Planted {
    /// Plants a fault, once.
    pub(crate) fn plant(&self, fault: Fault) {
        assert!(self.fault.set(fault).is_ok(), "one fault at a time");
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault.get() == Some(&fault)
    }
}

#[cfg(not(any(feature = "shuttle", feature = "faults")))]
impl Planted {
    pub(crate) const fn has(&self, _: Fault) -> bool {
        false
    }
}
