//! Our rows of the mount table, `/proc/self/mountinfo`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use creamery_base::{Error, Result};

/// The type that the mount table shows for our mounts.
const KIND: &[u8] = b"fuse.creamery";

/// A mount of ours, as the table has it.
pub(crate) struct MountedImage {
    /// Resolved mount point.
    pub(crate) point: PathBuf,
    /// The image file or block device.
    pub(crate) image: PathBuf,
}

/// The mount of ours at `dir`. Errors: nothing is mounted there; something else is.
pub(crate) fn mounted_at(dir: &Path) -> Result<MountedImage> {
    let point = resolve(dir);
    let table = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| Error::from(error).context("reading the mount table"))?;
    let (kind, image) = find(&table, point.as_os_str().as_bytes())
        .ok_or_else(|| Error::invalid(format!("{}: nothing is mounted there", dir.display())))?;
    if kind != KIND {
        let message =
            format!("{}: a {} is mounted there, not an image of ours", dir.display(), kind.escape_ascii());
        return Err(Error::invalid(message));
    }
    Ok(MountedImage { point, image })
}

/// The absolute path as the mount table has it. The directory itself is not looked at: its server may be dead.
fn resolve(dir: &Path) -> PathBuf {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    match (absolute.parent().and_then(|parent| parent.canonicalize().ok()), absolute.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

/// Type and source of what is on top at `point`. Rows are: id, parent, device, root, point, options, optional
/// fields, "-", type, source, super options.
fn find(table: &[u8], point: &[u8]) -> Option<(Vec<u8>, PathBuf)> {
    table.split(|&byte| byte == b'\n').rev().find_map(|row| {
        let mut fields = row.split(|&byte| byte == b' ');
        if unescape(fields.nth(4)?) != point {
            return None;
        }
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        let kind = unescape(rest.next()?);
        Some((kind, PathBuf::from(OsStr::from_bytes(&unescape(rest.next()?)))))
    })
}

/// The table writes what would break its rows as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| byte == b'\\') {
            Some(code) => {
                out.push(code);
                rest = &after[3..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_of_a_place_counts_and_odd_names_are_read() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda rw\n\
            30 22 0:40 / /mnt/a\\040b rw shared:1 master:2 - fuse.creamery /tmp/x\\134y rw\n\
            31 30 0:41 / /mnt/c rw - tmpfs none rw\n";
        let (kind, source) = find(table, b"/mnt/a b").expect("is there");
        assert_eq!((&kind[..], source), (KIND, PathBuf::from("/tmp/x\\y")));
        assert_eq!(find(table, b"/").expect("is there").0, b"ext4");
        assert!(find(table, b"/mnt").is_none());
        assert!(find(b"\n \n- -", b"").is_none());
    }
}
