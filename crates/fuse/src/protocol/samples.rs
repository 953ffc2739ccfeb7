//! One valid request of every kind, for tests.

use zerocopy::{FromZeros, IntoBytes};

use super::opcode::Opcode;
use super::wire;

/// A request as it comes from the device.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) header: wire::InHeader,
    pub(crate) body: Vec<u8>,
}

impl Sample {
    pub(crate) fn new(opcode: Opcode, pieces: &[&[u8]]) -> Self {
        let body = pieces.concat();
        let header = wire::InHeader {
            len: (size_of::<wire::InHeader>() + body.len()) as u32,
            opcode: opcode as u32,
            unique: 1000 + u64::from(opcode as u32),
            nodeid: 77,
            uid: 1,
            gid: 2,
            pid: 3,
            ..wire::InHeader::default()
        };
        Self { header, body }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.header.as_bytes(), &self.body].concat()
    }
}

/// All of them, `SETXATTR` in its long form.
pub(crate) fn samples() -> Vec<Sample> {
    Opcode::ALL.iter().map(|&opcode| sample(opcode)).collect()
}

fn sample(opcode: Opcode) -> Sample {
    let fixed = fixed(opcode);
    let tail: &[u8] = match opcode {
        Opcode::Lookup | Opcode::Unlink | Opcode::Rmdir | Opcode::Link | Opcode::Create => b"name\0",
        Opcode::Mknod | Opcode::Mkdir => b"name\0",
        Opcode::Tmpfile => b"/\0",
        Opcode::Symlink => b"name\0../target\0",
        Opcode::Rename | Opcode::Rename2 => b"old\0new\0",
        Opcode::Write | Opcode::Ioctl => b"12345678",
        Opcode::Setxattr => b"user.x\0value",
        Opcode::Getxattr | Opcode::Removexattr => b"user.x\0",
        _ => b"",
    };
    Sample::new(opcode, &[&fixed, tail])
}

fn fixed(opcode: Opcode) -> Vec<u8> {
    fn zeros<T: FromZeros + IntoBytes + zerocopy::Immutable>() -> Vec<u8> {
        T::new_zeroed().as_bytes().to_vec()
    }
    match opcode {
        Opcode::Init => {
            let init = wire::InitIn { major: 7, minor: 45, max_readahead: 131_072, flags: !(1 << 31) };
            let more = wire::InitInExtension { flags2: 0x7ff, ..wire::InitInExtension::default() };
            [init.as_bytes(), more.as_bytes()].concat()
        }
        Opcode::Forget => wire::ForgetIn { nlookup: 2 }.as_bytes().to_vec(),
        Opcode::BatchForget => {
            let rows = [(10, 1), (11, 5)].map(|(nodeid, nlookup)| wire::ForgetOne { nodeid, nlookup });
            [wire::BatchForgetIn { count: 2, dummy: 0 }.as_bytes(), rows.as_bytes()].concat()
        }
        Opcode::Getattr => wire::GetattrIn { getattr_flags: 1, dummy: 0, fh: 9 }.as_bytes().to_vec(),
        Opcode::Statx => {
            let raw = wire::StatxIn { getattr_flags: 0, sx_mask: 0xfff, ..wire::StatxIn::default() };
            raw.as_bytes().to_vec()
        }
        Opcode::Setattr => {
            let raw = wire::SetattrIn {
                valid: 0x0c31 | 1 << 8,
                atime: -5,
                atimensec: 999_999_999,
                ctime: 12,
                mode: 0o644,
                size: 4096,
                ..wire::SetattrIn::default()
            };
            raw.as_bytes().to_vec()
        }
        Opcode::Mknod => {
            wire::MknodIn { mode: 0o060_644, rdev: 0x801, umask: 0o22, padding: 0 }.as_bytes().to_vec()
        }
        Opcode::Mkdir => wire::MkdirIn { mode: 0o777, umask: 0o27 }.as_bytes().to_vec(),
        Opcode::Rename => wire::RenameIn { newdir: 78 }.as_bytes().to_vec(),
        Opcode::Rename2 => wire::Rename2In { newdir: 78, flags: 1, padding: 0 }.as_bytes().to_vec(),
        Opcode::Link => wire::LinkIn { oldnodeid: 80 }.as_bytes().to_vec(),
        Opcode::Open | Opcode::Opendir => wire::OpenIn { flags: 2, open_flags: 1 }.as_bytes().to_vec(),
        Opcode::Create | Opcode::Tmpfile => {
            wire::CreateIn { flags: 1, mode: 0o100_666, umask: 0o22, open_flags: 0 }.as_bytes().to_vec()
        }
        Opcode::Read | Opcode::Readdir | Opcode::Readdirplus => {
            wire::ReadIn { fh: 9, offset: 3, size: 4096, ..wire::ReadIn::default() }.as_bytes().to_vec()
        }
        Opcode::Write => {
            let raw = wire::WriteIn { fh: 9, offset: 3, size: 8, write_flags: 4, ..wire::WriteIn::default() };
            raw.as_bytes().to_vec()
        }
        Opcode::Release | Opcode::Releasedir => zeros::<wire::ReleaseIn>(),
        Opcode::Flush => zeros::<wire::FlushIn>(),
        Opcode::Fsync | Opcode::Fsyncdir => {
            wire::FsyncIn { fh: 9, fsync_flags: 1, padding: 0 }.as_bytes().to_vec()
        }
        Opcode::Setxattr => {
            let more = wire::SetxattrInExtension { setxattr_flags: 1, padding: 0 };
            [wire::SetxattrIn { size: 5, flags: 1 }.as_bytes(), more.as_bytes()].concat()
        }
        Opcode::Getxattr | Opcode::Listxattr => {
            wire::GetxattrIn { size: 100, padding: 0 }.as_bytes().to_vec()
        }
        Opcode::Access => zeros::<wire::AccessIn>(),
        Opcode::Interrupt => wire::InterruptIn { unique: 5 }.as_bytes().to_vec(),
        Opcode::Ioctl => {
            let raw = wire::IoctlIn { cmd: 0x4008_6602, in_size: 8, out_size: 8, ..Default::default() };
            raw.as_bytes().to_vec()
        }
        Opcode::Fallocate => {
            wire::FallocateIn { fh: 9, offset: 5, length: 6, mode: 3, padding: 0 }.as_bytes().to_vec()
        }
        Opcode::Lseek => wire::LseekIn { fh: 9, offset: 5, whence: 3, padding: 0 }.as_bytes().to_vec(),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            let raw = wire::CopyFileRangeIn { off_in: 1, nodeid_out: 78, len: 6 << 30, ..Default::default() };
            raw.as_bytes().to_vec()
        }
        Opcode::Syncfs => zeros::<wire::SyncfsIn>(),
        _ => Vec::new(),
    }
}
