//! The options that all files of a filesystem share. They stay as they were at the open.

use crate::options::FsOptions;

/// The options that do not change after the open.
pub(crate) struct Policy {
    /// A requested or due commit first writes the delayed data from before it.
    pub(crate) flush_on_commit: bool,
    /// Files are overwritten in place from the beginning on.
    pub(crate) nodatacow: bool,
    /// The largest file that is kept in the tree, bytes; a leaf and a sector may set a lower limit.
    pub(crate) max_inline: u64,
    /// A search for references to an extent in other trees keeps the file's leaf locked.
    pub(crate) nocow_keeps_leaf: bool,
    /// A request that must not wait may still wait for reads of trees.
    pub(crate) direct_waits: bool,
    /// A device completes a submitted request by itself if that needs no wait.
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
