//! Direct reads and writes that are in flight while their caller goes on ([`File::start`](crate::File::start),
//! [`File::submit`](crate::File::submit)).
//!
//! The rules are in `docs/use/direct-io.md`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use creamery_base::lock::{RankedMutex, rank};

use crate::fs::DirectWaiter;

pub use creamery_fs::{DirectAt, DirectDone, DirectPart, DirectRequest, Refusal, Refused};

/// A direct read or write in flight, and its answer. It is a future of the answer; a program without futures calls
/// [`wait`](Self::wait).
///
/// Dropping this does not affect the request, which owns its buffer: only the answer is lost.
///
/// A device or a background thread ends the request and wakes the task that awaits it. A filesystem that is open for reading may have no
/// such threads; there each poll completes the finished requests of the file, and may take as long as any operation.
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
    /// Returns a handle and the completion that gives it its answer.
    pub(crate) fn new(waiter: DirectWaiter) -> (Self, impl FnOnce(DirectDone) + Send + 'static) {
        let slot = Arc::new(Slot(RankedMutex::new(DirectDeviceState::Pending(None))));
        let filled = Arc::clone(&slot);
        (Self { slot, waiter }, move |done| filled.fill(done))
    }

    /// Waits for the answer. It needs no background threads: finished requests of the file are completed here.
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
    /// When a poll has returned the answer before.
    #[must_use = "it has the buffer, and what came of the request"]
    pub fn wait(self) -> DirectDone {
        self.waiter.wait(|| !self.slot.is_pending());
        self.slot.take().expect("it was waited for")
    }
}

/// The answer: the outcome of the request, and its buffer.
///
/// # Panics
/// When it is polled after it has returned the answer.
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

/// The slot of the answer.
struct Slot(RankedMutex<DirectDeviceState, { rank::LEAF }>);

enum DirectDeviceState {
    /// No answer yet; the waker of the task that awaits it.
    Pending(Option<Waker>),
    Done(DirectDone),
    Taken,
}

/// A waker is foreign code: none is cloned, dropped or woken with the lock held.
impl Slot {
    fn fill(&self, done: DirectDone) {
        let before = std::mem::replace(&mut *self.0.lock(), DirectDeviceState::Done(done));
        match before {
            DirectDeviceState::Pending(waker) => waker.into_iter().for_each(Waker::wake),
            DirectDeviceState::Done(_) | DirectDeviceState::Taken => {
                unreachable!("DIRECT-2: a request is answered once")
            }
        }
    }

    fn is_pending(&self) -> bool {
        matches!(*self.0.lock(), DirectDeviceState::Pending(_))
    }

    /// Registers `waker`, in place of any other one, to be woken with the answer, unless the answer is there.
    fn keep(&self, waker: &Waker) {
        let mut waker = Some(waker.clone());
        if let DirectDeviceState::Pending(kept) = &mut *self.0.lock() {
            std::mem::swap(kept, &mut waker);
        }
        drop(waker);
    }

    fn forget_waker(&self) {
        let kept = match &mut *self.0.lock() {
            DirectDeviceState::Pending(kept) => kept.take(),
            DirectDeviceState::Done(_) | DirectDeviceState::Taken => None,
        };
        drop(kept);
    }

    /// The answer, if it is there.
    ///
    /// # Panics
    /// When it was taken before.
    fn take(&self) -> Option<DirectDone> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, DirectDeviceState::Taken) {
            DirectDeviceState::Done(done) => Some(done),
            pending @ DirectDeviceState::Pending(_) => {
                *state = pending;
                None
            }
            DirectDeviceState::Taken => panic!("the answer to a direct request was taken before"),
        }
    }
}
