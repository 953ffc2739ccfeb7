//! What the kernel is told of inodes: their attributes, entries with these, and that it has to ask again.

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
            // Some programs take a file without blocks for zeros and do not even read it.
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

    /// What is told of a file that is all hole depends on who has it open: the kernel is to ask again.
    pub(super) fn users_moved(&self, node: NodeId, open: &OpenFile) {
        if open.stat(Wait::Yes).is_ok_and(|attributes| is_all_hole(&attributes)) {
            self.attributes_moved(node);
        }
    }

    /// Tells the kernel to forget the attributes of an inode that a request changed of which it does not expect that. No
    /// lock of an operation is taken for it. An inode that it has forgotten meanwhile needs no telling.
    pub(super) fn attributes_moved(&self, node: NodeId) {
        if let Some((notifier, _)) = self.session.get() {
            let _ = notifier.inval_attributes(node);
        }
    }
}
