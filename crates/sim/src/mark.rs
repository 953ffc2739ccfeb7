//! Marks of inodes (chattr(1)).

use creamery_format::InodeFlags;

/// How an inode is marked.
///
/// ```
/// assert_ne!(creamery_sim::Mark::Immutable, creamery_sim::Mark::AppendOnly);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Nothing of it changes (`chattr +i`).
    Immutable,
    /// A file becomes longer, a directory gets new names, and nothing else of it changes (`chattr +a`).
    AppendOnly,
}

/// The flags of an inode with a mark, or without one.
pub(crate) fn flags_of(mark: Option<Mark>) -> InodeFlags {
    match mark {
        None => InodeFlags::empty(),
        Some(Mark::Immutable) => InodeFlags::IMMUTABLE,
        Some(Mark::AppendOnly) => InodeFlags::APPEND,
    }
}
