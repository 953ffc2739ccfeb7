//! Two directories, merged by the bytes of their names.

use std::ffi::OsString;
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use creamery_base::Error;

use super::report::{DiffSide, Difference, SIDES};
use crate::read_dir::{DirEntry, ReadDir};

/// A directory on both sides, at the same path; one side may have none.
pub(super) struct DiffLevel {
    /// Path from the beginnings of the trees.
    pub(super) path: PathBuf,
    names: [Peekable<std::vec::IntoIter<DirEntry>>; 2],
    /// Whether all names of the side are known.
    pub(super) is_whole: [bool; 2],
    /// Entries that wait for the names before them; each name is a prefix of the next.
    later: Vec<Later>,
}

/// An entry that comes where `name/` sorts.
pub(super) struct Later {
    pub(super) name: OsString,
    pub(super) what: Below,
}

pub(super) enum Below {
    /// Directories to enter.
    Directories([Option<DirEntry>; 2]),
    Difference(Difference),
}

/// The next entry of the merge.
pub(super) enum MergeStep {
    /// The entries of a name, on either side or both.
    Names([Option<DirEntry>; 2]),
    Later(Later),
}

impl DiffLevel {
    /// Lists the directories, and calls `failed` with the first error of each side.
    pub(super) fn list(
        path: PathBuf,
        dirs: [Option<ReadDir>; 2],
        mut failed: impl FnMut(DiffSide, Error),
    ) -> Self {
        let mut is_whole = [true; 2];
        let mut names = [Vec::new(), Vec::new()];
        for (index, dir) in dirs.into_iter().enumerate() {
            let mut failed = |error| {
                // Several leaves may be lost one after the other.
                if std::mem::take(&mut is_whole[index]) {
                    failed(SIDES[index], error);
                }
                None
            };
            let listed = dir.into_iter().flat_map(ReadDir::past_damage);
            names[index] = listed.filter_map(|entry| entry.map_or_else(&mut failed, Some)).collect();
            names[index].sort_by(|one, other| one.file_name().cmp(other.file_name()));
        }
        let names = names.map(|names| names.into_iter().peekable());
        Self { path, names, is_whole, later: Vec::new() }
    }

    /// Makes `what` come where the content of `entry` sorts.
    pub(super) fn wait(&mut self, entry: &DirEntry, what: Below) {
        self.later.push(Later { name: entry.file_name().to_owned(), what });
    }

    pub(super) fn next(&mut self) -> Option<MergeStep> {
        let [old, new] = &mut self.names;
        let heads = [old.peek(), new.peek()].into_iter().flatten();
        let name = heads.map(DirEntry::file_name).min();
        let is_due = |later: &mut Later| {
            name.is_none_or(|name| later.name.as_bytes().iter().chain(b"/").lt(name.as_bytes()))
        };
        if let Some(later) = self.later.pop_if(is_due) {
            return Some(MergeStep::Later(later));
        }
        let name = name?.to_owned();
        let mut take = |side: usize| self.names[side].next_if(|entry| entry.file_name() == name);
        Some(MergeStep::Names([take(0), take(1)]))
    }
}
