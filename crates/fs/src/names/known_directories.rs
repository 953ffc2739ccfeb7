//! A cache of the directories that names led to. Every path goes through a few of them, again and again.
//!
//! Each thread has its own, so threads whose paths begin alike share no cache line. All of it is forgotten when an entry that
//! leads to a directory is removed or changed: that is rare beside path lookups.
//!
//! # Invariants
//! - KNOWN-1: a cached name is valid only in the epoch in which its entry was read. An epoch ends after an entry that leads to a
//!   directory was changed or removed, and before the directory that has the entry is unlocked.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{CachePadded, IdHasher, InodeId, PerThread, memory};

use crate::inode::guards::Guards;

/// Names kept by one thread.
const NAMES_MAX: usize = 1024;

/// A time in which no directory moved.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Epoch(u64);

/// The caches of all threads.
#[derive(Default)]
pub(crate) struct KnownDirectories {
    epoch: CachePadded<AtomicU64>,
    near: PerThread<RankedMutex<ThreadDirectories, { rank::LEAF }>>,
}

/// The cache of one thread.
#[derive(Default)]
struct ThreadDirectories {
    epoch: Epoch,
    children: HashMap<InodeId, Children, BuildHasherDefault<IdHasher>>,
    names: usize,
}

/// The names in one directory.
type Children = HashMap<Box<[u8]>, InodeId>;

impl ThreadDirectories {
    fn memory(&self) -> u64 {
        let of_one = |names: &Children| {
            let bytes: u64 = names.keys().map(|name| memory::vec::<u8>(name.len())).sum();
            memory::hash_map::<Box<[u8]>, InodeId>(names.capacity()) + bytes
        };
        memory::hash_map::<InodeId, Children>(self.children.capacity())
            + self.children.values().map(of_one).sum::<u64>()
    }

    fn begin(&mut self, epoch: Epoch) {
        *self = Self { epoch, ..Self::default() };
    }
}

impl KnownDirectories {
    /// The current epoch. Call this before you read an entry that you then [`put`](Self::put) here.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// The directory called `name` in `dir`, if this thread knows it.
    pub(crate) fn get(&self, dir: InodeId, name: &[u8]) -> Option<InodeId> {
        let known = self.near.mine().lock();
        if known.epoch != self.epoch() {
            return None;
        }
        known.children.get(&dir)?.get(name).copied()
    }

    /// The memory of all caches, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let known = self.near.all().map(|known| known.lock().memory()).sum::<u64>();
        known + PerThread::<RankedMutex<ThreadDirectories, { rank::LEAF }>>::memory()
    }

    /// Remembers a directory whose entry was read after the call that returned `epoch`.
    pub(crate) fn put(&self, dir: InodeId, name: &[u8], child: InodeId, epoch: Epoch) {
        assert!(epoch.0 <= self.epoch().0, "KNOWN-1: the epoch was asked for before the entry was read");
        let mut known = self.near.mine().lock();
        if known.epoch != epoch || known.names >= NAMES_MAX {
            known.begin(epoch);
        }
        known.children.entry(dir).or_default().insert(name.into(), child);
        known.names += 1;
    }

    /// Ends the epoch: an entry that leads to a directory was removed or changed. Its directory is one of those locked.
    pub(crate) fn forget_all(&self, _locked: &Guards<'_>) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::{ObjectId, TreeId};

    use super::*;

    fn id(ino: u64) -> InodeId {
        InodeId::new(TreeId::FS, ObjectId::new(ino))
    }

    #[test]
    fn a_name_is_known_until_a_directory_moves() {
        let known = KnownDirectories::default();
        known.put(id(256), b"a", id(257), known.epoch());
        assert_eq!(known.get(id(256), b"a"), Some(id(257)));
        assert_eq!((known.get(id(256), b"b"), known.get(id(257), b"a")), (None, None));
        known.forget_all(&Guards::lock(&[]).expect("nothing to lock"));
        assert_eq!(known.get(id(256), b"a"), None);
    }

    #[test]
    fn what_was_read_before_a_directory_moved_is_not_believed_after() {
        let known = KnownDirectories::default();
        let before = known.epoch();
        known.forget_all(&Guards::lock(&[]).expect("nothing to lock"));
        known.put(id(256), b"a", id(257), before);
        assert_eq!(known.get(id(256), b"a"), None);
    }

    #[test]
    fn there_are_never_too_many() {
        let known = KnownDirectories::default();
        for number in 0..3 * NAMES_MAX {
            known.put(id(256), number.to_string().as_bytes(), id(257), known.epoch());
        }
        let near = known.near.mine().lock();
        assert!(near.children[&id(256)].len() <= NAMES_MAX);
    }

    #[test]
    fn threads_know_for_themselves_and_forget_together() {
        let known = KnownDirectories::default();
        known.put(id(256), b"a", id(257), known.epoch());
        std::thread::scope(|scope| {
            scope.spawn(|| known.forget_all(&Guards::lock(&[]).expect("nothing to lock")));
        });
        assert_eq!(known.get(id(256), b"a"), None);
    }

    #[test]
    #[should_panic(expected = "KNOWN-1")]
    fn an_epoch_that_has_not_begun_is_no_witness() {
        let (known, other) = (KnownDirectories::default(), KnownDirectories::default());
        other.forget_all(&Guards::lock(&[]).expect("nothing to lock"));
        known.put(id(256), b"a", id(257), other.epoch());
    }
}
