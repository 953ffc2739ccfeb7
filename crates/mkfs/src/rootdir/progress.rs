//! What a caller may watch while a tree is copied.

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

    /// Everything is in; the last writes are being made durable.
    fn finishing(&self) {}
}

/// Nobody watches.
///
/// ```
/// let _quiet: &dyn creamery_mkfs::Progress = &creamery_mkfs::NoProgress;
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct NoProgress;

impl Progress for NoProgress {}
