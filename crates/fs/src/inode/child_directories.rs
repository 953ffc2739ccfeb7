//! The directories that were looked up in a directory. Every path leads through a few of them, again and again.
//!
//! # Invariants
//! - CHILD-1: a name stands here only while the directory has it, and it leads where it says. It is put in with the
//!   directory's item locked for reading, after the look-up in the tree, and is taken out by whoever changes the name's entry,
//!   who has it locked for writing.

use std::collections::HashMap;

use creamery_base::InodeId;
use parking_lot::Mutex;

/// Names kept of one directory.
const NAMES_MAX: usize = 1024;

/// Names and what they stand for.
#[derive(Default)]
pub(crate) struct ChildDirectories(Mutex<HashMap<Box<[u8]>, InodeId>>);

impl ChildDirectories {
    /// The directory called `name`, if it is known.
    pub(crate) fn get(&self, name: &[u8]) -> Option<InodeId> {
        self.0.lock().get(name).copied()
    }

    /// Remembers one; forgets the others when there are too many.
    pub(crate) fn put(&self, name: &[u8], child: InodeId) {
        let mut names = self.0.lock();
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(name.into(), child);
    }

    /// Forgets one, if it is known.
    pub(crate) fn forget(&self, name: &[u8]) {
        self.0.lock().remove(name);
    }
}
