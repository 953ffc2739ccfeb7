//! What operations on files came to, counted for the statistics of a filesystem.

mod declare;
mod direct;
mod fsyncs;
mod nocow;
mod nowait;
mod seeks;

pub(crate) use direct::{Direct, DirectCounters};
pub(crate) use fsyncs::{FsyncCounters, Fsyncs};
pub(crate) use nocow::{Nocow, NocowCounters};
pub use nowait::Refusal;
pub(crate) use nowait::{Nowait, NowaitCounters};
pub(crate) use seeks::{SeekCounters, Seeks, Untold};

/// The counters of all files of a filesystem.
#[derive(Default)]
pub(crate) struct FileCounters {
    /// Looks for extents that can be written in place.
    pub(crate) nocow: Nocow,
    /// Reads into the caller's buffer, and writes out of it.
    pub(crate) direct: Direct,
    /// Those of them that must not wait.
    pub(crate) nowait: Nowait,
    /// Calls of fsync.
    pub(crate) fsyncs: Fsyncs,
    /// Searches for data and holes.
    pub(crate) seeks: Seeks,
}
