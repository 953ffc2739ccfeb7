//! The structures of the wire, each declared once with its size.
//!
//! Facts taken from the UAPI header `linux/fuse.h` (ABI 7.45) under its BSD-2-Clause alternative (NOTICE of
//! that header: Copyright (C) 2001-2007 Miklos Szeredi). Everything is in the host's byte order, padded to 8
//! bytes; padding is explicit, so that no byte of a reply is uninitialised.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            #[allow(missing_docs, reason = "fields are named as in the ABI")]
            pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
            const _: () = assert!(size_of::<$name>() == $size);
        )*
    };
}

wire! {
    /// Header of every request.
    InHeader: 40 {
        /// Length of the whole request, this header included.
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        /// Length of the extensions at the request's end, in units of 8 bytes.
        total_extlen: u16,
        padding: u16,
    }

    /// Header of every reply and notification.
    OutHeader: 16 {
        len: u32,
        /// 0, a negative error number, or a notification's code.
        error: i32,
        /// The request answered; 0 in a notification.
        unique: u64,
    }

    /// Beginning of every version's `INIT`.
    MajorMinor: 8 { major: u32, minor: u32, }

    /// `INIT`, the part all kernels send.
    InitIn: 16 { major: u32, minor: u32, max_readahead: u32, flags: u32, }

    /// `INIT`, the rest, since 7.36.
    InitInExtension: 48 { flags2: u32, unused: [u32; 11], }

    /// Answer to `INIT`.
    InitOut: 64 {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }

    /// Attributes of an inode.
    Attr: 88 {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }

    /// A time inside [`Statx`].
    StatxTime: 16 { sec: i64, nsec: u32, reserved: i32, }

    /// Bit for bit `struct statx`.
    Statx: 256 {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTime,
        btime: StatxTime,
        ctime: StatxTime,
        mtime: StatxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }

    /// `STATX`.
    StatxIn: 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, }

    /// Answer to `STATX`.
    StatxOut: 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx, }

    /// Answer to every operation that finds or makes a name.
    EntryOut: 128 {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }

    /// Answer to `GETATTR` and `SETATTR`.
    AttrOut: 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }

    /// `FORGET`.
    ForgetIn: 8 { nlookup: u64, }

    /// One row of `BATCH_FORGET`.
    ForgetOne: 16 { nodeid: u64, nlookup: u64, }

    /// `BATCH_FORGET`; rows follow.
    BatchForgetIn: 8 { count: u32, dummy: u32, }

    /// `GETATTR`.
    GetattrIn: 16 { getattr_flags: u32, dummy: u32, fh: u64, }

    /// `SETATTR`.
    SetattrIn: 88 {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }

    /// `MKNOD`; the name follows.
    MknodIn: 16 { mode: u32, rdev: u32, umask: u32, padding: u32, }

    /// `MKDIR`; the name follows.
    MkdirIn: 8 { mode: u32, umask: u32, }

    /// `RENAME`; two names follow.
    RenameIn: 8 { newdir: u64, }

    /// `RENAME2`; two names follow.
    Rename2In: 16 { newdir: u64, flags: u32, padding: u32, }

    /// `LINK`; the new name follows.
    LinkIn: 8 { oldnodeid: u64, }

    /// `OPEN` and `OPENDIR`.
    OpenIn: 8 { flags: u32, open_flags: u32, }

    /// `CREATE` and `TMPFILE`; the name follows.
    CreateIn: 16 { flags: u32, mode: u32, umask: u32, open_flags: u32, }

    /// Answer to `OPEN` and `OPENDIR`, and second part of the one to `CREATE` and `TMPFILE`.
    OpenOut: 16 { fh: u64, open_flags: u32, backing_id: i32, }

    /// `RELEASE` and `RELEASEDIR`.
    ReleaseIn: 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }

    /// `FLUSH`.
    FlushIn: 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64, }

    /// `READ`, `READDIR` and `READDIRPLUS`.
    ReadIn: 40 {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    /// `WRITE`; the data follows.
    WriteIn: 40 {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    /// Answer to `WRITE` and `COPY_FILE_RANGE`.
    WriteOut: 8 { size: u32, padding: u32, }

    /// Answer to `STATFS`.
    StatfsOut: 80 {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }

    /// `FSYNC` and `FSYNCDIR`.
    FsyncIn: 16 { fh: u64, fsync_flags: u32, padding: u32, }

    /// `SETXATTR`, the part all kernels send; name and value follow.
    SetxattrIn: 8 { size: u32, flags: u32, }

    /// `SETXATTR`, the second part when `SETXATTR_EXT` was negotiated.
    SetxattrInExtension: 8 { setxattr_flags: u32, padding: u32, }

    /// `GETXATTR` (the name follows) and `LISTXATTR`.
    GetxattrIn: 8 { size: u32, padding: u32, }

    /// Answer to both when the size was asked for.
    GetxattrOut: 8 { size: u32, padding: u32, }

    /// `ACCESS`.
    AccessIn: 8 { mask: u32, padding: u32, }

    /// `INTERRUPT`.
    InterruptIn: 8 { unique: u64, }

    /// `IOCTL`; the input follows.
    IoctlIn: 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }

    /// Answer to `IOCTL`; the output follows.
    IoctlOut: 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }

    /// `FALLOCATE`.
    FallocateIn: 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }

    /// `LSEEK`.
    LseekIn: 24 { fh: u64, offset: u64, whence: u32, padding: u32, }

    /// Answer to `LSEEK`.
    LseekOut: 8 { offset: u64, }

    /// `COPY_FILE_RANGE` and `COPY_FILE_RANGE_64`.
    CopyFileRangeIn: 56 {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }

    /// Answer to `COPY_FILE_RANGE_64`.
    CopyFileRangeOut: 8 { bytes_copied: u64, }

    /// `SYNCFS`.
    SyncfsIn: 8 { padding: u64, }

    /// An entry of `READDIR`; the name follows, padded to 8 bytes.
    Dirent: 24 { ino: u64, off: u64, namelen: u32, kind: u32, }

    /// `NOTIFY_INVAL_INODE`.
    NotifyInvalInode: 24 { ino: u64, off: i64, len: i64, }

    /// `NOTIFY_INVAL_ENTRY`; the name follows.
    NotifyInvalEntry: 16 { parent: u64, namelen: u32, flags: u32, }

    /// `NOTIFY_DELETE`; the name follows.
    NotifyDelete: 24 { parent: u64, child: u64, namelen: u32, padding: u32, }

    /// `NOTIFY_STORE`; the data follows.
    NotifyStore: 24 { nodeid: u64, offset: u64, size: u32, padding: u32, }
}

const _: () = assert!(std::mem::offset_of!(InHeader, nodeid) == 16);
const _: () = assert!(std::mem::offset_of!(InHeader, total_extlen) == 36);
const _: () = assert!(std::mem::offset_of!(InitOut, max_pages) == 28);
const _: () = assert!(std::mem::offset_of!(InitOut, flags2) == 32);
const _: () = assert!(std::mem::offset_of!(EntryOut, attr) == 40);
const _: () = assert!(std::mem::offset_of!(Attr, mode) == 60);
const _: () = assert!(std::mem::offset_of!(SetattrIn, mode) == 68);
const _: () = assert!(std::mem::offset_of!(Statx, btime) == 80);
const _: () = assert!(std::mem::offset_of!(Statx, rdev_major) == 128);
const _: () = assert!(std::mem::offset_of!(StatxOut, stat) == 32);
