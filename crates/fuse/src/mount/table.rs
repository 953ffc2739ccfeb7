//! The mount table of this process, `/proc/self/mountinfo`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The device number, as "major:minor", of what is mounted on top at `point`.
pub(super) fn device_at(point: &Path) -> Option<String> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    find(&table, point.as_os_str().as_bytes())
}

/// Rows are: id, parent, device, root, mount point, ...; the last row of a place is the one on top.
fn find(table: &[u8], point: &[u8]) -> Option<String> {
    let point = escaped(point);
    let row = table.split(|&byte| byte == b'\n').rfind(|row| field(row, 4) == Some(&point))?;
    Some(String::from_utf8_lossy(field(row, 2)?).into_owned())
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
        assert_eq!(find(table, b"/mnt/a b").as_deref(), Some("0:41"));
        assert_eq!(find(table, b"/").as_deref(), Some("8:1"));
        assert_eq!(find(table, b"/mnt"), None);
        assert_eq!(find(b"\n \n", b""), None);
    }
}
