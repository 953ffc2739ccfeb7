//! FIEMAP: which extents a file has, and where they lie.
//!
//! The answer is what Linux' Btrfs gives to `FS_IOC_FIEMAP` for the same content, entry for entry: in the order of the file, without
//! its holes. What is in the tree goes before what is delayed: of bytes that are overwritten in memory the old extent is told,
//! for it is theirs until they are written back. What is delayed in a hole, or where space is set aside, is an entry of its own,
//! which lies nowhere yet. What is side by side in the file and on the device, with the same flags, is one entry ([`listing`]).
//!
//! ```text
//!   a batch:  range, shared - item -> the layout at one moment  (layout, delayed)
//!             no lock              -> who shares what           (batch)
//!             no lock              -> entries are joined, and handed out (listing)
//! ```
//! # What Linux learnt
//! It held the range while it copied entries to the program, and hung where that memory was a mapping of the file. With the lock
//! gone, data that became complete between two entries was told twice, or never, and a program that copied by the answer lost
//! it. So nothing is handed out, or waited for, with a lock held, and nothing that was looked at under one is looked at again
//! without: a batch is made whole under the locks, and the next one begins where it ended.
//!
//! # One moment
//! A batch is of one moment, and a listing of as many as it has batches. Who shares an extent is asked behind the locks, in the
//! trees of a commit: walking there may wait for a device, and what is queued is in no tree (`creamery_txn`, `backref_walk`). So
//! the first batch of a listing commits what was done before, without writing delayed data back, which is to be told as such.
//! What is made while the listing goes on may count as one file's own.
//!
//! # Invariants
//! - FIEMAP-1: entries come in order, none overlaps another, also where the file changes between two batches.
//! - FIEMAP-2: what is data when a batch is made, in memory, in flight or in the tree, is part of an entry.
//!   Shown by `random_changes_are_listed_as_the_model_has_them`, `who_lists_beside_a_writer_misses_nothing`,
//!   `an_extent_that_is_cut_is_listed_whole`.
//! - FIEMAP-3: no lock is held while a commit is waited for, and while it is found out who shares what; the range is, shared, while
//!   delayed data is written back a second time. Shown by `a_listing_waits_for_no_commit_with_the_file_locked`.
//! - FIEMAP-4: a batch has at most so many entries, and looks at no more than so many items.
//! - FIEMAP-5: the last entry that the file has, and no other, says that it is the last.
//!   Shown by `random_changes_are_listed_as_the_model_has_them`, `a_range_lists_what_touches_it`.
//! - FIEMAP-6: an extent that is gone before it is asked about does not count as shared for what its place is used for later:
//!   that is not handed out again before. Shown by `places_that_are_given_up_meanwhile_are_nobody_elses_yet`.
//!
//! # Locking
//! The range from where the batch begins, shared, so that no write is seen half done; within, the item, so that what is in flight
//! stays there (`Inode::hold_extents`); within, the leaf of a cursor and the short lock of what is delayed.

mod batch;
mod delayed;
mod extent;
mod layout;
mod listing;
#[cfg(test)]
mod tests;

pub use batch::FiemapRequest;
pub use extent::{FiemapExtent, FiemapFlags};
pub use listing::{Fiemap, FiemapBatch};
