//! The kind of an inode, and the state in memory for it.

use super::FileType;
use super::directory_state::DirectoryState;
use super::file_state::FileState;

/// The part of an inode that depends on its kind, which never changes. Nothing of it is boxed: a new file takes no memory but that of
/// its object, which reuses the memory of one that went.
#[cfg_attr(
    feature = "shuttle",
    expect(clippy::large_enum_variant, reason = "locks that shuttle schedules are large")
)]
pub(super) enum Body {
    Directory(DirectoryState),
    File(FileState),
    /// A symbolic link, a device node, a fifo or a socket: all of it is in the tree.
    Other(FileType),
}

impl Body {
    /// The part for an inode that is new, or new in memory.
    pub(super) fn new(kind: FileType) -> Self {
        match kind {
            FileType::Directory => Self::Directory(DirectoryState::new()),
            FileType::File => Self::File(FileState::new()),
            other => Self::Other(other),
        }
    }

    pub(super) const fn kind(&self) -> FileType {
        match self {
            Self::Directory(_) => FileType::Directory,
            Self::File(_) => FileType::File,
            Self::Other(kind) => *kind,
        }
    }

    /// The part of a directory.
    pub(super) const fn directory(&self) -> Option<&DirectoryState> {
        match self {
            Self::Directory(state) => Some(state),
            _ => None,
        }
    }

    /// The part of a file.
    pub(super) const fn file(&self) -> Option<&FileState> {
        match self {
            Self::File(state) => Some(state),
            _ => None,
        }
    }

    /// Whether anything of it is unwritten, or an error is unreported.
    pub(super) fn has_to_stay(&self) -> bool {
        match self {
            Self::Directory(state) => state.is_unwritten(),
            Self::File(state) => state.delalloc().any() || state.write_errors().any_unseen(),
            Self::Other(_) => false,
        }
    }

    /// The heap memory it takes, bytes.
    pub(super) fn memory(&self) -> u64 {
        match self {
            Self::Directory(state) => state.memory(),
            Self::File(state) => state.memory(),
            Self::Other(_) => 0,
        }
    }
}
