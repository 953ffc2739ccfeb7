//! Collects the findings of a scrub while it runs.

use std::collections::BTreeMap;

use creamery_base::DevId;
use creamery_base::lock::{RankedMutex, rank};
use creamery_maint::scrub::{Counts, Finding, Recorder, Sink};
use creamery_txn::Engine;
use creamery_volume::Mender;

use super::progress::Progress;

/// Keeps findings and the status, and reports progress.
pub(super) struct ScrubFindings<'p> {
    pub(super) engine: &'p Engine,
    pub(super) mender: Option<Mender<'p>>,
    pub(super) progress: &'p dyn Progress,
    pub(super) recorder: &'p Recorder,
    /// Bytes of each device per second, at most; default: the limit in the file of limits.
    pub(super) limit: Option<u64>,
    /// Bytes scrubbed of each device.
    pub(super) bytes: RankedMutex<BTreeMap<DevId, u64>, { rank::LEAF }>,
}

impl Sink for ScrubFindings<'_> {
    fn found(&self, finding: &Finding) {
        self.recorder.found(finding);
    }

    fn goes_on(&self, device: DevId, counts: &Counts) -> bool {
        self.recorder.note(self.engine, (device, counts));
        self.recorder.write_if_due(self.engine, &|| self.mender.map_or(Ok(()), Mender::flush));
        let mut bytes = self.bytes.lock();
        // Two threads may report in the wrong order, so the larger number counts.
        let of_device = bytes.entry(device).or_default();
        *of_device = (*of_device).max(counts.data_bytes_scrubbed + counts.tree_bytes_scrubbed);
        let all = bytes.values().sum();
        drop(bytes);
        self.progress.scrubbed(all) && !self.recorder.is_asked_to_end()
    }

    fn limit(&self, device: DevId) -> Option<u64> {
        self.limit.or_else(|| self.recorder.limit(device))
    }
}
