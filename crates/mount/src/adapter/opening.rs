//! Opens files, and decides how the kernel handles the reads and writes of each.
//!
//! | opened | answered with | so |
//! |---|---|---|
//! | append-only, to append | `DIRECT_IO` | it cannot be mapped shared, because `DIRECT_IO_ALLOW_MMAP` is declined |
//! | O_DIRECT, only to write | `DIRECT_IO`, `PARALLEL_DIRECT_WRITES` | several threads write to it at once. It cannot be mapped |
//! | O_DIRECT, also to read | none of these flags | it can be mapped, as on Linux. The kernel bypasses its cache by the flag of the file |
//! | any other | none of these flags | it goes through the cache |

use std::sync::Arc;

use creamery_base::Wait;
use creamery_fs::{Access, InodeFlags, OpenFile, SetAttributes};
use creamery_fuse::protocol::OpenReplyFlags;
use creamery_fuse::{NodeId, OpenRequest, Opened, RequestContext, Result};

use super::Adapter;
use crate::flags;

impl Adapter {
    /// The answer to an open of a file that is not append-only.
    pub(super) fn opened(&self, file: Arc<OpenFile>, open: &OpenRequest) -> Opened {
        // The kernel's pages stay valid: every change of the file goes through it.
        let flags = OpenReplyFlags::KEEP_CACHE;
        let flags = match flags::is_around_cache(open.flags) {
            // It cannot be mapped, and several threads may write to it at once.
            true => flags | OpenReplyFlags::DIRECT_IO | OpenReplyFlags::PARALLEL_DIRECT_WRITES,
            false => flags,
        };
        Opened { handle: self.handles.add(file, open), flags }
    }

    /// Opens a file.
    pub(super) fn open_file(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        open: &OpenRequest,
    ) -> Result<Opened> {
        let id = self.nodes.inode(node);
        let access = flags::access(open.flags);
        let file = self.fs.open_file_for(id, access)?;
        if open.flags & flags::O_TRUNC != 0 {
            let (kill_suid_sgid, kill_sgid) =
                (open.kill_suidgid, self.kills_sgid(ctx, id, open.kill_suidgid)?);
            let set = SetAttributes { kill_suid_sgid, kill_sgid, ..SetAttributes::truncate(0) };
            self.fs.set_attributes(id, &set)?;
        }
        if access == Access::Append && file.stat(Wait::Yes)?.flags.contains(InodeFlags::APPEND) {
            // Without the page cache there is no shared mapping, which could write anywhere, and the
            // parts of a long write come one after the other, each at the end.
            let handle = self.handles.add(file, open);
            return Ok(Opened { handle, flags: OpenReplyFlags::DIRECT_IO });
        }
        let opened = self.opened(Arc::clone(&file), open);
        if flags::maps(open.flags) {
            self.users_moved(node, &file);
        }
        Ok(opened)
    }
}
