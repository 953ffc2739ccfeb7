//! Names in deleted subvolumes that the kernel caches although no process uses them.
//!
//! When a subvolume is deleted, the kernel drops the names in it that are not in use at that moment. A name that is released
//! later stays cached like any other, with the directories above, and the subvolume cannot be dropped before. The server notifies the kernel to
//! forget the names that it knows to be in use: those of open files and of directories. It cannot know a name that a process looks up at that
//! very moment. So a thread checks which names of deleted subvolumes are left and notifies the kernel to forget them,
//! again and again with longer pauses, until none is left.
//!
//! # Invariants
//! - LINGER-1: a deleted subvolume without users is dropped, whatever was requested while it was deleted.
//!   Shown by `walked`, the case subvolumes/walked-while-deleted.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use creamery_base::TreeId;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The queue for deleted subvolumes; `None` ends the thread.
pub(super) type Deleted = Sender<Option<TreeId>>;

/// The thread, with its queue. Dropping it ends the thread.
pub(crate) struct Lingering {
    deleted: Deleted,
    thread: Option<JoinHandle<()>>,
}

impl Lingering {
    /// Starts the thread. `forget` notifies the kernel to forget the names of a deleted subvolume, and returns whether none was left.
    pub(super) fn spawn(forget: impl Fn(TreeId) -> bool + Send + 'static) -> Self {
        let (deleted, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("deleted-names".to_owned())
            .spawn(move || forget_all(&receiver, forget))
            .expect("the system has room for one more thread");
        Self { deleted, thread: Some(thread) }
    }

    /// The queue for deleted subvolumes.
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
            // Further deleted subvolumes do not delay the next round.
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
