//! The last word of a server: whether everything is durable and the image is closed, told to whoever unmounts.
//!
//! An unmount ends before its server does, which still has to commit; and when that fails, nobody asks the mount any more. So
//! who unmounts asks for a connection first (the control `WATCH`, see `in_person`), which the server keeps for as long as it lives. When the image is closed it sends one line, the JSON of [`End`], and lets go.
//! A connection that ends without that line is a server that died.
//!
//! A lock of the image would say the same, but anybody who may read the image can take that, and for as long as he likes.
//!
//! # Invariants
//! - CLOSING-1: the line is sent after the image is closed: who has read it may open the image.
//! - CLOSING-2: a server waits for nobody whom it tells.

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

/// More than these are not waiting; it is somebody who asks again and again.
const WATCHERS_MAX: usize = 64;
/// Longer last words are none of ours.
const WORDS_MAX: u64 = 64 << 10;

/// How a server ended.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct End {
    /// Why what was done is not all durable.
    pub(crate) failure: Option<String>,
    /// What kind of a failure that is.
    pub(crate) why: Why,
    /// Whether the last transaction is lost as a whole.
    pub(crate) aborted: bool,
    /// Where more of that is to be read.
    pub(crate) log: Option<String>,
}

/// Those who wait for the end, at the server's side.
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
        in_person::ask(mounter, |name| channel.tell::<WATCH>(name)).map(Self)
    }

    /// Waits for the end. `goes_on` is asked at first and every `look` whether there is anything to wait for; none if there is not and the
    /// server has said nothing.
    /// Errors: the server ended without a word.
    pub(crate) fn end(mut self, look: Duration, goes_on: impl Fn() -> Result<bool>) -> Result<Option<End>> {
        let mut words = Vec::new();
        loop {
            // Looked at before it is read: what the server has said counts before anything that its mount seems to be.
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
            .map_err(|_| Error::new(creamery_base::ErrorKind::Io, "the server ended without a word"))
    }
}
