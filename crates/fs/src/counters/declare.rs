//! How counters are declared: once, with a name and a sentence for each.

/// Declares counters that threads add to, and the type of their values at one moment, with a field for each.
macro_rules! counters {
    (
        $(#[$live_doc:meta])* live $live:ident,
        $(#[$values_doc:meta])* values $values:ident
        { $($(#[$doc:meta])* $name:ident,)* }
    ) => {
        $(#[$live_doc])*
        #[derive(Default)]
        pub(crate) struct $live {
            $($(#[$doc])* pub(crate) $name: std::sync::atomic::AtomicU64,)*
        }

        $(#[$values_doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $values {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl $live {
            /// Adds one to a counter.
            pub(crate) fn count(counter: &std::sync::atomic::AtomicU64) {
                counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }

            /// The values now.
            pub(crate) fn counters(&self) -> $values {
                $values { $($name: self.$name.load(std::sync::atomic::Ordering::Relaxed),)* }
            }
        }
    };
}

pub(super) use counters;
