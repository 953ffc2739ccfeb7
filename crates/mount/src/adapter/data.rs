//! Reads and writes of file data.
//!
//! The filesystem's direct reads and writes carry out a request with O_DIRECT, in the buffers of the request itself. That
//! flag of a file can change at any time, so it is taken from the request. A request that fills pages of the kernel's cache is not direct, whatever its
//! file's flags are: it belongs to a mapping, or is the part of a write that the kernel does not carry out directly.

use creamery_base::Wait;
use creamery_device::SharedBytes;
use creamery_fs::{DirectAt, InodeFlags, OpenFile};
use creamery_fuse::protocol::WriteFlags;
use creamery_fuse::{NodeId, ReadRequest, RequestContext, Result, WriteRequest};

use super::Adapter;
use crate::asker;
use crate::flags::{self, PagePath};
use crate::kept_pages::Stale;

impl Adapter {
    /// Reads from an open file.
    pub(super) fn read_from(&self, read: &ReadRequest, out: &mut [u8]) -> Result<usize> {
        let path = PagePath::of(read.lock_owner);
        let file = self.handles.get_for(read.handle, path)?;
        let len = match flags::is_direct(read.flags, path) {
            true => file.read_direct_into(read.offset, out)?.len,
            false => file.read_at(read.offset, out, Wait::Yes)?,
        };
        if !flags::is_quiet(read.flags) {
            file.accessed();
        }
        Ok(len)
    }

    /// Writes to an open file. When this returns, no cached page of the kernel has older data.
    pub(super) fn write_to(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        write: &WriteRequest,
        data: &SharedBytes,
    ) -> Result<usize> {
        let path = PagePath::of(write.lock_owner);
        let file = self.handles.get_for(write.handle, path)?;
        if write.write_flags.contains(WriteFlags::KILL_SUIDGID)
            && file.kill_privileges(|group| self.unprivileged_writer(ctx, group))?
        {
            self.attributes_moved(node);
        }
        if path == PagePath::Around
            && let Some(capabilities) = self.handles.capabilities(write.handle)?
        {
            capabilities.take(|| self.fs.remove_capabilities(file.id()))?;
        }
        let written = match (flags::is_direct(write.flags, path), flags::appends(write)) {
            (true, _) => write_directly(&file, write, data),
            (false, true) => file.append_at(write.offset, data),
            (false, false) => file.write_at(write.offset, data),
        };
        if path == PagePath::Around {
            // A failed write may have written a part.
            self.drop_behind(ctx, node, write, data.len());
        }
        let written = written?;
        if flags::is_durable(write, path, file.inode().item(Wait::Yes)?.flags) {
            file.sync()?;
        }
        Ok(written)
    }

    /// Makes the kernel drop pages that may have the data from before a write that bypassed them (`kept_pages`).
    fn drop_behind(&self, ctx: &RequestContext<'_>, node: NodeId, write: &WriteRequest, len: usize) {
        let stale = self.handles.behind_a_write(write.handle);
        let range = match stale {
            Stale::Nothing => return,
            Stale::Written => (write.offset, write.offset.saturating_add(len as u64)),
            Stale::All(_) => (0, i64::MAX.unsigned_abs()),
        };
        let are_dropped = self.mapped_pages.hand_over(node, range, &|| asker::gives_up(ctx));
        match stale {
            Stale::All(filled) if are_dropped => self.handles.dropped(write.handle, filled),
            _ if are_dropped => {}
            // Too many threads wait already.
            _ => self.mapped_pages.drop_lost(node, (range.0, range.1 - range.0)),
        }
    }
}

/// Writes from the request's own buffer, all of it. The kernel turns a short count into EIO for asynchronous requests, and for those that may make a
/// file longer. So the write fails if space runs out on the way.
fn write_directly(file: &OpenFile, write: &WriteRequest, data: &SharedBytes) -> creamery_base::Result<usize> {
    let mut written = 0;
    loop {
        let part = data.slice(written..data.len());
        let at = place(file, write, write.offset.saturating_add(written as u64))?;
        let len = file.write_direct_shared(at, &part)?.len;
        assert!(len > 0 || part.is_empty(), "a write without an error has written something");
        written += len;
        if written == data.len() {
            return Ok(written);
        }
    }
}

/// The place of a request's write at `offset`.
fn place(file: &OpenFile, write: &WriteRequest, offset: u64) -> creamery_base::Result<DirectAt> {
    let item = file.inode().item(Wait::Yes)?;
    // The kernel gives the end of the file as the offset of an append. It sends appends to one file one after the other, so that is still the end.
    let is_at_end = flags::appends(write) && offset == item.size;
    Ok(match is_at_end && item.flags.contains(InodeFlags::APPEND) {
        true => DirectAt::End,
        false => DirectAt::Offset(offset),
    })
}
