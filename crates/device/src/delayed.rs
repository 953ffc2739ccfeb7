//! A slow device: every answer comes a fixed time after its request, however many requests are under way.
//!
//! A benchmark on memory shows no wait, and one on a disk shows that disk. Here requests overlap like on a disk with a deep queue: a reader
//! that sends two requests at once waits once, and one that sends the second after the first answer waits twice.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use creamery_base::lock::{RankedCondvar, RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Result};

use crate::{BlockDevice, Completion, DeviceId, DirectRequests, Reply, Request};

/// A device that answers each request of the device below a fixed time after it came. Dropping it gives all waiting answers at once, and
/// waits for the requests that the device below has not answered.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use creamery_device::{BlockDevice, DelayedDevice, MemoryDevice};
/// let device = DelayedDevice::new(Arc::new(MemoryDevice::new(4096)), Duration::from_micros(100))?;
/// device.write_at(512, b"cream")?;
/// let mut bytes = [0; 5];
/// device.read_at(512, &mut bytes)?;
/// assert_eq!(&bytes, b"cream");
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub struct DelayedDevice {
    below: Arc<dyn BlockDevice>,
    latency: Duration,
    answers: Arc<Answers>,
    thread: Option<JoinHandle<()>>,
}

/// Answers that wait for their time.
#[derive(Default)]
struct Answers {
    state: RankedMutex<DelayedState, { rank::LEAF }>,
    changed: RankedCondvar,
}

#[derive(Default)]
struct DelayedState {
    waiting: BinaryHeap<Reverse<Answer>>,
    /// Requests that the device below has not answered.
    below: usize,
    is_closed: bool,
}

struct Answer {
    due: Instant,
    done: Completion,
    outcome: Result<Reply>,
}

impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Answer {}

impl PartialOrd for Answer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Answer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

impl DelayedDevice {
    /// Creates a device that delays `below` by `latency`.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn new(below: Arc<dyn BlockDevice>, latency: Duration) -> Result<Self> {
        let answers = Arc::new(Answers::default());
        let shared = Arc::clone(&answers);
        let thread = thread::Builder::new().name("delayed".to_owned()).spawn(move || shared.serve())?;
        Ok(Self { below, latency, answers, thread: Some(thread) })
    }
}

impl Answers {
    /// Gives each answer when it is due: the main function of the thread.
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            let Some(due) = state.waiting.peek().map(|Reverse(first)| first.due) else {
                if state.is_closed && state.below == 0 {
                    return;
                }
                let nothing_comes = |state: &mut DelayedState| {
                    state.waiting.is_empty() && (state.below > 0 || !state.is_closed)
                };
                state = self.changed.wait_while(state, nothing_comes);
                continue;
            };
            if due > now && !state.is_closed {
                let first_waits = |state: &mut DelayedState| {
                    let is_first = state.waiting.peek().is_some_and(|Reverse(first)| first.due >= due);
                    is_first && !state.is_closed
                };
                state = self.changed.wait_while_for(state, due - now, first_waits);
                continue;
            }
            let Some(Reverse(Answer { done, outcome, .. })) = state.waiting.pop() else { continue };
            drop(state);
            done(outcome);
            state = self.state.lock();
        }
    }
}

impl DelayedDevice {
    /// Returns a completion that passes its answer to `done` when it is due.
    fn later(&self, done: Completion) -> Completion {
        self.answers.state.lock().below += 1;
        let owed =
            Owed { due: Instant::now() + self.latency, answers: Arc::clone(&self.answers), done: Some(done) };
        Box::new(move |outcome| owed.give(outcome))
    }
}

/// An answer that the device below owes.
struct Owed {
    due: Instant,
    answers: Arc<Answers>,
    /// `None` once it was given.
    done: Option<Completion>,
}

impl Owed {
    fn give(mut self, outcome: Result<Reply>) {
        self.give_once(outcome);
    }

    fn give_once(&mut self, outcome: Result<Reply>) {
        let Some(done) = self.done.take() else { return };
        let mut state = self.answers.state.lock();
        state.below -= 1;
        state.waiting.push(Reverse(Answer { due: self.due, done, outcome }));
        drop(state);
        self.answers.changed.notify_one();
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        self.give_once(Err(Error::new(ErrorKind::Io, "a request was dropped unanswered")));
    }
}

impl BlockDevice for DelayedDevice {
    fn submit(&self, request: Request, done: Completion) {
        let done = self.later(done);
        self.below.submit(request, done);
    }

    fn submit_queued(&self, request: Request, done: Completion) {
        let done = self.later(done);
        self.below.submit_queued(request, done);
    }

    fn has_room(&self) -> bool {
        self.below.has_room()
    }

    fn len(&self) -> u64 {
        self.below.len()
    }

    fn id(&self) -> DeviceId {
        self.below.id()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn host_path(&self) -> PathBuf {
        self.below.host_path()
    }

    fn sector_size(&self) -> u64 {
        self.below.sector_size()
    }

    fn notes(&self) -> Vec<String> {
        self.below.notes()
    }

    fn direct_requests(&self) -> DirectRequests {
        self.below.direct_requests()
    }

    fn resize(&self, len: u64) -> Result<()> {
        self.below.resize(len)
    }

    fn close(&self) {
        self.below.close();
    }
}

impl Drop for DelayedDevice {
    fn drop(&mut self) {
        self.answers.state.lock().is_closed = true;
        self.answers.changed.notify_one();
        // A completion may be the last owner of the device: then this runs on the thread itself, which cannot join itself.
        let thread = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id());
        if let Some(thread) = thread {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::DelayedDevice;
    use crate::{AlignedBuffer, BlockDevice, Completion, DeviceId, MemoryDevice, Reply, Request};

    #[test]
    fn requests_are_under_way_together_and_the_end_answers_those_that_wait() {
        let below = Arc::new(MemoryDevice::new(1 << 20));
        below.write_at(4096, &[7; 4096]).unwrap();
        let device = DelayedDevice::new(below, Duration::from_secs(100_000)).unwrap();
        let read = |offset| device.start(Request::Read { offset, buffer: AlignedBuffer::zeroed(4096) });
        let pending = [read(0), read(4096)];
        drop(device);
        let bytes = pending.map(|pending| match pending.wait().unwrap() {
            Reply::Read(buffer) => buffer[0],
            Reply::Done => panic!("a read is answered with its buffer"),
        });
        assert_eq!(bytes, [0, 7]);
    }

    /// Keeps completions until the test calls them.
    struct Later(std::sync::Mutex<Vec<Completion>>);

    impl BlockDevice for Later {
        fn submit(&self, _: Request, done: Completion) {
            self.0.lock().unwrap().push(done);
        }

        fn len(&self) -> u64 {
            4096
        }

        fn id(&self) -> DeviceId {
            MemoryDevice::new(4096).id()
        }

        fn describe(&self) -> String {
            "later".to_owned()
        }
    }

    #[test]
    fn what_the_device_below_answers_after_the_end_is_answered() {
        let below = Arc::new(Later(std::sync::Mutex::default()));
        let device = DelayedDevice::new(Arc::clone(&below) as _, Duration::ZERO).unwrap();
        let pending = device.start(Request::Flush);
        let end = std::thread::spawn(move || drop(device));
        below.0.lock().unwrap().pop().unwrap()(Ok(Reply::Done));
        pending.wait().unwrap();
        end.join().unwrap();
    }

    #[test]
    fn an_answer_comes_after_its_time() {
        let device =
            DelayedDevice::new(Arc::new(MemoryDevice::new(1 << 20)), Duration::from_micros(1)).unwrap();
        device.write_at(0, &[3; 512]).unwrap();
        device.flush().unwrap();
        let mut bytes = [0; 512];
        device.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [3; 512]);
    }
}
