//! Log trees: what fsync made durable after the last commit, as it lies on the devices.
//!
//! An fsync that had to wait for a commit would wait for everybody's work. Instead it writes copies of the items that it is about
//! into a tree beside the others, one for each subvolume; a tree of their roots, which the superblock names, leads to them. When
//! power goes, the next one who may write brings them into the subvolumes' trees, and commits: the replay
//! ([`Replay`](crate::Replay)). A commit before that ends all logs.
//!
//! ```text
//!   superblock.log_root -> (TREE_LOG ROOT_ITEM subvolume) -> inodes, names, file extents, ..., (EXTENT_CSUM EXTENT_CSUM address)
//! ```
//! No tree counts their blocks, nor the extents that are new: the last commit takes their places for free. So they are withheld
//! from the first moment on (REPLAY-1), which also shows a log that lies about them, and nothing is taken for a block that
//! another tree has.
//!
//! # Writing
//! Whoever syncs puts the items of his inode into the logs in memory, with a handle; then the first one who finds nobody writing
//! seals what there is and writes it, for all who have put theirs by then:
//!
//! ```text
//!   put the items               handle, then the logs' lock; sealed blocks are copied before they change
//!   seal                        what is in memory is what is written; who comes later is in the next one
//!   write the blocks            -> Written, with all data that was written since the last flush
//!   flush                       -> Durable
//!   superblock of the last commit, with the logs' root, first copy -> Published
//!   flush                       -> Logged
//! ```
//! What a log says is meant for the trees as the last commit left them. So the last commit is durable before anything is put, and
//! whoever puts compares with it ([`LogBase`]). When a transaction is about to close, its logs take no more; who asks then waits
//! for the commit.
//!
//! | file | |
//! |---|---|
//! | `open` | reading the logs that are on the devices |
//! | `writer` | the logs of the running transaction |
//! | `inode_log` | what is to be said of inodes |
//! | `items` | what is in the logs |
//! | `given_names` | which names they give to whom |
//! | `blocks` | what space they take |
//! | `ranges` | the sectors whose checksums they have |
//!
//! # Invariants
//! - LOG-1: blocks of logs are of the transaction behind the last commit, each is reached once, and none is in use. Shown by
//!   `logs_that_lie_are_refused_by_name`.
//! - LOG-4: a superblock with logs is written only between the one of the last commit and the one of the next, and leads to nothing
//!   in a chunk that the last commit does not have. Shown by `what_was_synced_survives_every_power_cut`.
//! - LOG-5: what an inode's log says never goes back: of two who put the same inode, the one who saw it later stays.
//!   Shown by `an_older_look_at_an_inode_does_not_replace_a_newer_one`.
//! - LOG-6: who says only what changed of an inode's extents says it of what the log has of it.
//!   Shown by `what_was_synced_survives_every_power_cut`.
//! - LOG-7: a log has nothing that takes a feature to read it which the last commit's superblock does not name: the feature is noted
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
pub(crate) use writer::{SealedLog, TreeLogs, Turn};
