//! Recently verified descriptors and blocks of Merkle trees, kept for further reads.

use std::collections::VecDeque;
use std::sync::Arc;

use creamery_base::InodeId;
use creamery_base::lock::{RankedMutex, rank};

use super::sealed::Sealed;

/// Upper bound of the kept descriptors.
const FILES_MAX: usize = 64;
/// Upper bound of the kept blocks, in bytes.
const BLOCKS_MAX: usize = 1 << 20;

/// A block of a Merkle tree, which was verified.
pub(super) type Block = Arc<Box<[u8]>>;

/// The cache of one filesystem. The most recently used entry is at the end of each list.
#[derive(Default)]
pub(crate) struct KeptVerity {
    files: RankedMutex<VecDeque<(InodeId, Arc<Sealed>)>, { rank::LEAF }>,
    blocks: RankedMutex<VecDeque<((InodeId, u64), Block)>, { rank::LEAF }>,
}

impl KeptVerity {
    /// The kept descriptor of a file.
    pub(super) fn file(&self, id: InodeId) -> Option<Arc<Sealed>> {
        take_up(&mut self.files.lock(), &id)
    }

    /// Keeps the descriptor of a file, in place of the least recently used one.
    pub(super) fn keep_file(&self, id: InodeId, file: Arc<Sealed>) {
        let mut files = self.files.lock();
        put(&mut files, id, file);
        if files.len() > FILES_MAX {
            files.pop_front();
        }
    }

    /// Block `number` of a file's tree.
    pub(super) fn block(&self, id: InodeId, number: u64) -> Option<Block> {
        take_up(&mut self.blocks.lock(), &(id, number))
    }

    /// Keeps a block that was verified, in place of the least recently used ones.
    pub(super) fn keep_block(&self, id: InodeId, number: u64, block: Block) {
        // All blocks of a file have one length, and those of most files have equal lengths.
        let most = (BLOCKS_MAX / block.len()).max(1);
        let mut blocks = self.blocks.lock();
        put(&mut blocks, (id, number), block);
        while blocks.len() > most {
            blocks.pop_front();
        }
    }

    /// The memory of the cache, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let files = self.files.lock().len() * size_of::<(InodeId, Sealed)>();
        let blocks: usize = self.blocks.lock().iter().map(|(_, block)| block.len()).sum();
        (files + blocks) as u64
    }
}

/// Finds a kept entry, and moves it to the end.
fn take_up<K: PartialEq + Copy, V: Clone>(kept: &mut VecDeque<(K, V)>, name: &K) -> Option<V> {
    let at = kept.iter().rposition(|(known, _)| known == name)?;
    let found = kept.remove(at).expect("it was just seen");
    let value = found.1.clone();
    kept.push_back(found);
    Some(value)
}

/// Adds an entry, unless another thread was as fast.
fn put<K: PartialEq, V>(kept: &mut VecDeque<(K, V)>, name: K, value: V) {
    if kept.iter().all(|(known, _)| *known != name) {
        kept.push_back((name, value));
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::{ObjectId, TreeId};

    use super::*;

    fn id(ino: u64) -> InodeId {
        InodeId::new(TreeId::FS, ObjectId::new(ino))
    }

    fn block(byte: u8, len: usize) -> Block {
        Arc::new(vec![byte; len].into())
    }

    #[test]
    fn blocks_are_kept_within_a_bound_and_what_was_used_stays() {
        let kept = KeptVerity::default();
        for number in 0..256 {
            kept.keep_block(id(300), number, block(number as u8, 4096));
        }
        assert!(kept.block(id(300), 0).is_some_and(|block| block[0] == 0));
        assert!(kept.block(id(301), 0).is_none(), "another file's");
        kept.keep_block(id(301), 0, block(9, 4096));
        assert!(kept.block(id(300), 0).is_some() && kept.block(id(300), 1).is_none());
        assert_eq!(kept.memory(), 1 << 20);
        kept.keep_block(id(302), 0, block(9, 64 << 10));
        assert!(kept.memory() <= 1 << 20);
    }
}
