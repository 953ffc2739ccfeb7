//! Extents whose roots changed in the running transaction and need a walk.

use std::collections::BTreeSet;

use creamery_base::{Generation, Logical, TreeId};

use crate::extent_tree::ExtentKind;

/// The subvolumes that reach an extent.
pub(crate) type Roots = BTreeSet<TreeId>;

/// The roots that are counted for an extent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    /// The roots in the last commit, and every snapshot taken since.
    Commit,
    /// These roots, at the time when the transaction had taken so many snapshots.
    Known(Roots, usize),
}

/// An extent to walk when the transaction closes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Changed {
    pub(crate) kind: ExtentKind,
    /// Bytes.
    pub(crate) len: u64,
    pub(crate) before: Before,
    /// Whether it has changed since it was counted.
    pub(crate) touched: bool,
}

impl Changed {
    /// Whether the counted roots are those of the last commit.
    pub(crate) fn needs_commit(&self) -> bool {
        self.before == Before::Commit
    }
}

/// A snapshot that was taken in the running transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotTaken {
    pub(crate) source: TreeId,
    pub(crate) id: TreeId,
    /// The subvolume that contains it.
    pub(crate) within: TreeId,
    pub(crate) generation: Generation,
    /// The source's root block.
    pub(crate) root: Logical,
    /// Size of that block, bytes.
    pub(crate) node_size: u64,
}
