//! The mount table of this process, `/proc/self/mountinfo`.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// A bit of statx(2).
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
/// Here the kernel lists the connections by the minor number of their devices.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// A row of the table: one mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    /// The number of the mount, which no other mount has while this one lasts.
    pub(super) id: u64,
    /// The device number of the filesystem, as "major:minor".
    pub(super) device: String,
    /// The inode of the directory by which the kernel shows the connection to its server. The kernel gives the numbers of a mount and of
    /// its device to the next one; no other connection has this. None where these directories are not to be seen.
    pub(super) connection: Option<u64>,
    /// The number of the mount that no other one ever has; none before Linux 6.8.
    pub(super) unique: Option<u64>,
}

impl Row {
    /// Whether another mount cannot have the same row.
    pub(super) const fn is_certain(&self) -> bool {
        self.connection.is_some() || self.unique.is_some()
    }

    /// The minor number of its device.
    fn minor(&self) -> &str {
        self.device.split_once(':').map_or("", |(_, minor)| minor)
    }

    /// Whether the filesystem is unmounted, as far as that is to be seen.
    pub(super) fn is_gone(&self) -> bool {
        self.connection.is_some() && connection_of(self.minor()) != self.connection
    }

    /// The file that ends the connection.
    pub(super) fn abort_file(&self) -> PathBuf {
        Path::new(CONNECTIONS).join(self.minor()).join("abort")
    }
}

/// The inode of the directory of a connection, which goes with the last mount of its filesystem.
fn connection_of(minor: &str) -> Option<u64> {
    std::fs::metadata(Path::new(CONNECTIONS).join(minor)).ok().map(|meta| meta.ino())
}

/// The mount on top at `point`.
pub(super) fn mount_at(point: &Path) -> Option<Row> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let row = find(&table, point.as_os_str().as_bytes())?;
    Some(Row { connection: connection_of(row.minor()), unique: unique_number(point), ..row })
}

/// Its server is not asked, so this works for one that died.
fn unique_number(point: &Path) -> Option<u64> {
    let unique = StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, point, flags, unique).ok()?;
    (found.stx_mask & STATX_MNT_ID_UNIQUE != 0).then_some(found.stx_mnt_id)
}

/// Rows are: id, parent, device, root, mount point, ...; the last row of a place is the one on top.
fn find(table: &[u8], point: &[u8]) -> Option<Row> {
    let point = escaped(point);
    let row = table.split(|&byte| byte == b'\n').rfind(|row| field(row, 4) == Some(&point))?;
    let id = std::str::from_utf8(field(row, 0)?).ok()?.parse().ok()?;
    let device = String::from_utf8_lossy(field(row, 2)?).into_owned();
    Some(Row { id, device, connection: None, unique: None })
}

fn field(row: &[u8], index: usize) -> Option<&[u8]> {
    row.split(|&byte| byte == b' ').nth(index)
}

/// As the table spells it: what would break rows and fields is in octal.
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
        let row =
            |id, device: &str| Some(Row { id, device: device.to_owned(), connection: None, unique: None });
        assert_eq!(find(table, b"/mnt/a b"), row(31, "0:41"));
        assert_eq!(find(table, b"/"), row(22, "8:1"));
        assert_eq!(find(table, b"/mnt"), None);
        assert_eq!(find(b"\n \n", b""), None);
    }
}
