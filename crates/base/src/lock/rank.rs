//! The list of ranks, outer to inner. A thread takes locks in this order and skips those that it does not need.

/// Defines the ranks, and the list of them with their names.
macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident = $rank:literal;)*) => {
        $($(#[$doc])* pub const $name: u8 = $rank;)*

        /// All ranks, outer to inner, each with its name.
        pub(super) const ALL: &[(u8, &str)] = &[$(($rank, stringify!($name))),*];
    };
}

/// Short locks start here (LOCK-2).
pub const SHORT: u8 = 60;

ranks! {
    /// Writes of a control, or in the background, to a mount that the kernel may make read-only meanwhile.
    UNASKED = 2;
    /// The next job of several threads that import a folder; held while waiting for it.
    JOBS = 4;
    /// The position of a device's scrub: one worker at a time moves on.
    SCRUB = 5;
    /// Making a device longer, and shorter again if that fails.
    RESIZE = 6;
    /// Changing the error counts of a device, one thread at a time.
    DEVICE_ERRORS = 7;
    /// Keeping writes in place, or all changes, out of a subvolume, and waiting for that.
    IN_PLACE = 10;
    /// Opening a subvolume that is not open yet.
    SUBVOLUME_LOAD = 12;
    /// Moving a directory within a subvolume.
    DIRECTORY_RENAME = 14;
    /// Operations of an inode; within: subvolume, then number.
    INODE = 20;
    /// Putting an inode into the logs, one thread at a time.
    FSYNC = 22;
    /// Switching quotas, changing their groups, and keeping both unchanged while a subvolume joins groups.
    QGROUP_CHANGE = 23;
    /// A range of bytes of a file.
    RANGE = 24;
    /// Making a subvolume, and changing its properties.
    SUBVOLUME_CHANGE = 25;
    /// One cleaner at a time. A thread may have to clean before it begins a handle.
    CLEANER = 26;
    /// Writing a run of delayed data back, or waiting for that; a thread that does it waits for no other run. Also completing a request that carries locks, and writing
    /// times that were noted.
    WRITEBACK = 27;
    /// One thread at a time holds free space to discard it.
    DISCARD = 28;
    /// The last search of an open file for data or a hole; only ever tried.
    SEEK_CURSOR = 29;
    /// One commit at a time.
    COMMIT = 30;
    /// Whether a commit is written out, and waiting for that.
    WRITE_OUT = 32;
    /// The running transaction's gate: handles hold one part of it; within: the part.
    TRANSACTION = 34;
    /// Putting queued references into the extent tree, one thread at a time; a thread that holds the gate holds it for a step.
    RUN_REFS = 35;
    /// An inode's item; held while it changes in a tree.
    INODE_ITEM = 36;
    /// A directory's delayed items; held while they are written to a tree.
    DELAYED_ITEMS = 37;
    /// Allocating a chunk.
    CHUNK_ALLOCATION = 38;
    /// The logs of the running transaction; held while items are put into them.
    TREE_LOG = 39;
    /// Tree blocks of all trees but the two below; within: level from the root down, then side.
    NODE = 40;
    /// Changing the references of a block that trees share.
    SHARED_BLOCK = 41;
    /// An extent whose queued references are being put into the extent tree.
    REF_HEAD = 42;
    /// Blocks of the checksum tree, which may be searched with a block of a file tree held; within: as for other trees.
    CSUM_NODE = 43;
    /// Blocks of the extent tree; within: as for other trees.
    EXTENT_NODE = 44;
    /// Rewriting a bad copy: held across that I/O, and under node locks.
    REPAIR = 50;
    /// A device's file or memory, held for a request.
    DEVICE = 54;
    /// Making written data of a device durable, one thread at a time.
    FLUSH = 56;

    /// Tables above the inodes: subvolumes, inodes, cleaner's and delayed items' queues, the mount's nodes and handles.
    TABLE = 62;
    /// Reserving metadata, and taking data space out of block groups that are shared with metadata.
    RESERVATION = 63;
    /// The list of block groups.
    SPACE = 64;
    /// One block group's free space.
    BLOCK_GROUP = 66;
    /// The block groups of a type that are worth a search.
    SPACE_INFO = 67;
    /// A shard of the delayed refs.
    DELAYED_REFS = 68;
    /// A shard of the buffer index.
    BUFFER_SHARD = 70;
    /// A thread's fingers on leaves.
    FINGERS = 72;
    /// The delayed data of a file; memory is copied under it.
    DELALLOC = 76;
    /// Touching memory for the first time.
    POOL = 80;
    /// Innermost: may be taken under every lock, and no lock under it.
    LEAF = 90;
}
