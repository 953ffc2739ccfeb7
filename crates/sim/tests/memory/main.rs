//! Memory, held against an allocator that counts the whole heap of this process: its tests take turns ([`alone`]).
#![allow(unsafe_code, reason = "an allocator is unsafe by nature")]

mod caches;
mod live;
mod many_groups;

use std::sync::{Mutex, MutexGuard, PoisonError};

#[global_allocator]
static COUNTING: live::Counting = live::Counting;

/// Keeps other tests of this process waiting, whose memory would be counted, too.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
