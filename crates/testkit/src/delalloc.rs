//! Whether the kernel has data in memory only, as its list of extents reports.

#![allow(unsafe_code, reason = "no crate has this ioctl; the block says why it is sound")]

use std::fs::File;

use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Updater, opcode};

/// `FS_IOC_FIEMAP` with the size of `struct fiemap`, 32 bytes; the extents that follow it do not count.
const FIEMAP: Opcode = opcode::read_write::<[u64; 4]>(b'f', 11);
/// The flag of an extent without an address.
const DELALLOC: u64 = 0x4;

/// Whether the byte at `offset` was written and has no place on disk yet; `None` if the filesystem does not report extents.
///
/// ```no_run
/// let is_dirty = creamery_testkit::is_delalloc(&std::fs::File::open("/mnt/new")?, 0)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// The kernel's error.
pub fn is_delalloc(file: &File, offset: u64) -> Result<Option<bool>> {
    // Start and length; flags, and the number of extents found; the number there is room for. Then 56 bytes of one extent.
    let mut message: [u64; 11] = [0; 11];
    message[0] = offset;
    message[1] = 1;
    message[3] = 1; // the host is little-endian, as every target of Creamery
    // SAFETY: the kernel reads 32 bytes, learns from the last 8 that one extent of 56 bytes may follow, and writes these; the array has 88.
    match unsafe { rustix::ioctl::ioctl(file, Updater::<FIEMAP, [u64; 11]>::new(&mut message)) } {
        Err(Errno::OPNOTSUPP | Errno::NOTTY) => Ok(None),
        Err(error) => Err(error),
        Ok(()) => Ok(Some(message[9] & DELALLOC != 0)),
    }
}
