//! Direct reads and writes of one file, many at once, for a given time: the bytes they move, and the CPU time they take.
//!
//! Through the library each thread keeps a queue of requests in flight. Through the system there is a thread for each request in flight,
//! which reads or writes with O_DIRECT, if the file accepts that. Both draw the same requests.

mod library;
mod mix;
mod system;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use creamery_testkit::CpuMeter;
use serde_json::{Value, json};

pub(crate) use library::on_image;
pub(crate) use system::on_file;

/// The state of the file before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Prepared {
    /// It exists.
    There,
    /// New, preallocated.
    Allocated,
    /// New, completely written.
    Written,
}

/// The way to submit a request to the library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    /// As one that may wait.
    Submit,
    /// First as one that must not wait.
    Try,
}

/// Whether requests in flight may overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Overlap {
    Allowed,
    /// No request has bytes of another one in flight.
    Never,
}

/// The size of the workload, and its variants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectShape {
    pub(crate) threads: usize,
    /// Requests in flight of each thread.
    pub(crate) depth: usize,
    /// Length of the file.
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
    pub(crate) prepared: Prepared,
    pub(crate) queue: Queue,
    pub(crate) overlap: Overlap,
}

impl Prepared {
    pub(crate) fn parse(word: &str) -> Result<Self> {
        Ok(match word {
            "there" => Self::There,
            "allocated" => Self::Allocated,
            "written" => Self::Written,
            _ => bail!("neither there, allocated nor written"),
        })
    }
}

impl Queue {
    pub(crate) fn parse(word: &str) -> Result<Self> {
        Ok(match word {
            "submit" => Self::Submit,
            "try" => Self::Try,
            _ => bail!("neither submit nor try"),
        })
    }
}

impl DirectShape {
    pub(crate) const USUAL: Self = Self {
        threads: 1,
        depth: 64,
        bytes: 1 << 30,
        time: Duration::from_secs(10),
        prepared: Prepared::Allocated,
        queue: Queue::Submit,
        overlap: Overlap::Allowed,
    };

    fn check(&self) -> Result<()> {
        ensure!(self.bytes >= mix::SIZE_MAX as u64, "a file has at least {} bytes", mix::SIZE_MAX);
        ensure!(self.depth > 0, "a queue has at least one request");
        Ok(())
    }
}

/// The bytes and requests of a run.
#[derive(Clone, Copy, Default, Debug)]
struct Moved {
    requests: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl Moved {
    fn add(&mut self, drawn: mix::Drawn) {
        self.requests += 1;
        let bytes = if drawn.is_write { &mut self.written_bytes } else { &mut self.read_bytes };
        *bytes += drawn.len as u64;
    }
}

impl std::ops::AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }
}

/// Runs `work` in `threads` threads, each with its number; returns the totals and times.
fn measured(threads: usize, work: &(dyn Fn(usize) -> Result<Moved> + Sync)) -> Result<Value> {
    let cpu = CpuMeter::start(&[]).ok();
    let start = std::time::Instant::now();
    let moved = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let mut moved = Moved::default();
        for thread in started {
            moved += thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        Ok::<_, anyhow::Error>(moved)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu.map(|cpu| cpu.elapsed()).transpose()?;
    Ok(json!({
        "requests": moved.requests,
        "read_bytes": moved.read_bytes,
        "written_bytes": moved.written_bytes,
        "seconds": seconds,
        "cpu_seconds": cpu.map(|cpu| cpu.as_secs_f64()),
    }))
}
