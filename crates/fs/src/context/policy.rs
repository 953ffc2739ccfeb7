//! The options that all files of a filesystem share and nothing changes after the open.

use crate::options::FsOptions;

/// Options that stay as they were at the open.
pub(crate) struct Policy {
    /// What becomes durable has its data with it.
    pub(crate) flush_on_commit: bool,
    /// Files are overwritten in place from the beginning on.
    pub(crate) nodatacow: bool,
    /// The largest file that is kept in the tree, bytes, if a leaf and a sector let it be.
    pub(crate) max_inline: u64,
    /// A look for owners of an extent in other trees keeps the file's leaf locked.
    pub(crate) nocow_keeps_leaf: bool,
    /// A request that must not wait may wait for its looks into trees.
    pub(crate) direct_waits: bool,
    /// A device ends a submitted request by itself, where that waits for nothing.
    pub(crate) direct_ends_at_once: bool,
    /// Open files remember where the last search for data or a hole ended.
    pub(crate) seek_cursors: bool,
}

impl Policy {
    /// The part of `options` that is policy.
    pub(super) const fn of(options: &FsOptions) -> Self {
        Self {
            flush_on_commit: options.flush_on_commit,
            nodatacow: options.nodatacow,
            max_inline: options.max_inline,
            nocow_keeps_leaf: options.nocow_keeps_leaf,
            direct_waits: options.direct_waits,
            direct_ends_at_once: options.direct_ends_at_once,
            seek_cursors: options.seek_cursors,
        }
    }
}
