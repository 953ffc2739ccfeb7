use super::super::samples::{Sample, samples};
use super::*;
use crate::errno::Errno;

const EXT: InitFlags = InitFlags::SETXATTR_EXT;

fn of(opcode: Opcode) -> Sample {
    samples().into_iter().find(|sample| sample.header.opcode == opcode as u32).unwrap()
}

/// Checks the operation that the sample of `opcode` decodes to.
fn check(opcode: Opcode, want: Operation<'_>) {
    let sample = of(opcode);
    let request = decode(&sample.header, &sample.body, &[], EXT).unwrap();
    assert_eq!(request.operation, want);
    assert_eq!((request.node, request.unique), (NodeId::new(77), 1000 + u64::from(opcode as u32)));
}

#[test]
fn names_and_modes() {
    let new = NewInode { mode: 0o060_644, umask: 0o22, rdev: DeviceNumber { major: 8, minor: 1 } };
    check(Opcode::Lookup, Operation::Lookup { name: b"name" });
    check(Opcode::Mknod, Operation::Mknod { name: b"name", new });
    let new = NewInode { mode: 0o040_777, umask: 0o27, ..NewInode::default() };
    check(Opcode::Mkdir, Operation::Mkdir { name: b"name", new });
    check(Opcode::Symlink, Operation::Symlink { name: b"name", target: b"../target" });
    check(Opcode::Link, Operation::Link { node: NodeId::new(80), new_name: b"name" });
    let new_parent = NodeId::new(78);
    let rename = |flags| Operation::Rename { name: b"old", new_parent, new_name: b"new", flags };
    check(Opcode::Rename, rename(RenameFlags::empty()));
    check(Opcode::Rename2, rename(RenameFlags::NOREPLACE));
    let new = NewInode { mode: 0o100_666, umask: 0o22, ..NewInode::default() };
    let open = OpenRequest { flags: 1, kill_suidgid: false };
    check(Opcode::Create, Operation::Create { name: b"name", new, open });
    check(Opcode::Tmpfile, Operation::Tmpfile { new, open });
}

#[test]
fn attributes_keep_sign_nanoseconds_and_absence() {
    let changes = SetAttr {
        mode: Some(0o644),
        atime: Some(SetTime::At(Timespec { sec: -5, nsec: 999_999_999 })),
        mtime: Some(SetTime::Now),
        ctime: Some(Timespec { sec: 12, nsec: 0 }),
        kill_suidgid: true,
        ..SetAttr::default()
    };
    check(Opcode::Setattr, Operation::Setattr { changes });
    check(Opcode::Getattr, Operation::Getattr { handle: Some(FileHandle::new(9)) });
    let mask = StatxMask::BASIC_STATS | StatxMask::BTIME;
    check(Opcode::Statx, Operation::Statx { handle: None, flags: 0, mask });
    let set = SetXattrRequest { flags: 1, kill_sgid: true };
    check(Opcode::Setxattr, Operation::Setxattr { name: b"user.x", value: b"value", set });
}

#[test]
fn data_and_positions() {
    let handle = FileHandle::new(9);
    let write =
        WriteRequest { handle, offset: 3, flags: 0, write_flags: WriteFlags::KILL_SUIDGID, lock_owner: None };
    check(Opcode::Write, Operation::Write { write, data: b"12345678" });
    check(Opcode::Readdirplus, Operation::Readdirplus { handle, offset: 3, size: 4096 });
    check(Opcode::Fsync, Operation::Fsync { handle, data_only: true });
    check(Opcode::Lseek, Operation::Lseek { handle, offset: 5, to: SeekTo::Data });
    check(Opcode::Fallocate, Operation::Fallocate { handle, offset: 5, len: 6, mode: 3 });
    let none = FileHandle::default();
    let from = CopySide { node: NodeId::new(77), handle: none, offset: 1 };
    let to = CopySide { node: NodeId::new(78), handle: none, offset: 0 };
    let copy = |wide| Operation::CopyFileRange { from, to, len: 6 << 30, flags: 0, wide };
    check(Opcode::CopyFileRange, copy(false));
    check(Opcode::CopyFileRange64, copy(true));
}

#[test]
fn forgets_come_row_by_row() {
    let sample = of(Opcode::BatchForget);
    let request = decode(&sample.header, &sample.body, &[], EXT).unwrap();
    let Operation::BatchForget { forgets } = request.operation else { panic!("{request:?}") };
    assert_eq!(forgets.len(), 2);
    assert_eq!(forgets.collect::<Vec<_>>(), [(NodeId::new(10), 1), (NodeId::new(11), 5)]);
}

#[test]
fn setxattr_is_short_unless_negotiated() {
    let short = [wire::SetxattrIn { size: 1, flags: 2 }.as_bytes(), b"user.y\0v"].concat();
    let sample = Sample::new(Opcode::Setxattr, &[&short]);
    let request = decode(&sample.header, &sample.body, &[], InitFlags::empty()).unwrap();
    let set = SetXattrRequest { flags: 2, kill_sgid: false };
    assert_eq!(request.operation, Operation::Setxattr { name: b"user.y", value: b"v", set });
}

#[test]
fn both_layouts_of_a_transport_decode_alike() {
    for sample in samples() {
        let whole = decode(&sample.header, &sample.body, &[], EXT);
        let name = [Opcode::Lookup, Opcode::Unlink, Opcode::Rmdir, Opcode::Symlink, Opcode::Removexattr];
        let fixed = if name.iter().any(|&opcode| opcode as u32 == sample.header.opcode) {
            0
        } else {
            // The end of the fixed structure: the rest decodes from the second piece.
            (0..=sample.body.len())
                .find(|&at| {
                    let (body, rest) = sample.body.split_at(at);
                    decode(&sample.header, body, rest, EXT) == whole
                })
                .unwrap_or(sample.body.len())
        };
        let (body, rest) = sample.body.split_at(fixed);
        assert_eq!(decode(&sample.header, body, rest, EXT), whole, "opcode {}", sample.header.opcode);
        assert!(whole.is_ok());
    }
}

#[test]
fn extensions_are_cut_off_the_end() {
    let mut sample = of(Opcode::Lookup);
    sample.body.extend([0xee; 16]);
    sample.header.total_extlen = 2;
    let request = decode(&sample.header, &sample.body, &[], EXT).unwrap();
    assert_eq!(request.operation, Operation::Lookup { name: b"name" });
    assert_eq!(request.extensions, [0xee; 16]);
    sample.header.total_extlen = 3;
    assert_eq!(decode(&sample.header, &sample.body, &[], EXT).unwrap_err().errno, Errno::EIO);
}

#[test]
fn values_that_make_no_sense_are_invalid_and_torn_requests_are_io_errors() {
    let errno = |opcode, pieces: &[&[u8]]| {
        let sample = Sample::new(opcode, pieces);
        decode(&sample.header, &sample.body, &[], EXT).unwrap_err().errno
    };
    let rename = wire::Rename2In { newdir: 1, flags: 8, padding: 0 };
    assert_eq!(errno(Opcode::Rename2, &[rename.as_bytes(), b"a\0b\0"]), Errno::EINVAL);
    let seek = wire::LseekIn { whence: 9, ..Default::default() };
    assert_eq!(errno(Opcode::Lseek, &[seek.as_bytes()]), Errno::EINVAL);
    let time = wire::SetattrIn { valid: 1 << 4, atimensec: 1_000_000_000, ..Default::default() };
    assert_eq!(errno(Opcode::Setattr, &[time.as_bytes()]), Errno::EINVAL);
    let size = wire::SetattrIn { valid: 1 << 3, size: 1 << 63, ..Default::default() };
    assert_eq!(errno(Opcode::Setattr, &[size.as_bytes()]), Errno::EINVAL);
    let far = wire::WriteIn { offset: i64::MAX as u64, size: 1, ..Default::default() };
    assert_eq!(errno(Opcode::Write, &[far.as_bytes(), b"x"]), Errno::EINVAL);
    let more = wire::WriteIn { size: 9, ..Default::default() };
    assert_eq!(errno(Opcode::Write, &[more.as_bytes(), b"12345678"]), Errno::EIO);
    let rows = wire::BatchForgetIn { count: u32::MAX, dummy: 0 };
    assert_eq!(errno(Opcode::BatchForget, &[rows.as_bytes()]), Errno::EIO);
}

#[test]
fn every_truncation_of_a_request_is_an_error_or_means_the_same() {
    for sample in samples() {
        let whole = decode(&sample.header, &sample.body, &[], EXT).unwrap();
        for len in 0..sample.body.len() {
            if let Ok(request) = decode(&sample.header, &sample.body[..len], &[], EXT) {
                assert_eq!(request, whole, "opcode {} cut to {len}", sample.header.opcode);
            }
        }
    }
}

use zerocopy::IntoBytes;
