//! The last word of a server: whether everything is durable and the image is closed, told to whoever unmounts.
//!
//! An unmount ends before its server does, which still has to commit; and when that fails, nobody asks the mount any more. So
//! who unmounts makes a socket first, and tells the mount its name (the control `WATCH`). The server connects to it, and keeps
//! the connection for as long as it lives. When the image is closed it sends one line, the JSON of [`End`], and lets go.
//! A connection that ends without that line is a server that died.
//!
//! The socket has an abstract name that the kernel chooses, so there is no file that stays or that somebody could forbid. A lock of
//! the image would say the same, but anybody who may read the image can take that, and for as long as he likes.
//!
//! # Invariants
//! - CLOSING-1: the line is sent after the image is closed: who has read it may open the image.
//! - CLOSING-2: only root and the user whose server it is are told, and only the server and root are believed.
//! - CLOSING-3: a server waits for nobody whom it tells.

use std::io::{ErrorKind as IoKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, Result};
use creamery_fuse::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::control::{Channel, WATCH};

/// More than these are not waiting; it is somebody who asks again and again.
const WATCHERS_MAX: usize = 64;
/// Names of sockets are shorter than this.
const NAME_MAX: usize = 107;
/// Longer last words are none of ours.
const WORDS_MAX: u64 = 64 << 10;

/// How a server ended.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct End {
    /// Why what was done is not all durable.
    pub(crate) failure: Option<String>,
    /// Where more of that is to be read.
    pub(crate) log: Option<String>,
}

/// Those who wait for the end, at the server's side.
#[derive(Default)]
pub(crate) struct Watchers(RankedMutex<Vec<UnixStream>, { rank::LEAF }>);

impl Watchers {
    /// Connects to the socket whose name `message` holds: its length in one byte, then the name.
    pub(crate) fn add(&self, message: &[u8]) -> creamery_fuse::Result<()> {
        let name = message.split_first().and_then(|(len, rest)| rest.get(..usize::from(*len)));
        let name = name.filter(|name| !name.is_empty() && name.len() <= NAME_MAX).ok_or(Errno::EINVAL)?;
        let address = SocketAddrUnix::new_abstract_name(name)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK; // CLOSING-3
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &address)?;
        // The request does not say who makes it: the kernel tells that of new inodes only. The socket does.
        let peer = socket_peercred(&socket)?.uid;
        if !peer.is_root() && peer != rustix::process::geteuid() {
            return Err(Errno::EPERM);
        }
        let mut watchers = self.0.lock();
        watchers.retain_mut(is_there);
        if watchers.len() >= WATCHERS_MAX {
            return Err(Errno::EBUSY);
        }
        watchers.push(UnixStream::from(socket));
        Ok(())
    }

    /// Tells all of them.
    pub(crate) fn tell(&self, end: &End) {
        let line = serde_json::to_vec(end).expect("a text is no problem for JSON");
        for mut watcher in self.0.lock().drain(..) {
            // Who has left does not want to know.
            let _ = watcher.write_all(&line);
        }
    }
}

/// Whether the other end still waits: it says nothing, so there is something to read only when it has left.
fn is_there(watcher: &mut UnixStream) -> bool {
    watcher.read(&mut [0]).is_err_and(|error| error.kind() == IoKind::WouldBlock)
}

/// The end of a server that somebody waits for.
pub(crate) struct Watch(UnixStream);

impl Watch {
    /// Asks the server to tell. `mounter` is who mounted.
    /// Errors: the server does not tell us.
    pub(crate) fn begin(channel: &Channel, mounter: u32) -> Result<Self> {
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
        let len = u8::try_from(name.len()).map_err(|_| Error::unsupported("a socket with a name so long"))?;
        channel.tell::<WATCH>(&[&[len], name].concat())?;
        listener.set_nonblocking(true)?; // it is there by now
        loop {
            let (stream, _) = listener.accept()?;
            let peer = socket_peercred(&stream).map_err(failed)?.uid.as_raw();
            if peer == 0 || peer == mounter {
                stream.set_nonblocking(false)?;
                return Ok(Self(stream));
            }
        }
    }

    /// Waits for the end. `goes_on` is asked at first and every `look` whether there is anything to wait for; none if not.
    /// Errors: the server ended without a word.
    pub(crate) fn end(mut self, look: Duration, goes_on: impl Fn() -> Result<bool>) -> Result<Option<End>> {
        let mut words = Vec::new();
        // What it has said already counts before anything that its mount point seems to be now.
        self.0.set_read_timeout(Some(Duration::from_millis(1)))?;
        let mut looked = None::<Instant>;
        loop {
            match Read::by_ref(&mut self.0).take(WORDS_MAX).read_to_end(&mut words) {
                Ok(_) => break,
                Err(error) if matches!(error.kind(), IoKind::WouldBlock | IoKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
            if looked.is_none_or(|looked| looked.elapsed() >= look) {
                if !goes_on()? {
                    return Ok(None);
                }
                if looked.is_none() {
                    self.0.set_read_timeout(Some(look))?;
                }
                looked = Some(Instant::now());
            }
        }
        serde_json::from_slice(&words)
            .map(Some)
            .map_err(|_| Error::new(creamery_base::ErrorKind::Io, "the server ended without a word"))
    }
}
