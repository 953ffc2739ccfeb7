//! How much is done in a run, and what it took.

use anyhow::Result;

use crate::library::Said;

/// How large, how long.
#[derive(Clone, Copy)]
pub(super) struct DirectScale {
    /// Of the file.
    pub(super) bytes: u64,
    /// Of each run.
    pub(super) seconds: u64,
}

/// What a run moved and took.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectTaken {
    pub(super) bytes: f64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
}

impl DirectTaken {
    pub(super) fn of(said: &Said) -> Result<Self> {
        let bytes = said.number("read_bytes")? + said.number("written_bytes")?;
        Ok(Self { bytes, seconds: said.number("seconds")?, cpu_seconds: said.number("cpu_seconds")? })
    }

    /// MiB a second.
    pub(super) fn rate(&self) -> f64 {
        self.bytes / f64::from(1 << 20) / self.seconds
    }

    /// CPU seconds for a GiB.
    pub(super) fn cpu(&self) -> f64 {
        self.cpu_seconds / (self.bytes / f64::from(1 << 30))
    }
}

impl std::fmt::Display for DirectTaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0} MiB/s, {:.3} CPU s/GiB", self.rate(), self.cpu())
    }
}
