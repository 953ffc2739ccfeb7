//! The list of ranks, outer to inner. A thread takes locks in this order and skips what it does not need.

/// What a control writes to a mount that the kernel may make read-only meanwhile.
pub const UNASKED: u8 = 2;
/// The next job of several threads that import a folder; held while waiting for it.
pub const JOBS: u8 = 4;
/// Where the scrub of a device is: one worker at a time walks on.
pub const SCRUB: u8 = 5;
/// Making a device longer, and shorter again where that fails.
pub const RESIZE: u8 = 6;
/// Changing the errors that are counted of a device, one thread at a time.
pub const DEVICE_ERRORS: u8 = 7;
/// Keeping out of a subvolume what writes in place, or what changes anything, and waiting for that.
pub const IN_PLACE: u8 = 10;
/// Opening a subvolume that nobody has open.
pub const SUBVOLUME_LOAD: u8 = 12;
/// Moving a directory within a subvolume.
pub const DIRECTORY_RENAME: u8 = 14;
/// Operations of an inode; within: subvolume, then number.
pub const INODE: u8 = 20;
/// Putting an inode into the logs, one thread at a time.
pub const FSYNC: u8 = 22;
/// Switching quotas, changing their groups, and keeping both as they are while a subvolume comes into some.
pub const QGROUP_CHANGE: u8 = 23;
/// A range of bytes of a file.
pub const RANGE: u8 = 24;
/// Making a subvolume, and changing what is said about one.
pub const SUBVOLUME_CHANGE: u8 = 25;
/// One cleaner at a time; whoever begins a handle may have to clean first.
pub const CLEANER: u8 = 26;
/// Writing a run of delayed data back, or waiting for that; a thread that does it waits for no other run. Also completing a request that carries locks, and writing
/// times that were noted.
pub const WRITEBACK: u8 = 27;
/// One thread at a time has free space in its hands to discard it.
pub const DISCARD: u8 = 28;
/// What an open file remembers of its last search for data or a hole; only ever tried.
pub const SEEK_CURSOR: u8 = 29;
/// One commit at a time.
pub const COMMIT: u8 = 30;
/// Whether a commit is written out, and waiting for that.
pub const WRITE_OUT: u8 = 32;
/// The running transaction's gate: handles hold a part of it; within: the part.
pub const TRANSACTION: u8 = 34;
/// Putting queued references into the extent tree, one thread at a time; held for a step, by who holds the gate.
pub const RUN_REFS: u8 = 35;
/// An inode's item; held while it changes in a tree.
pub const INODE_ITEM: u8 = 36;
/// A directory's delayed items; held while they are written to a tree.
pub const DELAYED_ITEMS: u8 = 37;
/// Allocating a chunk.
pub const CHUNK_ALLOCATION: u8 = 38;
/// The logs of the running transaction; held while items are put into them.
pub const TREE_LOG: u8 = 39;
/// Tree blocks of all trees but the two below; within: level from the root down, then side.
pub const NODE: u8 = 40;
/// Changing the references of a block that trees share.
pub const SHARED_BLOCK: u8 = 41;
/// An extent whose queued references are being put into the extent tree.
pub const REF_HEAD: u8 = 42;
/// Blocks of the checksum tree, in which may be looked with a block of a file tree held; within: as for other trees.
pub const CSUM_NODE: u8 = 43;
/// Blocks of the extent tree; within: as for other trees.
pub const EXTENT_NODE: u8 = 44;
/// Rewriting a bad copy: held across that I/O, and under node locks.
pub const REPAIR: u8 = 50;
/// A device's file or memory, held for a request.
pub const DEVICE: u8 = 54;
/// Making what was written to a device durable, one thread at a time.
pub const FLUSH: u8 = 56;

/// Short locks start here (LOCK-2).
pub const SHORT: u8 = 60;
/// Tables above the inodes: subvolumes, inodes, cleaner's and delayed items' queues, the mount's nodes and handles.
pub const TABLE: u8 = 62;
/// Being promised metadata, and taking data out of block groups that metadata shares.
pub const RESERVATION: u8 = 63;
/// The list of block groups.
pub const SPACE: u8 = 64;
/// One block group's free space.
pub const BLOCK_GROUP: u8 = 66;
/// Which block groups of a type are worth looking at.
pub const SPACE_INFO: u8 = 67;
/// A shard of the delayed refs.
pub const DELAYED_REFS: u8 = 68;
/// A shard of the buffer index.
pub const BUFFER_SHARD: u8 = 70;
/// A thread's fingers on leaves.
pub const FINGERS: u8 = 72;
/// The delayed data of a file; memory is copied under it.
pub const DELALLOC: u8 = 76;
/// Touching memory for the first time.
pub const POOL: u8 = 80;
/// Innermost: may be taken under everything, and nothing under it.
pub const LEAF: u8 = 90;
