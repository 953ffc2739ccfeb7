//! What operations on files came to, counted for the statistics of a filesystem.

mod fsyncs;
mod nocow;
mod seeks;

pub(crate) use fsyncs::{FsyncCounters, Fsyncs};
pub(crate) use nocow::{Nocow, NocowCounters};
pub(crate) use seeks::{SeekCounters, Seeks, Untold};
