//! The other end of [`Operations::ioctl`](crate::Operations::ioctl): sends a control to a mount from outside.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};

use rustix::fs::FileType;
use rustix::ioctl::{Opcode, Updater, opcode};

/// The type of FUSE in statfs(2).
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

/// Groups of controls that the kernel answers itself for any file or directory, before it asks the filesystem, or for which FUSE
/// reads more of the caller's memory than the number announces: `FIBMAP`, `FS_IOC_GETUUID`, terminals and `FIONREAD`, `FIFREEZE` and
/// `FS_IOC_FSGETXATTR`, `FS_IOC_FIEMAP` and fs-verity, `FICLONE` and `FIDEDUPERANGE`. The number does not show what these do with the
/// pointer.
const KERNEL_GROUPS: [u8; 6] = [0x00, 0x15, b'T', b'X', b'f', 0x94];

/// The number of a control of ours: `LEN` bytes go in and as many come back (`_IOWR`). `LEN` is below 16 KiB, and `group`
/// is not one that the kernel answers itself.
///
/// ```
/// const STATUS: u32 = creamery_fuse::control_number::<64>(0xe6, 1);
/// assert_eq!(STATUS, 0xc040_e601);
/// ```
///
/// # Panics
/// When `LEN` is too large, or the group belongs to the kernel.
#[must_use]
pub const fn control_number<const LEN: usize>(group: u8, number: u8) -> u32 {
    assert!(LEN < 1 << 14, "a control's number has 14 bits for its size");
    let mut at = 0;
    while at < KERNEL_GROUPS.len() {
        assert!(group != KERNEL_GROUPS[at], "controls of this group are answered by the kernel");
        at += 1;
    }
    opcode::read_write::<[u8; LEN]>(group, number)
}

/// Sends the control `NUMBER` to an open file or directory of a FUSE mount, with `message`, which the answer replaces.
///
/// A number that [`control_number`] does not make for `LEN` is rejected at compile time.
///
/// # Errors
/// [`ErrorKind::Unsupported`] when it is not a regular file or directory of a FUSE filesystem; the error of the filesystem, `ENOTTY`
/// if it does not know the control.
///
/// ```no_run
/// const STATUS: u32 = creamery_fuse::control_number::<64>(0xe6, 1);
/// let mut message = [0; 64];
/// creamery_fuse::control::<STATUS, 64>(&std::fs::File::open("/mnt")?, &mut message)?;
/// # std::io::Result::Ok(())
/// ```
///
/// The number of a message of 64 bytes does not send one of 8:
/// ```compile_fail,E0080
/// const STATUS: u32 = creamery_fuse::control_number::<64>(0xe6, 1);
/// creamery_fuse::control::<STATUS, 8>(&std::fs::File::open("/mnt")?, &mut [0; 8])?;
/// # std::io::Result::Ok(())
/// ```
///
/// Nor is a control of the kernel's sent, like `FIDEDUPERANGE`, whose message has a tail of any length:
/// ```compile_fail,E0080
/// creamery_fuse::control::<0xc018_9436, 24>(&std::fs::File::open("/mnt")?, &mut [0; 24])?;
/// # std::io::Result::Ok(())
/// ```
pub fn control<const NUMBER: Opcode, const LEN: usize>(file: &File, message: &mut [u8; LEN]) -> Result<()> {
    const {
        let [number, group, ..] = NUMBER.to_le_bytes();
        assert!(NUMBER == control_number::<LEN>(group, number), "the number tells another size or direction");
    }
    // A device node, a socket or a pipe can lie on FUSE, but its driver answers its controls.
    let kind = FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
    let answered_by_fuse = matches!(kind, FileType::RegularFile | FileType::Directory)
        && u64::try_from(rustix::fs::fstatfs(file)?.f_type) == Ok(FUSE_SUPER_MAGIC);
    if !answered_by_fuse {
        return Err(ErrorKind::Unsupported.into());
    }
    // SAFETY: for a regular file or a directory on FUSE the kernel copies as many bytes in and out through the pointer as the
    // number announces, whatever the filesystem behind it does. Those are the bytes of `message`, which is borrowed across
    // the call. The check at compile time proves that the number announces `LEN` and is in none of the groups with other effects,
    // and the check above proves that it is such a file; an open file changes neither its type nor its filesystem.
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
    fn groups_of_the_kernel_have_no_controls_of_ours() {
        for group in KERNEL_GROUPS {
            let made = std::panic::catch_unwind(|| control_number::<16>(group, 7));
            assert!(made.is_err(), "{group:#x}");
        }
    }
}
