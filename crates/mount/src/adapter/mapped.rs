//! Work before an answer that depends on pages that mappings changed.

use creamery_fs::{Attributes, SetAttributes};
use creamery_fuse::{NodeId, RequestContext, Result, SetAttr};

use super::Adapter;
use crate::asker::gives_up;
use crate::attributes::from_set_attr;

impl Adapter {
    /// Changes attributes. Before a modification time is set, the kernel writes back the pages of the file that mappings changed: a later
    /// writeback would set the time once more. A store after this is a separate modification. (A new size comes with its own
    /// time, and while it is set the kernel writes nothing back.)
    pub(super) fn set_attributes(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        changes: &SetAttr,
    ) -> Result<Attributes> {
        let id = self.nodes.inode(node);
        if changes.mtime.is_some() && changes.size.is_none() && self.handles.may_be_mapped(id) {
            self.mapped_pages.hand_over_all(node, &|| gives_up(ctx));
        }
        let kill_sgid = self.kills_sgid(ctx, id, changes.kill_suidgid)?;
        Ok(self.fs.set_attributes(id, &SetAttributes { kill_sgid, ..from_set_attr(changes) })?)
    }
}
