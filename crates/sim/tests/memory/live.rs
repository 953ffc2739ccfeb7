//! An allocator that counts: how much of the heap is in use, and how much was at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// The system's allocator with a count of the bytes that were asked for.
pub(crate) struct Counting;

fn took(len: usize) {
    let live = LIVE.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

fn gave_back(len: usize) {
    LIVE.fetch_sub(len as u64, Ordering::Relaxed);
}

// SAFETY: everything is the system's allocator's, called as this one is; counting touches no memory of anybody's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the rules that this needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps the rules that this needs.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        took(len);
        gave_back(layout.size());
        // SAFETY: the caller keeps the rules that this needs.
        unsafe { System.realloc(place, layout, len) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        gave_back(layout.size());
        // SAFETY: the caller keeps the rules that this needs.
        unsafe { System.dealloc(place, layout) }
    }
}

/// Bytes in use now.
pub(crate) fn live() -> u64 {
    LIVE.load(Ordering::Relaxed)
}

/// Bytes in use at most since this was asked last.
pub(crate) fn peak_since() -> u64 {
    PEAK.swap(live(), Ordering::Relaxed)
}
