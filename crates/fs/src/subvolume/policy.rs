//! What was chosen for all files when the filesystem was opened, and stays so.

use crate::options::FsOptions;

/// Choices that nobody changes.
pub(crate) struct Policy {
    /// What becomes durable has its data with it.
    pub(crate) flush_on_commit: bool,
    /// Files are overwritten in place from the beginning on.
    pub(crate) nodatacow: bool,
    /// The largest file that is kept in the tree, bytes, if a leaf and a sector let it be.
    pub(crate) max_inline: u64,
    /// A file's leaf is kept while other trees are searched for who shares an extent.
    pub(crate) nocow_keeps_leaf: bool,
    /// Open files remember where the last search for data or a hole ended.
    pub(crate) seek_cursors: bool,
}

impl Policy {
    /// What `options` choose.
    pub(super) const fn of(options: &FsOptions) -> Self {
        let &FsOptions { flush_on_commit, nodatacow, max_inline, nocow_keeps_leaf, seek_cursors, .. } =
            options;
        Self { flush_on_commit, nodatacow, max_inline, nocow_keeps_leaf, seek_cursors }
    }
}
