//! A commit, and its state.

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
    /// The generation, which grows from commit to commit.
    pub generation: Generation,
    /// The address of the root block of its root tree.
    pub root: Logical,
    /// The level of the block at `root`.
    pub level: u8,
    /// About the time of the commit: the newest change of a subvolume in it, as far as its trees record it.
    pub time: Option<Timespec>,
    /// Whether its blocks are left.
    pub state: CommitState,
    /// Whether it is the last commit, which opens without `generation`.
    pub is_current: bool,
}

/// The blocks that are left of a commit. Only reading shows whether file data is left.
///
/// ```
/// use creamery::history::CommitState;
/// assert_eq!(CommitState::Whole.to_string(), "whole");
/// assert_eq!(CommitState::Gone { blocks: 2 }.to_string(), "2 blocks gone");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CommitState {
    /// Every tree block can be read.
    Whole,
    /// Tree blocks that the search met and that cannot be read, or belong to a newer commit. A block that several trees share may
    /// count more than once; blocks below it were not met.
    Gone {
        /// Number of blocks.
        blocks: u64,
    },
    /// Tree blocks that are gone, each of them all zeros: they were discarded (`fstrim`, `discard`).
    Discarded {
        /// Number of blocks.
        blocks: u64,
    },
}

impl CommitState {
    /// The number of blocks that are gone.
    #[must_use]
    pub const fn gone(self) -> u64 {
        match self {
            Self::Whole => 0,
            Self::Gone { blocks } | Self::Discarded { blocks } => blocks,
        }
    }

    /// The state as a word: `whole`, `gone` or `discarded`.
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

/// The result of [`history`](super::history).
///
/// ```
/// assert!(creamery::history::History::default().commits.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct History {
    /// The commits, the newest first.
    pub commits: Vec<Commit>,
    /// Notes about the filesystem, as [`crate::volume::Volume::notes`](crate::volume::Volume::notes), one sentence each.
    pub notes: Vec<String>,
}
