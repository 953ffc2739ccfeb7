//! Guards of inode items. In debug builds they know the order in which a thread takes them, so that one that is wrong is found
//! by the first test that walks over it, not by the first deadlock.
//!
//! # Invariants
//! - INODE-4: who waits for an item has none with the same or a greater id. Trying is exempt.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use creamery_base::InodeId;
use creamery_base::sync::{RwLockReadGuard, RwLockWriteGuard};

use super::InodeItem;

/// An inode item, locked for reading.
///
/// ```
/// fn is_large(item: &creamery_fs::ItemRead<'_>) -> bool {
///     item.size > 1 << 30
/// }
/// ```
#[must_use]
pub struct ItemRead<'a> {
    guard: RwLockReadGuard<'a, InodeItem>,
    _held: Held,
}

/// An inode item, locked for changing.
///
/// ```
/// fn cut(item: &mut creamery_fs::ItemWrite<'_>) {
///     item.size = 0;
/// }
/// ```
#[must_use]
pub struct ItemWrite<'a> {
    guard: RwLockWriteGuard<'a, InodeItem>,
    _held: Held,
}

impl<'a> ItemRead<'a> {
    pub(super) const fn new(guard: RwLockReadGuard<'a, InodeItem>, held: Held) -> Self {
        Self { guard, _held: held }
    }
}

impl<'a> ItemWrite<'a> {
    pub(super) const fn new(guard: RwLockWriteGuard<'a, InodeItem>, held: Held) -> Self {
        Self { guard, _held: held }
    }
}

impl Deref for ItemRead<'_> {
    type Target = InodeItem;

    fn deref(&self) -> &InodeItem {
        &self.guard
    }
}

impl Deref for ItemWrite<'_> {
    type Target = InodeItem;

    fn deref(&self) -> &InodeItem {
        &self.guard
    }
}

impl DerefMut for ItemWrite<'_> {
    fn deref_mut(&mut self) -> &mut InodeItem {
        &mut self.guard
    }
}

/// Notes, in debug builds, that this thread has an item. It stays with the thread.
pub(super) struct Held {
    #[cfg(debug_assertions)]
    id: InodeId,
    thread: PhantomData<*const ()>,
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    use super::{Held, InodeId, PhantomData};

    #[cfg(feature = "shuttle")]
    use creamery_base::sync::shuttle::thread_local;

    thread_local! {
        static HELD: RefCell<Vec<InodeId>> = const { RefCell::new(Vec::new()) };
    }

    impl Held {
        /// Before waiting for the item of `id`.
        pub(in super::super) fn wait(id: InodeId) -> Self {
            HELD.with(|held| {
                if let Some(last) = held.borrow().iter().max() {
                    assert!(*last < id, "INODE-4: waits for inode {id} with inode {last} locked");
                }
            });
            Self::tried(id)
        }

        /// For an item that is only tried.
        pub(in super::super) fn tried(id: InodeId) -> Self {
            HELD.with(|held| held.borrow_mut().push(id));
            Self { id, thread: PhantomData }
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with(|held| {
                let mut held = held.borrow_mut();
                let at = held.iter().rposition(|id| *id == self.id).expect("what is held is in the list");
                held.swap_remove(at);
            });
        }
    }
}

#[cfg(not(debug_assertions))]
impl Held {
    pub(super) const fn wait(_: InodeId) -> Self {
        Self { thread: PhantomData }
    }

    pub(super) const fn tried(_: InodeId) -> Self {
        Self { thread: PhantomData }
    }
}

#[cfg(all(test, debug_assertions, not(feature = "shuttle")))]
mod tests {
    use creamery_base::{ObjectId, TreeId};

    use super::*;

    fn id(ino: u64) -> InodeId {
        InodeId::new(TreeId::FS, ObjectId::new(ino))
    }

    #[test]
    fn inodes_are_waited_for_in_ascending_order() {
        let first = Held::wait(id(300));
        let second = Held::wait(id(301));
        let tried = Held::tried(id(257));
        drop((second, first));
        drop(Held::wait(id(258)));
        drop(tried);
        drop(Held::wait(id(256)));
    }

    #[test]
    #[should_panic(expected = "INODE-4")]
    fn waiting_for_an_older_inode_with_a_younger_one_locked_is_a_bug() {
        let _younger = Held::wait(id(301));
        let _older = Held::wait(id(300));
    }

    #[test]
    #[should_panic(expected = "INODE-4")]
    fn waiting_for_the_same_inode_twice_is_a_bug() {
        let _once = Held::tried(id(300));
        let _twice = Held::wait(id(300));
    }
}
