//! Reports of comparing two trees.

use std::path::PathBuf;

use creamery_base::Error;

/// The kind of a difference between two files with one name.
///
/// ```
/// use creamery::diff::DiffKind;
/// assert_eq!(DiffKind::Content.name(), "content");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum DiffKind {
    /// Bytes of a file, target of a symbolic link, or number of a device.
    Content,
    /// Permission bits.
    Mode,
    /// User or group.
    Owner,
    /// Extended attributes.
    Xattr,
    /// Modification time.
    Time,
    /// Flags of chattr(1).
    Flags,
    /// File type.
    Type,
}

impl DiffKind {
    /// The kind of difference as one word, like `content`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Xattr => "xattr",
            Self::Time => "time",
            Self::Flags => "flags",
            Self::Type => "type",
        }
    }
}

/// The change of a name from the old tree to the new one.
///
/// ```
/// use creamery::diff::DiffChange;
/// assert_eq!((DiffChange::Added.letter(), DiffChange::Added.name()), ('A', "added"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DiffChange {
    /// Only the old tree has the name.
    Removed,
    /// Only the new tree has the name.
    Added,
    /// Both trees have the name, and its files differ.
    Modified,
}

impl DiffChange {
    /// The change as one letter: `D`, `A` or `M`.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Removed => 'D',
            Self::Added => 'A',
            Self::Modified => 'M',
        }
    }

    /// The change as one word: `removed`, `added` or `modified`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Added => "added",
            Self::Modified => "modified",
        }
    }
}

/// A difference at one name.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use creamery::Permissions;
/// use creamery::diff::DiffKind;
/// use creamery::progress::NoProgress;
/// fs.create_dir_all("/old")?;
/// fs.write("/old/file", "text")?;
/// fs.subvolumes().snapshot("/", "/new").read_only().run()?;
/// fs.set_permissions("/old/file", Permissions::from_mode(0o600))?;
/// let differences: Vec<_> = fs.diff("/new/old", &fs, "/old", &NoProgress)?.map(Result::unwrap).collect();
/// assert_eq!((differences.len(), &differences[0].kinds[..]), (1, &[DiffKind::Mode][..]));
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Difference {
    /// The path below both beginnings, `.` for the beginnings themselves; if both are files, the name in the old tree. The path of a
    /// subvolume that only one tree has ends with a slash.
    pub path: PathBuf,
    /// The change of the name.
    pub change: DiffChange,
    /// The kinds of difference of a modified name, each once and in order. Empty for an added or removed one.
    pub kinds: Vec<DiffKind>,
    /// Whether the name is a subvolume that only one tree has.
    pub is_subvolume: bool,
    /// Length in bytes of a regular file that was added or removed, or whose content or type differs; of the new one, if that is a regular
    /// file.
    pub len: u64,
}

/// One of the two trees.
///
/// ```
/// assert_ne!(creamery::diff::DiffSide::Old, creamery::diff::DiffSide::New);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DiffSide {
    /// The first tree of the comparison.
    Old,
    /// The second tree of the comparison.
    New,
}

/// Both sides, in the order of arrays.
pub(super) const SIDES: [DiffSide; 2] = [DiffSide::Old, DiffSide::New];

/// An error of the comparison.
///
/// ```no_run
/// # fn example(old: &creamery::Filesystem, new: &creamery::Filesystem) -> creamery::Result<()> {
/// for difference in old.diff("/", new, "/", &creamery::progress::NoProgress)? {
///     if let Err(trouble) = difference {
///         eprintln!("{:?}: {}", trouble.side, trouble.error);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct DiffTrouble {
    /// The side with the error; `None` when the observer cancelled.
    pub side: Option<DiffSide>,
    /// The error, with the path of that tree.
    pub error: Error,
}

impl std::fmt::Display for DiffTrouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for DiffTrouble {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<DiffTrouble> for Error {
    fn from(trouble: DiffTrouble) -> Self {
        trouble.error
    }
}

/// Numbers of the differences of two trees, and of their bytes.
///
/// ```
/// # fn example(old: &creamery::Filesystem, new: &creamery::Filesystem) -> creamery::Result<()> {
/// let mut summary = creamery::diff::DiffSummary::default();
/// for difference in old.diff("/", new, "/", &creamery::progress::NoProgress)?.flatten() {
///     summary.count(&difference);
/// }
/// println!("{} files and directories were added", summary.added);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct DiffSummary {
    /// Names that only the new tree has; a subvolume counts as one.
    pub added: u64,
    /// Names that only the old tree has.
    pub removed: u64,
    /// Names of both trees that differ.
    pub modified: u64,
    /// Lengths of the added files, bytes; each name counts.
    pub added_bytes: u64,
    /// Lengths of the removed files, bytes.
    pub removed_bytes: u64,
    /// Lengths of the files whose content or type differs, bytes.
    pub changed_bytes: u64,
}

impl DiffSummary {
    /// Adds a difference to the numbers.
    pub fn count(&mut self, difference: &Difference) {
        let (names, bytes) = match difference.change {
            DiffChange::Added => (&mut self.added, &mut self.added_bytes),
            DiffChange::Removed => (&mut self.removed, &mut self.removed_bytes),
            DiffChange::Modified => (&mut self.modified, &mut self.changed_bytes),
        };
        *names += 1;
        *bytes = bytes.saturating_add(difference.len);
    }

    /// Whether there are no differences.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
