//! The state that a refused request has to leave as it was, for tests that compare it before and after.

use creamery_base::Wait;

use super::OpenFile;

impl OpenFile {
    /// The resources of the file and of the filesystem that direct requests take or change, as numbers. It does not wait, and so leaves
    /// out changes under way.
    #[must_use]
    pub fn traces(&self) -> Vec<u64> {
        let inode = &self.inode;
        let (engine, context, subvolume) = (inode.engine(), inode.context(), inode.subvolume());
        let mut traces = vec![
            engine.delalloc_bytes(),
            engine.delalloc_metadata_bytes(),
            context.in_flight().len() as u64,
            context.in_flight().bytes(),
            subvolume.writers_in_place() as u64,
            subvolume.changes(),
        ];
        if let Some(file) = inode.as_file() {
            traces.extend([file.ranges_in_use() as u64, file.delalloc().size().unwrap_or(0)]);
        }
        traces.push(u64::from(matches!(inode.try_lock_exclusive(), Ok(Some(_)))));
        if let Ok(item) = inode.hold_extents(Wait::No) {
            traces.extend([item.size, item.nbytes, item.transid.get(), item.sequence]);
            traces.extend([item.mtime.sec.cast_unsigned(), item.mtime.nsec.into()]);
        }
        traces
    }
}
