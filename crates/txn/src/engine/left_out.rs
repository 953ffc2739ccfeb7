//! What is done without, where somebody wants files off a damaged filesystem ([`creamery_volume::Rescue`]).
//!
//! Of the trees that a filesystem is opened by, reading needs those of chunks and roots, which lead to the others. That of
//! checksums it can do without where unchecked data is better than none. All others serve who writes: how much of a group is used,
//! who refers to what, what of a device is taken. Where one cannot be read an empty one stands for it, and what would be in it
//! is said to be as Linux says it then: a group is full, and a device is taken where chunks are.

use std::sync::Arc;

use creamery_base::{Error, Result, TreeId};
use creamery_tree::{BufferStore, Tree};
use creamery_volume::{Chunk, Rescue};

use super::Engine;
use crate::chunk_allocator::{DeviceSpace, claim_chunks, read_device_extents};

/// What may be left out, and is noted then.
pub(super) struct LeftOut<'a> {
    store: &'a Arc<BufferStore>,
    rescue: Rescue,
}

impl<'a> LeftOut<'a> {
    pub(super) fn new(store: &'a Arc<BufferStore>) -> Self {
        Self { store, rescue: store.volume().rescue() }
    }

    /// Whether anything may be.
    pub(super) const fn may_be(&self) -> bool {
        self.rescue.ignore_bad_roots
    }

    /// Notes what was wrong with a tree. Errors: that, when it may not be left out.
    pub(super) fn note(&self, id: TreeId, error: Error) -> Result<()> {
        if !self.may_be() {
            return Err(error);
        }
        self.store.volume().note(format!("tree {id} is left out: {error}"));
        Ok(())
    }

    /// A tree, or what stands for it, and whether it does.
    pub(super) fn unless(&self, id: TreeId, opened: Result<Tree>) -> Result<(Tree, bool)> {
        match opened {
            Ok(tree) => Ok((tree, false)),
            Err(error) => self.note(id, error).map(|()| (Tree::left_out(Arc::clone(self.store), id), true)),
        }
    }

    /// That of checksums, and whether data is read without them.
    pub(super) fn unless_csums(&self, opened: Result<Tree>) -> Result<(Tree, bool)> {
        let with = Rescue { ignore_bad_roots: self.may_be() || self.rescue.ignore_data_csums, ..self.rescue };
        let (tree, is_left_out) = Self { rescue: with, ..*self }.unless(TreeId::CSUM, opened)?;
        Ok((tree, is_left_out || self.rescue.ignore_data_csums))
    }

    /// What of the devices is taken.
    pub(super) fn devices(
        &self,
        mut devices: Vec<DeviceSpace>,
        (dev_tree, is_left_out): (&Tree, bool),
    ) -> Result<Vec<DeviceSpace>> {
        let volume = self.store.volume();
        if is_left_out {
            claim_chunks(&mut devices, volume);
        } else if let Err(error) = read_device_extents(&mut devices, dev_tree) {
            self.note(TreeId::DEV, error)?;
            claim_chunks(&mut devices, volume);
        }
        Ok(devices)
    }
}

impl Engine {
    /// How many bytes of a group are used: all, when that cannot be read and need not be.
    pub(super) fn used_of(&self, chunk: &Chunk) -> Result<u64> {
        match self.block_groups.used(chunk) {
            Err(_) if self.volume().rescue().ignore_bad_roots => Ok(chunk.len),
            used => used,
        }
    }
}
