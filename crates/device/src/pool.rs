//! A few threads that run requests of a back end whose system calls block.

use std::sync::OnceLock;

use crossbeam_channel::{Sender, unbounded};

const THREADS: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that start with the first job and end when the pool is dropped and its queue is empty.
pub(crate) struct Pool {
    queue: OnceLock<Sender<Job>>,
}

impl Pool {
    pub(crate) const fn new() -> Self {
        Self { queue: OnceLock::new() }
    }

    /// Runs `job` on one of the threads.
    pub(crate) fn run(&self, job: Job) {
        self.queue.get_or_init(start).send(job).expect("the threads live as long as the queue");
    }
}

fn start() -> Sender<Job> {
    let (send, receive) = unbounded::<Job>();
    for number in 0..THREADS {
        let receive = receive.clone();
        std::thread::Builder::new()
            .name(format!("device-{number}"))
            .spawn(move || {
                while let Ok(job) = receive.recv() {
                    job();
                }
            })
            .expect("the host has room for a thread");
    }
    send
}
