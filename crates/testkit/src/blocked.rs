//! Threads that wait in the kernel, as `/proc` shows them: how a test knows that somebody waits, where nothing happens that it could
//! wait for.
//!
//! The kernel names the system call only of a thread that sleeps in it. A thread that was woken and has yet to run is not named.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// Numbers of system calls: on x86-64, and on the architectures that have the common table.
struct Calls {
    read: u64,
    futex: u64,
    naps: [u64; 2],
}

const CALLS: Calls = if cfg!(target_arch = "x86_64") {
    Calls { read: 0, futex: 202, naps: [35, 230] }
} else {
    Calls { read: 63, futex: 98, naps: [101, 115] }
};

/// Whether a process sleeps until its file `descriptor` has something to read.
///
/// ```no_run
/// # fn is_waiting_for_input(child: &std::process::Child) -> anyhow::Result<bool> {
/// creamery_testkit::is_reading(child.id(), 0)
/// # }
/// ```
///
/// # Errors
/// When there is no such process.
pub fn is_reading(process: u32, descriptor: u64) -> Result<bool> {
    let call = sleeps_in(&format!("/proc/{process}/syscall"))?;
    Ok(call.is_some_and(|(number, first)| number == CALLS.read && first == descriptor))
}

/// Whether a process sleeps for a while, to look again then.
///
/// ```no_run
/// # fn looks_again(child: &std::process::Child) -> anyhow::Result<bool> {
/// creamery_testkit::is_napping(child.id())
/// # }
/// ```
///
/// # Errors
/// When there is no such process.
pub fn is_napping(process: u32) -> Result<bool> {
    let call = sleeps_in(&format!("/proc/{process}/syscall"))?;
    Ok(call.is_some_and(|(number, _)| CALLS.naps.contains(&number)))
}

/// A thread of this process that says which one it is.
///
/// ```
/// let (watch, both) = (creamery_testkit::ThreadWatch::default(), std::sync::Barrier::new(2));
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         watch.this_thread();
///         both.wait();
///     });
///     creamery_testkit::wait_until("it waits", || watch.waits());
///     both.wait();
/// });
/// ```
#[derive(Debug, Default)]
pub struct ThreadWatch(AtomicU32);

impl ThreadWatch {
    /// Makes the calling thread the one that is watched.
    pub fn this_thread(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        self.0.store(thread, Ordering::SeqCst);
    }

    /// Whether the thread sleeps until another one wakes it: it waits for a lock, a channel or a condition. Where all others that could
    /// wake it stand still, it waits for good.
    ///
    /// # Panics
    /// When the kernel does not tell.
    #[must_use]
    pub fn waits(&self) -> bool {
        match self.0.load(Ordering::SeqCst) {
            0 => false,
            thread => match sleeps_in(&format!("/proc/self/task/{thread}/syscall")) {
                Ok(call) => call.is_some_and(|(number, _)| number == CALLS.futex),
                // It has ended.
                Err(error) if is_gone(&error) => false,
                Err(error) => panic!("{error:#}"),
            },
        }
    }
}

fn is_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| {
        error.kind() == std::io::ErrorKind::NotFound
            || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
    })
}

/// The number of the system call that the thread with this file sleeps in, and its first argument.
fn sleeps_in(file: &str) -> Result<Option<(u64, u64)>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
    let mut words = text.split_whitespace();
    // One that runs has no number.
    let Some(number) = words.next().and_then(|word| word.parse().ok()) else { return Ok(None) };
    let first = words.next().and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    Ok(first.map(|first| (number, first)))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::{ThreadWatch, is_napping, is_reading};
    use crate::{until, wait_until};

    #[test]
    fn a_child_that_waits_for_input_is_seen_to_read_it_and_nothing_else() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a child");
        until("it reads", || is_reading(child.id(), 0)).expect("it lives");
        assert!(!is_reading(child.id(), 1).expect("it lives") && !is_napping(child.id()).expect("it lives"));
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert!(is_reading(child.id(), 0).is_err(), "it is gone");
    }

    #[test]
    fn a_child_that_sleeps_naps() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("a child");
        until("it naps", || is_napping(child.id())).expect("it lives");
        child.kill().expect("it lives");
        child.wait().expect("it ends");
    }

    #[test]
    fn a_thread_waits_for_a_lock_until_it_is_let_go_of() {
        let (watch, lock) = (ThreadWatch::default(), std::sync::Mutex::new(()));
        assert!(!watch.waits(), "there is none yet");
        let held = lock.lock().expect("nobody died");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                watch.this_thread();
                drop(lock.lock());
            });
            wait_until("it waits for the lock", || watch.waits());
            drop(held);
        });
        assert!(!watch.waits(), "it has ended");
    }
}
