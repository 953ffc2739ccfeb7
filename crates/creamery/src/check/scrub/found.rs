//! Collecting what a scrub finds, while it runs.

use std::collections::BTreeMap;

use creamery_base::DevId;
use creamery_base::lock::{RankedMutex, rank};
use creamery_maint::scrub::{Counts, Finding, Outcome, Recorder, Sink};
use creamery_txn::Engine;
use creamery_volume::Mender;

use super::progress::Progress;

/// Findings that are kept; the rest is counted.
const FINDINGS_MAX: usize = 10_000;

/// Findings that are kept: what was mended takes no place of what is left.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) left: Vec<Finding>,
    pub(super) mended: Vec<Finding>,
    /// What is left and has no place.
    pub(super) left_out: u64,
}

/// Collects findings, keeps the status, and reports progress.
pub(super) struct Found<'p> {
    pub(super) engine: &'p Engine,
    pub(super) mender: Option<Mender<'p>>,
    pub(super) progress: &'p dyn Progress,
    pub(super) recorder: Option<&'p Recorder>,
    /// Bytes of each device a second, at most; without it as the file of limits says.
    pub(super) limit: Option<u64>,
    pub(super) kept: RankedMutex<Kept, { rank::LEAF }>,
    /// Bytes of each device.
    pub(super) bytes: RankedMutex<BTreeMap<DevId, u64>, { rank::LEAF }>,
}

impl Sink for Found<'_> {
    fn found(&self, finding: &Finding) {
        let mut kept = self.kept.lock();
        let is_mended = finding.outcome == Outcome::Mended;
        let findings = if is_mended { &mut kept.mended } else { &mut kept.left };
        if findings.len() < FINDINGS_MAX {
            findings.push(finding.clone());
        } else {
            kept.left_out += u64::from(!is_mended);
        }
    }

    fn goes_on(&self, device: DevId, counts: &Counts) -> bool {
        if let Some(recorder) = self.recorder {
            recorder.note(self.engine, (device, counts));
            recorder.write_if_due(self.engine, &|| self.mender.map_or(Ok(()), Mender::flush));
        }
        let mut bytes = self.bytes.lock();
        bytes.insert(device, counts.data_bytes_scrubbed + counts.tree_bytes_scrubbed);
        let all = bytes.values().sum();
        drop(bytes);
        self.progress.scrubbed(all)
    }

    fn limit(&self, device: DevId) -> Option<u64> {
        self.limit.or_else(|| self.recorder?.limit(device))
    }
}
