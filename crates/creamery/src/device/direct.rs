//! Direct reads and writes that are in flight while their caller goes on ([`File::start`](crate::File::start), [`File::submit`](crate::File::submit)).
//!
//! `docs/use/direct-io.md` says what holds for them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use creamery_base::lock::{RankedMutex, rank};

use crate::fs::DirectWaiter;

pub use creamery_fs::{DirectAt, DirectDone, DirectPart, DirectRequest, Refusal, Refused};

/// A direct read or write that was started, and its answer when that is there. It is a future of the answer; a program without futures calls
/// [`wait`](Self::wait).
///
/// The request goes on by itself. Dropping this changes nothing of it: it owns its buffer, and only nobody learns what came of it.
///
/// A device, or a thread of the background, ends the request, and wakes the task that awaits it. Where there are none, as in a filesystem that was
/// opened for reading, each poll completes what has landed of the file, and may take as long as any operation.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use creamery::device::AlignedBuffer;
/// use creamery::device::direct::{DirectAt, DirectDone, DirectRequest};
/// async fn copy_page(from: &creamery::File, to: &creamery::File, offset: u64) -> creamery::Result<()> {
///     let page = DirectRequest::Read { offset, buffer: AlignedBuffer::zeroed(4096) };
///     let DirectDone { buffer, outcome } = from.start(page).await;
///     outcome?;
///     let at = DirectAt::Offset(offset);
///     to.start(DirectRequest::Write { at, data: buffer }).await.outcome.map(drop)
/// }
/// # Ok::<(), creamery::Error>(())
/// ```
#[must_use = "it has the answer: dropped, nobody learns what came of the request"]
pub struct Started {
    slot: Arc<Slot>,
    waiter: DirectWaiter,
}

impl Started {
    /// One that has an answer when the completion is called that comes with it.
    pub(crate) fn new(waiter: DirectWaiter) -> (Self, impl FnOnce(DirectDone) + Send + 'static) {
        let slot = Arc::new(Slot(RankedMutex::new(State::Pending(None))));
        let filled = Arc::clone(&slot);
        (Self { slot, waiter }, move |done| filled.fill(done))
    }

    /// Waits for the answer. It needs no threads in the background: what lands of the file meanwhile is completed here.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::device::AlignedBuffer;
    /// use creamery::device::direct::{DirectAt, DirectRequest};
    /// let log = fs.create("/log")?;
    /// let started = log.start(DirectRequest::Write { at: DirectAt::End, data: AlignedBuffer::zeroed(4096) });
    /// let done = started.wait();
    /// assert_eq!((done.outcome?.offset, done.buffer.len()), (0, 4096));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Panics
    /// When a poll has given the answer before.
    #[must_use = "it has the buffer, and what came of the request"]
    pub fn wait(self) -> DirectDone {
        self.waiter.wait(|| !self.slot.is_pending());
        self.slot.take().expect("it was waited for")
    }
}

/// The answer: the outcome of the request, and its buffer.
///
/// # Panics
/// When it is polled after it has given the answer.
impl Future for Started {
    type Output = DirectDone;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<DirectDone> {
        self.slot.keep(context.waker());
        if self.slot.is_pending() {
            self.waiter.poll(context.waker());
        }
        self.slot.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.slot.forget_waker();
    }
}

/// Where the answer is put.
struct Slot(RankedMutex<State, { rank::LEAF }>);

enum State {
    /// There is none yet; whom to wake when it comes.
    Pending(Option<Waker>),
    Done(DirectDone),
    Taken,
}

/// What a waker does is not ours: none is cloned, dropped or woken with the lock held.
impl Slot {
    fn fill(&self, done: DirectDone) {
        let before = std::mem::replace(&mut *self.0.lock(), State::Done(done));
        match before {
            State::Pending(waker) => waker.into_iter().for_each(Waker::wake),
            State::Done(_) | State::Taken => unreachable!("DIRECT-2: a request is answered once"),
        }
    }

    fn is_pending(&self) -> bool {
        matches!(*self.0.lock(), State::Pending(_))
    }

    /// Wakes `waker` with the answer, and no other one, unless that is there.
    fn keep(&self, waker: &Waker) {
        let mut waker = Some(waker.clone());
        if let State::Pending(kept) = &mut *self.0.lock() {
            std::mem::swap(kept, &mut waker);
        }
        drop(waker);
    }

    fn forget_waker(&self) {
        let kept = match &mut *self.0.lock() {
            State::Pending(kept) => kept.take(),
            State::Done(_) | State::Taken => None,
        };
        drop(kept);
    }

    /// The answer, if it is there.
    ///
    /// # Panics
    /// When it was taken before.
    fn take(&self) -> Option<DirectDone> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(done) => Some(done),
            pending @ State::Pending(_) => {
                *state = pending;
                None
            }
            State::Taken => panic!("the answer to a direct request was taken before"),
        }
    }
}
