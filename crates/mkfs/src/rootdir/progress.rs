//! Callbacks for the progress of a copy.

use std::ops::Range;

use creamery_base::{Error, Result};

/// Receives the progress of a copy; all calls come from one thread, in the order of the copy.
///
/// ```
/// use creamery_mkfs::{NoProgress, Progress};
/// NoProgress.start(10, 4096);
/// NoProgress.entry(b"usr/bin/ls", 1234);
/// ```
pub trait Progress: Sync {
    /// The copy begins; `entries` and `bytes` are estimates of its names and data, or zeros if nothing was counted.
    fn start(&self, entries: u64, bytes: u64) {
        let _ = (entries, bytes);
    }

    /// One more name (`path` from the root of the source tree) is in the image, with `bytes` of data.
    fn entry(&self, path: &[u8], bytes: u64) {
        let _ = (path, bytes);
    }

    /// `what` of `path` cannot be read, and the copy goes on without it, if the options allow that.
    fn lost(&self, path: &[u8], what: Lost, error: &Error) {
        let _ = (path, what, error);
    }

    /// The extended attribute `name` of `path` is not copied. `error` is [`Unsupported`](creamery_base::ErrorKind::Unsupported) if the
    /// target accepts none of its kind, and [`PermissionDenied`](creamery_base::ErrorKind::PermissionDenied) if this user may not set it;
    /// else there is no room for it.
    fn xattr_left_out(&self, path: &[u8], name: &[u8], error: &Error) {
        let _ = (path, name, error);
    }

    /// `path` is left out though it could be copied, by the options.
    fn skipped(&self, path: &[u8], why: Skipped) {
        let _ = (path, why);
    }

    /// A file of the host is written in place, with the content of `path`: an error, or a signal, leaves a partial file.
    fn in_place(&self, path: &[u8]) {
        let _ = path;
    }

    /// Decides whether to go on. It is called before each file, and within large ones. An error ends the work with it;
    /// [`ErrorKind::Interrupted`](creamery_base::ErrorKind::Interrupted) does so even where errors are passed over. An incomplete file is
    /// removed then, unless it is written [in place](Self::in_place).
    ///
    /// # Errors
    /// The reason to end.
    fn go_on(&self) -> Result<()> {
        Ok(())
    }

    /// Everything is copied; the last writes are being made durable.
    fn finishing(&self) {}
}

/// The part of the source that a copy goes on without.
///
/// ```
/// use creamery_mkfs::Lost;
/// let bytes = |lost| if let Lost::Bytes(bytes) = lost { bytes.end - bytes.start } else { 0 };
/// assert_eq!(bytes(Lost::Bytes(4096..12288)), 8192);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lost {
    /// The file, or the directory with its content.
    Everything {
        /// The length of a regular file, if it is known.
        size: Option<u64>,
    },
    /// Some of the directory's entries.
    Entries,
    /// The extended attributes.
    Xattrs,
    /// These bytes of the data, which are a hole in the copy.
    Bytes(Range<u64>),
}

/// The reaction of a copy to a file that it cannot copy. No variant goes on if the rest cannot be copied either: the target is full, or may
/// not be written.
///
/// ```
/// assert_eq!(creamery_mkfs::OnError::default(), creamery_mkfs::OnError::Stop);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnError {
    /// The copy ends with the error.
    #[default]
    Stop,
    /// The copy leaves the file out, reports it to [`Progress::lost`], and goes on with the next one, as cp(1) does.
    NextFile,
    /// The copy takes all readable parts of the file, and reports the others to [`Progress::lost`]: for a damaged filesystem.
    PastDamage,
}

/// The reason for leaving out a file that could be copied.
///
/// ```
/// assert_ne!(creamery_mkfs::Skipped::Taken, creamery_mkfs::Skipped::Snapshot);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Skipped {
    /// The target has a file of that name, which must stay.
    Taken,
    /// It is a snapshot.
    Snapshot,
    /// It is a symbolic link.
    Symlink,
    /// It is a fifo, a socket or a device.
    Special,
    /// Its path does not match the request.
    Unmatched,
    /// Its data has no checksums, and may belong to another file by now.
    Unverified,
}

/// Ignores all progress.
///
/// ```
/// let _quiet: &dyn creamery_mkfs::Progress = &creamery_mkfs::NoProgress;
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct NoProgress;

impl Progress for NoProgress {}
