//! A commit, and what is left of it.

use creamery_base::{Generation, Logical, Timespec};

/// A commit of a filesystem.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::history::{NoSearchProgress, history};
/// for commit in history(&image, &NoSearchProgress)?.commits {
///     println!("{} at {}", commit.generation, commit.root);
/// }
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Commit {
    /// Its number, which grows from commit to commit.
    pub generation: Generation,
    /// Where the root of its root tree is.
    pub root: Logical,
    /// The level of that.
    pub level: u8,
    /// About when it was made: the newest change of a subvolume that it has, as far as its trees tell.
    pub time: Option<Timespec>,
    /// What is left of it.
    pub state: CommitState,
    /// Whether it is the last one, which the filesystem is without `generation`.
    pub is_current: bool,
}

/// What is left of a commit. Of file data only reading tells.
///
/// ```
/// use creamery::history::CommitState;
/// assert_eq!(CommitState::Whole.to_string(), "whole");
/// assert_eq!(CommitState::Gone { blocks: 2 }.to_string(), "2 blocks gone");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CommitState {
    /// Each tree block can be read.
    Whole,
    /// This many of the tree blocks that were met cannot be read, or belong to a newer commit. One that several trees share may
    /// count more than once; those below it were not met.
    Gone {
        /// How many.
        blocks: u64,
    },
    /// The same, and each is all zeros: the device was told that nobody needs them (`fstrim`, `discard`).
    Discarded {
        /// How many.
        blocks: u64,
    },
}

impl CommitState {
    /// How many blocks are gone.
    #[must_use]
    pub const fn gone(self) -> u64 {
        match self {
            Self::Whole => 0,
            Self::Gone { blocks } | Self::Discarded { blocks } => blocks,
        }
    }

    /// In a word: `whole`, `gone` or `discarded`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Gone { .. } => "gone",
            Self::Discarded { .. } => "discarded",
        }
    }
}

impl std::fmt::Display for CommitState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole => f.write_str("whole"),
            Self::Gone { blocks: 1 } => f.write_str("1 block gone"),
            Self::Gone { blocks } => write!(f, "{blocks} blocks gone"),
            Self::Discarded { .. } => f.write_str("discarded"),
        }
    }
}

/// What [`history`](super::history) found.
///
/// ```
/// assert!(creamery::history::History::default().commits.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct History {
    /// The newest first.
    pub commits: Vec<Commit>,
    /// What is to be known of the filesystem, as [`crate::volume::Volume::notes`](crate::volume::Volume::notes), one sentence each.
    pub notes: Vec<String>,
}
