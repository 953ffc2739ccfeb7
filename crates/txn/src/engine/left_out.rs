//! Opening a damaged filesystem without some of its trees, to read its files ([`creamery_volume::Rescue`]).
//!
//! Reading needs the trees of chunks and roots, which lead to the others. It can do without the checksum tree
//! where unchecked data is better than none. All other trees serve writing: the used bytes of a group,
//! the references to an extent, the allocated space of a device. Where one cannot be read an empty tree stands for it, and its contents
//! are assumed, as in Linux: a group is full, and a device is allocated where chunks are.

use std::sync::Arc;

use creamery_base::{Error, Result, TreeId};
use creamery_tree::{BufferStore, Tree};
use creamery_volume::Rescue;

use crate::chunk_allocator::{DeviceSpace, claim_chunks, read_device_extents};

/// Decides which trees may be left out, and notes each that is.
pub(super) struct LeftOut<'a> {
    store: &'a Arc<BufferStore>,
    rescue: Rescue,
}

impl<'a> LeftOut<'a> {
    pub(super) fn new(store: &'a Arc<BufferStore>) -> Self {
        Self { store, rescue: store.volume().rescue() }
    }

    /// Whether any tree may be left out.
    pub(super) const fn may_be(&self) -> bool {
        self.rescue.ignore_bad_roots
    }

    /// Notes the error of a tree. Errors: that error, when the tree may not be left out.
    pub(super) fn note(&self, id: TreeId, error: Error) -> Result<()> {
        if !self.may_be() {
            return Err(error);
        }
        self.store.volume().note(format!("tree {id} is left out: {error}"));
        Ok(())
    }

    /// The tree, or an empty one for it, and whether it is the empty one.
    pub(super) fn unless(&self, id: TreeId, opened: Result<Tree>) -> Result<(Tree, bool)> {
        match opened {
            Ok(tree) => Ok((tree, false)),
            Err(error) => self.note(id, error).map(|()| (Tree::left_out(Arc::clone(self.store), id), true)),
        }
    }

    /// The checksum tree, or an empty one for it, and whether data is read without checksums.
    pub(super) fn unless_csums(&self, opened: Result<Tree>) -> Result<(Tree, bool)> {
        let with = Rescue { ignore_bad_roots: self.may_be() || self.rescue.ignore_data_csums, ..self.rescue };
        let (tree, is_left_out) = Self { rescue: with, ..*self }.unless(TreeId::CSUM, opened)?;
        Ok((tree, is_left_out || self.rescue.ignore_data_csums))
    }

    /// Marks the allocated space of the devices.
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
