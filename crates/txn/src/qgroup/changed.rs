//! Extents whose roots have changed in the running transaction, as far as that has to be walked.

use std::collections::BTreeSet;

use creamery_base::{Generation, Logical, TreeId};

use crate::extent_tree::ExtentKind;

/// The subvolumes that reach an extent.
pub(crate) type Roots = BTreeSet<TreeId>;

/// What is counted for an extent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    /// What the last commit says, and every snapshot that was taken since.
    Commit,
    /// These roots, as they were when so many snapshots had been taken in the transaction.
    Known(Roots, usize),
}

/// An extent that is to be looked at when the transaction closes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Changed {
    pub(crate) kind: ExtentKind,
    /// Bytes.
    pub(crate) len: u64,
    pub(crate) before: Before,
    /// Whether something has changed since that was counted.
    pub(crate) touched: bool,
}

impl Changed {
    /// Whether the last commit has to say what was counted.
    pub(crate) fn needs_commit(&self) -> bool {
        self.before == Before::Commit
    }
}

/// A snapshot that was taken in the running transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotTaken {
    pub(crate) source: TreeId,
    pub(crate) id: TreeId,
    /// Where its name is.
    pub(crate) within: TreeId,
    pub(crate) generation: Generation,
    /// The source's root block.
    pub(crate) root: Logical,
    /// Bytes of that.
    pub(crate) node_size: u64,
}
