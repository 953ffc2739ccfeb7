//! Scrub: everything that is in use on a device is read and judged, and what is bad is mended from what is good.
//!
//! ```text
//! device extents --group--> one cursor over the extent tree, one over the checksum tree, both forward and read ahead
//!                              |
//!                              +-- batches: what is in use of up to 512 KiB of the device --read, judged--> good
//!                              |                                                             +--> bad: from another copy, or rebuilt
//!                              +-- rows of parity: all data of the row judged, parity computed from it and compared
//! ```
//! Each device is scrubbed by itself, as Linux does, so that each copy is read where it lies. Two batches are in flight for each device. A batch is
//! read by one request, and judged block by block: a tree block by its address, UUID, generation, level and checksum; data by its checksum. Data
//! without checksums is compared between copies.
//!
//! What is bad is read in all other ways that there are ([`creamery_volume::Ways`]). With one that is good, and with a
//! [`Mender`](creamery_volume::Mender), the bad bytes are overwritten where they lie, after a second look. Nothing else is written: no commit.
//!
//! | file | |
//! |---|---|
//! | `device` | one device, group by group |
//! | `group` | what of a group lies on the device, in batches |
//! | `extents`, `sums` | the cursors |
//! | `judge` | what is bad of a batch |
//! | `mend` | making it good |
//! | `parity` | rows of RAID5 and RAID6 |
//! | `superblocks` | their copies |
//! | `counts` | the numbers |
//!
//! # Invariants
//! - I-E1: no lock of a tree is taken, and only durable commits are read. The cursors are those of
//!   [`DurableTrees`](creamery_txn::DurableTrees), which take none (SCRUB-1).
//! - I-E2: with readahead and without it the result is the same. Shown by the sets of every profile (`scrubbed` among the tests of the library).
//! - I-E3: no device has state of readahead. It belongs to the trees.
//! - I-E4: without a [`Mender`](creamery_volume::Mender) nothing is written: nothing else here writes.
//! - I-E6: parity is written only where all data in use of that place is verified, and while no log waits.

mod counts;
mod device;
mod extents;
mod finding;
mod group;
mod judge;
mod mend;
mod parity;
mod sums;
mod superblocks;

pub use counts::Counts;
pub use device::{Ended, Scrub};
pub use finding::{Finding, Outcome, Sink, What};
