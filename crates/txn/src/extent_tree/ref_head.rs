//! The queued changes of the references of one extent.

use creamery_base::{Error, ErrorKind, Logical, Result, TreeId, memory};
use smallvec::SmallVec;

use super::backref::{Backref, ExtentKind};

/// The queued changes of one extent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RefHead {
    pub(crate) kind: ExtentKind,
    pub(crate) len: u64,
    /// The extent was allocated in this transaction: its item does not exist yet.
    pub(crate) must_insert: bool,
    /// Whether to set FULL_BACKREF.
    pub(crate) full_backref: bool,
    /// The tree that made it, where that is known and needed.
    pub(crate) owner: Option<TreeId>,
    /// Whether changes were queued that cancelled out, and quotas need to know: the extent's owners may have changed
    /// all the same. A copy of a shared block adds a reference to each child, which gives the child to its tree, and takes it back with the pointer.
    pub(crate) cancelled: bool,
    pub(crate) changes: SmallVec<[(Backref, i64); 2]>,
}

impl RefHead {
    /// Creates a head without changes, for an existing extent.
    pub(crate) fn new(kind: ExtentKind, len: u64) -> Self {
        let (must_insert, full_backref, owner, cancelled) = Default::default();
        Self { kind, len, must_insert, full_backref, owner, cancelled, changes: SmallVec::new() }
    }

    /// Creates a head with the first reference of an extent that was just allocated.
    pub(crate) fn first(kind: ExtentKind, len: u64, backref: Backref) -> Self {
        let changes = SmallVec::from_slice(&[(backref, 1)]);
        let owner = match backref {
            Backref::TreeBlock { root } | Backref::ExtentData { root, .. } => Some(root),
            Backref::SharedBlock { .. } | Backref::SharedData { .. } => None,
        };
        Self { must_insert: true, owner, changes, ..Self::new(kind, len) }
    }

    /// Memory of its changes on the heap, bytes.
    pub(crate) fn memory(&self) -> u64 {
        if self.changes.spilled() { memory::vec::<(Backref, i64)>(self.changes.capacity()) } else { 0 }
    }

    /// The change of the reference count.
    pub(crate) fn sum(&self) -> i64 {
        self.changes.iter().map(|(_, change)| change).sum()
    }

    /// Whether the extent tree stays as it is.
    pub(super) fn changes_nothing(&self) -> bool {
        !self.must_insert && !self.full_backref && self.changes.is_empty()
    }

    /// Whether there is nothing to run, and nothing to report.
    pub(crate) fn is_void(&self) -> bool {
        !self.cancelled && self.changes_nothing()
    }

    /// Whether the only change is `backref`, of an extent that is not in the tree yet.
    pub(crate) fn is_sole(&self, backref: Backref) -> bool {
        self.must_insert && self.changes.as_slice() == [(backref, 1)].as_slice()
    }

    /// By how much the bytes in data extents change when the head runs, if an older extent has no other
    /// user.
    pub(crate) fn data_bytes(&self) -> i64 {
        if self.kind != ExtentKind::Data {
            return 0;
        }
        let len = i64::try_from(self.len).unwrap_or(i64::MAX);
        match (self.must_insert, self.sum().signum()) {
            (true, 1) => len,
            (false, -1) => -len,
            _ => 0,
        }
    }

    /// Queues one change of one reference of the extent at `at`.
    pub(crate) fn change(&mut self, at: Logical, backref: Backref, by: i64) -> Result<()> {
        match self.changes.iter().position(|(known, _)| *known == backref) {
            Some(at) => {
                self.changes[at].1 += by;
                if self.changes[at].1 == 0 {
                    self.changes.swap_remove(at);
                }
            }
            None => self.changes.push((backref, by)),
        }
        // REF-1. Only an older pointer to space that was free can break it.
        if self.must_insert && self.sum() < 0 {
            return Err(was_free(at, "lost more references than it had"));
        }
        Ok(())
    }
}

/// Damage: an extent that was handed out as free was not.
pub(crate) fn was_free(at: Logical, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("extent {at}, which was free, {what}"))
}
