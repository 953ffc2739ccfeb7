//! The open descriptors of a file or block device, and I/O through them.

use std::fs::File;
use std::io::Result;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::FileExt;

use creamery_base::lock::{ProcessRead, ProcessWrite, rank};

use super::direct::{Counts, DirectFile};
use super::vectors::{behind, write_all};
use crate::range_lock::{self, Lock, WHOLE};

/// The open and locked descriptors.
pub(super) struct Descriptors {
    file: File,
    /// The file behind a loop device that is open for writing.
    behind: Option<File>,
    /// A second descriptor of the file for direct I/O, if enabled.
    direct: Option<DirectFile>,
}

impl Descriptors {
    pub(super) const fn new(file: File, behind: Option<File>) -> Self {
        Self { file, behind, direct: None }
    }

    /// The file or block device itself.
    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// Turns on direct I/O.
    pub(super) fn go_direct(&mut self, direct: DirectFile) {
        self.direct = Some(direct);
    }

    pub(super) const fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    pub(super) fn read(&self, out: &mut [u8], at: u64, counts: &Counts) -> Result<()> {
        let Some(direct) = &self.direct else { return self.file.read_exact_at(out, at) };
        let done = direct.read(out, at, counts)?;
        if done == out.len() {
            return Ok(());
        }
        counts.cached();
        self.file.read_exact_at(&mut out[done..], at + done as u64)
    }

    /// Writes the parts one after the other, as far as that may happen beside other requests. Returns the number of bytes. [`write_cached`](Self::write_cached) writes the rest.
    pub(super) fn write(&self, parts: &[&[u8]], at: u64, counts: &Counts) -> Result<usize> {
        match &self.direct {
            Some(direct) => direct.write(parts, at, counts),
            None => write_all(&self.file, parts, at),
        }
    }

    /// Writes the bytes of `parts` after the first `done`, which were written to `at` already, through the page cache. No other request
    /// may run meanwhile (ODIRECT-2).
    pub(super) fn write_cached(
        &mut self,
        parts: &[&[u8]],
        done: usize,
        at: u64,
        counts: &Counts,
    ) -> Result<()> {
        counts.cached();
        write_all(&self.file, &behind(parts, done), at + done as u64).map(drop)
    }

    /// Releases the locks. If this fails, there is nothing to do.
    pub(super) fn unlock(self) {
        for file in std::iter::once(self.file).chain(self.behind) {
            let _ = rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock);
            let _ = range_lock::lock(&file, &WHOLE, Lock::Unlock);
        }
    }
}

/// The descriptors of a device that was not closed, for one request among others.
pub(super) struct OpenedFile<'a>(ProcessRead<'a, Option<Descriptors>, { rank::DEVICE }>);

impl<'a> OpenedFile<'a> {
    /// Wraps the descriptors; `None` if the device was closed.
    pub(super) fn of(descriptors: ProcessRead<'a, Option<Descriptors>, { rank::DEVICE }>) -> Option<Self> {
        descriptors.is_some().then_some(Self(descriptors))
    }
}

impl Deref for OpenedFile<'_> {
    type Target = Descriptors;

    fn deref(&self) -> &Descriptors {
        self.0.as_ref().expect("looked at when it was made")
    }
}

/// The descriptors of a device that was not closed, for one request while there are no others.
pub(super) struct OpenedAlone<'a>(ProcessWrite<'a, Option<Descriptors>, { rank::DEVICE }>);

impl<'a> OpenedAlone<'a> {
    /// Wraps the descriptors; `None` if the device was closed.
    pub(super) fn of(descriptors: ProcessWrite<'a, Option<Descriptors>, { rank::DEVICE }>) -> Option<Self> {
        descriptors.is_some().then_some(Self(descriptors))
    }
}

impl Deref for OpenedAlone<'_> {
    type Target = Descriptors;

    fn deref(&self) -> &Descriptors {
        self.0.as_ref().expect("looked at when it was made")
    }
}

impl DerefMut for OpenedAlone<'_> {
    fn deref_mut(&mut self) -> &mut Descriptors {
        self.0.as_mut().expect("looked at when it was made")
    }
}
