//! What searches for data and holes cost, counted.
//!
//! To add to what everybody adds to is dear beside a search that goes on where the last one ended. So an open file counts its own, and
//! tells now and then.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// What all searches of a filesystem cost.
        #[derive(Default)]
        pub(crate) struct Seeks {
            $($field: AtomicU64,)*
        }

        /// What searches cost: one, or all that there were.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub(crate) struct SeekCounters {
            $($(#[$doc])* pub(crate) $field: u64,)*
        }

        impl SeekCounters {
            /// Adds what one more search cost.
            fn add(&mut self, one: &Self) {
                $(self.$field += one.$field;)*
            }
        }

        impl Seeks {
            /// Adds what searches cost.
            pub(crate) fn add(&self, one: &SeekCounters) {
                $(if one.$field > 0 {
                    self.$field.fetch_add(one.$field, Ordering::Relaxed);
                })*
            }

            pub(crate) fn counters(&self) -> SeekCounters {
                SeekCounters { $($field: self.$field.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    calls,
    map_descents,
    pieces,
    cursor_hits,
    cursor_misses,
    cursor_stale,
    cursor_contended,
    in_flight_lookups,
    tree_searches,
    bookmarks_used,
    leaves,
    items,
}

/// Searches that are counted in an open file before they are told.
const UNTOLD_MAX: u64 = 32;

/// What the searches of one open file cost that are not told yet.
#[derive(Default)]
pub(crate) struct Untold(SeekCounters);

impl Untold {
    /// Counts what one search cost.
    pub(crate) fn add(&mut self, one: &SeekCounters, all: &Seeks) {
        self.0.add(one);
        if self.0.calls >= UNTOLD_MAX {
            self.tell(all);
        }
    }

    /// Adds it to what all cost.
    pub(crate) fn tell(&mut self, all: &Seeks) {
        all.add(&std::mem::take(&mut self.0));
    }
}
