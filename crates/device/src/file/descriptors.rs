//! What is open of a file or block device, and bytes that go through it.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;

use super::vectors::write_parts;
use crate::range_lock::{self, Lock, WHOLE};

/// What is open, and locked.
pub(super) struct Descriptors {
    file: File,
    /// The file behind a loop device that is written.
    behind: Option<File>,
}

impl Descriptors {
    pub(super) const fn new(file: File, behind: Option<File>) -> Self {
        Self { file, behind }
    }

    /// The file or block device itself.
    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn read(&self, out: &mut [u8], at: u64) -> Result<()> {
        self.file.read_exact_at(out, at)
    }

    /// Writes the parts one after the other.
    pub(super) fn write(&self, parts: &[&[u8]], at: u64) -> Result<()> {
        if let [part] = parts {
            return self.file.write_all_at(part, at);
        }
        let len: usize = parts.iter().map(|part| part.len()).sum();
        match write_parts(&self.file, parts, at, 1)? {
            written if written < len => Err(Error::from(ErrorKind::WriteZero)),
            _ => Ok(()),
        }
    }

    /// Gives the locks back. Nothing to do if this fails.
    pub(super) fn unlock(self) {
        for file in std::iter::once(self.file).chain(self.behind) {
            let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock);
            let _ = range_lock::lock(&file, &WHOLE, Lock::Unlock);
        }
    }
}
