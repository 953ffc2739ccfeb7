//! Errors of standard output, and a standard output that was closed when the program began (`creamery ls disk.img >&-`).
//!
//! Rust's standard library opens `/dev/null` in its place before `main`, so output would be lost with exit status 0. A constructor checks
//! before that, and `main` then opens `/dev/full` there: each write fails, and [`writing`] gives the true reason.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery::Error;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, and before the standard library is ready, so it only calls the kernel and stores a flag.
#[ctor::ctor(unsafe)]
fn look() {
    let flags = rustix::io::fcntl_getfd(rustix::stdio::stdout());
    WAS_CLOSED.store(flags == Err(rustix::io::Errno::BADF), Ordering::Relaxed);
}

/// Whether standard output was closed when the program began.
fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

/// Makes writes to a closed standard output fail instead of being lost.
pub(crate) fn refuse_words() {
    if was_closed()
        && let Ok(full) = File::options().write(true).open("/dev/full")
    {
        // Without that device output is lost, as the standard library has it.
        let _ = rustix::stdio::dup2_stdout(&full);
    }
}

/// Fails if standard output was closed, before a command makes anything for it.
pub(crate) fn expect_open() -> Result<(), Error> {
    if was_closed() { Err(writing(rustix::io::Errno::BADF.into())) } else { Ok(()) }
}

/// An error of standard output. It belongs to the host, not to an image.
pub(crate) fn writing(error: io::Error) -> Error {
    let error = if was_closed() { io::Error::from(rustix::io::Errno::BADF) } else { error };
    Error::from(error).on_host(Path::new("writing to standard output"))
}
