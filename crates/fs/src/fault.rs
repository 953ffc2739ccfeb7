//! Faults that tests plant, under the scheduler and elsewhere, each the way something is easily done wrong: a harness that finds
//! nothing proves little, so it has to find these. Without the features `shuttle` and `faults` none can be planted, and nothing
//! is left of them.

#[cfg(any(feature = "shuttle", feature = "faults"))]
use std::sync::OnceLock;

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(any(feature = "shuttle", feature = "faults")),
    allow(unreachable_pub, reason = "named outside only by those who plant it")
)]
pub enum Fault {
    /// What was put off is forgotten after the INODE_ITEM in the tree was written or deleted, not with that.
    DelayedForgottenLate,
    /// Who has read an item does not look whether an object left meanwhile that would have told more.
    LossUnnoticed,
    /// Who looks up an entry without a type asks the inode while the directory is locked.
    DirectoryKeptLocked,
    /// The end of a file is looked up in one step and written at in another.
    EndLookedUpBefore,
    /// Attributes are told as the tree has them, whatever an object has put off.
    ObjectPassedOver,
    /// Who makes a file durable leaves what is delayed where it is.
    SyncedWithoutData,
    /// It is not noted where extents change, for the log.
    ChangesUnnoted,
    /// Who locks an inode does not wait for requests that carry its lock.
    CarriedNotWaitedFor,
    /// A request that writes in place lets snapshots begin before its device has answered.
    InPlaceGivenBackEarly,
    /// Who makes something durable does not wait for direct writes that began before.
    SyncedBesideDirect,
    /// An fsync leaves the times of writes over what the file has where they are.
    TimesLeftBehind,
    /// A request does not count as a change of its subvolume.
    ChangeNotCarried,
    /// A direct read that nobody waits for locks no byte.
    ReadWithoutRange,
    /// A direct write shares the inode though delayed data makes the file longer.
    SharedBesideGrowth,
    /// An opener starts behind all errors of writing back, those too that nobody has seen.
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
