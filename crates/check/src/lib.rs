//! An independent, read-only verifier of whole filesystems.
//!
//! It shares no code with what writes filesystems: blocks are read raw from the volume, and the walker and the rules
//! about items are its own. So a mistake of the writer is not repeated by its judge. It never writes, and what
//! it finds has permanent numbers ([`Problem`], `docs/use/findings.md`).
//!
//! # How a filesystem of any size is checked in little memory
//! - Blocks are walked tree by tree, leaves of a node by several threads (`walk`).
//! - What lies together is judged in passing: an inode with its names and extents (`inode_group`), an extent with its
//!   references (`extents`), the free space of a block group (`free_space`).
//! - What lies apart is compared by sums of hashes: directory entries with inode refs (`summary`), recorded with
//!   existing references (`references`). A sum that is not zero is explained on a second walk that lists a part.
//! - Subtrees that snapshots share are read once; what they mean is kept as one value (`summary`).
//! - Which subvolumes reach an extent, which quota groups count, is known of parts of the forest and not of extents (`quota`).
//!
//! What grows with the filesystem is a table of tree blocks (about 60 bytes for each) and the merged ranges of
//! used space, data and checksums (8 bytes for each gap). Ten million small files have about half a million tree blocks.
//!
//! # Invariants
//! - CHECK-1: nothing is written.
//! - CHECK-2: no block is read more than twice per walk, whatever pointers say; walks end because levels fall.
//! - CHECK-3: data from disk never makes it panic, and never sets the size of an allocation beyond a mebibyte.
//! - CHECK-4: what could not be read is reported once; what then cannot be known is not reported as wrong.

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
pub use report::{Counts, Finding, Place, Report, exit_status};
pub use run::check;
