//! A device that keeps writes of marked data until a test answers them, in any order.
//!
//! All other requests go through at once, so no thread waits for them outside the scheduler. So the data of a marked request is in flight for as long, and during as many other
//! requests, as a test wants.

use std::sync::Arc;

use creamery_base::sync::{Condvar, Mutex};
use creamery_device::{BlockDevice, Completion, DeviceId, Request};

use crate::device::SimDevice;

/// A device that answers some writes only on demand.
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

/// The mark: a write is kept if each of its parts consists of one byte value, this or a greater one.
pub const MARKED: u8 = 0xe0;

impl Answering {
    /// A device in front of `below`.
    #[must_use]
    pub fn new(below: Arc<SimDevice>) -> Self {
        Self { below, kept: Mutex::new(Kept::default()), changed: Condvar::new() }
    }

    /// Answers one of the kept writes on this thread; `choose` gets their number and returns an index. Waits for a write if there is none.
    /// Returns false when there will be no more.
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

    /// Ends the requests: no more will come.
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
