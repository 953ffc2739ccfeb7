//! Partition tables: which parts a disk is divided into. They are read and never written.
//!
//! # Which table counts
//! The first sector decides, as for Linux. A disk whose first sector has a table of the old kind (MBR) with an entry of type EE
//! has a GPT, also where other entries stand beside that one (a hybrid): those only repeat some of the GPT's. An MBR without such an entry
//! counts itself, and a GPT that may lie behind it is left over from before. A sector that ends with 55 AA and has no entry in use is
//! the boot sector of something else.
//!
//! A GPT is there twice: behind the first sector and in the last one. The first counts, if its checksums are right; else the last,
//! and a note says so. The last one alone counts only where something at the start says that there was a table, or where that start was
//! zeroed: the end of a disk is where the tables of its former lives stay.
//!
//! Logical partitions (numbers from 5) are a chain of sectors within an extended partition. Where the chain is broken, the partitions
//! before that place are there, and a note says where it ends.
//!
//! # Sectors
//! Tables count in sectors, and do not say how large those are. A GPT tells by where it is: at byte 512 or at byte 4096. An MBR does not;
//! its sectors are those of the device, which of a file are 512 bytes.
//!
//! # Invariants
//! - PARTITION-1: nothing is allocated, and no loop runs, as long as a table says: a GPT has at most [`gpt::ENTRIES_MAX`] entries, and
//!   a chain at most [`mbr::LOGICAL_MAX`] sectors. Shown by `a_table_that_claims_the_most_is_refused_or_bounded`.
//! - PARTITION-2: a partition has a start and an end that fit 64 bits and is not empty. Whether it ends within the device is told apart
//!   ([`Partition::fits`]), for people want to see one that does not. Shown by `numbers_at_their_edges_make_no_partition_without_end`.
//!
//! # References
//! The UEFI specification, version 2.10, chapter 5 (GPT and protective MBR). The MBR has no specification; what Linux and
//! util-linux make of one is what counts.

mod crc32;
mod find;
mod gpt;
mod kinds;
mod mbr;
mod table;
#[cfg(test)]
mod tests;

pub use kinds::PartitionType;
pub(crate) use table::no_such;
pub use table::{Partition, PartitionTable, TableKind};
