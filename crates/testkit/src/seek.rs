//! Data and holes, as the kernel finds them.

use std::fs::File;

use rustix::fs::SeekFrom;
use rustix::io::{Errno, Result};

/// The first byte at or after `offset` that is data, by lseek(2); none when only a hole follows.
///
/// ```no_run
/// let file = std::fs::File::open("/mnt/sparse")?;
/// let data = creamery_testkit::seek_data(&file, 0)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What the kernel answers.
pub fn seek_data(file: &File, offset: u64) -> Result<Option<u64>> {
    found(rustix::fs::seek(file, SeekFrom::Data(offset)))
}

/// The first byte at or after `offset` that lies in a hole; the end of the file is one. None beyond it.
///
/// ```no_run
/// let file = std::fs::File::open("/mnt/sparse")?;
/// let hole = creamery_testkit::seek_hole(&file, 0)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What the kernel answers.
pub fn seek_hole(file: &File, offset: u64) -> Result<Option<u64>> {
    found(rustix::fs::seek(file, SeekFrom::Hole(offset)))
}

fn found(answer: Result<u64>) -> Result<Option<u64>> {
    match answer {
        Err(Errno::NXIO) => Ok(None),
        other => other.map(Some),
    }
}
