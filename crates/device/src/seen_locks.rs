//! Information from an image's locks, for programs that do not want the image themselves.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::in_use::{User, lock_owner, process_has_open};
use crate::lock_table::lock_table;
use crate::served::is_server;

/// Whether no user of the regular file `path` as an image is visible. Takes no lock, so it keeps no other process out. Processes of other namespaces are
/// not visible. Also false if this cannot be determined: another kind of file, a system that shows no locks.
///
/// ```
/// let file = tempfile::NamedTempFile::new()?;
/// assert!(creamery_device::is_free(file.path()));
/// creamery_device::hold_unused(file.as_file(), file.path())?;
/// assert!(!creamery_device::is_free(file.path()));
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[must_use]
pub fn is_free(path: &Path) -> bool {
    let Ok(meta) = path.metadata() else { return false };
    let Ok(locks) = lock_table() else { return false };
    // The lock may also be on a file of another filesystem with the same number.
    let inode = format!(":{} ", meta.ino());
    meta.is_file() && !locks.lines().any(|line| line.contains(&inode))
}

/// Returns the process that has the image locked, if it visibly serves a mount over FUSE.
///
/// ```
/// let file = tempfile::NamedTempFile::new()?;
/// creamery_device::hold_unused(file.as_file(), file.path())?;
/// assert_eq!(creamery_device::server_of(&file.path().metadata()?), None);
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[must_use]
pub fn server_of(image: &fs::Metadata) -> Option<u32> {
    match lock_owner(image) {
        Some(User::Process { pid, .. }) if is_server(pid) => Some(pid),
        _ => None,
    }
}

/// Whether the program that has `image` locked has it open for reading only, as [`Access::ReadOnly`](crate::Access::ReadOnly). Also false if that is not
/// visible: another user's process, a filesystem without locks.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("disk.img");
/// # std::fs::write(&path, [0; 4096])?;
/// use creamery_device::{Access, FileDevice, is_only_read};
/// assert!(!is_only_read(&path.metadata()?));
/// let reader = FileDevice::open(&path, Access::ReadOnly)?;
/// assert!(is_only_read(&path.metadata()?));
/// drop(reader);
/// let writer = FileDevice::open(&path, Access::ReadWrite)?;
/// assert!(!is_only_read(&path.metadata()?));
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[must_use]
pub fn is_only_read(image: &fs::Metadata) -> bool {
    let locks = lock_table().unwrap_or_default();
    let inode = image.ino().to_string();
    let mut is_read = false;
    for line in locks.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().filter(|&field| field != "->").collect();
        let [_, sort, _, kind, pid, place, ..] = fields[..] else { continue };
        if place.rsplit(':').next() != Some(&inode) {
            continue;
        }
        // A writer to a part of a file shares the first lock, and has the second one exclusively.
        if kind != "READ" {
            return false;
        }
        is_read |= sort == "FLOCK" && pid.parse().is_ok_and(|pid| process_has_open(pid, image));
    }
    is_read
}
