//! Calls of fsync, counted by their way (`statistics`, [`FsyncStatistics`](crate::FsyncStatistics)).

use super::declare::counters;

counters! {
    /// Counters of the calls of fsync that had something to do.
    live Fsyncs,
    /// Their values at one moment.
    values FsyncCounters
    {
        logged,
        names,
        extents,
        refused,
    }
}
