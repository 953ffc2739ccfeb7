//! Encoding: from answers to the structures of the wire.

use std::time::Duration;

use creamery_base::Timespec;
use zerocopy::{Immutable, IntoBytes};

use super::wire;
use crate::types::{Attr, AttrReply, Entry, Opened, Statfs, StatxReply};

const HEADER: usize = size_of::<wire::OutHeader>();
const FIXED_MAX: usize = size_of::<wire::StatxOut>();

/// The fixed part of an answer. It is kept in place, so that answering allocates nothing, with room for the header before it: the
/// kernel copies one piece faster than two.
#[derive(Clone, Copy)]
pub(crate) struct Fixed {
    bytes: [u8; HEADER + FIXED_MAX],
    /// End of the structure.
    end: usize,
}

impl Fixed {
    pub(crate) const EMPTY: Self = Self { bytes: [0; HEADER + FIXED_MAX], end: HEADER };

    pub(crate) fn of(structure: &(impl IntoBytes + Immutable)) -> Self {
        let mut fixed = Self::EMPTY;
        fixed.push(structure);
        fixed
    }

    pub(crate) fn pair(first: &(impl IntoBytes + Immutable), second: &(impl IntoBytes + Immutable)) -> Self {
        let mut fixed = Self::of(first);
        fixed.push(second);
        fixed
    }

    fn push(&mut self, structure: &(impl IntoBytes + Immutable)) {
        let bytes = structure.as_bytes();
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// The structure.
    #[cfg(test)]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[HEADER..self.end]
    }

    /// The header and the structure, for an answer with `payload` more bytes.
    pub(crate) fn headed(&mut self, unique: u64, error: i32, payload: usize) -> &[u8] {
        let len = u32::try_from(self.end + payload).expect("replies are bounded by the reply buffer");
        let header = wire::OutHeader { len, error, unique };
        self.bytes[..HEADER].copy_from_slice(header.as_bytes());
        &self.bytes[..self.end]
    }
}

/// Seconds and nanoseconds of a lifetime. A lifetime over a century is capped, which spares the kernel's
/// arithmetic.
fn lifetime(valid: Duration) -> (u64, u32) {
    (valid.as_secs().min(u64::from(u32::MAX)), valid.subsec_nanos())
}

fn nanos(time: Timespec) -> u32 {
    time.nsec.min(999_999_999)
}

fn attr(attr: &Attr) -> wire::Attr {
    wire::Attr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.sec,
        mtime: attr.mtime.sec,
        ctime: attr.ctime.sec,
        atimensec: nanos(attr.atime),
        mtimensec: nanos(attr.mtime),
        ctimensec: nanos(attr.ctime),
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev.to_wire(),
        blksize: attr.blksize,
        flags: attr.flags,
    }
}

pub(crate) fn attr_out(reply: &AttrReply) -> wire::AttrOut {
    let (attr_valid, attr_valid_nsec) = lifetime(reply.valid);
    wire::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attr(&reply.attr) }
}

pub(crate) fn entry_out(entry: &Entry) -> wire::EntryOut {
    let (entry_valid, entry_valid_nsec) = lifetime(entry.entry_valid);
    let (attr_valid, attr_valid_nsec) = lifetime(entry.attr_valid);
    wire::EntryOut {
        nodeid: entry.node.get(),
        generation: entry.generation,
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr: attr(&entry.attr),
    }
}

fn statx_time(time: Timespec) -> wire::StatxTime {
    wire::StatxTime { sec: time.sec, nsec: nanos(time), reserved: 0 }
}

pub(crate) fn statx_out(reply: &StatxReply) -> wire::StatxOut {
    let (attr_valid, attr_valid_nsec) = lifetime(reply.valid);
    let a = &reply.attr;
    let stat = wire::Statx {
        mask: reply.mask().bits(),
        blksize: a.blksize,
        attributes: reply.attributes,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        mode: (a.mode & 0xffff) as u16,
        ino: a.ino,
        size: a.size,
        blocks: a.blocks,
        attributes_mask: reply.attributes_mask,
        atime: statx_time(a.atime),
        btime: statx_time(reply.btime.unwrap_or_default()),
        ctime: statx_time(a.ctime),
        mtime: statx_time(a.mtime),
        rdev_major: a.rdev.major,
        rdev_minor: a.rdev.minor,
        ..wire::Statx::default()
    };
    wire::StatxOut { attr_valid, attr_valid_nsec, flags: 0, spare: [0; 2], stat }
}

pub(crate) fn open_out(opened: &Opened) -> wire::OpenOut {
    wire::OpenOut { fh: opened.handle.get(), open_flags: opened.flags.bits(), backing_id: 0 }
}

pub(crate) fn statfs_out(statfs: &Statfs) -> wire::StatfsOut {
    wire::StatfsOut {
        blocks: statfs.blocks,
        bfree: statfs.free,
        bavail: statfs.available,
        files: statfs.files,
        ffree: statfs.files_free,
        bsize: statfs.block_size,
        namelen: statfs.name_len_max,
        frsize: statfs.block_size,
        padding: 0,
        spare: [0; 6],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{FileHandle, NodeId};

    #[test]
    fn times_before_1970_keep_sign_and_nanoseconds() {
        let before = Timespec { sec: -2, nsec: 999_999_999 };
        let raw = attr(&Attr { mtime: before, ..Attr::default() });
        assert_eq!((raw.mtime, raw.mtimensec), (-2, 999_999_999));
        let raw = statx_out(&StatxReply::new(Attr::default(), Some(before), Duration::ZERO));
        assert_eq!((raw.stat.btime.sec, raw.stat.btime.nsec, raw.stat.mask), (-2, 999_999_999, 0xfff));
    }

    #[test]
    fn lifetimes_past_a_century_are_capped() {
        assert_eq!(lifetime(Duration::MAX), (u64::from(u32::MAX), 999_999_999));
        assert_eq!(lifetime(Duration::from_millis(1500)), (1, 500_000_000));
    }

    #[test]
    fn create_answers_entry_then_open() {
        let entry = Entry { node: NodeId::new(77), ..Entry::negative(Duration::ZERO) };
        let opened = Opened { handle: FileHandle::new(0x1122), ..Opened::default() };
        let fixed = Fixed::pair(&entry_out(&entry), &open_out(&opened));
        assert_eq!(fixed.as_bytes().len(), 144);
        assert_eq!(fixed.as_bytes()[0], 77);
        assert_eq!(fixed.as_bytes()[128..130], [0x22, 0x11]);
    }
}
