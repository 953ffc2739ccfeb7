//! Mounts of an image by a Creamery server, from the mount table, for the error of other openers.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The type that the mount table shows for Creamery mounts, unless the mounter has chosen another.
const KIND: &str = "fuse.creamery";

/// The mount of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Served {
    /// The mounted image, or part of an image.
    pub(crate) image: String,
    /// The mount point.
    pub(crate) at: String,
    /// The number of the connection to its server.
    connection: Option<u32>,
}

/// Returns the latest Creamery mount of the image `path` that the process `pid` serves. If `path` is a whole image, a mount of a part of it counts, too.
pub(crate) fn served(path: &Path, pid: u32) -> Option<Served> {
    let wanted = Named::of(path)?;
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let connections = connections_of(pid);
    // A mount has the name that its image had then, which may be another image's name by now. Before Linux 6.17 there is only the name.
    let is_its = |mount: &Served| {
        connections.is_empty() || mount.connection.is_some_and(|number| connections.contains(&number))
    };
    let is_named = |mount: &Served| {
        let found = Named::of(Path::new(&mount.image));
        found.is_some_and(|found| {
            found.file == wanted.file && (found.part == wanted.part || wanted.part.is_empty())
        })
    };
    mounts(&table).filter(|mount| is_its(mount) && is_named(mount)).last()
}

/// Returns the numbers of the FUSE connections that the process `pid` visibly serves, which are the minor device numbers of their mounts. Empty
/// before Linux 6.17, which does not show them.
#[must_use]
pub fn connections_of(pid: u32) -> Vec<u32> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let told = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let mut numbers: Vec<u32> = told.filter_map(|told| connection_told(&told)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Parses the connection number in the fdinfo of a descriptor of /dev/fuse.
fn connection_told(told: &str) -> Option<u32> {
    told.lines().find_map(|line| line.strip_prefix("fuse_connection:")?.trim().parse().ok())
}

/// Whether a process visibly serves a mount over FUSE.
///
/// ```
/// assert!(!creamery_device::is_server(std::process::id()));
/// ```
#[must_use]
pub fn is_server(pid: u32) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|open| open == Path::new("/dev/fuse"))
}

/// The identity of an image.
struct Named {
    /// Device and inode number of the file, or the number of the block device.
    file: (u64, u64),
    part: Vec<u8>,
}

impl Named {
    /// Parses an image name. The file is the longest beginning of the name that exists; the rest, from an `@` on, names the part.
    fn of(image: &Path) -> Option<Self> {
        let bytes = image.as_os_str().as_bytes();
        let ats = bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'@').map(|(at, _)| at);
        std::iter::once(bytes.len()).chain(ats).find_map(|end| {
            let meta = fs::metadata(OsStr::from_bytes(&bytes[..end])).ok().filter(|meta| !meta.is_dir())?;
            let file = if meta.is_file() { (meta.dev(), meta.ino()) } else { (0, meta.rdev()) };
            Some(Self { file, part: bytes[end..].to_vec() })
        })
    }
}

/// Returns the Creamery mounts in a table: 36 25 0:40 / /mnt rw - fuse.creamery /disk.img rw
fn mounts(table: &str) -> impl Iterator<Item = Served> {
    table.lines().filter_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut filesystem = filesystem.split(' ');
        if filesystem.next()? != KIND {
            return None;
        }
        let image = unescape(filesystem.next()?);
        // The mounter may choose any name. Only paths count.
        PathBuf::from(&image).is_absolute().then_some(())?;
        let device = mount.split(' ').nth(2)?;
        let connection = device.split_once(':').and_then(|(_, minor)| minor.parse().ok());
        Some(Served { image, at: unescape(mount.split(' ').nth(4)?), connection })
    })
}

/// mountinfo writes blanks, tabs, newlines and backslashes as three octal digits.
pub(crate) fn unescape(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_where_images_are_mounted() {
        let table = "22 1 8:1 / / rw - ext4 /dev/sda rw\n\
            30 22 0:40 / /mnt/a\\040b rw shared:1 - fuse.creamery /disk\\040one.img rw,user_id=0\n\
            31 22 0:41 / /mnt/c rw - fuse.creamery name rw\n\
            32 22 0:42 / /mnt/d rw - fuse.sshfs /disk.img rw\n";
        let found: Vec<Served> = mounts(table).collect();
        let (image, at) = ("/disk one.img".into(), "/mnt/a b".into());
        assert_eq!(found, [Served { image, at, connection: Some(40) }]);
        assert_eq!(served("/dev/null".as_ref(), std::process::id()), None);
        assert_eq!(served("/no/such.img".as_ref(), std::process::id()), None);
    }

    #[test]
    fn proc_tells_the_connection_of_a_server() {
        let told = "pos:\t0\nflags:\t02100002\nmnt_id:\t24\nino:\t90\nfuse_connection:\t39\n";
        assert_eq!((connection_told(told), connection_told("pos:\t0\n")), (Some(39), None));
    }
}
