//! The mount table of this process, `/proc/self/mountinfo`.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

use super::number::MountNumber;

/// The kernel's list of connections, by the minor number of their devices.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// A row of the table: one mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) number: MountNumber,
    /// The device number of the filesystem, as "major:minor".
    device: String,
    /// `None` if connections are not visible.
    connection: Option<Connection>,
}

/// The kernel's representation of the connection to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Connection {
    /// The inode of its directory. The kernel reuses the numbers of a mount and of its device; this number belongs to one connection.
    inode: u64,
    /// The mount that shows it: through another mount the inodes differ.
    seen_by: u64,
}

impl Row {
    /// Whether it is certainly the same mount: another one differs in its unique number and in its connection.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self.number.unique, other.number.unique) {
            (Some(one), Some(other)) => one == other,
            _ => self.connection.is_some() && self == other,
        }
    }

    /// The minor number of its device.
    fn minor(&self) -> &str {
        self.device.split_once(':').map_or("", |(_, minor)| minor)
    }

    /// Whether the filesystem is visibly unmounted: its connection has disappeared from the mount that showed it.
    pub(super) fn is_gone(&self) -> bool {
        self.connection.as_ref().is_some_and(|was| {
            shown_by() == Some(was.seen_by) && connection_of(self.minor()).as_ref() != Some(was)
        })
    }

    /// The file that ends the connection; `None` if it is not visible.
    pub(super) fn abort_file(&self) -> Option<PathBuf> {
        let is_shown = self.connection.is_some() && connection_of(self.minor()) == self.connection;
        is_shown.then(|| Path::new(CONNECTIONS).join(self.minor()).join("abort"))
    }
}

/// The mount that shows connections.
fn shown_by() -> Option<u64> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let number = MountNumber::of(&open(CONNECTIONS, flags, Mode::empty()).ok()?).ok()?;
    Some(number.unique.unwrap_or(number.id))
}

/// The connection of a device, whose directory disappears with the last mount of its filesystem.
fn connection_of(minor: &str) -> Option<Connection> {
    let inode = std::fs::metadata(Path::new(CONNECTIONS).join(minor)).ok()?.ino();
    Some(Connection { inode, seen_by: shown_by()? })
}

/// The mount on top at `point`; `None` if that path leads to another one by now.
pub(super) fn mount_at(point: &Path) -> Option<Row> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let row = find(&table, point.as_os_str().as_bytes())?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let number = MountNumber::of(&open(point, flags, Mode::empty()).ok()?).ok()?;
    let connection = connection_of(row.minor());
    (number.id == row.number.id).then_some(Row { connection, number, ..row })
}

/// Rows are: id, parent, device, root, mount point, ...; the last row of a place is the one on top.
fn find(table: &[u8], point: &[u8]) -> Option<Row> {
    let point = escaped(point);
    let row = table.split(|&byte| byte == b'\n').rfind(|row| field(row, 4) == Some(&point))?;
    let id = std::str::from_utf8(field(row, 0)?).ok()?.parse().ok()?;
    let device = String::from_utf8_lossy(field(row, 2)?).into_owned();
    Some(Row { number: MountNumber { id, unique: None }, device, connection: None })
}

fn field(row: &[u8], index: usize) -> Option<&[u8]> {
    row.split(|&byte| byte == b' ').nth(index)
}

/// The path in the spelling of the table: characters that would break rows and fields are in octal.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => out.extend(format!("\\{byte:03o}").bytes()),
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_of_a_place_counts_and_odd_names_are_found() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda rw\n\
            30 22 0:40 / /mnt/a\\040b rw shared:1 - fuse x rw\n\
            31 30 0:41 / /mnt/a\\040b rw - fuse y rw\n";
        let row = |id, device: &str| {
            let number = MountNumber { id, unique: None };
            Some(Row { number, device: device.to_owned(), connection: None })
        };
        assert_eq!(find(table, b"/mnt/a b"), row(31, "0:41"));
        assert_eq!(find(table, b"/"), row(22, "8:1"));
        assert_eq!(find(table, b"/mnt"), None);
        assert_eq!(find(b"\n \n", b""), None);
    }
}
