//! What became of data that might have been written in place (`data/nocow`), counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// What became of looks at extents that might be written in place.
#[derive(Default)]
pub(crate) struct Nocow {
    pub(crate) written: AtomicU64,
    pub(crate) shared: AtomicU64,
    pub(crate) with_csums: AtomicU64,
    pub(crate) no_group: AtomicU64,
    pub(crate) barred: AtomicU64,
    pub(crate) searched_again: AtomicU64,
    pub(crate) looks_with_leaf: AtomicU64,
}

/// The same, as it is now.
#[derive(Clone, Copy)]
pub(crate) struct NocowCounters {
    pub(crate) written: u64,
    pub(crate) shared: u64,
    pub(crate) with_csums: u64,
    pub(crate) no_group: u64,
    pub(crate) barred: u64,
    pub(crate) searched_again: u64,
    pub(crate) looks_with_leaf: u64,
}

impl Nocow {
    pub(crate) fn count(what: &AtomicU64) {
        what.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> NocowCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NocowCounters {
            written: of(&self.written),
            shared: of(&self.shared),
            with_csums: of(&self.with_csums),
            no_group: of(&self.no_group),
            barred: of(&self.barred),
            searched_again: of(&self.searched_again),
            looks_with_leaf: of(&self.looks_with_leaf),
        }
    }
}
