//! How an image is named: by the path of a file or a block device, and for a part of it with `@` behind.
//!
//! `disk.raw@2` is partition 2, `disk.raw@root` the one that a GPT calls so, or that has this as its UUID, `disk.raw@@1M` what begins at that byte. A file
//! that is really called so comes first: what follows an `@` counts only where nothing has the whole name and something has the name before it; what is
//! no number only where that has a partition table. So no file of the host loses its name, and a name under which there is nothing is that of a file
//! to come. A part may have parts itself: `disk.raw@1@2`.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use creamery_base::{Result, parse_size};

use crate::partition::PartitionTable;
use crate::{Access, FileDevice};

/// Which part of what is named before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The partition with this number.
    Number(u64),
    /// The partition with this name or UUID.
    Named(String),
    /// What begins at this byte.
    Offset(u64),
}

/// What the name of an image means on this host, at this moment.
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
    /// Outer ones first.
    parts: Vec<Part>,
}

/// As many parts of parts as anybody may name.
const PARTS_MAX: usize = 8;

/// The name before the last `@` or `@@`, and what is behind that.
fn split(name: &[u8]) -> Option<(&[u8], Result<Part>)> {
    let at = name.iter().rposition(|byte| *byte == b'@')?;
    let (before, behind) = (&name[..at], std::str::from_utf8(&name[at + 1..]).ok()?);
    let is_number = behind.starts_with(|first: char| first.is_ascii_digit());
    match before.strip_suffix(b"@") {
        Some(before) if is_number => Some((before, parse_size(behind).map(Part::Offset))),
        None if !behind.is_empty() && !behind.contains('/') => {
            let part = behind.parse().map_or_else(|_| Part::Named(behind.to_owned()), Part::Number);
            Some((before, Ok(part)))
        }
        _ => None,
    }
}

/// Whether what has this name has a partition table, be it a damaged one.
fn has_table(name: &Path) -> bool {
    FileDevice::open(name, Access::ReadOnlyForced)
        .is_ok_and(|device| PartitionTable::read(&device).map_or(true, |table| table.is_some()))
}

impl ImageName {
    /// What `name` means. What is not there at all is no part.
    ///
    /// # Errors
    /// An offset that is no size.
    pub fn find(name: impl AsRef<Path>) -> Result<Self> {
        let name = name.as_ref();
        let whole = Self { file: name.to_owned(), parts: Vec::new() };
        if std::fs::symlink_metadata(name).is_ok() {
            return Ok(whole);
        }
        let (mut rest, mut parts) = (name.as_os_str().as_bytes(), Vec::new());
        while let Some((before, part)) = split(rest).filter(|_| parts.len() < PARTS_MAX) {
            rest = before;
            if matches!(part, Ok(Part::Named(_))) && !has_table(Path::new(OsStr::from_bytes(rest))) {
                return Ok(whole);
            }
            parts.push(part);
            let file = Path::new(OsStr::from_bytes(rest));
            if std::fs::metadata(file).is_ok_and(|meta| !meta.is_dir()) {
                let parts: Result<Vec<Part>> = parts.into_iter().rev().collect();
                let parts = parts.map_err(|error| error.context(name.display()))?;
                return Ok(Self { file: file.to_owned(), parts });
            }
        }
        Ok(whole)
    }

    /// The file or block device.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether only a part of it is meant.
    #[must_use]
    pub const fn is_part(&self) -> bool {
        !self.parts.is_empty()
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// What the host says of the file that an image of this name is in, or would be.
    ///
    /// # Errors
    /// The host's, as of [`std::fs::metadata`]. A part that cannot be meant is told of as a file that is not there.
    pub fn metadata(name: impl AsRef<Path>) -> io::Result<Metadata> {
        let name = name.as_ref();
        std::fs::metadata(Self::find(name).as_ref().map_or(name, Self::file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_the_last_at_that_a_number_follows() {
        type Halves = Option<(&'static str, Option<Part>)>;
        let named = |name: &str| Some(Part::Named(name.to_owned()));
        let rows: [(&str, Halves); 14] = [
            ("disk@2", Some(("disk", Some(Part::Number(2))))),
            ("disk@0", Some(("disk", Some(Part::Number(0))))),
            ("disk@1@2", Some(("disk@1", Some(Part::Number(2))))),
            ("disk@@1M", Some(("disk", Some(Part::Offset(1 << 20))))),
            ("disk@@0", Some(("disk", Some(Part::Offset(0))))),
            ("disk@@18446744073709551615", Some(("disk", Some(Part::Offset(u64::MAX))))),
            ("disk@@18446744073709551616", Some(("disk", None))),
            ("disk@@1Q", Some(("disk", None))),
            ("disk@18446744073709551616", Some(("disk", named("18446744073709551616")))),
            ("me@home", Some(("me", named("home")))),
            ("disk@@home", None),
            ("me@home/disk", None),
            ("disk@", None),
            ("disk", None),
        ];
        for (name, want) in rows {
            let found = split(name.as_bytes());
            let found = found.map(|(before, part)| (std::str::from_utf8(before).unwrap(), part.ok()));
            assert_eq!(found, want, "{name}");
        }
    }

    #[test]
    fn what_is_really_called_so_comes_first_and_what_is_not_there_is_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let file = |name: &str| {
            let found = ImageName::find(path(name)).unwrap();
            (found.file().file_name().unwrap().to_str().unwrap().to_owned(), found.parts().to_vec())
        };
        std::fs::create_dir(path("folder")).unwrap();
        for name in ["folder@2", "none@2", "none", "me@home", "none@@1M"] {
            assert_eq!(file(name), (name.to_owned(), vec![]));
        }
        std::fs::write(path("disk"), "").unwrap();
        assert_eq!(file("disk@2"), ("disk".to_owned(), vec![Part::Number(2)]));
        // Without a partition table what is no number is a name as any other one.
        assert_eq!(file("disk@root"), ("disk@root".to_owned(), vec![]));
        assert_eq!(file("disk@1@@4k"), ("disk".to_owned(), vec![Part::Number(1), Part::Offset(4096)]));
        assert!(
            ImageName::find(path("disk@@1Q")).unwrap_err().to_string().contains("disk@@1Q: '1Q' has no unit")
        );
        std::fs::write(path("disk@1"), "").unwrap();
        assert_eq!(file("disk@1"), ("disk@1".to_owned(), vec![]));
        assert_eq!(file("disk@1@2"), ("disk@1".to_owned(), vec![Part::Number(2)]));
        assert_eq!(file(&format!("disk{}", "@2".repeat(PARTS_MAX))).1.len(), PARTS_MAX);
        let deep = format!("disk{}", "@2".repeat(PARTS_MAX + 1));
        assert_eq!(file(&deep), (deep, vec![]));
        // A link that leads nowhere has its name all the same.
        std::os::unix::fs::symlink("nowhere", path("disk@3")).unwrap();
        assert_eq!(file("disk@3"), ("disk@3".to_owned(), vec![]));
    }
}
