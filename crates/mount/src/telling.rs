//! Notifies the kernel that its cache of a file is invalid.

use creamery_base::InodeId;
use creamery_fs::{Attributes, FileType, Filesystem};
use creamery_fuse::{NodeId, Notice, NotifyThread, Session};

/// Makes the kernel drop the pages of files whose delayed data was lost: they may contain that data. `node` returns the node id of
/// a file. Works until the returned value is dropped.
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

/// Whether a file has no data on disk.
pub(crate) fn is_all_hole(attributes: &Attributes) -> bool {
    attributes.kind == FileType::File && attributes.allocated == 0 && attributes.size > 0
}
