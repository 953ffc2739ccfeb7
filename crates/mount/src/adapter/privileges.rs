//! Set-user-id and set-group-id of files that are written or cut. The kernel tells with these requests that the caller leaves them with no
//! privilege (`CAP_FSETID`); as with Linux' own filesystems set-group-id without execution by the group goes, too, where the caller is not of
//! that group. Which groups it is of the server looks up.

use creamery_base::{InodeId, Wait};
use creamery_fs::Writer;
use creamery_fuse::{RequestContext, Result};

use super::Adapter;
use crate::asker::Asker;

/// Set-group-id, and execution by the group.
const SGID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o10;

impl Adapter {
    /// What the caller is to a file of `group`, where the kernel says no more than the caller.
    pub(super) fn writer(&self, ctx: &RequestContext<'_>, group: u32) -> Writer {
        Asker::of(ctx.pid).as_writer(self.owner.gid.unwrap_or(group))
    }

    /// As [`writer`](Self::writer), where the kernel says that the caller has no privilege.
    pub(super) fn unprivileged_writer(&self, ctx: &RequestContext<'_>, group: u32) -> Writer {
        match self.writer(ctx, group) {
            Writer::Privileged => Writer::OfTheGroup,
            other => other,
        }
    }

    /// Whether cutting the file `id` takes set-group-id away from it though its group may not execute it; `is_killed` says whether
    /// the kernel wants privileges to be taken.
    pub(super) fn kills_sgid(&self, ctx: &RequestContext<'_>, id: InodeId, is_killed: bool) -> Result<bool> {
        if !is_killed {
            return Ok(false);
        }
        let attributes = self.fs.stat(id, Wait::Yes)?;
        let is_left = attributes.mode & (SGID | GROUP_EXECUTES) == SGID;
        Ok(is_left && self.unprivileged_writer(ctx, attributes.gid) == Writer::Stranger)
    }
}
