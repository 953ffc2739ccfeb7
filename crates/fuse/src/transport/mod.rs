//! Transports of requests to the handler and of answers to the kernel. There is one so far: [`classic`], threads that read and
//! write `/dev/fuse`. A second one over `io_uring` can stand beside it: it, too, passes a header, a body in
//! two pieces and a reply buffer to the handler and gets an [`Answer`](crate::dispatch::Answer) back.

pub(crate) mod classic;
mod device;
mod linger;
mod worker_pool;

pub(crate) use device::{Device, cannot_be_opened};

use std::cell::Cell;

use creamery_base::Result;

use crate::dispatch::Handler;

/// A way to serve a session to its end.
pub(crate) trait Transport {
    /// Serves until the kernel reports that the mount is gone.
    fn serve(&self, handler: &dyn Handler) -> Result<()>;
}

thread_local! {
    static WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread answers requests, and so must not wait for the kernel.
pub(crate) fn on_worker_thread() -> bool {
    WORKER.get()
}

fn enter_worker_thread() {
    WORKER.set(true);
}
