//! Partition tables: the parts of a disk. They are read and never written.
//!
//! # The valid table
//! The first sector decides, like for Linux. If the first sector has a table of the old kind (MBR) with an entry of type EE, the disk
//! has a GPT, even if there are other entries beside that one (a hybrid): those only repeat some of the GPT's. An MBR without such an entry
//! is itself the table, and a GPT that may lie behind it is left over from before. A sector that ends with 55 AA and has no entry in use is
//! the boot sector of something else.
//!
//! A GPT has two copies: behind the first sector and in the last one. The first copy counts, if its checksums are right; else the last one,
//! and a note says so. The last copy alone counts only if the start of the disk declares a table, or if that start was
//! zeroed: old tables often remain at the end of a disk.
//!
//! Logical partitions (numbers from 5) are a chain of sectors within an extended partition. If the chain is broken, the partitions
//! before that place are found, and a note says where it ends.
//!
//! # Sectors
//! Tables count in sectors, and do not contain the sector size. The place of a GPT shows it: byte 512 or byte 4096. An MBR does not;
//! its sectors are those of the device, and of a file 512 bytes.
//!
//! # Invariants
//! - PARTITION-1: each allocation and each loop is bounded, whatever a table says: a GPT has at most [`gpt::ENTRIES_MAX`] entries, and
//!   a chain at most [`mbr::LOGICAL_MAX`] sectors. Shown by `a_table_that_claims_the_most_is_refused_or_bounded`.
//! - PARTITION-2: a partition has a start and an end that fit 64 bits and is not empty. A separate method says whether it ends within the device
//!   ([`Partition::fits`]), so that users can see one that does not. Shown by `numbers_at_their_edges_make_no_partition_without_end`.
//!
//! # References
//! The UEFI specification, version 2.10, chapter 5 (GPT and protective MBR). The MBR has no specification; this follows Linux and
//! util-linux.

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
