//! A set of devices as one logical space.
//!
//! The trees above speak of logical addresses. This room knows where those lie: which chunk covers an address,
//! which devices hold its copies, how a block is read when one of the copies is bad, and in what order writes
//! have to reach the platter. It reads no tree: the mappings are pushed into it ([`Volume::push_chunk`]), first
//! from the array in the superblock, which [`Volume::open`] does, then by whoever walks the chunk tree.
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
//! written before what it points to is durable, and nothing that demands a [`Committed`] (reusing freed space,
//! answering an fsync) can run before the superblock is. The tokens are bound to their volume.
//!
//! Superblock copies: [`Volume::publish`] writes the first copy, [`Volume::finish`] flushes and then writes the
//! others. `docs/internals/media-assumptions.md` walks through the crashes and says why in this order.
//!
//! # Batches
//! A write is a batch of ranges with what they are to hold ([`WriteBatch`]), tree blocks or data. It is mapped to all copies,
//! what follows one another on a device becomes one request, all requests are submitted, and one completion tells what became
//! of each copy of each range ([`WriteReport`]). The blocking calls are submit and wait. A read of data in stripes
//! is begun on all devices before one is waited for; a batch of reads ([`ReadBatch`]) has such a report, too ([`ReadReport`]).
//!
//! # Members, ways, and repair
//! A volume has members, each in a state (`members`): one that missed writes or that is missing changes the order in which copies are asked. A read
//! names what makes a copy good: a tree block is judged by [`creamery_format::verify_block`], data by the caller's closure, sector by sector. The
//! ways to come by it are tried in order until one is good ([`Ways`]): copy after copy, and of RAID5 and RAID6 what is rebuilt from the rest of its
//! row. In a volume opened for writing bad copies are then rewritten from a good one, each after a second look at it, under one lock. When no
//! way is good the error lists what each of them had. A write goes to all copies and fails only if a block has reached none. The report says which
//! copies missed it, and the token has them, too; such a copy is found by the next read, since checksum or generation will not fit.
//!
//! # Invariants
//! - VOL-1: the first superblock copy is written only when everything it points to is durable.
//! - VOL-2: no other superblock copy is ever newer than the first one on the platter.
//! - VOL-3: while the first superblock copy is being written, the others hold the last commit durably.
//! - VOL-4: no two chunks of the map overlap, and every stripe lies inside its device, or, where a device is cut short
//!   and only read, inside what its superblock counts.
//! - VOL-5: repair writes only over bytes that were just seen to be bad, and only bytes that were verified. The
//!   caller of a read guarantees that the range is not freed and written anew meanwhile.
//! - VOL-6: every tree block passes the same check before it is written as after it is read.
//! - VOL-7: in a volume opened for writing no leaf is read or written that Linux does not take ([`creamery_format::check_leaf_for_writing`]).
//!   Shown by `leaves_that_linux_does_not_take_are_neither_read_for_writing_nor_written`.
//! - MEMBER-1 to MEMBER-3 (`members`), PARITY-1 to PARITY-3 (`read/attempt`).
//! - BATCH-1 and BATCH-2 (the requests of a batch: `plan`), BATCH-3 and BATCH-4 (its completion: `batch`).
//!
//! # Locking
//! The chunk map is an immutable table behind an atomic pointer: looking an address up takes no lock. Changing the
//! map and the superblock's copy in memory take leaf locks. Repair has a mutex of its own, held across its I/O and
//! above nothing.

mod ask;
mod batch;
mod begin_writing;
mod chunk;
mod chunk_map;
mod copies;
mod counters;
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
mod piece;
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
pub use durable::{Committed, CopyFailure, Durable, Logged, Published, Written};
pub use fsid_change::FsidChange;
pub use mapping::{Mirror, MirrorSet};
pub use members::MemberState;
pub use mend::Mender;
pub use named_set::{NamedSet, superblocks_of_host};
pub use open::Mode;
pub use piece::Piece;
pub use read::{FullStripes, ReadBatch, ReadDone, ReadReport, SharedVerifier, Verdict, Way, Ways};
pub use report::WriteReport;
pub use rescue::Rescue;
pub use set::DeviceSet;
pub use spans::{Holds, StripeSpan};
pub use super_copies::{SuperCopies, zero_log};
pub use superblock_change::SuperblockChange;
pub use untouched::HoldWrites;
pub use volume::{EarlierRoot, Volume};
