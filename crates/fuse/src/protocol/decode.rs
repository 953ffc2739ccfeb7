//! Decoding: from the bytes of a request to an [`Operation`].

use creamery_base::Timespec;

use super::flags::{
    FSYNC_DATASYNC, GETATTR_FH, InitFlags, IoctlFlags, OPEN_KILL_SUIDGID, READ_LOCKOWNER, ReleaseFlags,
    RenameFlags, SETXATTR_ACL_KILL_SGID, SetattrValid, StatxMask, WriteFlags,
};
use super::opcode::Opcode;
use super::reader::{Malformed, Reader};
use super::request::{Forgets, Operation, Request};
use super::wire;
use crate::types::{
    CopySide, DeviceNumber, FileHandle, IoctlRequest, NewInode, NodeId, OpenRequest, ReadRequest,
    ReleaseRequest, SeekTo, SetAttr, SetTime, SetXattrRequest, WriteRequest,
};

/// Decodes one request. `body` follows the header; a transport that gets the fixed structure separately
/// passes it as `body` and the remainder as `rest`. `negotiated` decides about layouts that depend on `INIT`.
pub fn decode<'a>(
    header: &wire::InHeader,
    body: &'a [u8],
    rest: &'a [u8],
    negotiated: InitFlags,
) -> Result<Request<'a>, Malformed> {
    let (body, rest, extensions) = split_extensions(header, body, rest)?;
    let mut reader = Reader::new(body, rest);
    let operation = match Opcode::from_number(header.opcode) {
        Some(opcode) => operation(opcode, header, &mut reader, negotiated)?,
        None => Operation::Unsupported { opcode: header.opcode },
    };
    Ok(Request { unique: header.unique, node: NodeId::new(header.nodeid), operation, extensions })
}

type Pieces<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// Extensions lie at the request's end.
fn split_extensions<'a>(
    header: &wire::InHeader,
    body: &'a [u8],
    rest: &'a [u8],
) -> Result<Pieces<'a>, Malformed> {
    let len = usize::from(header.total_extlen) * 8;
    let last = if rest.is_empty() { body } else { rest };
    let keep = last.len().checked_sub(len).ok_or(Malformed::short("extensions longer than the request"))?;
    let (kept, extensions) = last.split_at(keep);
    Ok(if rest.is_empty() { (kept, rest, extensions) } else { (body, kept, extensions) })
}

fn operation<'a>(
    opcode: Opcode,
    header: &wire::InHeader,
    r: &mut Reader<'a>,
    negotiated: InitFlags,
) -> Result<Operation<'a>, Malformed> {
    Ok(match opcode {
        Opcode::Init => init(r)?,
        Opcode::Destroy => Operation::Destroy,
        Opcode::Lookup => Operation::Lookup { name: r.name()? },
        Opcode::Forget => Operation::Forget { lookups: r.structure::<wire::ForgetIn>()?.nlookup },
        Opcode::BatchForget => batch_forget(r)?,
        Opcode::Getattr => {
            let raw: wire::GetattrIn = r.structure()?;
            Operation::Getattr { handle: handle_if(raw.getattr_flags & GETATTR_FH != 0, raw.fh) }
        }
        Opcode::Statx => statx(&r.structure()?),
        Opcode::Setattr => Operation::Setattr { changes: setattr(&r.structure()?)? },
        Opcode::Readlink => Operation::Readlink,
        Opcode::Symlink => Operation::Symlink { name: r.name()?, target: r.string()? },
        Opcode::Mknod => mknod(r)?,
        Opcode::Mkdir => mkdir(r)?,
        Opcode::Unlink => Operation::Unlink { name: r.name()? },
        Opcode::Rmdir => Operation::Rmdir { name: r.name()? },
        Opcode::Rename | Opcode::Rename2 => rename(opcode, r)?,
        Opcode::Link => {
            let node = NodeId::new(r.structure::<wire::LinkIn>()?.oldnodeid);
            Operation::Link { node, new_name: r.name()? }
        }
        Opcode::Open => Operation::Open { open: open(r)? },
        Opcode::Opendir => Operation::Opendir { open: open(r)? },
        Opcode::Create | Opcode::Tmpfile => create(opcode, r)?,
        Opcode::Read | Opcode::Readdir | Opcode::Readdirplus => read(opcode, &r.structure()?)?,
        Opcode::Write => write(r)?,
        Opcode::Statfs => Operation::Statfs,
        Opcode::Release => Operation::Release { release: release(&r.structure()?) },
        Opcode::Releasedir => Operation::Releasedir { release: release(&r.structure()?) },
        Opcode::Flush => {
            let raw: wire::FlushIn = r.structure()?;
            Operation::Flush { handle: FileHandle::new(raw.fh), lock_owner: raw.lock_owner }
        }
        Opcode::Fsync | Opcode::Fsyncdir => fsync(opcode, &r.structure()?),
        Opcode::Setxattr => setxattr(r, negotiated)?,
        Opcode::Getxattr => {
            let raw: wire::GetxattrIn = r.structure()?;
            Operation::Getxattr { name: xattr_name(r)?, size: raw.size }
        }
        Opcode::Listxattr => Operation::Listxattr { size: r.structure::<wire::GetxattrIn>()?.size },
        Opcode::Removexattr => Operation::Removexattr { name: xattr_name(r)? },
        Opcode::Access => Operation::Access { mask: r.structure::<wire::AccessIn>()?.mask },
        Opcode::Ioctl => ioctl(r)?,
        Opcode::Fallocate => fallocate(&r.structure()?)?,
        Opcode::Lseek => lseek(&r.structure()?)?,
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => copy_file_range(opcode, header, &r.structure()?)?,
        Opcode::Syncfs => Operation::Syncfs,
        Opcode::Interrupt => Operation::Interrupt { unique: r.structure::<wire::InterruptIn>()?.unique },
        Opcode::Getlk
        | Opcode::Setlk
        | Opcode::Setlkw
        | Opcode::Bmap
        | Opcode::Poll
        | Opcode::NotifyReply
        | Opcode::Setupmapping
        | Opcode::Removemapping => Operation::Unsupported { opcode: opcode as u32 },
    })
}

fn handle_if(valid: bool, raw: u64) -> Option<FileHandle> {
    valid.then_some(FileHandle::new(raw))
}

fn statx<'a>(raw: &wire::StatxIn) -> Operation<'a> {
    Operation::Statx {
        handle: handle_if(raw.getattr_flags & GETATTR_FH != 0, raw.fh),
        flags: raw.sx_flags,
        mask: StatxMask::from_bits_retain(raw.sx_mask),
    }
}

/// `offset` and `offset + len` must be positions a file can have.
fn check_range(offset: u64, len: u64) -> Result<(), Malformed> {
    match offset.checked_add(len) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(Malformed::value("range past the largest file position")),
    }
}

/// Extended attribute names may hold slashes.
fn xattr_name<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    match r.string()? {
        [] => Err(Malformed::value("empty attribute name")),
        name => Ok(name),
    }
}

fn init<'a>(r: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let init: wire::InitIn = r.structure()?;
    let extended = u64::from(init.flags) & InitFlags::INIT_EXT.bits() != 0;
    let flags2 = if extended { r.structure::<wire::InitInExtension>()?.flags2 } else { 0 };
    Ok(Operation::Init { init, flags2 })
}

fn batch_forget<'a>(r: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let raw: wire::BatchForgetIn = r.structure()?;
    let len = usize::try_from(raw.count)
        .ok()
        .and_then(|count| count.checked_mul(size_of::<wire::ForgetOne>()))
        .ok_or(Malformed::short("more rows than a request can hold"))?;
    Ok(Operation::BatchForget { forgets: Forgets::new(r.bytes(len)?) })
}

fn time(sec: i64, nsec: u32) -> Result<Timespec, Malformed> {
    if nsec >= 1_000_000_000 {
        return Err(Malformed::value("a second has no more than 999999999 nanoseconds"));
    }
    Ok(Timespec { sec, nsec })
}

fn setattr(raw: &wire::SetattrIn) -> Result<SetAttr, Malformed> {
    let valid = SetattrValid::from_bits_retain(raw.valid);
    let when = |given, now, sec, nsec| {
        if valid.contains(now) {
            Ok(Some(SetTime::Now))
        } else if valid.contains(given) {
            time(sec, nsec).map(|time| Some(SetTime::At(time)))
        } else {
            Ok(None)
        }
    };
    if valid.contains(SetattrValid::SIZE) {
        check_range(raw.size, 0)?;
    }
    Ok(SetAttr {
        mode: valid.contains(SetattrValid::MODE).then_some(raw.mode),
        uid: valid.contains(SetattrValid::UID).then_some(raw.uid),
        gid: valid.contains(SetattrValid::GID).then_some(raw.gid),
        size: valid.contains(SetattrValid::SIZE).then_some(raw.size),
        atime: when(SetattrValid::ATIME, SetattrValid::ATIME_NOW, raw.atime, raw.atimensec)?,
        mtime: when(SetattrValid::MTIME, SetattrValid::MTIME_NOW, raw.mtime, raw.mtimensec)?,
        ctime: match valid.contains(SetattrValid::CTIME) {
            true => Some(time(raw.ctime, raw.ctimensec)?),
            false => None,
        },
        handle: handle_if(valid.contains(SetattrValid::FH), raw.fh),
        lock_owner: valid.contains(SetattrValid::LOCKOWNER).then_some(raw.lock_owner),
        kill_suidgid: valid.contains(SetattrValid::KILL_SUIDGID),
    })
}

fn mknod<'a>(r: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let raw: wire::MknodIn = r.structure()?;
    let new = NewInode { mode: raw.mode, umask: raw.umask, rdev: DeviceNumber::from_wire(raw.rdev) };
    Ok(Operation::Mknod { name: r.name()?, new })
}

fn mkdir<'a>(r: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let raw: wire::MkdirIn = r.structure()?;
    let new = NewInode { mode: 0o040_000 | (raw.mode & 0o7777), umask: raw.umask, ..NewInode::default() };
    Ok(Operation::Mkdir { name: r.name()?, new })
}

fn rename<'a>(opcode: Opcode, r: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let (newdir, flags) = match opcode {
        Opcode::Rename2 => {
            let raw: wire::Rename2In = r.structure()?;
            (raw.newdir, raw.flags)
        }
        _ => (r.structure::<wire::RenameIn>()?.newdir, 0),
    };
    let flags = RenameFlags::from_bits(flags).ok_or(Malformed::value("unknown rename flag"))?;
    Ok(Operation::Rename { name: r.name()?, new_parent: NodeId::new(newdir), new_name: r.name()?, flags })
}

fn open(r: &mut Reader<'_>) -> Result<OpenRequest, Malformed> {
    let raw: wire::OpenIn = r.structure()?;
    Ok(OpenRequest { flags: raw.flags, kill_suidgid: raw.open_flags & OPEN_KILL_SUIDGID != 0 })
}

fn create<'a>(opcode: Opcode, r: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let raw: wire::CreateIn = r.structure()?;
    let new = NewInode { mode: raw.mode, umask: raw.umask, ..NewInode::default() };
    let open = OpenRequest { flags: raw.flags, kill_suidgid: raw.open_flags & OPEN_KILL_SUIDGID != 0 };
    Ok(match opcode {
        // The name that follows is a placeholder of the kernel's.
        Opcode::Tmpfile => Operation::Tmpfile { new, open },
        _ => Operation::Create { name: r.name()?, new, open },
    })
}

fn read<'a>(opcode: Opcode, raw: &wire::ReadIn) -> Result<Operation<'a>, Malformed> {
    let handle = FileHandle::new(raw.fh);
    // Offsets of a directory are cookies: any 64 bits.
    Ok(match opcode {
        Opcode::Readdir => Operation::Readdir { handle, offset: raw.offset, size: raw.size },
        Opcode::Readdirplus => Operation::Readdirplus { handle, offset: raw.offset, size: raw.size },
        _ => {
            check_range(raw.offset, 0)?;
            let lock_owner = (raw.read_flags & READ_LOCKOWNER != 0).then_some(raw.lock_owner);
            let read = ReadRequest { handle, offset: raw.offset, flags: raw.flags, lock_owner };
            Operation::Read { read, size: raw.size }
        }
    })
}

fn write<'a>(r: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let raw: wire::WriteIn = r.structure()?;
    check_range(raw.offset, raw.size.into())?;
    let write_flags = WriteFlags::from_bits_retain(raw.write_flags);
    let write = WriteRequest {
        handle: FileHandle::new(raw.fh),
        offset: raw.offset,
        flags: raw.flags,
        write_flags,
        lock_owner: write_flags.contains(WriteFlags::LOCKOWNER).then_some(raw.lock_owner),
    };
    let len = usize::try_from(raw.size).map_err(|_| Malformed::short("size past the address space"))?;
    Ok(Operation::Write { write, data: r.bytes(len)? })
}

fn release(raw: &wire::ReleaseIn) -> ReleaseRequest {
    ReleaseRequest {
        handle: FileHandle::new(raw.fh),
        flags: raw.flags,
        release_flags: ReleaseFlags::from_bits_retain(raw.release_flags),
        lock_owner: raw.lock_owner,
    }
}

fn fsync<'a>(opcode: Opcode, raw: &wire::FsyncIn) -> Operation<'a> {
    let (handle, data_only) = (FileHandle::new(raw.fh), raw.fsync_flags & FSYNC_DATASYNC != 0);
    match opcode {
        Opcode::Fsyncdir => Operation::Fsyncdir { handle, data_only },
        _ => Operation::Fsync { handle, data_only },
    }
}

fn setxattr<'a>(r: &mut Reader<'a>, negotiated: InitFlags) -> Result<Operation<'a>, Malformed> {
    let raw: wire::SetxattrIn = r.structure()?;
    let more = match negotiated.contains(InitFlags::SETXATTR_EXT) {
        true => r.structure::<wire::SetxattrInExtension>()?.setxattr_flags,
        false => 0,
    };
    let set = SetXattrRequest { flags: raw.flags, kill_sgid: more & SETXATTR_ACL_KILL_SGID != 0 };
    let name = xattr_name(r)?;
    let len = usize::try_from(raw.size).map_err(|_| Malformed::short("size past the address space"))?;
    Ok(Operation::Setxattr { name, value: r.bytes(len)?, set })
}

fn ioctl<'a>(r: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let raw: wire::IoctlIn = r.structure()?;
    let ioctl = IoctlRequest {
        handle: FileHandle::new(raw.fh),
        flags: IoctlFlags::from_bits_retain(raw.flags),
        command: raw.cmd,
        argument: raw.arg,
    };
    let len = usize::try_from(raw.in_size).map_err(|_| Malformed::short("size past the address space"))?;
    Ok(Operation::Ioctl { ioctl, input: r.bytes(len)?, output_len: raw.out_size })
}

fn fallocate<'a>(raw: &wire::FallocateIn) -> Result<Operation<'a>, Malformed> {
    check_range(raw.offset, raw.length)?;
    Ok(Operation::Fallocate {
        handle: FileHandle::new(raw.fh),
        offset: raw.offset,
        len: raw.length,
        mode: raw.mode,
    })
}

fn lseek<'a>(raw: &wire::LseekIn) -> Result<Operation<'a>, Malformed> {
    let to = SeekTo::from_whence(raw.whence).ok_or(Malformed::value("unknown whence"))?;
    Ok(Operation::Lseek { handle: FileHandle::new(raw.fh), offset: raw.offset, to })
}

fn copy_file_range<'a>(
    opcode: Opcode,
    header: &wire::InHeader,
    raw: &wire::CopyFileRangeIn,
) -> Result<Operation<'a>, Malformed> {
    check_range(raw.off_in, raw.len)?;
    check_range(raw.off_out, raw.len)?;
    let from =
        CopySide { node: NodeId::new(header.nodeid), handle: FileHandle::new(raw.fh_in), offset: raw.off_in };
    let to = CopySide {
        node: NodeId::new(raw.nodeid_out),
        handle: FileHandle::new(raw.fh_out),
        offset: raw.off_out,
    };
    let wide = matches!(opcode, Opcode::CopyFileRange64);
    Ok(Operation::CopyFileRange { from, to, len: raw.len, flags: raw.flags, wide })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
