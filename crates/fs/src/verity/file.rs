//! Reads of one file with fs-verity: the verification of its blocks against its tree.

use std::sync::Arc;

use creamery_base::{Error, InodeId, Result, Wait};
use creamery_codec::VerityDigest;
use creamery_format::VerityDescriptor;
use creamery_tree::Tree;

use super::items::{Stored, damaged, read_descriptor, read_stored};
use super::kept::{Block, KeptVerity};
use super::sealed::Sealed;
use crate::items::InodeItem;

/// A file with fs-verity that is being read.
pub(crate) struct VerityFile<'a> {
    kept: &'a KeptVerity,
    tree: &'a Tree,
    id: InodeId,
    sealed: Arc<Sealed>,
    wait: Wait,
}

impl<'a> VerityFile<'a> {
    /// Opens the file `id` of `tree`, which has fs-verity, with the cache `kept` of its filesystem.
    /// Errors: its descriptor is missing, makes no sense, or is of a file of another size; would block; device errors; damage.
    pub(crate) fn open(
        kept: &'a KeptVerity,
        tree: &'a Tree,
        id: InodeId,
        item: &InodeItem,
        wait: Wait,
    ) -> Result<Self> {
        let sealed = match kept.file(id) {
            Some(sealed) => sealed,
            None => {
                let sealed = Arc::new(Sealed::new(read_descriptor(tree, id, wait)?));
                kept.keep_file(id, Arc::clone(&sealed));
                sealed
            }
        };
        let (found, want) = (sealed.descriptor().data_len(), item.size);
        if found != want {
            let what = format!("wrong file size in its descriptor, expected {want}, found {found}");
            return Err(damaged(id, what));
        }
        Ok(Self { kept, tree, id, sealed, wait })
    }

    /// The descriptor of the file.
    pub(super) fn descriptor(&self) -> &VerityDescriptor {
        self.sealed.descriptor()
    }

    /// The length of a block, in bytes.
    pub(crate) fn block_len(&self) -> usize {
        self.descriptor().block_len()
    }

    /// Verifies blocks of data, from `at` on, against the tree; the last one ends with the file, if it is short.
    /// Errors: the blocks or the tree differ from the sealed ones; would block; device errors; damage.
    pub(crate) fn verify(&self, at: u64, data: &[u8]) -> Result<()> {
        let len = self.block_len();
        assert!(at.is_multiple_of(len as u64), "VERITY-1: whole blocks are hashed");
        let mut node = None;
        for (number, block) in (at / len as u64..).zip(data.chunks(len)) {
            let want = self.digest_of(number, &mut node)?;
            let found = self.sealed.digest(block);
            if found != want {
                return Err(self.mismatch(
                    format_args!("data at offset {}", number * len as u64),
                    found,
                    want,
                ));
            }
        }
        Ok(())
    }

    fn mismatch(&self, what: std::fmt::Arguments<'_>, found: VerityDigest, want: VerityDigest) -> Error {
        let hash = self.descriptor().hash();
        let what = format!("{what} does not match its hash, expected {hash}:{want}, found {hash}:{found}");
        damaged(self.id, what)
    }

    /// The digest that block `number` of the data must have; `node` is the block of the tree with the digest of the last call.
    fn digest_of(&self, number: u64, node: &mut Option<(u64, Block)>) -> Result<VerityDigest> {
        let tree = self.descriptor().tree();
        if tree.level_count() == 0 {
            assert!(number == 0, "VERITY-1: a file without a tree has one block");
            return Ok(self.descriptor().root_hash());
        }
        let place = tree.place_of(number);
        let block = match node.take() {
            Some((known, block)) if known == place.node => block,
            _ => self.lowest_node(place.node)?,
        };
        let digest = self.sealed.digest_in(&block, place.at);
        *node = Some((place.node, block));
        Ok(digest)
    }

    /// Block `node` of the lowest level, verified.
    fn lowest_node(&self, node: u64) -> Result<Block> {
        let tree = self.descriptor().tree();
        // The way up, to a block that is kept, or to the root.
        let mut way = Vec::with_capacity(tree.level_count());
        let mut above = None;
        let mut at = node;
        for level in 0..tree.level_count() {
            above = self.kept.block(self.id, tree.block(level, at));
            if above.is_some() {
                break;
            }
            way.push((level, at));
            at = tree.place_of(at).node;
        }
        // And down again.
        for (level, at) in way.into_iter().rev() {
            let want = match &above {
                Some(block) => self.sealed.digest_in(block, tree.place_of(at).at),
                None => self.descriptor().root_hash(),
            };
            above = Some(self.read_node(level, at, want)?);
        }
        Ok(above.expect("VERITY-1: a tree has a root"))
    }

    /// Reads a block of the tree, which must have the digest `want`.
    fn read_node(&self, level: usize, at: u64, want: VerityDigest) -> Result<Block> {
        let len = self.block_len();
        let number = self.descriptor().tree().block(level, at);
        let from = number * len as u64;
        let mut bytes = vec![0; len];
        read_stored(self.tree, self.id, Stored::MerkleTree, from, &mut bytes, self.wait)?;
        let found = self.sealed.digest(&bytes);
        if found != want {
            return Err(self.mismatch(
                format_args!("its Merkle tree at byte {from} (level {level})"),
                found,
                want,
            ));
        }
        let block: Block = Arc::new(bytes.into());
        self.kept.keep_block(self.id, number, Arc::clone(&block));
        Ok(block)
    }
}
