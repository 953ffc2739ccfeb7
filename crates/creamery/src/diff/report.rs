//! What comparing two trees reports.

use std::path::PathBuf;

use creamery_base::Error;

/// In which way two files of one name differ.
///
/// ```
/// use creamery::diff::DiffKind;
/// assert_eq!(DiffKind::Content.name(), "content");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum DiffKind {
    /// Bytes of a file, target of a symbolic link, number of a device.
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
    /// What they are.
    Type,
}

impl DiffKind {
    /// In one word.
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

/// What happened to a name from the old tree to the new one.
///
/// ```
/// use creamery::diff::DiffChange;
/// assert_eq!((DiffChange::Added.letter(), DiffChange::Added.name()), ('A', "added"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DiffChange {
    /// Only the old tree has it.
    Removed,
    /// Only the new tree has it.
    Added,
    /// Both have it, and it differs.
    Modified,
}

impl DiffChange {
    /// In one letter.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Removed => 'D',
            Self::Added => 'A',
            Self::Modified => 'M',
        }
    }

    /// In one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Removed => "removed",
            Self::Added => "added",
            Self::Modified => "modified",
        }
    }
}

/// A name that differs.
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
    /// The path below both places, `.` for the places themselves; a file beside a file has its name in the old tree. A subvolume that only one
    /// tree has ends with a slash.
    pub path: PathBuf,
    /// What happened to it.
    pub change: DiffChange,
    /// In which ways a modified one differs, each once and in order. None of what was added or removed.
    pub kinds: Vec<DiffKind>,
    /// Whether it is a subvolume that only one tree has.
    pub is_subvolume: bool,
    /// Length of a regular file that was added or removed, or whose content or type differs; then of the new one, if that is one.
    pub len: u64,
}

/// One of both trees.
///
/// ```
/// assert_ne!(creamery::diff::DiffSide::Old, creamery::diff::DiffSide::New);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DiffSide {
    /// The first one.
    Old,
    /// The second one.
    New,
}

/// Both, in the order of arrays.
pub(super) const SIDES: [DiffSide; 2] = [DiffSide::Old, DiffSide::New];

/// What could not be compared.
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
    /// Where it is; none when whoever watches wanted no more.
    pub side: Option<DiffSide>,
    /// Why, with the path of that tree.
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

/// How many differences there are.
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
    /// Names that only the new tree has; a subvolume is one.
    pub added: u64,
    /// Names that only the old tree has.
    pub removed: u64,
    /// Names of both that differ.
    pub modified: u64,
    /// Lengths of the files that were added, each name counted.
    pub added_bytes: u64,
    /// Lengths of those that were removed.
    pub removed_bytes: u64,
    /// Lengths of those whose content or type differs.
    pub changed_bytes: u64,
}

impl DiffSummary {
    /// Counts one more.
    pub fn count(&mut self, difference: &Difference) {
        let (names, bytes) = match difference.change {
            DiffChange::Added => (&mut self.added, &mut self.added_bytes),
            DiffChange::Removed => (&mut self.removed, &mut self.removed_bytes),
            DiffChange::Modified => (&mut self.modified, &mut self.changed_bytes),
        };
        *names += 1;
        *bytes = bytes.saturating_add(difference.len);
    }

    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
