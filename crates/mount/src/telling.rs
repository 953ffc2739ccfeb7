//! Telling the kernel unasked that what it keeps of a file is not so any more.

use creamery_base::InodeId;
use creamery_fs::{Attributes, FileType, Filesystem};
use creamery_fuse::{NodeId, Notice, NotifyThread, Session};

/// Has the kernel forget the pages that it keeps of files whose delayed data was lost: they may have that. `node` is what it calls
/// a file. Until what is given back is dropped.
pub(crate) fn of_losses(
    fs: &Filesystem,
    session: &Session,
    node: impl Fn(InodeId) -> Option<NodeId> + Send + Sync + 'static,
) -> NotifyThread {
    let notices = NotifyThread::spawn(session.notifier());
    let queue = notices.queue();
    fs.tell_loss(move |id| {
        if let Some(node) = node(id) {
            queue.send(Notice::Inode { node, offset: 0, len: 0 });
        }
    });
    notices
}

/// Whether nothing of a file is on disk.
pub(crate) fn is_all_hole(attributes: &Attributes) -> bool {
    attributes.kind == FileType::File && attributes.allocated == 0 && attributes.size > 0
}
