//! What an inode is, with what it has in memory for that.

use super::FileType;
use super::directory_state::DirectoryState;
use super::file_state::FileState;

/// The part of an inode that depends on its kind, which never changes. Nothing of it is boxed: to make a file takes no memory but the
/// object's, which is that of one that went.
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
    /// Of an inode that was just made, or has just come into memory.
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

    /// What a directory has.
    pub(super) const fn directory(&self) -> Option<&DirectoryState> {
        match self {
            Self::Directory(state) => Some(state),
            _ => None,
        }
    }

    /// What a file has.
    pub(super) const fn file(&self) -> Option<&FileState> {
        match self {
            Self::File(state) => Some(state),
            _ => None,
        }
    }

    /// Whether anything of it is still to be written, or an error is still to be reported.
    pub(super) fn has_to_stay(&self) -> bool {
        match self {
            Self::Directory(state) => state.is_unwritten(),
            Self::File(state) => state.delalloc().any() || state.write_errors().any_unseen(),
            Self::Other(_) => false,
        }
    }

    /// What it takes in memory outside, bytes.
    pub(super) fn memory(&self) -> u64 {
        match self {
            Self::Directory(state) => state.memory(),
            Self::File(state) => state.memory(),
            Self::Other(_) => 0,
        }
    }
}
