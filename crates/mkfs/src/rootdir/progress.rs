//! What a caller may watch while a tree is copied.

use std::ops::Range;

use creamery_base::{Error, Result};

/// Told about the copy as it goes; all calls come from one thread, in the order of the copy.
///
/// ```
/// use creamery_mkfs::{NoProgress, Progress};
/// NoProgress.start(10, 4096);
/// NoProgress.entry(b"usr/bin/ls", 1234);
/// ```
pub trait Progress: Sync {
    /// The copy begins; about so many names and bytes of data are to come. Zeros when nobody counted.
    fn start(&self, entries: u64, bytes: u64) {
        let _ = (entries, bytes);
    }

    /// One more name (`path` from the root of the source tree) is in the image, with `bytes` of data.
    fn entry(&self, path: &[u8], bytes: u64) {
        let _ = (path, bytes);
    }

    /// `what` of `path` cannot be read, and the copy goes on without it, where that is wished.
    fn lost(&self, path: &[u8], what: Lost, error: &Error) {
        let _ = (path, what, error);
    }

    /// The extended attribute `name` of `path` does not come along. `error` is [`Unsupported`](creamery_base::ErrorKind::Unsupported) where what
    /// is copied to takes none of its kind, [`PermissionDenied`](creamery_base::ErrorKind::PermissionDenied) where this user may not set it;
    /// else there is no room for it.
    fn xattr_left_out(&self, path: &[u8], name: &[u8], error: &Error) {
        let _ = (path, name, error);
    }

    /// `path` is left out though it could be copied, where that is wished.
    fn skipped(&self, path: &[u8], why: Skipped) {
        let _ = (path, why);
    }

    /// A file of the host is written where it is, with the content of `path`: an error, or a signal, leaves a part in it.
    fn in_place(&self, path: &[u8]) {
        let _ = path;
    }

    /// Asked before each file, and within large ones, whether to go on. An error ends the work with it, even where errors are passed over if
    /// it is [`ErrorKind::Interrupted`](creamery_base::ErrorKind::Interrupted); of a file that is not whole nothing is left then, unless it is written
    /// [in place](Self::in_place).
    ///
    /// # Errors
    /// Why not.
    fn go_on(&self) -> Result<()> {
        Ok(())
    }

    /// Everything is in; the last writes are being made durable.
    fn finishing(&self) {}
}

/// What a copy goes on without.
///
/// ```
/// use creamery_mkfs::Lost;
/// let bytes = |lost| if let Lost::Bytes(bytes) = lost { bytes.end - bytes.start } else { 0 };
/// assert_eq!(bytes(Lost::Bytes(4096..12288)), 8192);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lost {
    /// The file, or the directory with all in it.
    Everything {
        /// The length of a regular file, where that is known.
        size: Option<u64>,
    },
    /// Some of the directory's entries.
    Entries,
    /// The extended attributes.
    Xattrs,
    /// These bytes of the data, which are a hole in the copy.
    Bytes(Range<u64>),
}

/// What a copy does after what it cannot copy. None goes on where the rest cannot be copied either: what it is copied to is full, or may not be
/// written to.
///
/// ```
/// assert_eq!(creamery_mkfs::OnError::default(), creamery_mkfs::OnError::Stop);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnError {
    /// It ends with the error.
    #[default]
    Stop,
    /// It leaves the file out, tells [`Progress::lost`], and goes on with the next one, as cp(1) does.
    NextFile,
    /// It brings of the file what can be read, and tells [`Progress::lost`] what cannot: for a damaged filesystem.
    PastDamage,
}

/// Why a copy leaves something out that it could have.
///
/// ```
/// assert_ne!(creamery_mkfs::Skipped::Taken, creamery_mkfs::Skipped::Snapshot);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Skipped {
    /// Something has its name where the copy goes, and is to stay.
    Taken,
    /// It is a snapshot.
    Snapshot,
    /// It is a symbolic link.
    Symlink,
    /// It is a fifo, a socket or a device.
    Special,
    /// Its path is none of those that are wanted.
    Unmatched,
    /// Its data has no checksums, and may be another file's by now.
    Unverified,
}

/// Nobody watches.
///
/// ```
/// let _quiet: &dyn creamery_mkfs::Progress = &creamery_mkfs::NoProgress;
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct NoProgress;

impl Progress for NoProgress {}
