//! Tests of files, like those of find(1).

use std::os::unix::ffi::OsStrExt;

use creamery::attributes::Timespec;
use creamery::{FileType, Metadata, Result, WalkEntry};

use crate::glob::Glob;

/// A comparison of a number, as in find(1).
///
/// ```
/// use creamery_tools::find::Comparison;
/// assert!(Comparison::MoreThan(3).holds(4) && !Comparison::Exactly(3).holds(4));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// `N`
    Exactly(u64),
    /// `+N`
    MoreThan(u64),
    /// `-N`
    LessThan(u64),
}

impl Comparison {
    /// Whether the comparison is true for `value`.
    #[must_use]
    pub const fn holds(self, value: u64) -> bool {
        match self {
            Self::Exactly(wanted) => value == wanted,
            Self::MoreThan(wanted) => value > wanted,
            Self::LessThan(wanted) => value < wanted,
        }
    }
}

/// A comparison of permission bits.
///
/// ```
/// assert_ne!(creamery_tools::find::ModeTest::All(0o111), creamery_tools::find::ModeTest::Any(0o111));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeTest {
    /// These bits and no others.
    Exactly(u32),
    /// All of these bits.
    All(u32),
    /// At least one of these bits, or anything if there are none.
    Any(u32),
}

/// A test of a file.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use creamery_tools::find::FileTest;
/// use creamery_tools::glob::Glob;
/// fs.write("/a.conf", "x")?;
/// fs.write("/b", "y")?;
/// let test = FileTest::Name { pattern: Glob::new(b"*.conf"), fold_case: false };
/// let mut found = Vec::new();
/// for entry in fs.walk("/")? {
///     let entry = entry?;
///     if test.holds(&entry, &entry.metadata()?)? {
///         found.push(entry.path().to_owned());
///     }
/// }
/// assert_eq!(found, [std::path::Path::new("/a.conf")]);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileTest {
    /// Always true.
    True,
    /// The test does not hold.
    Not(Box<FileTest>),
    /// All tests hold.
    And(Vec<FileTest>),
    /// At least one test holds.
    Or(Vec<FileTest>),
    /// The last component of the path matches.
    Name {
        /// The pattern.
        pattern: Glob,
        /// Whether ASCII letters match regardless of their case.
        fold_case: bool,
    },
    /// The whole path matches, as it was walked.
    Path(Glob),
    /// The type is one of these.
    Type(Vec<FileType>),
    /// The size in units of `unit` bytes, rounded up, compares with `count`.
    Size {
        /// Bytes of a unit, not 0.
        unit: u64,
        /// The number of units.
        count: Comparison,
    },
    /// The permission bits compare.
    Mode(ModeTest),
    /// The number of the owner compares.
    Uid(Comparison),
    /// The number of the group compares.
    Gid(Comparison),
    /// The number of hard links compares.
    Links(Comparison),
    /// The file is a regular file of length 0, or a directory without entries.
    Empty,
    /// The data changed after this time.
    Newer(Timespec),
}

/// The last component of a path; of the root, the slash.
fn base_name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(path.len().min(1), |last| last + 1);
    let path = &path[..end];
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) if slash + 1 < path.len() => &path[slash + 1..],
        _ => path,
    }
}

impl FileTest {
    /// Whether the test holds for `entry`, whose metadata is `meta`.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn holds(&self, entry: &WalkEntry, meta: &Metadata) -> Result<bool> {
        let path = entry.path().as_os_str().as_bytes();
        Ok(match self {
            Self::True => true,
            Self::Not(test) => !test.holds(entry, meta)?,
            Self::And(tests) => {
                for test in tests {
                    if !test.holds(entry, meta)? {
                        return Ok(false);
                    }
                }
                true
            }
            Self::Or(tests) => {
                for test in tests {
                    if test.holds(entry, meta)? {
                        return Ok(true);
                    }
                }
                false
            }
            Self::Name { pattern, fold_case: false } => pattern.matches(base_name(path)),
            Self::Name { pattern, fold_case: true } => pattern.matches(&base_name(path).to_ascii_lowercase()),
            Self::Path(pattern) => pattern.matches(path),
            Self::Type(kinds) => kinds.contains(&meta.file_type()),
            Self::Size { unit, count } => count.holds(meta.len().div_ceil(*unit)),
            Self::Mode(test) => mode_holds(*test, meta.permissions().mode()),
            Self::Uid(count) => count.holds(meta.uid().into()),
            Self::Gid(count) => count.holds(meta.gid().into()),
            Self::Links(count) => count.holds(meta.nlink().into()),
            Self::Empty if meta.is_dir() => entry.read_dir()?.next().transpose()?.is_none(),
            Self::Empty => meta.is_file() && meta.len() == 0,
            Self::Newer(than) => meta.mtime() > *than,
        })
    }
}

const fn mode_holds(test: ModeTest, mode: u32) -> bool {
    match test {
        ModeTest::Exactly(bits) => mode == bits,
        ModeTest::All(bits) => mode & bits == bits,
        ModeTest::Any(bits) => bits == 0 || mode & bits != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_names_are_those_of_basename() {
        for (path, name) in [("/", "/"), ("//", "/"), ("/a", "a"), ("/a/b/", "b"), ("a", "a"), ("", "")] {
            assert_eq!(base_name(path.as_bytes()), name.as_bytes(), "{path}");
        }
    }

    #[test]
    fn modes_are_compared_in_three_ways() {
        assert!(mode_holds(ModeTest::Exactly(0o644), 0o644) && !mode_holds(ModeTest::Exactly(0o644), 0o4644));
        assert!(mode_holds(ModeTest::All(0o600), 0o644) && !mode_holds(ModeTest::All(0o611), 0o644));
        assert!(mode_holds(ModeTest::Any(0o111), 0o010) && !mode_holds(ModeTest::Any(0o111), 0o644));
        assert!(mode_holds(ModeTest::Any(0), 0));
    }
}
