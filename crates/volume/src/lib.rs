//! A set of devices as one logical space.
//!
//! The trees above use logical addresses. This room knows their places: which chunk covers an address,
//! which devices hold its copies, how a block is read if one of the copies is bad, and in what order writes
//! have to reach the platter. It reads no tree: callers push the mappings into it ([`Volume::push_chunk`]). [`Volume::open`]
//! pushes those of the array in the superblock, and the reader of the chunk tree pushes the others.
//!
//! # Durability order as types
//! "First A is on the platter, then B may be written" is an argument of every commit, and a signature here:
//!
//! ```text
//! a write -> Written --flush--> Durable --publish--> Published --finish--> Committed
//!            (somewhere)        (on the platter)      (superblock sent)    (superblock on the platter)
//! ```
//!
//! Each step consumes the token of the one before, and no token can be made otherwise. So a superblock cannot be
//! written before the blocks that it points to are durable, and no step that needs a [`Committed`] (reusing freed space,
//! answering an fsync) can run before the superblock is. The tokens are bound to their volume.
//!
//! Superblock copies: [`Volume::publish`] writes the first copy, [`Volume::finish`] flushes and then writes the
//! others. `docs/internals/media-assumptions.md` walks through the crashes and explains this order.
//!
//! # Batches
//! A write is a batch of ranges with their new content ([`WriteBatch`]), tree blocks or data. It is mapped to all copies,
//! adjacent pieces on a device become one request, all requests are submitted, and one completion gets the outcome
//! of each copy of each range ([`WriteReport`]). The blocking calls submit and wait. A read of data in stripes
//! starts on all devices before it waits for one; a batch of reads ([`ReadBatch`]) has such a report, too ([`ReadReport`]).
//!
//! # Members, ways, and repair
//! A volume has members, each in a state (`members`): a member that missed writes or that is missing changes the order in which copies are
//! read. A read names the check of a good copy: [`creamery_format::verify_block`] checks a tree block, the caller's closure checks data,
//! sector by sector. The ways to read it are tried in order until one is good ([`Ways`]): copy after copy, and for RAID5 and RAID6 the data
//! rebuilt from the rest of its row. In a volume opened for writing bad copies are then rewritten from a good one, each after a second look
//! at it, under one lock. If no way is good, the error lists the result of each of them. A write goes to all copies and fails only if a
//! block has reached none. The report says which copies missed it, and the token has them, too; the next read finds such a copy, because
//! checksum or generation will not fit.
//!
//! # Invariants
//! - VOL-1: the first superblock copy is written only when everything it points to is durable.
//!   Shown by `the_first_superblock_stands_between_two_flushes_and_the_other_after_them`,
//!   `a_failed_step_stops_the_commit_before_the_next_one`.
//! - VOL-2: no other superblock copy is ever newer than the first one on the platter.
//!   Shown by `a_failed_step_stops_the_commit_before_the_next_one`.
//! - VOL-3: while the first superblock copy is being written, the others hold the last commit durably.
//!   Shown by `the_first_superblock_stands_between_two_flushes_and_the_other_after_them`.
//! - VOL-4: no two chunks of the map overlap, and every stripe lies inside its device. A device that is cut short can only be read;
//!   for it, the size in its superblock counts.
//!   Shown by `chunks_are_added_found_and_taken_out`, `a_truncated_image_is_read_with_a_note_and_refuses_writing_with_both_sizes`.
//! - VOL-5: repair writes only over bytes that were just found bad, and only bytes that were verified. The
//!   caller of a read guarantees that the range is not freed and written anew meanwhile.
//!   Shown by `an_unreadable_sector_costs_only_itself_and_is_rewritten`, `a_lost_write_is_repaired_but_a_newer_block_is_not_undone`.
//! - VOL-6: every tree block passes the same check before it is written as after it is read.
//!   Shown by `a_block_that_no_reader_would_accept_stops_the_whole_batch`.
//! - VOL-7: in a volume opened for writing no leaf is read or written that Linux does not accept
//!   ([`creamery_format::check_leaf_for_writing`]). Shown by `leaves_that_linux_does_not_take_are_neither_read_for_writing_nor_written`.
//! - In other files: MEMBER-1 to MEMBER-3 (`members`), PARITY-1 to PARITY-3 (`read/attempt`), BATCH-1 and BATCH-2 (the requests of a batch:
//!   `plan`), BATCH-3 and BATCH-4 (its completion: `batch`).
//!
//! # Locking
//! The chunk map is an immutable table behind an atomic pointer: looking an address up takes no lock. Changing the
//! map and the superblock's copy in memory take leaf locks. Repair has a mutex of its own, held across its I/O, so above the locks of
//! devices.

mod ask;
mod batch;
mod begin_writing;
mod chunk;
mod chunk_map;
mod copies;
mod counters;
mod device_range;
mod durable;
mod elsewhere;
mod fsid_change;
mod index;
mod layout;
mod mapping;
mod members;
mod mend;
mod named_set;
mod open;
mod plan;
mod read;
mod repair;
mod report;
mod rescue;
mod rows;
mod set;
mod spans;
mod super_copies;
mod superblock_change;
mod untouched;
mod verify;
mod volume;
mod write;

pub use batch::{WriteBatch, WriteDone};
pub use chunk::{Chunk, Stripe};
pub use counters::Counters;
pub use device_range::DeviceRange;
pub use durable::{Committed, CopyFailure, Durable, Logged, Published, Written};
pub use fsid_change::FsidChange;
pub use mapping::{Mirror, MirrorSet};
pub use members::MemberState;
pub use mend::Mender;
pub use named_set::{NamedSet, superblocks_of_host};
pub use open::Mode;
pub use read::{FullStripes, ReadBatch, ReadDone, ReadReport, ReadWay, SharedVerifier, Verdict, Ways};
pub use report::WriteReport;
pub use rescue::Rescue;
pub use set::DeviceSet;
pub use spans::{SpanContent, StripeSpan};
pub use super_copies::{SuperCopies, zero_log};
pub use superblock_change::SuperblockChange;
pub use untouched::HoldWrites;
pub use volume::{EarlierRoot, Volume};
