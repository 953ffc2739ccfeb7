//! What the tests of this room share.

use std::process::Child;

/// A process that goes when the test ends.
pub(crate) struct Other(pub(crate) Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
