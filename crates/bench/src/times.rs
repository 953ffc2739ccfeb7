//! Measures several threads at work, then making everything durable.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use creamery_testkit::CpuMeter;
use serde_json::json;

use crate::side::Side;

/// The measurements.
#[derive(Debug)]
pub(crate) struct Times {
    operations: usize,
    /// Wall time of all threads' work.
    work: Duration,
    /// Time of making it durable afterwards.
    sync: Duration,
    /// CPU time of both; `None` if the kernel's threads cannot be seen.
    cpu: Option<Duration>,
}

impl Times {
    /// Runs `work` in each thread, which returns the number of its operations, and then makes everything durable.
    pub(crate) fn measure(
        side: &dyn Side,
        threads: usize,
        work: &(dyn Fn(usize) -> Result<usize> + Sync),
    ) -> Result<Self> {
        let cpu = CpuMeter::start(side.servers()).ok();
        let start = Instant::now();
        let operations = in_threads(threads, work)?;
        let work = start.elapsed();
        let start = Instant::now();
        side.sync()?;
        let sync = start.elapsed();
        let cpu = cpu.map(|cpu| cpu.elapsed()).transpose()?;
        Ok(Self { operations, work, sync, cpu })
    }

    /// Takes measurements from elsewhere.
    pub(crate) const fn of(operations: usize, work: Duration, sync: Duration, cpu: Option<Duration>) -> Self {
        Self { operations, work, sync, cpu }
    }

    /// The time of the work and of making it durable.
    pub(crate) fn took(&self) -> Duration {
        self.work + self.sync
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        json!({
            "operations": self.operations,
            "work_seconds": self.work.as_secs_f64(),
            "sync_seconds": self.sync.as_secs_f64(),
            "cpu_seconds": self.cpu.map(|cpu| cpu.as_secs_f64()),
            "peak_bytes": peak_bytes(),
        })
    }
}

/// The peak memory of this process so far, as the kernel counts it; `None` if it does not report it.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Runs `work` in each thread; all begin together.
pub(crate) fn in_threads(threads: usize, work: &(dyn Fn(usize) -> Result<usize> + Sync)) -> Result<usize> {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    work(thread).with_context(|| format!("thread {thread}"))
                })
            })
            .collect();
        let mut operations = 0;
        for thread in started {
            operations += thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        Ok(operations)
    })
}

/// The distribution of several times: median, 99th percentile, 99.9th percentile, and maximum.
pub(crate) fn spread(mut took: Vec<Duration>) -> serde_json::Value {
    took.sort_unstable();
    json!({
        "count": took.len(),
        "median_seconds": thousandth(&took, 500),
        "p99_seconds": thousandth(&took, 990),
        "p999_seconds": thousandth(&took, 999),
        "worst_seconds": thousandth(&took, 1_000),
    })
}

/// The time that this many thousandths of the times (at least one) do not exceed.
fn thousandth(sorted: &[Duration], thousandths: usize) -> f64 {
    let behind = (sorted.len() * thousandths).div_ceil(1_000);
    sorted[behind.saturating_sub(1)].as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::thousandth;

    #[test]
    fn of_a_thousand_times_the_last_but_one_is_the_999th() {
        let sorted: Vec<Duration> = (1..=1_000).map(Duration::from_secs).collect();
        assert_eq!([500, 999, 1_000].map(|part| thousandth(&sorted, part)), [500.0, 999.0, 1_000.0]);
        assert_eq!([1, 1_000].map(|part| thousandth(&sorted[..1], part)), [1.0, 1.0]);
    }
}
