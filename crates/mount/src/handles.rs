//! Open files, by the number that the kernel holds.

use std::sync::Arc;

use creamery_fs::OpenFile;
use creamery_fuse::{Errno, FileHandle};
use parking_lot::RwLock;

#[derive(Default)]
struct Slots {
    files: Vec<Option<Arc<OpenFile>>>,
    free: Vec<usize>,
}

/// The table of open files.
#[derive(Default)]
pub(crate) struct Handles {
    slots: RwLock<Slots>,
}

impl Handles {
    pub(crate) fn add(&self, file: Arc<OpenFile>) -> FileHandle {
        let mut slots = self.slots.write();
        let at = match slots.free.pop() {
            Some(at) => {
                slots.files[at] = Some(file);
                at
            }
            None => {
                slots.files.push(Some(file));
                slots.files.len() - 1
            }
        };
        FileHandle::new(at as u64)
    }

    pub(crate) fn get(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Errno> {
        let slots = self.slots.read();
        let at = usize::try_from(handle.get()).map_err(|_| Errno::EBADF)?;
        slots.files.get(at).cloned().flatten().ok_or(Errno::EBADF)
    }

    pub(crate) fn remove(&self, handle: FileHandle) {
        let file = {
            let mut slots = self.slots.write();
            let Ok(at) = usize::try_from(handle.get()) else { return };
            let Some(file) = slots.files.get_mut(at).and_then(Option::take) else { return };
            slots.free.push(at);
            file
        };
        drop(file); // outside the lock: the last close of an unlinked file deletes it
    }
}
