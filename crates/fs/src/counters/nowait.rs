//! Requests that must not wait, and why some were refused.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! refusals {
    ($($(#[$doc:meta])* $variant:ident $field:ident,)*) => {
        /// Why a request that must not wait is refused. A thread that may wait carries the same request out, or gets its true error.
        ///
        /// ```
        /// assert_eq!(creamery_fs::Refusal::RangeBusy.name(), "range_busy");
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])* $variant,)*
        }

        impl Refusal {
            /// Its name in statistics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($field),)*
                }
            }
        }

        /// What became of requests that must not wait.
        #[derive(Default)]
        pub(crate) struct Nowait {
            pub(crate) attempts: AtomicU64,
            pub(crate) begun: AtomicU64,
            pub(crate) blocked: AtomicU64,
            $($field: AtomicU64,)*
        }

        /// The numbers of [`Nowait`] at one moment.
        #[derive(Clone, Copy)]
        pub(crate) struct NowaitCounters {
            pub(crate) attempts: u64,
            pub(crate) begun: u64,
            pub(crate) blocked: u64,
            $(pub(crate) $field: u64,)*
        }

        impl Nowait {
            /// Counts a refusal.
            pub(crate) fn refuse(&self, why: Refusal) {
                Self::add(match why { $(Refusal::$variant => &self.$field,)* }, 1);
            }

            pub(crate) fn add(what: &AtomicU64, count: u64) {
                what.fetch_add(count, Ordering::Relaxed);
            }

            pub(crate) fn counters(&self) -> NowaitCounters {
                let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                NowaitCounters {
                    attempts: of(&self.attempts),
                    begun: of(&self.begun),
                    blocked: of(&self.blocked),
                    $($field: of(&self.$field),)*
                }
            }
        }
    };
}

refusals! {
    /// Another operation has the file, or a request that it carries does.
    InodeBusy inode_busy,
    /// The inode's item is being changed.
    ItemBusy item_busy,
    /// The file is neither NODATACOW nor has space set aside: the write needs new space.
    NotInPlace not_in_place,
    /// The file has checksums, which a write has to put into a tree.
    Checksums checksums,
    /// The write begins behind the end of the file.
    BeyondSize beyond_size,
    /// The request does not begin and end with sectors.
    Misaligned misaligned,
    /// The file has fs-verity: whole blocks are read and held against their digests.
    Sealed sealed,
    /// Something of what the request is about is in memory only.
    Delayed delayed,
    /// A device is missing, or has as many requests as it takes; or nothing was written since the filesystem was opened.
    DeviceBusy device_busy,
    /// As many bytes of requests as may be are in flight.
    TooMuchInFlight too_much_in_flight,
    /// Another request has some of the range.
    RangeBusy range_busy,
    /// A tree block that says where the data lies is not in memory, or is locked.
    MapCold map_cold,
    /// What the request is about is stored in the tree itself.
    Inline inline,
    /// What the request is about is compressed.
    Compressed compressed,
    /// The range of a write is in more than one extent.
    SeveralExtents several_extents,
    /// The range of a write has no space.
    Hole hole,
    /// The range of a write is data of a file that is not NODATACOW.
    Copied copied,
    /// A tree block that says whose the extent is, or whether it has checksums, is not in memory, or is locked.
    OwnersCold owners_cold,
    /// Another file or a snapshot has the extent, or would have it again after a power cut.
    Shared shared,
    /// The block group takes no writes.
    GroupReadOnly group_read_only,
    /// A snapshot is being taken.
    Snapshot snapshot,
    /// No room for changing the file's item is free.
    NoRoom no_room,
    /// The checksums of what is read are not in memory, or do not say what they should.
    ChecksumsCold checksums_cold,
}
