//! Tests of the gate's counts of waits for locks.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::{RankedMutex, RankedRwLock, rank};
use crate::gate::{Chance, Reason, Turns, take_turns, waits_of_this_thread};
use crate::sync::lock_by;

/// Another thread that holds a lock, and releases it when this thread has to wait.
struct Holder(RefCell<Option<(Sender<()>, JoinHandle<()>)>>);

impl Turns for Holder {
    fn may_turn(&self, _: Chance) {}

    fn must_turn(&self) -> bool {
        let Some((let_go, thread)) = self.0.borrow_mut().take() else { return false };
        drop(let_go);
        thread.join().expect("it only holds a lock");
        true
    }
}

/// Returns how many waits are counted while `take` takes `lock`, which another thread holds by `hold` until this one waits.
fn counted<L: Send + Sync + 'static>(lock: L, hold: fn(&L, &dyn Fn()), take: fn(&L)) -> u64 {
    let lock = Arc::new(lock);
    let ((holds, is_held), (let_go, goes)) = (channel(), channel::<()>());
    let theirs = Arc::clone(&lock);
    let thread = std::thread::spawn(move || {
        hold(&theirs, &|| {
            holds.send(()).expect("somebody waits for it");
            goes.recv().expect_err("nothing is sent, the other end goes");
        });
    });
    is_held.recv().expect("it holds the lock");
    let holder = Rc::new(Holder(RefCell::new(Some((let_go, thread)))));
    let before = waits_of_this_thread();
    take_turns(Rc::clone(&holder) as Rc<dyn Turns>, || take(&lock));
    assert!(holder.0.borrow().is_none(), "it had to wait");
    waits_of_this_thread() - before
}

fn of_mutex<const RANK: u8>(take: fn(&RankedMutex<(), RANK>)) -> u64 {
    let hold = |lock: &RankedMutex<(), RANK>, held: &dyn Fn()| {
        let _guard = lock.lock();
        held();
    };
    counted(RankedMutex::new(()), hold, take)
}

fn of_rw_lock<const RANK: u8>(take: fn(&RankedRwLock<(), RANK>)) -> u64 {
    let hold = |lock: &RankedRwLock<(), RANK>, held: &dyn Fn()| {
        let _guard = lock.write();
        held();
    };
    counted(RankedRwLock::new(()), hold, take)
}

#[test]
fn a_wait_for_a_long_lock_is_counted_once() {
    assert_eq!(of_mutex::<{ rank::FSYNC }>(|lock| drop(lock.lock())), 1);
    assert_eq!(of_rw_lock::<{ rank::INODE_ITEM }>(|lock| drop(lock.read())), 1);
    assert_eq!(of_rw_lock::<{ rank::INODE_ITEM }>(|lock| drop(lock.write())), 1);
    assert_eq!(of_mutex::<{ rank::SHORT - 1 }>(|lock| drop(lock.lock())), 1);
}

#[test]
fn a_wait_for_a_short_lock_is_not_counted() {
    assert_eq!(of_mutex::<{ rank::SHORT }>(|lock| drop(lock.lock())), 0);
    assert_eq!(of_rw_lock::<{ rank::LEAF }>(|lock| drop(lock.read())), 0);
    assert_eq!(of_rw_lock::<{ rank::LEAF }>(|lock| drop(lock.write())), 0);
}

#[test]
fn a_wait_with_a_reason_is_counted_once() {
    assert_eq!(of_mutex::<{ rank::CLEANER }>(|lock| drop(lock.lock_for(Reason::Reservation))), 1);
    assert_eq!(of_rw_lock::<{ rank::INODE }>(|lock| drop(lock.read_for(Reason::InodeLock, 1))), 1);
    assert_eq!(of_rw_lock::<{ rank::INODE }>(|lock| drop(lock.write_for(Reason::InodeLock, 1))), 1);
}

#[test]
fn a_lock_that_is_free_or_only_tried_is_no_wait() {
    let before = waits_of_this_thread();
    let lock: RankedMutex<(), { rank::FSYNC }> = RankedMutex::new(());
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    drop(guard);
    drop(lock.lock_for(Reason::Lock));
    assert_eq!(waits_of_this_thread(), before);
}

#[test]
fn a_thread_that_takes_no_turns_is_counted_where_it_waits() {
    let before = waits_of_this_thread();
    assert_eq!(lock_by(None, Some(Reason::Lock), || None, || 7), 7);
    assert_eq!(waits_of_this_thread() - before, 1);
    assert_eq!(lock_by(None, None, || None, || 7), 7);
    assert_eq!(waits_of_this_thread() - before, 1);
}
