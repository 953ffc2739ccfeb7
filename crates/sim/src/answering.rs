//! A device that keeps writes of marked data until somebody answers them, in whatever order.
//!
//! Everything else goes through at once; whoever waits for that waits for no scheduler. So what a request carries on its way is carried for as long, and past as much, as a test wants.

use std::sync::Arc;

use creamery_base::sync::{Condvar, Mutex};
use creamery_device::{BlockDevice, Completion, DeviceId, Request};

use crate::device::SimDevice;

/// A device that answers some writes when the test says so.
///
/// ```
/// use std::sync::Arc;
/// use creamery_device::{AlignedBuffer, BlockDevice, Parts, Request, SharedBytes};
/// use creamery_sim::{Answering, Image, MARKED, SimDevice};
/// let below = Arc::new(SimDevice::new(Image::new(1 << 20)));
/// let device = Answering::new(Arc::clone(&below));
/// let data = Parts::from(SharedBytes::from(AlignedBuffer::from_slice(&[MARKED; 4096])));
/// device.submit(Request::Write { offset: 0, data }, Box::new(|answer| drop(answer.expect("room"))));
/// let mut bytes = [0; 4096];
/// below.read_at(0, &mut bytes)?;
/// assert_eq!(bytes, [0; 4096]);
/// device.end();
/// while device.answer_next(|count| count - 1) {}
/// below.read_at(0, &mut bytes)?;
/// assert_eq!(bytes, [MARKED; 4096]);
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub struct Answering {
    below: Arc<SimDevice>,
    kept: Mutex<Kept>,
    changed: Condvar,
}

#[derive(Default)]
struct Kept {
    requests: Vec<(Request, Completion)>,
    is_over: bool,
}

/// A write is kept of which each part has one byte, this one or a greater one.
pub const MARKED: u8 = 0xe0;

impl Answering {
    /// Answers with what `below` does.
    #[must_use]
    pub fn new(below: Arc<SimDevice>) -> Self {
        Self { below, kept: Mutex::new(Kept::default()), changed: Condvar::new() }
    }

    /// Answers one of the writes that are kept, on this thread; `choose` says which of so many. Waits for one while there are none.
    /// False when there will be no more.
    pub fn answer_next(&self, choose: impl FnOnce(usize) -> usize) -> bool {
        let waits = |kept: &mut Kept| kept.requests.is_empty() && !kept.is_over;
        let mut kept = self.changed.wait_while(self.kept.lock(), waits);
        if kept.requests.is_empty() {
            return false;
        }
        let count = kept.requests.len();
        let (request, done) = kept.requests.remove(choose(count));
        drop(kept);
        self.below.submit(request, done);
        true
    }

    /// Nothing more is asked.
    pub fn end(&self) {
        self.kept.lock().is_over = true;
        self.changed.notify_all();
    }
}

fn is_kept(request: &Request) -> bool {
    matches!(request, Request::Write { data, .. } if data.iter().next().is_some_and(is_marked))
}

fn is_marked(part: &[u8]) -> bool {
    part[0] >= MARKED && part.iter().all(|byte| *byte == part[0])
}

impl BlockDevice for Answering {
    fn submit(&self, request: Request, done: Completion) {
        if is_kept(&request) {
            self.kept.lock().requests.push((request, done));
            self.changed.notify_all();
        } else {
            self.below.submit(request, done);
        }
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
}
