//! Blocks of a commit, read by address under a guard ([`crate::Readers`]): they do not change, and their space is not handed
//! out again.

use std::ops::Deref;
use std::sync::Arc;

use creamery_base::{Result, Wait};
use creamery_format::Expected;

use crate::buffer::ExtentBuffer;
use crate::store::BufferStore;

/// The bytes of a block of a commit: the cached block itself if it is frozen, else a copy. A block is not frozen yet if its
/// transaction is closed but not yet written, so that it has no checksum.
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
    /// Returns the block at `want.logical`. The caller has a guard at a commit that reaches it.
    /// Errors: device errors, damage.
    pub fn committed(&self, want: &Expected) -> Result<CommittedBlock> {
        let buffer = self.get(want, Wait::Yes)?;
        if buffer.frozen().is_some() {
            return Ok(CommittedBlock(Bytes::Frozen(buffer)));
        }
        Ok(CommittedBlock(Bytes::Copied(buffer.read(Wait::Yes)?.bytes().into())))
    }
}
