//! The right to write data in place, into an extent that is there already.
//!
//! Who wants nothing to change in a block group - a scrub, a balance - has it read-only first and waits until nobody has this right
//! there: what is allocated in the group is in somebody's hands or in the extent tree, but an extent that is overwritten looks
//! the same before and after.
//!
//! # Invariants
//! - NOCOW-4: while a block group is read-only nobody begins to write in place there.
//!   Shown by `who_writes_in_place_is_counted_and_a_read_only_group_takes_nobody`.

use std::sync::Arc;

use crate::space_info::BlockGroup;

/// Somebody writes in place in a block group; counted until this is dropped.
///
/// ```no_run
/// # fn overwrite(engine: &creamery_txn::Engine, at: creamery_base::Logical) {
/// if let Some(writer) = engine.nocow_writer(at, 4096) {
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
    /// None when the group is read-only, or gone.
    pub(crate) fn new(group: Arc<BlockGroup>) -> Option<Self> {
        if group.begin_nocow() { Some(Self { group }) } else { None }
    }
}

impl Drop for NocowWriter {
    fn drop(&mut self) {
        self.group.end_nocow();
    }
}
