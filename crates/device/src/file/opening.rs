//! The kind of the file at a path, and opening it without waiting for a file that replaced it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use creamery_base::{Error, Result};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::Access;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Block,
}

pub(super) fn kind_of(metadata: &std::fs::Metadata, path: &Path) -> Result<Kind> {
    let kind = metadata.file_type();
    if kind.is_file() {
        Ok(Kind::File)
    } else if kind.is_block_device() {
        Ok(Kind::Block)
    } else {
        Err(Error::invalid(format!("{} is neither a regular file nor a block device", path.display())))
    }
}

/// Opens a file. Does not wait for a fifo that has replaced it; waits for a program that has a lease on the file.
pub(super) fn open_file(path: &Path, access: Access) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(access == Access::ReadWrite);
    match options.clone().custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => {
            fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => options.open(path),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_is_opened_without_waiting_and_a_file_is_read_and_written_as_ever() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        let file = open_file(&fifo, Access::ReadOnly).unwrap();
        assert!(kind_of(&file.metadata().unwrap(), &fifo).is_err());
        let path = dir.path().join("file");
        std::fs::write(&path, b"here").unwrap();
        let file = open_file(&path, Access::ReadWrite).unwrap();
        assert!(!fcntl_getfl(&file).unwrap().contains(OFlags::NONBLOCK));
    }
}
