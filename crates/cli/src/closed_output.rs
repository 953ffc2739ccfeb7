//! Standard output that was closed when the program began (`creamery ls disk.img >&-`).
//!
//! The standard library of Rust opens `/dev/null` in its place before `main`, so words would go nowhere and the exit status would be 0. A
//! constructor looks before that, and `main` then puts `/dev/full` there: each write fails, and `output::writing` names the true reason.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, and before the standard library is ready: it asks the kernel, and stores a flag.
#[ctor::ctor(unsafe)]
fn look() {
    let flags = rustix::io::fcntl_getfd(rustix::stdio::stdout());
    WAS_CLOSED.store(flags == Err(rustix::io::Errno::BADF), Ordering::Relaxed);
}

/// Whether standard output was closed when the program began.
pub(crate) fn was_closed() -> bool {
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
