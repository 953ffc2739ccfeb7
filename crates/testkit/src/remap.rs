//! Sharing extents by the kernel's own ioctls, which judge ours.

#![allow(unsafe_code, reason = "no crate has these two ioctls; each block says why it is sound")]

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Setter, Updater, opcode};

/// `struct file_clone_range`: the source's descriptor, where in it, how much, and where to.
const FICLONERANGE: Opcode = opcode::write::<[u64; 4]>(0x94, 13);
/// `struct file_dedupe_range` without the results that follow it; here one does.
const FIDEDUPERANGE: Opcode = opcode::read_write::<[u64; 3]>(0x94, 54);
/// The status of a range that is not the same.
const DIFFERS: u32 = 1;

/// Has the kernel clone `len` bytes of `source` from `from` on, or all there are if that is 0, to `to` of `target`; as
/// ioctl_ficlonerange(2).
///
/// ```no_run
/// let open = |path| std::fs::File::options().read(true).write(true).open(path);
/// creamery_testkit::ficlonerange(&open("/mnt/target")?, 0, &open("/mnt/source")?, 0, 0)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What the kernel answers.
pub fn ficlonerange(target: &File, to: u64, source: &File, from: u64, len: u64) -> Result<()> {
    let descriptor = u64::try_from(source.as_raw_fd()).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel reads 32 bytes, which the array has; the descriptor is open for as long as `source` is borrowed.
    unsafe {
        rustix::ioctl::ioctl(target, Setter::<FICLONERANGE, [u64; 4]>::new([descriptor, from, len, to]))
    }
}

/// Has the kernel share `len` bytes of `source` from `from` on with `target` at `to`, if they are equal; as
/// ioctl_fideduperange(2). How many bytes were shared; none when they differ.
///
/// ```no_run
/// let open = |path| std::fs::File::options().read(true).write(true).open(path);
/// let shared = creamery_testkit::fideduperange(&open("/mnt/target")?, 0, &open("/mnt/source")?, 0, 4096)?;
/// assert_eq!(shared, Some(4096));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What the kernel answers, for all or for the one range.
pub fn fideduperange(target: &File, to: u64, source: &File, from: u64, len: u64) -> Result<Option<u64>> {
    let descriptor = u64::try_from(target.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let mut message = [from, len, 1, descriptor, to, 0, 0];
    // SAFETY: the kernel reads 24 bytes, learns from the third word that one result of 32 bytes follows, and writes that; the
    // array has 56. The descriptor is open for as long as `target` is borrowed.
    unsafe { rustix::ioctl::ioctl(source, Updater::<FIDEDUPERANGE, [u64; 7]>::new(&mut message)) }?;
    let status = (message[6] & u64::from(u32::MAX)) as u32;
    match status.cast_signed() {
        0 => Ok(Some(message[5])),
        _ if status == DIFFERS => Ok(None),
        error => Err(Errno::from_raw_os_error(-error)),
    }
}
