//! The types of the operations: requests to a filesystem and its answers, without wire details.

mod attributes;
mod changes;
mod files;
mod names;

pub use attributes::{Attr, AttrReply, DeviceNumber, Statfs, StatxReply};
pub use changes::{NewInode, SetAttr, SetTime, SetXattrRequest};
pub use files::{
    CopySide, IoctlReply, IoctlRequest, OpenRequest, Opened, ReadRequest, ReleaseRequest, SeekTo,
    WriteRequest,
};
pub use names::{Entry, FileHandle, NodeId, RequestContext};
