//! Finds the processes that hold a mount, as far as /proc shows them to the caller. No server is asked: this only reads the paths of their files and directories.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use creamery_device::is_server;
use rustix::io::Errno;

use crate::table::MountedImage;

/// Processes that are named; further ones are counted.
const NAMED: usize = 8;

/// How a process holds a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    Directory,
    Root,
    Program,
    File,
    Mapping,
}

impl Hold {
    const fn words(self) -> &'static str {
        match self {
            Self::Directory => "has its working directory there",
            Self::Root => "has its root directory there",
            Self::Program => "runs a program of it",
            Self::File => "has files open there",
            Self::Mapping => "has files mapped there",
        }
    }
}

/// A process that holds a mount.
pub(crate) struct User {
    pid: u32,
    hold: Hold,
}

impl User {
    /// Whether it holds the mount only for a moment: it runs this program and serves no mount itself (`creamery mounts`), or it has ended
    /// meanwhile.
    pub(crate) fn only_looks(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        let program =
            |pid: &dyn Display| fs::metadata(format!("/proc/{pid}/exe")).map(|meta| (meta.dev(), meta.ino()));
        match program(&self.pid) {
            Ok(theirs) => program(&"self").is_ok_and(|ours| ours == theirs) && !is_server(self.pid),
            Err(error) => matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)),
        }
    }
}

/// The processes that visibly hold the mount.
pub(crate) fn users_of(mounted: &MountedImage) -> Vec<User> {
    let mut pids: Vec<u32> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != std::process::id())
        .collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(|pid| Some(User { pid, hold: hold_of(pid, mounted)? })).collect()
}

/// Processes in words; `None` without any.
pub(crate) fn shown(users: &[User]) -> Option<String> {
    let name = |User { pid, hold }: &User| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("process {pid} ({}) {}", name.trim_end(), hold.words())
    };
    let mut shown: Vec<String> = users.iter().take(NAMED).map(name).collect();
    if users.len() > NAMED {
        shown.push(format!("and {} more processes", users.len() - NAMED));
    }
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// How the process `pid` holds the mount: the first way that is found.
fn hold_of(pid: u32, mounted: &MountedImage) -> Option<Hold> {
    let leads_there = |link: &str| {
        let to = fs::read_link(format!("/proc/{pid}/{link}"));
        to.is_ok_and(|to: PathBuf| to.starts_with(&mounted.point))
    };
    let holds = [
        (Hold::Directory, leads_there("cwd")),
        (Hold::Root, mounted.point != Path::new("/") && leads_there("root")),
        (Hold::Program, leads_there("exe")),
        (Hold::File, has_open(pid, mounted.id)),
        (Hold::Mapping, has_mapped(pid, mounted.device())),
    ];
    holds.into_iter().find(|(_, is_so)| *is_so).map(|(hold, _)| hold)
}

/// Whether one of the descriptors of `pid` is of the mount with the number `id`.
fn has_open(pid: u32, id: u64) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let mut told = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    told.any(|told| mount_of_descriptor(&told) == Some(id))
}

/// The mount in the line `mnt_id:` of a fdinfo.
fn mount_of_descriptor(told: &str) -> Option<u64> {
    told.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())
}

/// Whether a mapping of `pid` is of a file on the filesystem `device`, "major:minor".
fn has_mapped(pid: u32, device: &str) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.split(|byte| *byte == b'\n').any(|line| device_of_mapping(line).as_deref() == Some(device))
}

/// The device in a line of maps: `7f00-7f01 r--p 00000000 00:2a 257   /mnt/file`, in hexadecimal.
fn device_of_mapping(line: &[u8]) -> Option<String> {
    let field = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty()).nth(3)?;
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    Some(format!("{}:{}", number(major)?, number(minor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_keeps_no_mount_in_use() {
        let mut ends = std::process::Command::new("true").spawn().unwrap();
        let user = User { pid: ends.id(), hold: Hold::File };
        ends.wait().unwrap();
        assert!(user.only_looks());
        assert!(!User { pid: 1, hold: Hold::File }.only_looks(), "it runs another program");
    }

    #[test]
    fn proc_tells_mounts_and_devices() {
        let told = "pos:\t0\nflags:\t0100000\nmnt_id:\t36\nino:\t257\n";
        assert_eq!(mount_of_descriptor(told), Some(36));
        assert_eq!(mount_of_descriptor("pos:\t0\n"), None);
        let line = b"7f00-7f01 r--p 00000000 00:2a 257                /mnt/a file";
        assert_eq!(device_of_mapping(line).as_deref(), Some("0:42"));
        assert_eq!(device_of_mapping(b"7f00-7f01 rw-p 0"), None);
        assert_eq!(device_of_mapping(b""), None);
    }
}
