//! The other end of [`Operations::ioctl`](crate::Operations::ioctl): sending a control to a mount from outside.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};

use rustix::ioctl::{Opcode, Updater, opcode};

/// The type that statfs(2) tells for FUSE.
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

/// The number of a control of ours: `LEN` bytes go in and as many come back (`_IOWR`). `LEN` is below 16 KiB, and `group`
/// none of those that the kernel answers itself.
///
/// ```
/// const STATUS: u32 = creamery_fuse::control_number::<64>(0xe6, 1);
/// assert_eq!(STATUS, 0xc040_e601);
/// ```
#[must_use]
pub const fn control_number<const LEN: usize>(group: u8, number: u8) -> u32 {
    assert!(LEN < 1 << 14, "a control's number has 14 bits for its size");
    opcode::read_write::<[u8; LEN]>(group, number)
}

/// Sends the control `NUMBER` to an open file or directory of a FUSE mount. `message` goes there, and is what comes back.
///
/// # Errors
/// [`ErrorKind::Unsupported`] when the file is on no FUSE filesystem; what the filesystem answers, `ENOTTY` if it does not know
/// the control.
///
/// # Panics
/// When `NUMBER` is not one that [`control_number`] makes for `LEN`.
///
/// ```no_run
/// const STATUS: u32 = creamery_fuse::control_number::<64>(0xe6, 1);
/// let mut message = [0; 64];
/// creamery_fuse::control::<STATUS, 64>(&std::fs::File::open("/mnt")?, &mut message)?;
/// # std::io::Result::Ok(())
/// ```
pub fn control<const NUMBER: Opcode, const LEN: usize>(file: &File, message: &mut [u8; LEN]) -> Result<()> {
    let [number, group, ..] = NUMBER.to_le_bytes();
    assert_eq!(NUMBER, control_number::<LEN>(group, number), "the number tells another size or direction");
    if u64::try_from(rustix::fs::fstatfs(file)?.f_type) != Ok(FUSE_SUPER_MAGIC) {
        return Err(ErrorKind::Unsupported.into());
    }
    // SAFETY: for a file on FUSE the kernel copies as many bytes in and out through the pointer as the number tells, whatever
    // the filesystem behind it does, and those are the bytes of `message`, which is borrowed across the call. That
    // the number tells `LEN`, and that the file is on FUSE, has been looked at above; an open file does not change its
    // filesystem.
    unsafe { rustix::ioctl::ioctl(file, Updater::<NUMBER, [u8; LEN]>::new(message)) }.map_err(Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: u32 = control_number::<16>(0xe6, 7);

    #[test]
    fn a_file_that_is_not_on_fuse_never_sees_the_control() {
        let file = File::open("/proc/self/status").expect("procfs");
        let error = control::<NUMBER, 16>(&file, &mut [0; 16]).expect_err("is not on FUSE");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    #[test]
    #[should_panic(expected = "another size")]
    fn a_number_for_another_size_is_a_bug() {
        let file = File::open("/proc/self/status").expect("procfs");
        let _ = control::<NUMBER, 8>(&file, &mut [0; 8]);
    }
}
