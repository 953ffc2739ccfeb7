//! Writes of the kernel's own that failed, for which perhaps nobody waits.
//!
//! What a program changes in a mapping the kernel writes when it likes, perhaps long after the program has ended. When that
//! fails - the host is full - the page is clean again and what was in it is gone: the kernel is told to drop it, so that nobody is
//! shown what is not in the file. An fsync(2) of the file is told, once; where
//! there is none, nobody. So the server keeps count: in its log, in `creamery stats`, and as the exit status of the unmount.
//!
//! What is refused (a mapping of a file that is append-only) is not lost: nobody may do that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use creamery_base::{Error, ErrorKind, InodeId};
use creamery_fuse::protocol::WriteFlags;
use creamery_fuse::{Errno, WriteRequest};

/// Who writes the log.
pub(crate) type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// What was lost.
#[derive(Default)]
pub(crate) struct LostWrites {
    count: AtomicU64,
    /// The first of them, in words.
    first: OnceLock<String>,
    tell: OnceLock<Tell>,
}

impl LostWrites {
    /// Looks at how a write of `len` bytes went. Returns whether something is lost.
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
            tell(&format!("lost: {told}; creamery stats counts what follows"));
        }
        true
    }

    /// Has the first one told, when there is one. Who is to be told first stays.
    pub(crate) fn tell_to(&self, tell: Tell) {
        let _ = self.tell.set(tell);
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Errors: something was lost.
    pub(crate) fn check(&self) -> creamery_base::Result<()> {
        match self.first.get() {
            None => Ok(()),
            Some(first) => {
                let what = format!("{} writes of mappings were lost, the first: {first}", self.count());
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
