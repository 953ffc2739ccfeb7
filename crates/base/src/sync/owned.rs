//! A reader-writer lock whose guards own the value that contains it.
//!
//! A guard of `parking_lot` borrows the lock, or owns an `Arc` of the lock alone. A tree passes guards from block to
//! block on its way down, and a block is more than its lock. Here the guard owns the `Arc` of the whole block: locking
//! takes over the caller's reference, so that a descent changes each reference count once up and once down.
//!
//! Content that will not change any more can be frozen: from then on it is read without the lock.
//!
//! # Invariants
//! - FROZEN-1: no thread gets frozen content for changing. Shown by `what_is_frozen_changes_no_more`.

// a lock adapter: it hands out references to the content of the raw lock
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::lock_api::RawRwLock as _;

use super::primitives::{AtomicBool, RawRwLock, lock_by};

/// A reader-writer lock around `T`. It is locked through [`OwnedRead`] and [`OwnedWrite`] only.
///
/// ```
/// use std::sync::Arc;
/// use creamery_base::sync::{HasLock, OwnedLock, OwnedRead, OwnedWrite};
/// struct Account { name: &'static str, balance: OwnedLock<u64> }
/// impl HasLock for Account {
///     type Content = u64;
///     fn lock(&self) -> &OwnedLock<u64> { &self.balance }
/// }
/// let account = Arc::new(Account { name: "milk", balance: OwnedLock::new(7) });
/// *OwnedWrite::lock(Arc::clone(&account)) += 1;
/// let guard = OwnedRead::lock(account);
/// assert_eq!((*guard, guard.owner().name), (8, "milk"));
/// ```
pub struct OwnedLock<T> {
    raw: RawRwLock,
    /// Set once, with the lock held for writing.
    frozen: AtomicBool,
    content: UnsafeCell<T>,
}

// SAFETY: the content moves along with the lock, so `T: Send` is enough, as for `parking_lot::RwLock`.
unsafe impl<T: Send> Send for OwnedLock<T> {}
// SAFETY: shared access to the lock gives `&T` to several threads and `&mut T` to one at a time, which
// `T: Sync` and `T: Send` allow; the raw lock keeps the two apart, and frozen content is not given out as `&mut T` (FROZEN-1).
unsafe impl<T: Send + Sync> Sync for OwnedLock<T> {}

impl<T> OwnedLock<T> {
    /// Creates an unlocked lock.
    pub const fn new(content: T) -> Self {
        Self { raw: RawRwLock::INIT, frozen: AtomicBool::new(false), content: UnsafeCell::new(content) }
    }

    /// Creates a lock around content that does not change.
    pub const fn new_frozen(content: T) -> Self {
        Self { raw: RawRwLock::INIT, frozen: AtomicBool::new(true), content: UnsafeCell::new(content) }
    }

    /// Returns the content, if it is frozen; locked or not.
    #[must_use]
    pub fn frozen(&self) -> Option<&T> {
        // Pairs with the store in `freeze`: a thread that sees that store sees the last change, too.
        if !self.frozen.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: only `OwnedWrite` gives a `&mut T`, and it gives none of frozen content (FROZEN-1). The borrows that
        // it gave before were over when `freeze` borrowed the guard.
        Some(unsafe { &*self.content.get() })
    }
}

/// A value that contains an [`OwnedLock`].
///
/// ```
/// use creamery_base::sync::{HasLock, OwnedLock};
/// struct Block(OwnedLock<Vec<u8>>);
/// impl HasLock for Block {
///     type Content = Vec<u8>;
///     fn lock(&self) -> &OwnedLock<Vec<u8>> { &self.0 }
/// }
/// ```
pub trait HasLock {
    /// The type of the lock's content.
    type Content;

    /// The lock.
    fn lock(&self) -> &OwnedLock<Self::Content>;
}

/// The common part of both guards: the owner, and the address of the lock in it.
struct OwnedGuard<O: HasLock> {
    lock: NonNull<OwnedLock<O::Content>>,
    owner: Arc<O>,
}

impl<O: HasLock> OwnedGuard<O> {
    fn new(owner: Arc<O>) -> Self {
        // Asked once: unlocking must use the very lock that was locked.
        Self { lock: NonNull::from(owner.lock()), owner }
    }

    fn lock(&self) -> &OwnedLock<O::Content> {
        // SAFETY: the pointer comes from a reference borrowed from the owner. That borrow could last as long as the
        // `Arc` beside it, which never moves its value and, being shared, never gives it out for changing.
        unsafe { self.lock.as_ref() }
    }
}

/// A read lock that owns the value with the lock.
///
/// ```
/// use creamery_base::sync::{HasLock, OwnedRead};
/// fn show<O: HasLock<Content = u64>>(guard: &OwnedRead<O>) -> u64 { **guard }
/// ```
#[must_use]
pub struct OwnedRead<O: HasLock> {
    held: OwnedGuard<O>,
}

impl<O: HasLock> OwnedRead<O> {
    /// Locks for reading, and waits for a writer. The caller makes the gate count the wait.
    pub fn lock(owner: Arc<O>) -> Self {
        let held = OwnedGuard::new(owner);
        let raw = &held.lock().raw;
        lock_by(None, None, || raw.try_lock_shared().then_some(()), || raw.lock_shared());
        Self { held }
    }

    /// Locks for reading if no writer holds or awaits the lock.
    /// Errors: locked; the error gives the owner back.
    pub fn try_lock(owner: Arc<O>) -> Result<Self, Arc<O>> {
        let held = OwnedGuard::new(owner);
        if held.lock().raw.try_lock_shared() { Ok(Self { held }) } else { Err(held.owner) }
    }

    /// Returns the value that contains the lock.
    #[must_use]
    pub fn owner(&self) -> &Arc<O> {
        &self.held.owner
    }
}

impl<O: HasLock> Deref for OwnedRead<O> {
    type Target = O::Content;

    fn deref(&self) -> &O::Content {
        // SAFETY: this guard holds the lock for reading, so nobody has the content for changing.
        unsafe { &*self.held.lock().content.get() }
    }
}

impl<O: HasLock> Drop for OwnedRead<O> {
    fn drop(&mut self) {
        // SAFETY: this guard locked it for reading and unlocks it once.
        unsafe { self.held.lock().raw.unlock_shared() };
    }
}

/// A write lock that owns the value with the lock.
///
/// ```
/// use creamery_base::sync::{HasLock, OwnedWrite};
/// fn add<O: HasLock<Content = u64>>(guard: &mut OwnedWrite<O>) { **guard += 1; }
/// ```
#[must_use]
pub struct OwnedWrite<O: HasLock> {
    held: OwnedGuard<O>,
}

impl<O: HasLock> OwnedWrite<O> {
    /// Locks for writing, and waits until no other thread holds the lock. The caller makes the gate count the wait.
    pub fn lock(owner: Arc<O>) -> Self {
        let held = OwnedGuard::new(owner);
        let raw = &held.lock().raw;
        lock_by(None, None, || raw.try_lock_exclusive().then_some(()), || raw.lock_exclusive());
        Self { held }
    }

    /// Locks for writing if no thread holds the lock.
    /// Errors: locked; the error gives the owner back.
    pub fn try_lock(owner: Arc<O>) -> Result<Self, Arc<O>> {
        let held = OwnedGuard::new(owner);
        if held.lock().raw.try_lock_exclusive() { Ok(Self { held }) } else { Err(held.owner) }
    }

    /// Returns the value that contains the lock.
    #[must_use]
    pub fn owner(&self) -> &Arc<O> {
        &self.held.owner
    }
}

impl<O: HasLock> OwnedWrite<O> {
    /// Freezes the content: from now on no thread changes it, and readers need no lock.
    pub fn freeze(&mut self) {
        self.held.lock().frozen.store(true, Ordering::Release);
    }
}

impl<O: HasLock> Deref for OwnedWrite<O> {
    type Target = O::Content;

    fn deref(&self) -> &O::Content {
        // SAFETY: this guard holds the lock for writing, so nobody else has the content.
        unsafe { &*self.held.lock().content.get() }
    }
}

impl<O: HasLock> DerefMut for OwnedWrite<O> {
    fn deref_mut(&mut self) -> &mut O::Content {
        // `freeze` had this lock.
        assert!(!self.held.lock().frozen.load(Ordering::Relaxed), "FROZEN-1: what is frozen is changed");
        // SAFETY: this guard holds the lock for writing and the content is not frozen, so nobody else has it.
        unsafe { &mut *self.held.lock().content.get() }
    }
}

impl<O: HasLock> Drop for OwnedWrite<O> {
    fn drop(&mut self) {
        // SAFETY: this guard locked it for writing and unlocks it once.
        unsafe { self.held.lock().raw.unlock_exclusive() };
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    struct Cell(OwnedLock<(u64, u64)>);

    impl HasLock for Cell {
        type Content = (u64, u64);

        fn lock(&self) -> &OwnedLock<(u64, u64)> {
            &self.0
        }
    }

    #[test]
    fn readers_share_and_a_writer_does_not() {
        let cell = Arc::new(Cell(OwnedLock::new((0, 0))));
        let first = OwnedRead::lock(Arc::clone(&cell));
        let second = OwnedRead::try_lock(Arc::clone(&cell)).ok().expect("readers share");
        assert!(OwnedWrite::try_lock(Arc::clone(&cell)).is_err());
        drop((first, second));
        let writer = OwnedWrite::try_lock(Arc::clone(&cell)).ok().expect("nobody reads");
        assert!(OwnedRead::try_lock(Arc::clone(&cell)).is_err());
        drop(writer);
        assert!(OwnedRead::try_lock(cell).is_ok());
    }

    #[test]
    fn what_is_frozen_is_read_whoever_has_the_lock() {
        let cell = Arc::new(Cell(OwnedLock::new((0, 0))));
        let mut writer = OwnedWrite::lock(Arc::clone(&cell));
        writer.0 = 7;
        assert!(cell.lock().frozen().is_none());
        writer.freeze();
        assert_eq!(cell.lock().frozen(), Some(&(7, 0)));
        assert_eq!(OwnedLock::new_frozen(3).frozen(), Some(&3));
    }

    #[test]
    #[should_panic(expected = "FROZEN-1")]
    fn what_is_frozen_changes_no_more() {
        let cell = Arc::new(Cell(OwnedLock::new_frozen((0, 0))));
        OwnedWrite::lock(cell).0 = 1;
    }

    #[test]
    fn locking_takes_the_reference_over_and_unlocking_gives_it_up() {
        let cell = Arc::new(Cell(OwnedLock::new((0, 0))));
        let guard = OwnedWrite::lock(Arc::clone(&cell));
        assert_eq!(Arc::strong_count(&cell), 2);
        let Err(back) = OwnedRead::try_lock(Arc::clone(&cell)) else { panic!("a writer holds it") };
        drop(back);
        drop(guard);
        assert_eq!(Arc::strong_count(&cell), 1);
    }

    #[test]
    fn no_reader_sees_half_a_change() {
        let cell = Arc::new(Cell(OwnedLock::new((0, 0))));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut guard = OwnedWrite::lock(Arc::clone(&cell));
                        guard.0 += 1;
                        guard.1 += 1;
                    }
                });
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let guard = OwnedRead::lock(Arc::clone(&cell));
                        assert_eq!(guard.0, guard.1);
                    }
                });
            }
        });
        assert_eq!(*OwnedRead::lock(cell), (20_000, 20_000));
    }
}
