//! The name of an image: the path of a file or a block device, and for a part of it `@` and a part name behind it.
//!
//! `disk.raw@2` is partition 2, `disk.raw@root` the partition with this name or UUID in a GPT, `disk.raw@@1M` the bytes from that offset on. A file
//! with the whole name comes first: text after an `@` counts only if nothing has the whole name and a file exists under the name before the `@`. Text that
//! is no number counts only if that file has a partition table. So no file of the host loses its name, and a name under which there is nothing is the name of
//! a new file. A part may have parts itself: `disk.raw@1@2`.
//!
//! The text behind the file may contain an `@`, because a GPT partition's name may. A row of numbers and offsets is always read as such, whatever the names of
//! partitions are. In other text the longest beginning counts that is a name, a number or an offset.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use creamery_base::{Error, Result, parse_size};

use crate::{Access, FileDevice};

/// The part of the image before it in a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part<'n> {
    /// The partition with this number.
    Number(u64),
    /// The partition with this name or UUID, which need not exist.
    Named(&'n [u8]),
    /// The bytes from this offset on.
    Offset(u64),
}

/// The meaning of an image name on this host, at this moment.
///
/// ```
/// use creamery_device::ImageName;
/// let dir = tempfile::tempdir()?;
/// let disk = dir.path().join("disk.raw");
/// std::fs::write(&disk, "")?;
/// let name = ImageName::find(dir.path().join("disk.raw@2"))?;
/// assert_eq!((name.file(), name.is_part()), (&*disk, true));
/// std::fs::write(dir.path().join("disk.raw@2"), "")?;
/// assert!(!ImageName::find(dir.path().join("disk.raw@2"))?.is_part());
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageName {
    file: PathBuf,
    /// The text behind the file, which begins with an `@`; empty for the whole file.
    behind: Vec<u8>,
}

/// The deepest nesting of parts in a name.
pub(crate) const PARTS_MAX: usize = 8;
/// Bytes of the longest name that a GPT can have, which is longer than any form of a UUID.
const NAME_MAX: usize = 36 * 3;
/// Linux opens no longer path.
const PATH_MAX: usize = 4096;

/// Parses a number, or an offset with its `@` in front. `None`: the text can only be a name.
fn number(text: &[u8]) -> Option<Result<Part<'static>>> {
    let text = std::str::from_utf8(text).ok()?;
    match text.strip_prefix('@') {
        Some(offset) if offset.starts_with(|first: char| first.is_ascii_digit()) && !offset.contains('@') => {
            Some(parse_size(offset).map(Part::Offset))
        }
        // Rust takes a plus sign before a number.
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok().map(Part::Number).map(Ok),
        _ => None,
    }
}

/// Splits `text` behind the number or the offset at its beginning.
fn first_number(text: &[u8]) -> Option<(Result<Part<'static>>, &[u8])> {
    let end = text.iter().skip(1).position(|byte| *byte == b'@').map_or(text.len(), |at| at + 1);
    number(&text[..end]).map(|part| (part, &text[end..]))
}

/// Whether `behind` is a row of numbers and offsets, and nothing else.
///
/// # Errors
/// It is such a row, and an offset is no size.
fn is_numbers(mut behind: &[u8]) -> Result<bool> {
    let mut wrong = None;
    while let Some(text) = behind.strip_prefix(b"@") {
        let Some((part, rest)) = first_number(text) else { return Ok(false) };
        wrong = wrong.or(part.err());
        behind = rest;
    }
    wrong.map_or(Ok(true), Err)
}

/// Returns the first part that `behind` names, and the rest behind it. `is_called`: whether a partition has this name or UUID.
///
/// # Errors
/// An offset that is no size.
pub(crate) fn first_part(behind: &[u8], is_called: impl Fn(&str) -> bool) -> Result<(Part<'_>, &[u8])> {
    let text = behind.strip_prefix(b"@").unwrap_or(behind);
    if let Some((part, rest)) = first_number(text).filter(|_| is_numbers(behind).unwrap_or(true)) {
        return part.map(|part| (part, rest));
    }
    let ends = text.iter().enumerate().rev().filter(|(_, byte)| **byte == b'@').map(|(at, _)| at);
    for end in std::iter::once(text.len()).chain(ends) {
        let (first, rest) = text.split_at(end);
        // An @ at the end names no part, and belongs to the name.
        if first.is_empty() || first.len() > NAME_MAX || rest == b"@" {
            continue;
        }
        if let Some(part) = number(first) {
            return part.map(|part| (part, rest));
        }
        if std::str::from_utf8(first).is_ok_and(&is_called) {
            return Ok((Part::Named(first), rest));
        }
    }
    Ok((Part::Named(text), &[]))
}

impl ImageName {
    /// Returns the name of `file` itself, whatever characters its path has.
    pub(crate) fn whole(file: &Path) -> Self {
        Self { file: file.to_owned(), behind: Vec::new() }
    }

    /// Finds the meaning of `name`. A name without an existing file is not a part.
    ///
    /// # Errors
    /// An offset that is no size.
    pub fn find(name: impl AsRef<Path>) -> Result<Self> {
        let name = name.as_ref();
        let whole = Self::whole(name);
        if std::fs::symlink_metadata(name).is_ok() {
            return Ok(whole);
        }
        let bytes = name.as_os_str().as_bytes();
        // A name behind a slash is one in a directory.
        let last = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let ats = (last..bytes.len().min(PATH_MAX)).rev().filter(|at| bytes[*at] == b'@');
        for at in ats {
            let (file, behind) = (Path::new(OsStr::from_bytes(&bytes[..at])), &bytes[at..]);
            if !std::fs::metadata(file).is_ok_and(|meta| !meta.is_dir()) {
                continue;
            }
            let is_numbers = is_numbers(behind).map_err(|error| error.context(name.display()))?;
            if is_numbers || FileDevice::has_table(file, behind) {
                return Ok(Self { file: file.to_owned(), behind: behind.to_vec() });
            }
        }
        Ok(whole)
    }

    /// Refuses `path` as the name of a new file or directory if it means a part of an existing file. A slash at the end is ignored.
    ///
    /// # Errors
    /// [`InvalidInput`](creamery_base::ErrorKind::InvalidInput), with the existing partitions. The caller adds `path` to the message.
    pub fn refuse_part(path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let Some(name) = path.file_name() else { return Ok(()) };
        let path = path.with_file_name(name);
        let found = Self::find(&path)?;
        if !found.is_part() {
            return Ok(());
        }
        // An error in the part is more useful than the fact that it is one.
        FileDevice::open(&path, Access::ReadOnlyForced).map_err(|error| {
            let file = found.file.display();
            error.context(format!("means a part of {file}, not a new file"))
        })?;
        let what = format!("is a partition of an image; a place in it is named as {}:/", path.display());
        Err(Error::invalid(what))
    }

    /// The file or block device.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether the name means only a part of the file.
    #[must_use]
    pub const fn is_part(&self) -> bool {
        !self.behind.is_empty()
    }

    /// The name of the same part of another file.
    ///
    /// ```
    /// use creamery_device::ImageName;
    /// let dir = tempfile::tempdir()?;
    /// let disk = dir.path().join("a.raw");
    /// std::fs::write(&disk, "")?;
    /// let name = ImageName::find(dir.path().join("a.raw@2"))?;
    /// assert_eq!(name.in_file("b.raw"), std::path::Path::new("b.raw@2"));
    /// # Ok::<(), creamery_base::Error>(())
    /// ```
    pub fn in_file(&self, file: impl AsRef<Path>) -> PathBuf {
        let mut name = file.as_ref().as_os_str().to_owned();
        name.push(OsStr::from_bytes(&self.behind));
        name.into()
    }

    /// Returns the name of partition `number` of `file`.
    pub fn numbered(file: impl AsRef<Path>, number: u64) -> PathBuf {
        let mut name = file.as_ref().as_os_str().to_owned();
        name.push(format!("@{number}"));
        name.into()
    }

    /// Returns the text behind the file; see [`first_part`].
    pub(crate) fn behind(&self) -> &[u8] {
        &self.behind
    }

    /// Returns the metadata of the file that an image of this name is in, or would be.
    ///
    /// # Errors
    /// The host's, like those of [`std::fs::metadata`]. An invalid part is reported as a missing file.
    pub fn metadata(name: impl AsRef<Path>) -> io::Result<Metadata> {
        let name = name.as_ref();
        std::fs::metadata(Self::find(name).as_ref().map_or(name, Self::file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all parts that `behind` names, if partitions have these names; ends at an error.
    fn parts<'n>(mut behind: &'n str, names: &[&str]) -> Vec<Option<Part<'n>>> {
        let mut parts = Vec::new();
        while !behind.is_empty() {
            let Ok((part, rest)) = first_part(behind.as_bytes(), |name| names.contains(&name)) else {
                parts.push(None);
                break;
            };
            parts.push(Some(part));
            behind = std::str::from_utf8(rest).unwrap();
        }
        parts
    }

    #[test]
    fn numbers_and_offsets_are_read_and_all_else_is_a_name() {
        use Part::{Named, Number, Offset};
        let named = |name: &'static str| vec![Some(Named(name.as_bytes()))];
        let rows: [(&str, Vec<Option<Part<'_>>>); 17] = [
            ("@2", vec![Some(Number(2))]),
            ("@0", vec![Some(Number(0))]),
            ("@1@2", vec![Some(Number(1)), Some(Number(2))]),
            ("@@1M", vec![Some(Offset(1 << 20))]),
            ("@@0", vec![Some(Offset(0))]),
            ("@@1M@@4k@3", vec![Some(Offset(1 << 20)), Some(Offset(4096)), Some(Number(3))]),
            ("@@18446744073709551615", vec![Some(Offset(u64::MAX))]),
            ("@@18446744073709551616", vec![None]),
            ("@@1Q", vec![None]),
            ("@18446744073709551616", named("18446744073709551616")),
            ("@home", named("home")),
            ("@+2", named("+2")),
            ("@-2", named("-2")),
            ("@@home", named("@home")),
            ("@@+1", named("@+1")),
            ("@", named("")),
            ("@home@", named("home@")),
        ];
        for (behind, want) in rows {
            assert_eq!(parts(behind, &[]), want, "{behind}");
        }
    }

    #[test]
    fn the_longest_name_counts_and_numbers_come_before_names() {
        use Part::{Named, Number, Offset};
        let names = ["a", "a@b", "@c", "2", "1@2", "d@", "+2"];
        let named = |name: &'static str| Some(Named(name.as_bytes()));
        let rows: [(&str, Vec<Option<Part<'_>>>); 13] = [
            ("@a@b", vec![named("a@b")]),
            ("@a@c", vec![named("a"), named("c")]),
            ("@a@b@1", vec![named("a@b"), Some(Number(1))]),
            ("@a@@1M", vec![named("a"), Some(Offset(1 << 20))]),
            ("@a@@1Q", vec![named("a"), None]),
            ("@@c", vec![named("@c")]),
            ("@2", vec![Some(Number(2))]),
            ("@1@2", vec![Some(Number(1)), Some(Number(2))]),
            ("@2@b", vec![Some(Number(2)), named("b")]),
            ("@d@", vec![named("d@")]),
            ("@a@", vec![named("a@")]),
            ("@2@", vec![named("2@")]),
            ("@+2", vec![named("+2")]),
        ];
        for (behind, want) in rows {
            assert_eq!(parts(behind, &names), want, "{behind}");
        }
    }

    #[test]
    fn what_is_really_called_so_comes_first_and_what_is_not_there_is_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let file = |name: &str| {
            let found = ImageName::find(path(name)).unwrap();
            let behind = std::str::from_utf8(found.behind()).unwrap().to_owned();
            (found.file().file_name().unwrap().to_str().unwrap().to_owned(), behind)
        };
        let of = |name: &str, behind: &str| (name.to_owned(), behind.to_owned());
        std::fs::create_dir(path("folder")).unwrap();
        for name in ["folder@2", "none@2", "none", "me@home", "none@@1M"] {
            assert_eq!(file(name), of(name, ""));
        }
        std::fs::write(path("disk"), "").unwrap();
        assert_eq!(file("disk@2"), of("disk", "@2"));
        // Without a partition table, text that is no number is an ordinary name.
        for name in ["disk@root", "disk@+2", "disk@", "disk@@", "disk@@root", "disk@2@", "disk@1@root"] {
            assert_eq!(file(name), of(name, ""));
        }
        assert_eq!(file("disk@1@@4k"), of("disk", "@1@@4k"));
        assert_eq!(ImageName::find(path("disk@2/name")).unwrap().behind(), b"");
        let refused = ImageName::find(path("disk@@1Q")).unwrap_err().to_string();
        assert!(refused.contains("disk@@1Q: invalid unit in '1Q'"), "{refused}");
        std::fs::write(path("disk@1"), "").unwrap();
        assert_eq!(file("disk@1"), of("disk@1", ""));
        assert_eq!(file("disk@1@2"), of("disk@1", "@2"));
        // A link that leads nowhere has its name all the same.
        std::os::unix::fs::symlink("nowhere", path("disk@3")).unwrap();
        assert_eq!(file("disk@3"), of("disk@3", ""));
    }

    #[test]
    fn a_name_of_any_length_ends() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("x");
        std::fs::write(&disk, "").unwrap();
        for (piece, is_part) in [("@a", false), ("@", false), ("@2", true), ("@@1", true)] {
            let name = disk.display().to_string() + &piece.repeat(40_000);
            assert_eq!(ImageName::find(&name).unwrap().is_part(), is_part, "{piece}");
            FileDevice::open(&name, Access::ReadOnlyForced).map(drop).unwrap_err();
        }
    }
}
