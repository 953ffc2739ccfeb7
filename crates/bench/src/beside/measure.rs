//! Time and peak memory of a child process.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const SAMPLE_EVERY: Duration = Duration::from_millis(5);

/// What one run took.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunTaken {
    pub(super) time: Duration,
    /// The high-water mark of resident memory, as the kernel kept it; the last few milliseconds are not seen.
    pub(super) peak_bytes: u64,
}

/// Runs `command` to its end.
pub(super) fn measure(command: &mut Command) -> Result<RunTaken> {
    let shown = format!("{command:?}");
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {shown}"))?;
    let status_file = format!("/proc/{}/status", child.id());
    let over = AtomicBool::new(false);
    let (status, time, peak_bytes) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = 0;
            while !over.load(Ordering::Relaxed) {
                peak = peak.max(high_water(&status_file));
                std::thread::sleep(SAMPLE_EVERY);
            }
            peak
        });
        let status = child.wait();
        let time = start.elapsed();
        over.store(true, Ordering::Relaxed);
        (status, time, sampler.join().unwrap_or(0))
    });
    let status = status.with_context(|| format!("waiting for {shown}"))?;
    if !status.success() {
        bail!("{shown} failed ({status})");
    }
    Ok(RunTaken { time, peak_bytes })
}

fn high_water(status_file: &str) -> u64 {
    let Ok(text) = std::fs::read_to_string(status_file) else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The middle of several.
pub(super) fn median<T: Copy + PartialOrd>(taken: &[T]) -> T {
    let mut sorted = taken.to_vec();
    sorted.sort_by(|one, other| one.partial_cmp(other).expect("what is measured is a number"));
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::{measure, median};

    #[test]
    fn a_run_takes_time() {
        let taken =
            measure(Command::new("sh").args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]))
                .unwrap();
        assert!(taken.time > Duration::ZERO);
        assert!(measure(&mut Command::new("false")).is_err());
    }

    #[test]
    fn the_median_is_the_middle() {
        let times: Vec<Duration> = [5, 1, 9, 2, 3].map(Duration::from_secs).into();
        assert_eq!(median(&times), Duration::from_secs(3));
    }
}
