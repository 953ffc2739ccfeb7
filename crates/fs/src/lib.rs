//! Files and names over the engine's trees: subvolumes, inodes, directories, extended attributes and file data.
//!
//! [`Filesystem`] is the public interface: an operation of a POSIX mount is a method of it, or of an [`OpenFile`]. An [`InodeId`] (subvolume and inode number) names
//! an inode. An operation takes the inode locks it needs, starts one transaction handle, makes its few tree changes, and ends the handle. An operation that returned
//! an error has no visible effect, but an error after the first change aborts the transaction: the engine turns read-only, and the last commit stands.
//!
//! # How it is divided
//! The folders are a tower: a folder uses only those on lower lines. `cargo xtask tidy` compares this drawing with the code. A file that lies beside the folders
//! counts as a folder of its own.
//! ```text
//!   device_errors disk_usage remap replacing resize resolve  more methods of `Filesystem`
//!   filesystem                                               the public interface; it has no state but its parts
//!   statistics                                               counts of a filesystem's work so far
//!   background memory statfs tree_log                        work in the background; figures; the replay of logs
//!   names                                                    lookups, links, renames, listings; the cache of directories
//!   compare defragment fallocate fiemap overwrites           further operations of an open file
//!   open_file                                                reads and writes the data of one inode
//!   cleaner direct                                           deletes inodes without a name and a user; data past memory
//!   fsync                                                    makes an inode durable
//!   directory file ops seek                                  entries in their tree; data in its three layers; operations on one inode
//!   data                                                     the extents of a file
//!   inode                                                    a directory, a file or something else as an object, its locks and attributes; the table of live inodes
//!   subvolume                                                those in use; their orphans; the references between them in the root tree
//!   context                                                  the engine, the policy, and the parts that all files share
//!   options                                                  the choices of an open
//!   access_time delalloc delayed in_flight overwrite_times verity  delayed times, data and entries; requests in flight; data of sealed files
//!   compression counters items                               packed data; counts; items and names as values
//!   fault keys operation                                     faults of tests; keys; the end of a handle
//!   background_statistics quota statfs_of_set tree_search    reports of the engine, in a public form
//! ```
//! Four traits of lower folders have their implementation above, so calls go upwards through them:
//! - `delalloc::Delayed`: a file whose data is written back (`file/write_back`);
//! - `access_time::Accessed` and `overwrite_times::Overwritten`: an inode whose times are written (`inode/accessed`, `inode/overwritten`);
//! - `in_flight::Submitted`: a request that is completed (`direct/landing`).
//!
//! # Invariants
//! - FS-1: at the end of every operation the items of an inode, its names and its directory agree.
//!   Shown by `what_was_committed_survives_every_power_cut`, `stored_seeds_agree_with_the_model`.
//! - FS-2: an inode without a name has an orphan item until its other items are gone.
//!   Shown by `what_was_committed_survives_every_power_cut`,
//!   `an_inode_that_is_removed_while_it_is_looked_at_stays_removed`.
//! - FS-3: an operation's changes belong to one transaction, so a crash shows all of them or none.
//!   Shown by `what_was_committed_survives_every_power_cut`.
//!
//! # Locking
//! Outer to inner: a subvolume's gates (`subvolume`), its rename mutex, operations of inodes in ascending [`InodeId`], byte ranges, the cleaner's turn, the
//! transaction handle, an inode's item, tree nodes. Locks of tables (inodes, subvolumes) are held briefly and taken anywhere but under a node lock. A thread that
//! holds a handle does not wait for the operations lock of an inode; it may try the lock.
//!
//! [`InodeId`]: creamery_base::InodeId

mod access_time;
mod background;
mod background_statistics;
mod cleaner;
mod compare;
mod compression;
mod context;
mod counters;
mod data;
mod defragment;
mod delalloc;
mod delayed;
mod device_errors;
mod direct;
mod directory;
mod disk_usage;
mod fallocate;
mod fault;
mod fiemap;
mod file;
mod filesystem;
mod fsync;
mod in_flight;
mod inode;
mod items;
mod keys;
mod memory;
mod names;
mod open_file;
mod operation;
mod ops;
mod options;
mod overwrite_times;
mod overwrites;
mod quota;
mod remap;
mod replacing;
mod resize;
mod resolve;
mod seek;
mod statfs;
mod statfs_of_set;
mod statistics;
mod subvolume;
mod tree_log;
mod tree_search;
mod verity;

pub use access_time::{Atime, AtimeOptions};
pub use background_statistics::BackgroundStatistics;
pub use cleaner::Cleaning;
pub use compression::Compress;
pub use counters::Refusal;
pub use data::{FileContent, PackedAhead, Recompress, Stretch};
pub use defragment::Defragment;
pub use device_errors::DeviceErrors;
pub use direct::{DirectAt, DirectCompletion, DirectDone, DirectPart, DirectRequest, DirectWaiter, Refused};
pub use disk_usage::{AddressRanges, FileUsage, UsageSet};
pub use fallocate::Fallocate;
#[cfg(any(feature = "shuttle", feature = "faults"))]
pub use fault::Fault;
pub use fiemap::{Fiemap, FiemapBatch, FiemapExtent, FiemapFlags, FiemapRequest};
pub use filesystem::{Filesystem, SyncCaller};
pub use inode::attributes::{Attributes, DeviceNumber, Times};
pub use inode::lock::{ExclusiveInode, SharedInode};
pub use inode::xattr::{CAPABILITIES, XattrMode};
pub use inode::{FileType, Inode, InodeFlags, RangeGuard, RangeLocks};
pub use items::InodeItem;
pub use memory::MemoryReport;
pub use names::{DirEntry, Inherit, NewInode, NewKind, RenameMode, SnapshotOptions};
pub use open_file::{Access, OpenFile};
pub use ops::{SetAttributes, Time, WritingUser};
pub use options::FsOptions;
pub use overwrites::{Overwrite, OverwriteCount, Overwrites};
pub use quota::{QgroupReport, QuotaChange, QuotaReport, QuotaStatistics};
pub use remap::Deduped;
pub use replacing::Replacing;
pub use resize::{NewSize, Resized};
pub use resolve::ExtentPart;
pub use seek::SeekTarget;
pub use statfs::FsStatistics;
pub use statistics::{
    Aborted, BlockCacheStatistics, Bucket, CommitStatistics, CompressionStatistics, ContentionStatistics,
    DirectStatistics, Distribution, FsyncStatistics, LockStatistics, LogStatistics, NamedTree,
    NocowStatistics, NowaitStatistics, PendingStatistics, SeekStatistics, Statistics, TreeStatistics,
    VolumeStatistics, WritebackStatistics,
};
pub use subvolume::{ListedSubvolume, NewExtent, NewExtents, SubvolumeInfo, SubvolumeTable};
pub use tree_log::Replayed;
pub use tree_search::{FoundItem, SearchKey};
pub use verity::VerityInfo;
