//! Mounts through `fusermount3`: it checks the user's rights, mounts, and sends the descriptor of `/dev/fuse` back
//! over the socket whose number it finds in `_FUSE_COMMFD`. That socket is its standard input, so
//! no descriptor leaks into other children.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use creamery_base::{Error, ErrorKind, Result};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use super::{MountOptions, Unmount};
use crate::transport::{Device, cannot_be_opened};

const HELPER: &str = "fusermount3";

/// Mounts at `point`, which is resolved.
pub(super) fn mount(point: &Path, options: &MountOptions) -> Result<Device> {
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.map_err(std::io::Error::from)?;
    let mounted = run(Command::new(HELPER)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .arg("-o")
        .arg(options.fusermount_words())
        .arg("--")
        .arg(point));
    mounted.map_err(of_device)?;
    receive(&ours).map(Device::from)
}

/// If the device cannot be opened, returns the reason for that, and what to do.
fn of_device(error: Error) -> Error {
    let said = error.to_string();
    let is_said = ["/dev/fuse", "fuse device"].iter().any(|words| said.contains(words));
    match Device::open() {
        // The helper runs as root and may open a device that this user may not open.
        Err(Errno::ACCESS | Errno::PERM) if !is_said && error.kind() != ErrorKind::Unsupported => error,
        Err(errno) => cannot_be_opened(errno),
        Ok(_) => error,
    }
}

/// Unmounts `point`.
pub(super) fn unmount(point: &Path, how: Unmount) -> Result<()> {
    let mut command = Command::new(HELPER);
    command.stdin(Stdio::null()).arg("-u");
    if how != Unmount::WhenIdle {
        command.arg("-z");
    }
    run(command.arg("--").arg(point))
}

/// Runs the helper; on failure its output is the message.
fn run(command: &mut Command) -> Result<()> {
    let output = match command.stdout(Stdio::null()).stderr(Stdio::piped()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::unsupported(format!("{HELPER} is not installed (package fuse3)")));
        }
        Err(error) => return Err(Error::from(error).context(format_args!("running {HELPER}"))),
    };
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let kind = if words.contains("busy") { ErrorKind::Busy } else { ErrorKind::PermissionDenied };
    Err(Error::new(kind, words.trim().replace('\n', "; ")))
}

/// Receives the one descriptor that comes with one byte.
fn receive(socket: &OwnedFd) -> Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut pieces = [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(socket.as_fd(), &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    received.map_err(|errno| {
        Error::from(std::io::Error::from(errno)).context(format_args!("asking {HELPER} for /dev/fuse"))
    })?;
    let mut rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fd = rights.next().and_then(|mut fds| fds.next());
    fd.ok_or_else(|| Error::new(ErrorKind::Io, format!("{HELPER} sent no descriptor")))
}
