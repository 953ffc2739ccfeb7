//! What a caller may watch while a tree is copied.

use std::ops::Range;

use creamery_base::Error;

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
    Everything,
    /// Some of the directory's entries.
    Entries,
    /// The extended attributes.
    Xattrs,
    /// These bytes of the data, which are a hole in the copy.
    Bytes(Range<u64>),
}

/// Nobody watches.
///
/// ```
/// let _quiet: &dyn creamery_mkfs::Progress = &creamery_mkfs::NoProgress;
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct NoProgress;

impl Progress for NoProgress {}
