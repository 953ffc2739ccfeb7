//! An independent, read-only verifier of whole filesystems.
//!
//! It shares no code with the engine that writes: it reads blocks raw from the volume, and has its own walker and rules about items. So it
//! does not repeat a mistake of the writer. It never writes, and its findings have permanent numbers ([`Problem`], `docs/use/findings.md`).
//!
//! # Checking a filesystem of any size in little memory
//! - The check walks blocks tree by tree; several threads read the leaves of a node (`walk`).
//! - Neighbouring items are judged in passing: an inode with its names and extents (`inode_group`), an extent with its references
//!   (`extents`), the free space of a block group (`free_space`).
//! - Distant items are compared by sums of hashes: directory entries with inode refs (`summary`), recorded with existing references
//!   (`references`). A sum other than zero is explained by a second walk that lists a part.
//! - Subtrees that snapshots share are read once; their meaning is kept as one value (`summary`).
//! - The sets of subvolumes that reach an extent, which quota groups count, belong to parts of the forest, not to single extents (`quota`).
//!
//! Two structures grow with the filesystem: a table of tree blocks (about 60 bytes for each) and the merged ranges of used space, data and
//! checksums (8 bytes for each gap). Ten million small files have about half a million tree blocks.
//!
//! # Invariants
//! - CHECK-1: nothing is written. Shown by `image_bytes_replays`, `image_fields_replays`.
//! - CHECK-2: no block is read more than twice per walk, regardless of pointers; walks end because levels fall.
//! - CHECK-3: data from disk never makes it panic, and never sets the size of an allocation beyond a mebibyte.
//! - CHECK-4: an unreadable part is reported once; facts that are unknown because of it are not reported as wrong.

mod bad_data;
mod block_groups;
mod chunks;
mod corruption;
mod csums;
mod damaged_sector;
mod extents;
mod features;
mod free_space;
mod fs_tree;
mod hash;
mod inode_group;
mod links;
mod logs;
mod options;
mod packed;
mod parity;
mod problem;
mod quota;
mod ranges;
mod reader;
mod references;
mod report;
mod roots;
mod run;
mod sets;
mod space_cache;
mod summary;
mod summed;
mod superblocks;
mod unwritten;
mod walk;

pub use damaged_sector::{DamagedFile, DamagedSector};
pub use options::{CheckOptions, NoProgress, Progress};
pub use problem::{Problem, Severity};
pub use report::{Counts, Finding, ProblemSite, Report, exit_status};
pub use run::check;
