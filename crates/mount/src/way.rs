//! The mount through which a control came. The kernel rejects writes through a read-only mount, except controls: for these it tells the
//! server only the inode. All mounts of a filesystem (bind mounts) have one server, and some may be read-only.
//!
//! The open files of a thread show the mount (proc(5), `fdinfo`): the control was sent to one of them. It is not known to which one, so a thread that
//! also has the inode open through a writable mount may write. A mount that is in no table that the server reads counts as read-only.
//!
//! The server of an ordinary user does not see the open files of other users' threads. There all mounts that the thread sees must be
//! writable.
//!
//! # Invariants
//! - WAY-1: a thread writes with a control only if it visibly has the inode open through a writable mount, or, if its open files are
//!   not visible, if all mounts of the filesystem that it sees are writable.
//!   Shown by `beside_linux`, the case callers/as-on-linux, and by `a_thread_that_is_not_seen_writes_nothing`.

use crate::table::mounts_seen_by;

/// The number of a mount's root before the kernel has asked for its attributes.
const ROOT: u64 = 1;

/// Whether the thread `thread` has the inode `number` of the filesystem `device` open through a writable mount (WAY-1).
pub(crate) fn is_writable(thread: u32, device: &str, number: u64) -> bool {
    let seen = mounts_seen_by(&thread.to_string(), device);
    let Ok(files) = std::fs::read_dir(format!("/proc/{thread}/fdinfo")) else {
        return !seen.is_empty() && seen.iter().all(|(_, is_read_only)| !is_read_only);
    };
    // The file may have been opened through a mount that the thread does not see any more.
    let own = mounts_seen_by("self", device);
    let is_read_only = |mount: u64| {
        let mut known = seen.iter().chain(&own);
        known.find(|(id, _)| *id == mount).is_none_or(|(_, is_read_only)| *is_read_only)
    };
    let texts = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
    let mut opened = texts.filter_map(|text| mount_of(&text, number));
    opened.any(|mount| !is_read_only(mount))
}

/// The mount through which a file with this `fdinfo` was opened; `None` if it is another inode's.
fn mount_of(text: &str, number: u64) -> Option<u64> {
    let word = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse::<u64>().ok())
    };
    let is_it = word("ino:").is_none_or(|inode| inode == number || inode == ROOT);
    word("mnt_id:").filter(|_| is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_an_open_file_counts_for_its_inode_alone() {
        let text = "pos:\t0\nflags:\t0100000\nmnt_id:\t29\nino:\t256\n";
        assert_eq!(mount_of(text, 256), Some(29));
        assert_eq!(mount_of(text, 257), None);
        assert_eq!(mount_of("mnt_id:\t29\n", 257), Some(29), "older kernels tell no inode");
        assert_eq!(mount_of("pos:\t0\n", 256), None);
    }

    #[test]
    fn a_thread_that_is_not_seen_writes_nothing() {
        assert!(!is_writable(0, "0:1000000", 256) && !is_writable(u32::MAX, "0:1000000", 256));
        assert!(!is_writable(std::process::id(), "0:1000000", 256), "WAY-1: no such filesystem");
    }
}
