//! LOCK-2: a thread with a short lock waits for no device.
#![cfg(debug_assertions)]

use creamery_base::gate::Reason;
use creamery_base::lock::{HeldNote, LockPosition, RankedCondvar, RankedMutex, rank};
use creamery_device::{BlockDevice, MemoryDevice};

#[test]
fn a_device_is_waited_for_with_long_locks_and_one_that_is_given_back() {
    let (mutex, changed) = (RankedMutex::<_, { rank::LEAF }>::new(0), RankedCondvar::new());
    let _long = HeldNote::wait(LockPosition::of(rank::REPAIR));
    MemoryDevice::new(4096).flush().unwrap();
    drop(changed.pass_while(Reason::Device, mutex.lock(), |_| false));
}

#[test]
#[should_panic(expected = "LOCK-2")]
fn waiting_for_a_device_with_a_short_lock_is_a_bug() {
    let _short = HeldNote::wait(LockPosition::of(rank::TABLE));
    MemoryDevice::new(4096).flush().unwrap();
}

#[test]
#[should_panic(expected = "LOCK-2")]
fn waiting_with_another_short_lock_than_that_which_is_given_back_is_a_bug() {
    let _short = HeldNote::wait(LockPosition::of(rank::TABLE));
    let (mutex, changed) = (RankedMutex::<_, { rank::LEAF }>::new(0), RankedCondvar::new());
    drop(changed.pass_while(Reason::Device, mutex.lock(), |_| false));
}
