//! Log trees: the changes that fsync made durable after the last commit, in their form on the devices.
//!
//! An fsync that waits for a commit waits for the work of all threads. Instead it writes copies of the inode's items
//! into a log tree, one for each subvolume; a tree of their roots, which the superblock names, leads to them. After a power cut
//! the next writable open brings them into the subvolumes' trees, and commits: the replay
//! ([`Replay`](crate::Replay)). A commit before that ends all logs.
//!
//! ```text
//!   superblock.log_root -> (TREE_LOG ROOT_ITEM subvolume) -> inodes, names, file extents, ..., (EXTENT_CSUM EXTENT_CSUM address)
//! ```
//! No tree counts their blocks, nor the new extents: in the last commit their space is free. So it is withheld
//! from the start of an open (REPLAY-1). That also detects a log that lies about its space, and no block of
//! another tree passes for one of a log.
//!
//! # Writing
//! A thread that syncs puts the items of its inode into the logs in memory, with a handle. Then the first thread that finds no writer
//! seals the logs and writes them, for all threads that have put theirs by then:
//!
//! ```text
//!   put the items               handle, then the logs' lock; sealed blocks are copied before they change
//!   seal                        what is in memory is what is written; who comes later is in the next one
//!   write the blocks            -> Written, with all data that was written since the last flush
//!   flush                       -> Durable
//!   superblock of the last commit, with the logs' root, first copy -> Published
//!   flush                       -> Logged
//! ```
//! A log is relative to the trees of the last commit. So the last commit is durable before anything is put, and
//! a put compares with it ([`LogBase`]). When a transaction is about to close, its logs take no more; a later sync waits
//! for the commit.
//!
//! | file | |
//! |---|---|
//! | `open` | reading the logs that are on the devices |
//! | `writer` | the logs of the running transaction |
//! | `inode_log` | the log of one inode |
//! | `items` | the items in the logs |
//! | `given_names` | the names in the logs, and their inodes |
//! | `blocks` | the space of the logs |
//! | `ranges` | the sectors with checksums in the logs |
//!
//! # Invariants
//! - LOG-1: blocks of logs are of the transaction behind the last commit, each is reached once, and none is in use. Shown by
//!   `logs_that_lie_are_refused_by_name`.
//! - LOG-4: a superblock with logs is written only between the one of the last commit and the one of the next, and leads to nothing
//!   in a chunk that the last commit does not have. Shown by `what_was_synced_survives_every_power_cut`.
//! - LOG-5: the log of an inode never goes back: of two puts of one inode, the one with the later state stays.
//!   Shown by `an_older_look_at_an_inode_does_not_replace_a_newer_one`.
//! - LOG-6: a put of only the changes of an inode's extents is relative to the inode's state in the log.
//!   Shown by `what_was_synced_survives_every_power_cut`.
//! - LOG-7: reading a log takes no feature that the last commit's superblock does not name: the feature is noted
//!   before the item can be seen. Shown by `what_takes_a_new_feature_to_read_is_not_put_into_a_log`.

mod blocks;
mod given_names;
mod inode_log;
mod items;
mod open;
mod ranges;
mod writer;

pub use inode_log::{InodeLog, LogGroup, LogLink, LogScope};
pub use open::LogTree;
pub use writer::{LogBase, LogTicket};

pub(crate) use open::open_logs;
pub(crate) use writer::{SealedLog, TreeLogs, WriteTurn};
