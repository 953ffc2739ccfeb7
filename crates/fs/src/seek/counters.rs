//! What searches for data and holes cost, counted.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// What all searches of a filesystem cost, and whether open files remember where the last one ended.
        #[derive(Default)]
        pub(crate) struct Seeks {
            pub(crate) has_cursors: bool,
            $($field: AtomicU64,)*
        }

        /// What searches cost: one, or all that there were.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub(crate) struct SeekCounters {
            $($(#[$doc])* pub(crate) $field: u64,)*
        }

        impl Seeks {
            /// Adds what one search cost.
            pub(super) fn add(&self, one: &SeekCounters) {
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

impl Seeks {
    pub(crate) fn new(has_cursors: bool) -> Self {
        Self { has_cursors, ..Self::default() }
    }
}
