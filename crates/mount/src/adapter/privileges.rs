//! Set-user-id and set-group-id of files that are written or truncated. With these requests the kernel tells whether the caller lacks the
//! privilege to leave them (`CAP_FSETID`). As with Linux' own filesystems, set-group-id without execution by the group is cleared, too, if the caller is not in that
//! group. The server looks up the caller's groups.

use creamery_base::{InodeId, Wait};
use creamery_fs::WritingUser;
use creamery_fuse::{RequestContext, Result};

use super::Adapter;
use crate::asker::Asker;

/// Set-group-id, and execution by the group.
const SGID: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o10;

impl Adapter {
    /// The caller's relation to a file of `group`, if the kernel names only the caller.
    pub(super) fn writer(&self, ctx: &RequestContext<'_>, group: u32) -> WritingUser {
        Asker::of(ctx.pid).as_writer(self.owner.gid.unwrap_or(group))
    }

    /// The caller's relation to a file of `group`, if the kernel says that the caller has no privilege.
    pub(super) fn unprivileged_writer(&self, ctx: &RequestContext<'_>, group: u32) -> WritingUser {
        match self.writer(ctx, group) {
            WritingUser::Privileged => WritingUser::OfTheGroup,
            other => other,
        }
    }

    /// Whether truncating the file `id` clears its set-group-id although its group may not execute it; `is_killed` says whether
    /// the kernel wants privileges to be cleared.
    pub(super) fn kills_sgid(&self, ctx: &RequestContext<'_>, id: InodeId, is_killed: bool) -> Result<bool> {
        if !is_killed {
            return Ok(false);
        }
        let attributes = self.fs.stat(id, Wait::Yes)?;
        let is_left = attributes.mode & (SGID | GROUP_EXECUTES) == SGID;
        Ok(is_left && self.unprivileged_writer(ctx, attributes.gid) == WritingUser::Stranger)
    }
}
