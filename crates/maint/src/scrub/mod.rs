//! Scrub: reads and judges everything in use on a device, and repairs bad blocks from good copies.
//!
//! ```text
//! device extents --chunk--> one cursor over the extent tree, one over the checksum tree, both forward and read ahead
//!                              |
//!                              +-- batches: the used parts of up to 512 KiB of the device --read, judged--> good
//!                              |                                                             +--> bad: from another copy, or rebuilt
//!                              +-- rows of a chunk with parity: data judged, parity computed from it and compared
//! ```
//! Each device is scrubbed by itself, as in Linux, so each copy is read where it lies. A chunk with parity is scrubbed once for all of its
//! devices, row by row, and counted for each (`together`). Each device has four batches in flight. One request reads a batch, and the batch
//! is judged block by block: a tree block by its address, UUID, generation, level and checksum; data by its checksum. Data without
//! checksums is compared between copies. The scrub of a device advances in steps ([`Scrub::step`]), each under a guard of its own; between
//! two steps it holds nothing.
//!
//! A bad block is read from all other copies, and rebuilt where parity allows ([`creamery_volume::Ways`]). If one is good, a
//! [`Mender`](creamery_volume::Mender) overwrites the bad bytes in place, after a second read. The scrub writes nothing else: no commit.
//!
//! | file | |
//! |---|---|
//! | `device` | one device, step by step |
//! | `workers` | threads that read and judge |
//! | `together` | chunks with parity, once for all devices |
//! | `group`, `rows` | the next reads: batches of one device, or rows |
//! | `used`, `extents`, `sums` | ranges in use, and their checksums |
//! | `searches` | the trees with that information, and the number of searches in them |
//! | `batch`, `parity` | reads and judges batches and parity |
//! | `judge`, `mend` | bad blocks, and their repair |
//! | `superblocks` | their copies |
//! | `counts`, `finding`, `findings` | the report of a scrub |
//! | `status`, `status_file`, `recorder` | the stored status, its file, and updates while the scrub runs |
//! | `pace` | the read rate of a device |
//!
//! # Invariants
//! - I-E1: a scrub takes no lock of a tree and reads only durable commits. Held by [`DurableTree`](creamery_txn::DurableTree), the only
//!   tree that a scrub has, and by the cursors over it, which lock nothing; an assert holds each tree against its guard (SCRUB-1).
//! - I-E2: with readahead and without it the result is the same. Shown by `leaves_of_both_trees_are_read_ahead_and_come_to` and by the sets
//!   of every profile (`scrubbed` among the tests of the library).
//! - I-E3: no device has state of readahead. Held by the store of a filesystem's tree blocks, which owns the queue: a device does not know
//!   about it. Shown by `a_filesystem_closes_while_leaves_are_queued`.
//! - I-E4: without a [`Mender`](creamery_volume::Mender) nothing is written. Held by that type: nothing else here writes, and a volume that
//!   is open for reading gives none. Shown by `a_scrub_that_reads_begins_no_transaction`.
//! - I-E5: a commit waits for no batch. A scrub holds only a guard, for which no commit waits; it holds no handle (an assert, SCRUB-5) and
//!   no lock while it reads. A writer that finds no space waits until the batches in flight have ended. Shown by
//!   `a_commit_waits_for_no_batch`.
//! - I-E6: parity is written only where all data in use of that place is verified, and while no log waits (an assert, `parity`).

mod batch;
mod counts;
mod device;
mod device_extents;
mod extents;
mod finding;
mod findings;
mod group;
mod judge;
mod mark;
mod mend;
mod pace;
mod parity;
mod recorder;
mod rows;
mod searches;
mod small_files;
mod status;
mod status_file;
mod sums;
mod superblocks;
mod together;
mod used;
mod workers;

pub use counts::Counts;
pub use device::{DeviceScrub, Ended, Scrub, Step};
pub use finding::{Finding, FindingKind, Outcome, Sink};
pub use findings::{FILES_MAX, Findings, file_line, more_files_line};
pub use pace::Pace;
pub use recorder::{HostPaths, Recorder, host_paths};
pub use searches::Searches;
pub use status::{DeviceStatus, Identity, Mode, Status};
pub use status_file::{Runner, Running, StatusFile};
pub use together::Together;
