//! Delayed allocation: a write ends in memory, and its data gets a place on a device at writeback.
//!
//! ```text
//!   write -----> dirty pages -----> run in flight -----> items in the tree
//!           room is kept     space is       completion: extents, checksums,
//!           for it           allocated      the size, in one handle
//! ```
//! A file with delayed data has three layers, and a read looks at them in this order: the dirty pages ([`pages`]); the run in
//! flight, which is on its way to a device and not yet in the tree; the tree. Data is never between two of them: a run leaves the
//! first layer in the moment in which it gets into the second, and leaves the second only when the third has it. Data that is
//! rewritten while it is in flight becomes dirty again, in front of the run in flight.
//!
//! Writeback takes the first run of adjacent dirty pages, up to 128 MiB, and makes extents of it as `data` does: the longer a
//! file is left alone, the longer its extents. It happens when a file has been dirty for some time, when all files together have
//! too much ([`writeback`]), when room is needed, and for fsync and sync. A file that is deleted before that never reaches a
//! device. One run of a file is in flight at a time. Runs of several files are in flight side by side.
//!
//! A file with delayed data keeps its size apart from the size in the tree. So it does with its times and its allocated bytes ([`DelayedData`]).
//! [`Inode::item`](crate::Inode::item) shows the current values, and the item in the tree follows when runs are complete. Operations
//! that change extents themselves (truncate, fallocate) lock the inode exclusively and first have everything written back
//! ([`FileInode::settle`](crate::inode::FileInode::settle)), for no thread makes anything dirty meanwhile.
//!
//! # Invariants
//! - DELALLOC-2: dirty data has room reserved, of data and metadata. A run in flight has it until its extents have space.
//! - DELALLOC-3: one run of a file is in flight at a time, and nothing else changes the extents of its range meanwhile; nor any of the
//!   file's while it grows the file. Direct writes (`direct`) change others.
//!   Shown by `a_file_grows_beside_direct_writes_of_its_front`.
//! - DELALLOC-4: the size in the tree grows with the data that is complete, never beyond it.
//!   Shown by `what_was_committed_survives_every_power_cut`.
//! - DELALLOC-5: an inode with delayed data stays in memory as long as it has a name or a user (TABLE-1).
//!   Shown by `files_with_delayed_data_stay_in_memory`.
//! - DELALLOC-6: a file has no delayed data after it was settled; the inode's lock keeps writes away.
//!   Shown by `random_changes_in_memory_read_back_as_a_vector_of_bytes`.
//! - DELALLOC-8: a run whose room was reserved finds space, of data and of metadata: `writeback.no_space` of the statistics stays 0.
//!   Each run of the simulator and each unmount of a conformance test checks it. Shown by
//!   `whatever_a_full_filesystem_accepted_is_there`.
//! - SHRINK-1: a cut that fails for lack of room leaves the data that it did not cut, delayed data, too.
//!   The room is looked at before the cut, so other threads that take all of the spare room in between can still break this.
//!   Shown by `a_cut_that_may_fail_writes_delayed_data_back`.
//! - DIRTY-1, DIRTY-2: pages do not overlap; they change only while they have no other user.
//!
//! # Locking
//! [`Delalloc::state`] is held briefly: threads copy memory under it and never wait. It comes after the inode's item. A write
//! reserves room before it locks anything, because the reservation may take steps of writeback. Such a step takes no lock of
//! operations and no range, because a thread that waits for the step may hold them.

mod pages;
mod state;
mod write_errors;
pub(crate) mod writeback;

use creamery_base::{InodeId, Result};
use creamery_txn::DelallocReservation;

pub(crate) use pages::{PageRanges, Pages};
pub(crate) use state::{Delalloc, DelallocRange, DelayedData, without};
pub(crate) use write_errors::{ErrSeq, WriteErrors};
pub(crate) use writeback::{Writeback, WritebackCounters};

/// A file that may have delayed data, as writeback sees it.
pub(crate) trait Delayed: Send + Sync {
    /// Which file it is.
    fn id(&self) -> InodeId;

    /// Its delayed data.
    fn delalloc(&self) -> &Delalloc;

    /// Writes a run in flight to its space and the tree, out of `room`, and reports the complete part.
    /// Errors: no space; device errors; damage; aborted.
    fn write_back(&self, run: &DelallocRange, room: &mut DelallocReservation) -> Result<()>;

    /// The errors of its runs.
    fn write_errors(&self) -> &WriteErrors;
}
