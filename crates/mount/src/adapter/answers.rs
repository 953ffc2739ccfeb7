//! Answers about inodes: attributes, entries with them, and invalidations.

use creamery_base::Wait;
use creamery_fs::{Attributes, OpenFile};
use creamery_fuse::{AttrReply, Entry, FileHandle, NodeId, Result};

use super::{Adapter, VALID};
use crate::attributes::to_attr;
use crate::telling::is_all_hole;

impl Adapter {
    pub(super) fn attr_reply(&self, attributes: &Attributes) -> Result<AttrReply> {
        let number = self.nodes.number(attributes.id)?;
        let mut attr = to_attr(number, attributes, self.owner, self.fs.engine().sector_size());
        if is_all_hole(attributes) && self.handles.may_be_mapped(attributes.id) {
            // Some programs take a file without blocks for zeros and do not read it at all.
            attr.blocks = 1;
        }
        Ok(AttrReply { attr, valid: VALID })
    }

    /// An entry for an answer, which gives the kernel a reference.
    pub(super) fn entry(&self, attributes: &Attributes) -> Result<Entry> {
        let node = self.nodes.node(attributes.id)?;
        let attr = self.attr_reply(attributes)?.attr;
        self.nodes.refer(node);
        Ok(Entry {
            node,
            generation: attributes.generation.get(),
            attr,
            attr_valid: VALID,
            entry_valid: VALID,
        })
    }

    /// Attributes of a node, by its open file when there is one: it may have no name any more.
    pub(super) fn attributes(&self, node: NodeId, handle: Option<FileHandle>) -> Result<Attributes> {
        if let Some(file) = handle.and_then(|handle| self.handles.get(handle).ok()) {
            return Ok(file.stat(Wait::Yes)?);
        }
        Ok(self.fs.stat(self.nodes.inode(node), Wait::Yes)?)
    }

    /// The answer for a file that is one hole depends on its open handles: the kernel must ask again.
    pub(super) fn users_moved(&self, node: NodeId, open: &OpenFile) {
        if open.stat(Wait::Yes).is_ok_and(|attributes| is_all_hole(&attributes)) {
            self.attributes_moved(node);
        }
    }

    /// Notifies the kernel to drop the attributes of an inode that a request changed unexpectedly for the kernel. Takes no
    /// lock of an operation. For an inode that the kernel has forgotten meanwhile this does nothing.
    pub(super) fn attributes_moved(&self, node: NodeId) {
        if let Some((notifier, _)) = self.session.get() {
            let _ = notifier.inval_attributes(node);
        }
    }
}
