//! What comes before an answer that depends on pages which mappings changed.

use creamery_fs::{Attributes, SetAttributes};
use creamery_fuse::{NodeId, RequestContext, Result, SetAttr};

use super::Adapter;
use crate::asker::Asker;
use crate::attributes::from_set_attr;

/// Whether a caller waits for nothing but to be let go. As on Linux, a caller that handles its signals waits on.
pub(super) fn gives_up(ctx: &RequestContext<'_>) -> bool {
    ctx.is_interrupted() && Asker::of(ctx.pid).is_killed()
}

impl Adapter {
    /// Changes attributes. Before a modification time is set the kernel writes back what mappings changed of the file: written
    /// back later that would set the time once more. A store after this is a modification of its own. (A new size comes with a
    /// time of its own, and while it is set the kernel writes nothing back.)
    pub(super) fn set_attributes(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        changes: &SetAttr,
    ) -> Result<Attributes> {
        let id = self.nodes.inode(node);
        if changes.mtime.is_some() && changes.size.is_none() && self.handles.may_be_mapped(id) {
            self.mapped_pages.hand_over(node, (0, i64::MAX.unsigned_abs()), &|| gives_up(ctx));
        }
        let kill_sgid = self.kills_sgid(ctx, id, changes.kill_suidgid)?;
        Ok(self.fs.set_attributes(id, &SetAttributes { kill_sgid, ..from_set_attr(changes) })?)
    }
}
