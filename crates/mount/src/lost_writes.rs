//! Failed writes of the kernel itself, for which perhaps no process waits.
//!
//! The kernel writes pages of a mapping at any time, perhaps long after the program has ended. If such a write
//! fails because the host is full, the page is clean again and its data is lost. The server makes the kernel drop the page, so that readers do not
//! see data that is not in the file. An fsync(2) of the file gets the error, once; without
//! one, no process does. So the server counts the losses: in its log, in `creamery stats`, and in the exit status of the unmount.
//!
//! A refused write (to a mapping of an append-only file) is not a loss: it is never allowed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use creamery_base::{Error, ErrorKind, InodeId};
use creamery_fuse::protocol::WriteFlags;
use creamery_fuse::{Errno, WriteRequest};

/// Writes to the log.
pub(crate) type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Counts lost writes.
#[derive(Default)]
pub(crate) struct LostWrites {
    count: AtomicU64,
    /// The message of the first one.
    first: OnceLock<String>,
    tell: OnceLock<Tell>,
}

impl LostWrites {
    /// Checks the result of a write of `len` bytes. Returns whether data is lost.
    pub(crate) fn look(
        &self,
        id: InodeId,
        write: &WriteRequest,
        len: usize,
        outcome: &creamery_fuse::Result<usize>,
    ) -> bool {
        let why = match outcome {
            _ if !write.write_flags.contains(WriteFlags::CACHE) => return false,
            Ok(written) if *written == len => return false,
            Err(errno) if *errno == Errno::EPERM => return false,
            Ok(_) => Errno::ENOSPC,
            Err(errno) => *errno,
        };
        self.count.fetch_add(1, Ordering::Relaxed);
        let told = format!("{len} bytes at {} of inode {id}, changed in a mapping: {why}", write.offset);
        if self.first.set(told.clone()).is_ok()
            && let Some(tell) = self.tell.get()
        {
            tell(&format!("lost: {told}; `creamery stats` counts later losses"));
        }
        true
    }

    /// Sets the writer of the log, which gets the first loss. A second call has no effect.
    pub(crate) fn tell_to(&self, tell: Tell) {
        let _ = self.tell.set(tell);
    }

    /// The number of lost writes.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Errors: a write was lost.
    pub(crate) fn check(&self) -> creamery_base::Result<()> {
        match self.first.get() {
            None => Ok(()),
            Some(first) => {
                let what = format!("{} writes of mapped pages were lost, the first: {first}", self.count());
                Err(Error::new(ErrorKind::Io, what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::{ObjectId, TreeId};
    use creamery_fuse::FileHandle;

    use super::*;

    #[test]
    fn what_the_kernel_writes_by_itself_and_fails_is_told() {
        let lost = LostWrites::default();
        let id = InodeId::new(TreeId::FS, ObjectId::new(257));
        let write = |write_flags| WriteRequest {
            handle: FileHandle::new(1),
            offset: 4096,
            flags: 0,
            write_flags,
            lock_owner: None,
        };
        let (asked, by_itself) = (write(WriteFlags::empty()), write(WriteFlags::CACHE));
        lost.look(id, &asked, 10, &Err(Errno::ENOSPC));
        lost.look(id, &by_itself, 10, &Ok(10));
        lost.look(id, &by_itself, 10, &Err(Errno::EPERM));
        assert!(lost.check().is_ok());
        let (send, said) = std::sync::mpsc::channel();
        lost.tell_to(Arc::new(move |what| send.send(what.to_owned()).expect("somebody listens")));
        lost.look(id, &by_itself, 10, &Err(Errno::ENOSPC));
        lost.look(id, &by_itself, 10, &Ok(4));
        assert_eq!(said.try_iter().count(), 1, "once");
        let told = lost.check().expect_err("two were lost").to_string();
        assert!(told.starts_with("2 writes") && told.contains("10 bytes at 4096 of inode 5/257"), "{told}");
    }
}
