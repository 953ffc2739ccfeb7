//! Requests, decoded.

use zerocopy::FromBytes;

use super::flags::{IoctlFlags, RenameFlags, StatxMask};
use super::wire;
use crate::types::{
    CopySide, FileHandle, IoctlRequest, NewInode, NodeId, OpenRequest, ReadRequest, ReleaseRequest, SeekTo,
    SetAttr, SetXattrRequest, WriteRequest,
};

/// A request: its caller, the inode and the operation. Names and data lie in the request buffer.
///
/// ```
/// use creamery_fuse::protocol::{InitFlags, Operation, decode, wire::InHeader};
/// let header = InHeader { opcode: 1, nodeid: 1, len: 45, ..InHeader::default() };
/// let request = decode(&header, b"name\0", &[], InitFlags::empty()).unwrap();
/// assert_eq!(request.operation, Operation::Lookup { name: b"name" });
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Request<'a> {
    /// The number of the request.
    pub unique: u64,
    /// The inode; for an operation with a name, the parent.
    pub node: NodeId,
    /// The operation of the request.
    pub operation: Operation<'a>,
    /// Security context and supplementary groups, undecoded; empty unless negotiated.
    pub extensions: &'a [u8],
}

/// The operation of a request. The method of
/// [`Operations`](crate::Operations) with the same name documents each.
///
/// ```
/// use creamery_fuse::protocol::Operation;
/// assert_ne!(Operation::Readlink, Operation::Statfs);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "variants and fields are named as the methods and arguments of Operations")]
pub enum Operation<'a> {
    Init {
        init: wire::InitIn,
        flags2: u32,
    },
    Destroy,
    Lookup {
        name: &'a [u8],
    },
    Forget {
        lookups: u64,
    },
    BatchForget {
        forgets: Forgets<'a>,
    },
    Getattr {
        handle: Option<FileHandle>,
    },
    Statx {
        handle: Option<FileHandle>,
        flags: u32,
        mask: StatxMask,
    },
    Setattr {
        changes: SetAttr,
    },
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        new: NewInode,
    },
    Mkdir {
        name: &'a [u8],
        new: NewInode,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: NodeId,
        new_name: &'a [u8],
        flags: RenameFlags,
    },
    Link {
        node: NodeId,
        new_name: &'a [u8],
    },
    Open {
        open: OpenRequest,
    },
    Create {
        name: &'a [u8],
        new: NewInode,
        open: OpenRequest,
    },
    Tmpfile {
        new: NewInode,
        open: OpenRequest,
    },
    Read {
        read: ReadRequest,
        size: u32,
    },
    Write {
        write: WriteRequest,
        data: &'a [u8],
    },
    Statfs,
    Release {
        release: ReleaseRequest,
    },
    Flush {
        handle: FileHandle,
        lock_owner: u64,
    },
    Fsync {
        handle: FileHandle,
        data_only: bool,
    },
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        set: SetXattrRequest,
    },
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Opendir {
        open: OpenRequest,
    },
    Readdir {
        handle: FileHandle,
        offset: u64,
        size: u32,
    },
    Readdirplus {
        handle: FileHandle,
        offset: u64,
        size: u32,
    },
    Releasedir {
        release: ReleaseRequest,
    },
    Fsyncdir {
        handle: FileHandle,
        data_only: bool,
    },
    Access {
        mask: u32,
    },
    Ioctl {
        ioctl: IoctlRequest,
        input: &'a [u8],
        output_len: u32,
    },
    Fallocate {
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: u32,
    },
    Lseek {
        handle: FileHandle,
        offset: u64,
        to: SeekTo,
    },
    CopyFileRange {
        from: CopySide,
        to: CopySide,
        len: u64,
        flags: u64,
        wide: bool,
    },
    Syncfs,
    Interrupt {
        unique: u64,
    },
    /// An operation that is left to the kernel (locks, poll, block map, direct access) or unknown.
    Unsupported {
        opcode: u32,
    },
}

/// The rows of a `BATCH_FORGET`: node and number of references given back.
///
/// ```
/// use creamery_fuse::NodeId;
/// use creamery_fuse::protocol::Forgets;
/// let mut rows = Forgets::default();
/// assert_eq!(rows.next(), None::<(NodeId, u64)>);
/// ```
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Forgets<'a> {
    rows: &'a [u8],
}

const ROW: usize = size_of::<wire::ForgetOne>();

impl<'a> Forgets<'a> {
    pub(super) const fn new(rows: &'a [u8]) -> Self {
        Self { rows }
    }
}

impl Iterator for Forgets<'_> {
    type Item = (NodeId, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let (row, rest) = wire::ForgetOne::read_from_prefix(self.rows).ok()?;
        self.rows = rest;
        Some((NodeId::new(row.nodeid), row.nlookup))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rows = self.rows.len() / ROW;
        (rows, Some(rows))
    }
}

impl ExactSizeIterator for Forgets<'_> {}

impl IoctlFlags {
    /// Whether the control was sent to a directory.
    #[must_use]
    pub const fn on_directory(self) -> bool {
        self.contains(Self::DIR)
    }
}
