//! Counts of events. Tests assert on these, to show that a path was taken.

use std::sync::atomic::{AtomicU64, Ordering};

use creamery_device::DirectRequests;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counts of a volume since it was opened.
        ///
        /// ```
        /// use creamery_volume::Counters;
        /// assert_eq!(Counters::default().repaired, 0);
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
            /// Reads and writes of devices that are opened to bypass the page cache of the host.
            pub direct: DirectRequests,
        }

        #[derive(Default)]
        pub(crate) struct AtomicCounters {
            $(pub(crate) $name: Counter,)*
        }

        impl AtomicCounters {
            /// Returns the counts. `direct` is the sum of the devices' counts.
            pub(crate) fn snapshot(&self, direct: DirectRequests) -> Counters {
                Counters { $($name: self.$name.0.load(Ordering::Relaxed),)* direct }
            }
        }
    };
}

counters! {
    /// Tree blocks requested.
    tree_block_reads,
    /// Bytes of data requested.
    data_read_bytes,
    /// Calls that requested data.
    data_reads,
    /// Tree blocks or data sectors that had to come from another copy than the first one tried.
    mirror_fallbacks,
    /// Bytes of parity read, to rebuild others.
    parity_read_bytes,
    /// Bytes that were rebuilt, right or not.
    rebuilt_bytes,
    /// Bad copies of tree blocks or data sectors that were rewritten from a good one.
    repaired,
    /// Bad copies that could not be rewritten.
    repair_failures,
    /// Tree blocks or data sectors without a good copy.
    unreadable,
    /// Tree blocks written, each counted once however many copies it has.
    tree_block_writes,
    /// Write requests sent to devices for tree blocks and data.
    writes,
    /// Bytes in them.
    write_bytes,
    /// Write requests that failed.
    write_failures,
    /// Flushes of all devices.
    flushes,
    /// Superblocks published.
    publishes,
    /// Superblock copies other than the first that could not be written.
    superblock_copy_failures,
    /// Bytes discarded.
    discarded_bytes,
    /// Discards that failed.
    discard_failures,
}

/// One number that only grows.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}
