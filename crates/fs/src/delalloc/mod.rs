//! Delayed allocation: a write ends in memory, and gets its place on a device when it is written back.
//!
//! ```text
//!   write -----> dirty pages -----> run in flight -----> items in the tree
//!           room is kept     space is       completion: extents, checksums,
//!           for it           allocated      the size, in one handle
//! ```
//! A file with delayed data has three layers, and who reads looks at them in this order: its dirty pages ([`pages`]); the run
//! that is in flight, which is on its way to a device and not yet in the tree; the tree. So data is never between two of them:
//! a run leaves the first layer in the moment in which it gets into the second, and the second only when the third has it.
//! What is written again while it is in flight becomes dirty anew, in front of what is written back.
//!
//! Writing back takes the first run of dirty pages side by side, up to 128 MiB, and makes extents of it as `data` does: the
//! longer a file is left alone, the longer its extents. It happens when a file has been dirty for some time, when all files
//! together have too much ([`writeback`]), when room is needed, and for fsync and sync. A file that is gone before that
//! never reaches a device. One run of a file is in flight at a time, runs of several files side by side.
//!
//! The size of a file with delayed data is apart from that in the tree, and so are its times and the space that it will have
//! ([`State`]): [`Inode::item`](crate::Inode::item) tells what the file is, and the item in the tree follows when runs are complete. Operations that
//! change extents themselves - cutting, fallocate - have the inode alone and first have everything written back
//! ([`FileInode::settle`](crate::inode::FileInode::settle)), for nobody makes anything dirty meanwhile.
//!
//! # Invariants
//! - DELALLOC-2: what is dirty has room kept for it, of data and metadata; so has a run in flight until its extents have space.
//! - DELALLOC-3: one run of a file is in flight at a time, and nothing else changes the extents of its range meanwhile; nor any of the
//!   file's while it grows the file. Direct writes (`direct`) change others.
//!   Shown by `a_file_grows_beside_direct_writes_of_its_front`.
//! - DELALLOC-4: the size in the tree grows with the data that is complete, never beyond it.
//!   Shown by `what_was_committed_survives_every_power_cut`.
//! - DELALLOC-5: an inode with delayed data stays in memory as long as it has a name or a user (TABLE-1).
//!   Shown by `files_with_delayed_data_stay_in_memory`.
//! - DELALLOC-6: nothing of a file is delayed when it was settled; the inode's lock keeps writes away.
//!   Shown by `random_changes_in_memory_read_back_as_a_vector_of_bytes`.
//! - DELALLOC-8: a run whose room was kept finds space, of data and of metadata: `writeback.no_space` of the statistics stays 0. Each run of the
//!   simulator and each unmount of a conformance test looks at it. Shown by `whatever_a_full_filesystem_accepted_is_there`.
//! - DIRTY-1, DIRTY-2: pages do not overlap; they change only while nobody else has them.
//!
//! # Locking
//! [`Delalloc::state`] is short: memory is copied under it, nothing waited for. It comes after the inode's item. A write keeps
//! room before it locks anything, because keeping room may take steps of writing back. Such a step takes no operations and no
//! ranges: whoever waits for one may have these.

mod pages;
mod state;
mod write_errors;
pub(crate) mod writeback;

use creamery_base::{InodeId, Result};
use creamery_txn::DelallocReservation;

pub(crate) use pages::{Pages, Ranges};
pub(crate) use state::{Delalloc, Run, State, without};
pub(crate) use write_errors::{ErrSeq, WriteErrors};
pub(crate) use writeback::{Writeback, WritebackCounters};

/// A file that may have delayed data, as those know it who write that back.
pub(crate) trait Delayed: Send + Sync {
    /// Which file it is.
    fn id(&self) -> InodeId;

    /// Its delayed data.
    fn delalloc(&self) -> &Delalloc;

    /// Writes a run that is in flight into space and the tree, out of `room`, and tells what is complete.
    /// Errors: no space; device errors; damage; aborted.
    fn write_back(&self, run: &Run, room: &mut DelallocReservation) -> Result<()>;

    /// The errors that its runs met.
    fn write_errors(&self) -> &WriteErrors;
}
