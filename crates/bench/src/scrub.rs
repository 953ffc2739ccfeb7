//! Scrubs of an image, and the minimum for any verification: reading the bytes once and computing their checksums.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use creamery::check::scrub::{NoProgress, Scrub};
use creamery::device::{Access, BlockDevice, DelayedDevice, FileDevice};
use creamery_codec::{ChecksumType, checksum_blocks};
use creamery_testkit::{CpuMeter, seek_data, seek_hole};
use serde_json::{Value, json};

use crate::times::in_threads;

/// Bytes of one read by a thread, equal to those of a scrub.
const PIECE: u64 = 512 << 10;
const SECTOR: usize = 4096;

/// The parameters of a scrub.
#[derive(Clone, Copy, Default)]
pub(crate) struct ScrubSetting {
    /// The time of its device for each request.
    pub(crate) latency: Option<Duration>,
    pub(crate) without_read_ahead: bool,
}

/// Scrubs the filesystem of one device, and writes nothing.
pub(crate) fn scrub(image: &Path, setting: ScrubSetting) -> Result<Value> {
    let mut device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(image, Access::ReadOnly)?);
    if let Some(latency) = setting.latency {
        device = Arc::new(DelayedDevice::new(device, latency)?);
    }
    let scrub = Scrub::default().read_only();
    let scrub = if setting.without_read_ahead { scrub.without_read_ahead() } else { scrub };
    let (cpu, start) = (CpuMeter::start(&[])?, Instant::now());
    let report = scrub.run_on([device], &NoProgress)?;
    let (work, cpu) = (start.elapsed(), cpu.elapsed()?);
    let counts = report.counts();
    ensure!(counts.errors() == 0, "{} errors", counts.errors());
    let bytes = counts.data_bytes_scrubbed + counts.tree_bytes_scrubbed;
    let [extents, checksums] =
        report.read_ahead.map(|tree| json!({ "issued": tree.issued, "hit": tree.hit }));
    Ok(json!({
        "bytes": bytes,
        "work_seconds": work.as_secs_f64(),
        "cpu_seconds": cpu.as_secs_f64(),
        "read_ahead": { "extents": extents, "checksums": checksums },
    }))
}

/// Reads all written data of these files, without holes, in `threads` threads, and computes the checksum of each sector.
pub(crate) fn sum(files: &[PathBuf], kind: ChecksumType, threads: usize) -> Result<Value> {
    let mut pieces = Vec::new();
    let opened: Vec<File> = files.iter().map(File::open).collect::<Result<_, _>>()?;
    for (number, file) in opened.iter().enumerate() {
        let mut at = 0;
        while let Some(start) = seek_data(file, at)? {
            at = seek_hole(file, start)?.context("data has an end")?;
            pieces
                .extend((start..at).step_by(PIECE as usize).map(|from| (number, from, PIECE.min(at - from))));
        }
    }
    let next = AtomicUsize::new(0);
    let (cpu, start) = (CpuMeter::start(&[])?, Instant::now());
    in_threads(threads, &|_| {
        let (mut buffer, mut sums) = (vec![0; PIECE as usize], Vec::new());
        let mut count = 0;
        while let Some(&(file, from, len)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            let buffer = &mut buffer[..usize::try_from(len)?];
            opened[file].read_exact_at(buffer, from)?;
            sums.clear();
            checksum_blocks(kind, buffer, SECTOR, &mut sums);
            count += 1;
        }
        Ok(count)
    })?;
    let (work, cpu) = (start.elapsed(), cpu.elapsed()?);
    let bytes: u64 = pieces.iter().map(|(_, _, len)| len).sum();
    Ok(json!({ "bytes": bytes, "work_seconds": work.as_secs_f64(), "cpu_seconds": cpu.as_secs_f64() }))
}
