//! Controls that only some users may send: the asker proves its identity.
//!
//! A request does not name its user: the kernel does that only for new inodes. So the asker makes a socket and tells the mount its
//! name, and the server connects to it. Then both see the credentials of the other end, and use this connection.
//!
//! The socket has an abstract name that the kernel chooses, so no file remains and no user can block its name.
//!
//! # Invariants
//! - IN-PERSON-1: the server connects for a thread that may administrate, and for no other: any process could name a socket of a third program,
//!   which would take the server for a user of its own. At the other end only root, the user of the server, and the process of the asking thread
//!   get an answer. The asker trusts only a server that may administrate: root of a container has the same number as root.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use creamery_base::{Error, Result};
use creamery_fuse::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::asker::Asker;

/// Names of sockets are not longer than this, bytes.
const NAME_MAX: usize = 107;
/// Bytes of a message that hold the name: its length in one byte, then the name.
pub(crate) const NAME_FIELD: usize = 1 + NAME_MAX;

/// The server's end: connects for `asker` to the socket whose name `message` begins with. Writes to it do not wait.
/// Errors: `EPERM` for an asker that may not administrate (IN-PERSON-1).
pub(crate) fn connect(asker: &Asker, message: &[u8]) -> creamery_fuse::Result<UnixStream> {
    if !asker.administrates() {
        return Err(Errno::EPERM);
    }
    let name = message.split_first().and_then(|(len, rest)| rest.get(..usize::from(*len)));
    let name = name.filter(|name| !name.is_empty() && name.len() <= NAME_MAX).ok_or(Errno::EINVAL)?;
    let address = SocketAddrUnix::new_abstract_name(name)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address)?;
    let peer = socket_peercred(&socket)?;
    let is_asker = asker.process() == u32::try_from(peer.pid.as_raw_nonzero().get()).ok();
    if !is_asker && !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
        return Err(Errno::EPERM);
    }
    Ok(UnixStream::from(socket))
}

/// The asker's end: `tell` sends the message that begins with the name. `mounter` is the user number of the mounter.
/// Errors: those of `tell`; of sockets.
pub(crate) fn ask(mounter: u32, tell: impl FnOnce(&[u8]) -> Result<()>) -> Result<UnixStream> {
    let failed =
        |errno: rustix::io::Errno| Error::from(std::io::Error::from(errno)).context("making a socket");
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.map_err(failed)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_unnamed()).map_err(failed)?;
    rustix::net::listen(&socket, 16).map_err(failed)?;
    let listener = UnixListener::from(socket);
    let address: SocketAddr = listener.local_addr()?;
    let name = address.as_abstract_name().unwrap_or_default();
    let len =
        u8::try_from(name.len()).map_err(|_| Error::unsupported("socket name is longer than 255 bytes"))?;
    tell(&[&[len], name].concat())?;
    listener.set_nonblocking(true)?; // the server has connected by now
    loop {
        let (stream, _) = listener.accept()?;
        let peer = socket_peercred(&stream).map_err(failed)?;
        // The user number dates from the connection. The other rights are looked up now, when the thread with that
        // number may run another program, or belong to another process.
        let is_known = peer.uid.is_root() || peer.uid.as_raw() == mounter;
        let number = peer.pid.as_raw_nonzero().get().cast_unsigned();
        if is_known && Asker::of(number).administrates_for(mounter) {
            stream.set_nonblocking(false)?;
            return Ok(stream);
        }
    }
}
