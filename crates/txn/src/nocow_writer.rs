//! The right to write data in place, into an existing extent.
//!
//! An operation that must see no change in a block group, like a scrub or a balance, makes it read-only first and waits until no thread has this right
//! there: space allocated in the group counts as handed out or is in the extent tree, but an overwritten extent looks
//! the same before and after.
//!
//! # Invariants
//! - NOCOW-4: while a block group is read-only no write in place begins there.
//!   Shown by `who_writes_in_place_is_counted_and_a_read_only_group_takes_nobody`.

use std::sync::Arc;

use crate::space_info::BlockGroup;

/// A write in place in a block group, counted until this is dropped.
///
/// ```no_run
/// # fn overwrite(engine: &creamery_txn::Engine, at: creamery_base::Logical) {
/// if let Some(writer) = engine.data().nocow_writer(at, 4096) {
///     // The sector may be written now.
///     drop(writer);
/// }
/// # }
/// ```
#[must_use]
pub struct NocowWriter {
    group: Arc<BlockGroup>,
}

impl NocowWriter {
    /// Begins a write in place. `None` when the group is read-only, or gone.
    pub(crate) fn new(group: Arc<BlockGroup>) -> Option<Self> {
        if group.begin_nocow() { Some(Self { group }) } else { None }
    }
}

impl Drop for NocowWriter {
    fn drop(&mut self) {
        self.group.end_nocow();
    }
}
