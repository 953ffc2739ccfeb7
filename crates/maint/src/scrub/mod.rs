//! Scrub: everything that is in use on a device is read and judged, and what is bad is mended from what is good.
//!
//! ```text
//! device extents --chunk--> one cursor over the extent tree, one over the checksum tree, both forward and read ahead
//!                              |
//!                              +-- batches: what is in use of up to 512 KiB of the device --read, judged--> good
//!                              |                                                             +--> bad: from another copy, or rebuilt
//!                              +-- rows of a chunk with parity: data judged, parity computed from it and compared
//! ```
//! Each device is scrubbed by itself, as Linux does, so that each copy is read where it lies. A chunk with parity is scrubbed once for all of its
//! devices, row by row, and counted for each (`together`). Four batches are in flight for each device. A batch is
//! read by one request, and judged block by block: a tree block by its address, UUID, generation, level and checksum; data by its checksum. Data
//! without checksums is compared between copies. The scrub of a device is taken on by steps ([`Scrub::step`]), each under a guard of its own; between
//! two of them nothing is kept from anybody.
//!
//! What is bad is read in all other ways that there are ([`creamery_volume::Ways`]). With one that is good, and with a
//! [`Mender`](creamery_volume::Mender), the bad bytes are overwritten where they lie, after a second look. Nothing else is written: no commit.
//!
//! | file | |
//! |---|---|
//! | `device` | one device, step by step |
//! | `workers` | those that read and judge |
//! | `together` | chunks with parity, once for all devices |
//! | `group`, `rows` | what is to be read next: batches of one device, or rows |
//! | `used`, `extents`, `sums` | what is in use, and its checksums |
//! | `searches` | the trees that say so, and how often they are searched |
//! | `batch`, `parity` | reading and judging it |
//! | `judge`, `mend` | what is bad, and making it good |
//! | `superblocks` | their copies |
//! | `counts`, `finding`, `findings` | what a scrub reports |
//! | `status`, `status_file`, `recorder` | what is kept of it, where, and while it runs |
//! | `pace` | how fast a device is read |
//!
//! # Invariants
//! - I-E1: no lock of a tree is taken, and only durable commits are read. Held by [`DurableTree`](creamery_txn::DurableTree), the only tree that a scrub
//!   has, and by the cursors over it, which lock nothing; an assert holds each tree against its guard (SCRUB-1).
//! - I-E2: with readahead and without it the result is the same. Shown by `leaves_of_both_trees_are_read_ahead_and_come_to` and by the sets of every profile
//!   (`scrubbed` among the tests of the library).
//! - I-E3: no device has state of readahead. Held by the store of a filesystem's tree blocks, which has the queue: a device knows nothing of it. Shown by
//!   `a_filesystem_closes_while_leaves_are_queued`.
//! - I-E4: without a [`Mender`](creamery_volume::Mender) nothing is written. Held by that type: nothing else here writes, and a volume that is open for
//!   reading gives none. Shown by `a_scrub_that_reads_begins_no_transaction`.
//! - I-E5: a commit waits for no batch. A scrub holds nothing of its own but a guard, for which no commit waits; it holds no handle (an assert, SCRUB-5) and no
//!   lock while it reads. Whoever finds no room waits until the batches in flight have ended. Shown by `a_commit_waits_for_no_batch`.
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
pub use finding::{Finding, Outcome, Sink, What};
pub use findings::{FILES_MAX, Findings, file_line, more_files_line};
pub use pace::Pace;
pub use recorder::{HostPaths, Recorder, host_paths};
pub use searches::Searches;
pub use status::{DeviceStatus, Identity, Mode, Status};
pub use status_file::{Runner, Running, StatusFile};
pub use together::Together;
