//! A device behind a hook that sees every request first: for tests in which devices fail, delay requests or report them.

use std::ops::Deref;
use std::sync::Arc;

use creamery_base::Result;

use crate::{BlockDevice, Completion, DeviceId, Request};

/// Sees requests before a device does.
pub trait Hook: Send + Sync {
    /// Lets the request pass, at once or after a delay.
    ///
    /// # Errors
    /// Any error: the device then returns it as the answer of the request.
    fn before(&self, request: &Request) -> Result<()>;
}

/// A device with a hook, and access to that hook.
///
/// ```
/// use std::sync::Arc;
/// use creamery_device::{BlockDevice, Hook, Hooked, MemoryDevice, Request};
/// struct ReadOnly;
/// impl Hook for ReadOnly {
///     fn before(&self, request: &Request) -> creamery_base::Result<()> {
///         match request {
///             Request::Read { .. } => Ok(()),
///             other => Err(creamery_base::Error::new(creamery_base::ErrorKind::ReadOnly, other.to_string())),
///         }
///     }
/// }
/// let device = Hooked::new(Arc::new(MemoryDevice::new(4096)), ReadOnly);
/// assert!(device.read_at(0, &mut [0; 512]).is_ok());
/// assert!(device.write_at(0, &[1; 512]).is_err());
/// ```
pub struct Hooked<H> {
    below: Arc<dyn BlockDevice>,
    hook: H,
}

impl<H: Hook> Hooked<H> {
    /// Puts `below` behind `hook`.
    pub fn new(below: Arc<dyn BlockDevice>, hook: H) -> Self {
        Self { below, hook }
    }
}

impl<H> Deref for Hooked<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.hook
    }
}

impl<H: Hook> BlockDevice for Hooked<H> {
    fn submit(&self, request: Request, done: Completion) {
        match self.hook.before(&request) {
            Ok(()) => self.below.submit(request, done),
            Err(error) => {
                drop(request); // DEV-3
                done(Err(error));
            }
        }
    }

    fn submit_queued(&self, request: Request, done: Completion) {
        match self.hook.before(&request) {
            Ok(()) => self.below.submit_queued(request, done),
            Err(error) => {
                drop(request); // DEV-3
                done(Err(error));
            }
        }
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

    fn resize(&self, len: u64) -> Result<()> {
        self.below.resize(len)
    }
}
