//! What cannot be written to standard output, and standard output that was closed when the program began (`creamery ls disk.img >&-`).
//!
//! The standard library of Rust opens `/dev/null` in its place before `main`, so words would go nowhere and the exit status would be 0. A
//! constructor looks before that, and `main` then puts `/dev/full` there: each write fails, and [`writing`] names the true reason.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery::Error;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, and before the standard library is ready: it asks the kernel, and stores a flag.
#[ctor::ctor(unsafe)]
fn look() {
    let flags = rustix::io::fcntl_getfd(rustix::stdio::stdout());
    WAS_CLOSED.store(flags == Err(rustix::io::Errno::BADF), Ordering::Relaxed);
}

/// Whether standard output was closed when the program began.
fn was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

/// Lets each write to standard output fail that would go nowhere.
pub(crate) fn refuse_words() {
    if was_closed()
        && let Ok(full) = File::options().write(true).open("/dev/full")
    {
        // Without that device words go nowhere, as the standard library has it.
        let _ = rustix::stdio::dup2_stdout(&full);
    }
}

/// Fails where standard output was closed, before anything is made that goes there.
pub(crate) fn expect_open() -> Result<(), Error> {
    if was_closed() { Err(writing(rustix::io::Errno::BADF.into())) } else { Ok(()) }
}

/// What could not be written: a thing of the host, whatever image the words were of.
pub(crate) fn writing(error: io::Error) -> Error {
    let error = if was_closed() { io::Error::from(rustix::io::Errno::BADF) } else { error };
    Error::from(error).on_host(Path::new("writing to standard output"))
}
