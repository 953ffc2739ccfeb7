//! Names in deleted subvolumes that the kernel remembers although nobody uses them.
//!
//! When a subvolume is deleted the kernel drops what it remembers of it, but not what is in use just then. A name that is let go of
//! later it remembers like any other, and with it the directories above, and the subvolume is not dropped before. It is told to
//! forget the names that are known to be in use: of open files and of directories. A name that somebody asks for in that
//! very moment nobody can know. So a thread looks which names of deleted subvolumes are left and has them forgotten,
//! again and again with longer pauses, until there are none.
//!
//! # Invariants
//! - LINGER-1: a deleted subvolume that nobody uses is dropped, whatever was asked while it was deleted.
//!   Shown by `subvolumes/walked-while-deleted`.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use creamery_base::TreeId;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Where to say that a subvolume was deleted; nothing ends the thread.
pub(super) type Deleted = Sender<Option<TreeId>>;

/// The thread. Dropping it ends it.
pub(crate) struct Lingering {
    deleted: Deleted,
    thread: Option<JoinHandle<()>>,
}

impl Lingering {
    /// Starts it. `forget` has the kernel forget the names of a deleted subvolume, and says whether none was left.
    pub(super) fn spawn(forget: impl Fn(TreeId) -> bool + Send + 'static) -> Self {
        let (deleted, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("deleted-names".to_owned())
            .spawn(move || forget_all(&receiver, forget))
            .expect("the system has room for one more thread");
        Self { deleted, thread: Some(thread) }
    }

    /// Where to say what was deleted.
    pub(super) fn deleted(&self) -> Deleted {
        self.deleted.clone()
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let _ = self.deleted.send(None);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn forget_all(receiver: &Receiver<Option<TreeId>>, forget: impl Fn(TreeId) -> bool) {
    let (mut left, mut pause, mut due) = (BTreeSet::new(), PAUSE_MIN, Instant::now());
    loop {
        let order = match left.is_empty() {
            true => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            // Others that are deleted meanwhile do not put it off.
            false => receiver.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match order {
            Ok(Some(id)) => {
                pause = PAUSE_MIN;
                due = if left.is_empty() { Instant::now() + pause } else { due.min(Instant::now() + pause) };
                left.insert(id);
            }
            Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                left.retain(|id| !forget(*id));
                pause = (2 * pause).min(PAUSE_MAX);
                due = Instant::now() + pause;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn it_asks_until_nothing_is_left() {
        let (said, hears) = channel();
        let left = Mutex::new(3);
        let lingering = Lingering::spawn(move |id| {
            let mut left = left.lock().expect("nobody panicked");
            *left -= 1;
            said.send((id, *left)).expect("the test hears");
            *left == 0
        });
        let id = TreeId::new(256);
        lingering.deleted().send(Some(id)).expect("it lives");
        let heard: Vec<_> = (0..3).map(|_| hears.recv().expect("it lives")).collect();
        assert_eq!(heard, [(id, 2), (id, 1), (id, 0)]);
        drop(lingering);
        assert!(hears.recv().is_err(), "it has ended");
    }
}
