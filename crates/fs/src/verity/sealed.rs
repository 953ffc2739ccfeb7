//! The seal of a file: its descriptor, and its hash algorithm.

use creamery_codec::{SaltedHash, VerityDigest};
use creamery_format::VerityDescriptor;

/// The facts about a file with fs-verity, wherever it lies.
pub(crate) struct Sealed {
    descriptor: VerityDescriptor,
    hash: SaltedHash,
}

impl Sealed {
    pub(super) fn new(descriptor: VerityDescriptor) -> Self {
        Self { hash: descriptor.salted_hash(), descriptor }
    }

    pub(super) const fn descriptor(&self) -> &VerityDescriptor {
        &self.descriptor
    }

    /// The digest of a block of data, the last of which may be short, or of the tree.
    pub(super) fn digest(&self, block: &[u8]) -> VerityDigest {
        self.hash.digest(block, self.descriptor.block_len())
    }

    /// The digest that a block of the tree has at `at`.
    pub(super) fn digest_in(&self, block: &[u8], at: usize) -> VerityDigest {
        VerityDigest::read(self.descriptor.hash(), &block[at..]).expect("digests lie within blocks")
    }
}
