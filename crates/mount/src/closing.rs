//! The last message of a server to an unmounting process: whether everything is durable and the image is closed.
//!
//! An unmount ends before its server does, which still has to commit; and if that fails, no process asks the mount any more. So
//! the unmounting process opens a connection first (the control `WATCH`, see `in_person`), which the server keeps for as long as it lives. When the image is closed, the server
//! sends one line, the JSON of [`End`], and closes the connection. A connection that ends without that line means that the server died.
//!
//! A lock of the image would show the same, but any process that may read the image can take the lock, and for any time.
//!
//! # Invariants
//! - CLOSING-1: the line is sent after the image is closed: a process that has read it may open the image.
//!   Shown by `number_is_taken`, the case mount/umount-waits-though-its-number-is-taken.
//! - CLOSING-2: a server does not wait for the receivers of the line.

use std::io::{ErrorKind as IoKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, Result};
use creamery_fuse::Errno;
use serde::{Deserialize, Serialize};

use crate::asker::Asker;
use crate::control::{Channel, WATCH};
use crate::in_person;
use crate::why::Why;

/// Watchers at most; more come only from a process that asks again and again.
const WATCHERS_MAX: usize = 64;
/// Bytes of the longest last message.
const WORDS_MAX: u64 = 64 << 10;

/// The end of a server.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct End {
    /// The error message, if not all changes are durable.
    pub(crate) failure: Option<String>,
    /// The kind of the failure.
    pub(crate) why: Why,
    /// Whether the whole last transaction is lost.
    pub(crate) aborted: bool,
    /// The log file with more about it.
    pub(crate) log: Option<String>,
}

/// The connections of processes that wait for the end, on the server's side.
#[derive(Default)]
pub(crate) struct Watchers(RankedMutex<Vec<UnixStream>, { rank::LEAF }>);

impl Watchers {
    /// Connects to the socket whose name `message` of `asker` holds.
    pub(crate) fn add(&self, asker: &Asker, message: &[u8]) -> creamery_fuse::Result<()> {
        let socket = in_person::connect(asker, message)?;
        let mut watchers = self.0.lock();
        watchers.retain_mut(is_there);
        if watchers.len() >= WATCHERS_MAX {
            return Err(Errno::EBUSY);
        }
        watchers.push(socket);
        Ok(())
    }

    /// Sends the end to all of them.
    pub(crate) fn tell(&self, end: &End) {
        let line = serde_json::to_vec(end).expect("a text is no problem for JSON");
        for mut watcher in self.0.lock().drain(..) {
            // A watcher that has left is ignored.
            let _ = watcher.write_all(&line);
        }
    }
}

/// Whether the other end still waits: it sends nothing, so only its end makes the socket readable.
fn is_there(watcher: &mut UnixStream) -> bool {
    watcher.read(&mut [0]).is_err_and(|error| error.kind() == IoKind::WouldBlock)
}

/// A connection that waits for the end of a server.
pub(crate) struct Watch(UnixStream);

impl Watch {
    /// Connects to the server. `mounter` is the user number of the mounter.
    /// Errors: the server does not connect.
    pub(crate) fn begin(channel: &Channel, mounter: u32) -> Result<Self> {
        in_person::ask(mounter, |name| channel.tell::<WATCH>(name)).map(Self)
    }

    /// Waits for the end. Calls `goes_on` at first and after every `look`, to ask whether there still is a mount; `None` if there is not and the
    /// server has sent nothing.
    /// Errors: the server ended without a message.
    pub(crate) fn end(mut self, look: Duration, goes_on: impl Fn() -> Result<bool>) -> Result<Option<End>> {
        let mut words = Vec::new();
        loop {
            // This check comes before the read: a message of the server counts before the state of its mount.
            let is_waited_for = goes_on()?;
            let wait = if is_waited_for { look } else { Duration::from_millis(1) };
            self.0.set_read_timeout(Some(wait))?;
            match Read::by_ref(&mut self.0).take(WORDS_MAX).read_to_end(&mut words) {
                Ok(_) => break,
                Err(error) if matches!(error.kind(), IoKind::WouldBlock | IoKind::TimedOut) => {
                    if !is_waited_for {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        serde_json::from_slice(&words)
            .map(Some)
            .map_err(|_| Error::new(creamery_base::ErrorKind::Io, "the server ended without an answer"))
    }
}
