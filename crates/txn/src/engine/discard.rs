//! Discarding all free space, and the policy for the rest.

use creamery_base::{Error, Result};

use super::Engine;
use crate::discard::{DiscardPolicy, Trimmed};
use crate::held;

impl Engine {
    /// Sets whether and when freed space is discarded, from now on.
    pub fn set_discard(&self, policy: DiscardPolicy) {
        self.discards.set_policy(policy);
    }

    /// Discards free space that lies in pieces of at least `min` bytes: between two logical addresses in block groups of data and
    /// of metadata, except promised room, and, where the addresses begin at 0, unallocated space of the devices. It
    /// commits first, which frees the space of earlier changes.
    /// Errors: read-only; aborted; those of the commit and the devices; unsupported, when no device can discard.
    pub fn trim(&self, (start, end): (u64, u64), min: u64) -> Result<Trimmed> {
        held::assert_none("trimming commits");
        self.check_open()?;
        self.check_writable()?;
        self.commit()?;
        let (found, bytes) = self.discarder().discard_all((start, end), min)?;
        if found > 0 && bytes == 0 {
            let devices = self.volume().describe();
            return Err(Error::unsupported(format!("discarding on {devices}")));
        }
        Ok(Trimmed { bytes })
    }
}
