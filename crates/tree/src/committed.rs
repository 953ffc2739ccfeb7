//! Blocks of a commit, for who reads them by their address and has a guard ([`crate::Readers`]): they do not change, and nobody
//! else gets their space.

use std::ops::Deref;
use std::sync::Arc;

use creamery_base::{Result, Wait};
use creamery_format::Expected;

use crate::buffer::ExtentBuffer;
use crate::store::BufferStore;

/// The bytes of a block of a commit. It is the cached block itself, once that is frozen: a transaction that is closed
/// and not yet written has blocks that wait for their checksum, and of these it is a copy.
///
/// ```
/// let bytes: std::sync::Arc<[u8]> = std::sync::Arc::from([1, 2, 3]);
/// let block = creamery_tree::CommittedBlock::from(bytes);
/// assert_eq!(block.clone()[1], 2);
/// ```
#[derive(Clone)]
pub struct CommittedBlock(Bytes);

#[derive(Clone)]
enum Bytes {
    Frozen(Arc<ExtentBuffer>),
    Copied(Arc<[u8]>),
}

impl From<Arc<[u8]>> for CommittedBlock {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self(Bytes::Copied(bytes))
    }
}

impl Deref for CommittedBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Frozen(buffer) => buffer.frozen().expect("what is frozen stays so"),
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl BufferStore {
    /// The block at `want.logical`, which a commit reaches that the caller has a guard at.
    /// Errors: device errors, damage.
    pub fn committed(&self, want: &Expected) -> Result<CommittedBlock> {
        let buffer = self.get(want, Wait::Yes)?;
        if buffer.frozen().is_some() {
            return Ok(CommittedBlock(Bytes::Frozen(buffer)));
        }
        Ok(CommittedBlock(Bytes::Copied(buffer.read(Wait::Yes)?.bytes().into())))
    }
}
