//! The properties of btrfs-progs (btrfs-property(8)).

use creamery_base::{Error, Result};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::LiveBtrfs;
use super::controls::{
    GET_FSLABEL, GET_SUBVOL_INFO, LABEL_WORDS, RECEIVED_WORDS, SET_FSLABEL, SET_RECEIVED_SUBVOL,
    SUBVOL_GETFLAGS, SUBVOL_INFO_WORDS, SUBVOL_SETFLAGS, bytes_of,
};
use crate::facts::LiveFacts;
use crate::table::is_point;

/// The extended attribute with the compression.
const COMPRESSION: &str = "btrfs.compression";
/// Bytes; no value is longer.
const COMPRESSION_MAX: usize = 256;
/// `BTRFS_SUBVOL_RDONLY`.
const READ_ONLY: u64 = 1 << 1;
/// The words of `struct btrfs_ioctl_get_subvol_info_args` with the received UUID.
const RECEIVED_UUID: std::ops::Range<usize> = 41..43;

impl LiveBtrfs {
    /// Returns whether the subvolume with this root is read-only; `None` if this is not the root of a subvolume.
    /// Errors: the mount does not answer.
    pub fn read_only(&self) -> Result<Option<bool>> {
        let mut flags = [0];
        match self.answering.send::<SUBVOL_GETFLAGS, 1>(&mut flags) {
            Ok(()) => Ok(Some(flags[0] & READ_ONLY != 0)),
            // For a file, FUSE passes on the error of a server that does not know the control there.
            Err(Errno::INVAL | Errno::NOTTY) => Ok(None),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Sets or clears the read-only flag of the subvolume with this root. A received subvolume is not made writable, because later sends
    /// rely on it.
    /// Errors: permission denied, if another user owns it; invalid, if it was received; it is not the root of a subvolume.
    pub fn set_read_only(&self, read_only: bool) -> Result<()> {
        if !read_only && self.read_only()? == Some(true) && self.was_received()? {
            let text = "incremental sends rely on this received subvolume: take a snapshot of it, or use -f";
            return Err(Error::invalid(format!("{}: {text}", self.path.display())));
        }
        self.set_flag(read_only)
    }

    /// Makes the subvolume with this root writable, and clears its received UUID.
    /// Errors: those of [`set_read_only`](Self::set_read_only), except the one about received subvolumes.
    pub fn set_writable_by_force(&self) -> Result<()> {
        self.set_flag(false)?;
        if self.was_received()? {
            let mut of_nothing = [0; RECEIVED_WORDS];
            let forgotten = self.answering.send::<SET_RECEIVED_SUBVOL, RECEIVED_WORDS>(&mut of_nothing);
            forgotten.map_err(|errno| self.failed(errno))?;
        }
        Ok(())
    }

    fn set_flag(&self, read_only: bool) -> Result<()> {
        let failed = |errno| self.failed(errno);
        let mut flags = [0];
        self.answering.send::<SUBVOL_GETFLAGS, 1>(&mut flags).map_err(failed)?;
        let mut wanted = [if read_only { flags[0] | READ_ONLY } else { flags[0] & !READ_ONLY }];
        self.answering.send::<SUBVOL_SETFLAGS, 1>(&mut wanted).map_err(failed)
    }

    fn was_received(&self) -> Result<bool> {
        let mut info = [0; SUBVOL_INFO_WORDS];
        self.answering
            .send::<GET_SUBVOL_INFO, SUBVOL_INFO_WORDS>(&mut info)
            .map_err(|errno| self.failed(errno))?;
        Ok(info[RECEIVED_UUID].iter().any(|word| *word != 0))
    }

    /// Whether a filesystem is mounted on this directory, so that the directory has a label.
    /// Errors: the mount table cannot be read.
    pub fn is_mount_point(&self) -> Result<bool> {
        is_point(&self.path)
    }

    /// Returns information about the server of a mount of ours and its filesystem.
    /// Errors: the mount does not answer; the kernel serves it.
    pub fn facts(&self) -> Result<LiveFacts> {
        self.ours()?.facts()
    }

    /// Returns the label of the filesystem.
    /// Errors: the mount does not answer.
    pub fn label(&self) -> Result<Vec<u8>> {
        if !self.is_linux() {
            return self.ours()?.label();
        }
        let mut label = [0; LABEL_WORDS];
        self.answering.send::<GET_FSLABEL, LABEL_WORDS>(&mut label).map_err(|errno| self.failed(errno))?;
        let mut label = bytes_of(&label);
        label.truncate(label.iter().position(|byte| *byte == 0).unwrap_or(label.len()));
        Ok(label)
    }

    /// Sets the label; an empty one removes it.
    /// Errors: permission denied, for all but root and the mounter; more than 255 bytes, or a newline.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if !self.is_linux() {
            return self.ours()?.set_label(label);
        }
        if label.len() >= LABEL_WORDS * 8 || label.iter().any(|byte| matches!(byte, 0 | b'\n')) {
            return Err(Error::invalid(format!(
                "{}: a label has at most 255 bytes in one line",
                self.path.display()
            )));
        }
        let mut words = [0; LABEL_WORDS];
        for (word, bytes) in words.iter_mut().zip(label.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        self.answering.send::<SET_FSLABEL, LABEL_WORDS>(&mut words).map_err(|errno| self.failed(errno))
    }

    /// Returns the compression of new data of the file, or of new files in the directory; `None` without this property.
    /// Errors: those of getxattr(2).
    pub fn compression(&self) -> Result<Option<Vec<u8>>> {
        let mut value = [0; COMPRESSION_MAX];
        match rustix::fs::fgetxattr(self.answering.file(), COMPRESSION, &mut value) {
            Ok(len) => Ok(Some(value[..len].to_vec())),
            Err(Errno::NODATA) => Ok(None),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Sets the compression, to a value of Linux: `zlib`, `lzo`, `zstd`, the first and the last with an optional level (`zstd:3`), `no` and
    /// `none`; an empty value removes the property.
    /// Errors: those of setxattr(2); another value.
    pub fn set_compression(&self, value: &[u8]) -> Result<()> {
        let set = rustix::fs::fsetxattr(self.answering.file(), COMPRESSION, value, XattrFlags::empty());
        set.map_err(|errno| match errno {
            Errno::INVAL => Error::invalid(format!(
                "{}: invalid compression '{}'",
                self.path.display(),
                value.escape_ascii()
            )),
            errno => self.failed(errno),
        })
    }
}
