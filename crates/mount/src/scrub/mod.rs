//! Scrubbing a live mount, by a control of ours.
//!
//! `creamery scrub` sends number 21 of the channel (`control`) to any directory of the mount, with an [`ScrubOrder`] in JSON; the answer is the JSON of an
//! [`ScrubAnswer`]. Root and the mounter may send it. The scrub itself is background work (`work`): one step at a time, under its own guard, so that no operation
//! waits for it or takes steps of it. When the mount ends, so does the scrub, and its status says where.

mod ask;
mod files;
mod host_room;
mod rest;
#[cfg(test)]
mod tests;
mod work;

use creamery_base::{Error, Result};
use creamery_fuse::{Errno, control_number};
use creamery_maint::scrub::{Finding, FindingKind, Outcome, Status};
use serde::{Deserialize, Serialize};

use crate::asker::Asker;
use crate::control::{GROUP, PAGE, order_in};
use crate::why::Why;

pub use ask::{LiveFinding, LiveFindingFile, LiveScrub};
use files::FileText;
pub(crate) use work::Scrubbing;

pub(crate) const SCRUB: u32 = control_number::<PAGE>(GROUP, 21);

/// The kind of an order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
enum OrderKind {
    #[default]
    Status,
    Start,
    Resume,
    Cancel,
    Limit,
}

/// An order, with the options of a scrub.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
struct ScrubOrder {
    wish: OrderKind,
    reads_only: bool,
    /// Bytes of each device per second; 0 means no limit.
    limit: u64,
    /// The device of the limit; `None` for all devices.
    device: Option<u64>,
}

/// The result of an order, and the state of the scrub. Paths are any bytes.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
struct ScrubAnswer {
    failure: Option<String>,
    why: Why,
    uuid: String,
    /// The text of the last status ([`Status::to_text`]), if there was a scrub.
    status: Option<String>,
    is_running: bool,
    findings: Vec<FoundText>,
    /// The number of findings that did not fit.
    left_out: u64,
    /// The file with the findings, if there are some and they are kept.
    findings_file: Option<Vec<u8>>,
    /// The reason why its status is not kept.
    status_failure: Option<String>,
    /// The reason why limits are unknown.
    limits_failure: Option<String>,
    /// The reason why nothing can be repaired through the mount.
    hindrance: Option<String>,
    /// Devices, their paths, and limits in bytes per second; 0 means no limit.
    limits: Vec<(u64, Vec<u8>, u64)>,
}

/// A finding as it is sent.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
struct FoundText {
    what: u8,
    outcome: u8,
    device: u64,
    offset: u64,
    logical: Option<u64>,
    why: String,
    files: Vec<FileText>,
    /// The number of further places.
    more_files: u64,
}

impl FoundText {
    fn of(finding: &Finding, (files, more_files): (Vec<FileText>, u64)) -> Self {
        let number = |at: Option<usize>| u8::try_from(at.unwrap_or(0)).expect("there are a few");
        Self {
            what: number(FindingKind::ALL.iter().position(|what| *what == finding.what)),
            outcome: number(Outcome::ALL.iter().position(|outcome| *outcome == finding.outcome)),
            device: finding.at.dev.get(),
            offset: finding.at.offset,
            logical: finding.logical.map(|at| at.get()),
            why: finding.why.clone(),
            files,
            more_files,
        }
    }
}

impl Scrubbing {
    /// Carries out the order in a page that the thread `asker` sent. Returns the answer's text.
    pub(crate) fn answer(&self, asker: u32, page: &[u8]) -> creamery_fuse::Result<Vec<u8>> {
        self.is_asked();
        if !Asker::of(asker).administrates() {
            return Err(Errno::EPERM);
        }
        let order: ScrubOrder = order_in(page)?.unwrap_or_default();
        let answer = self.carry_out(&order).unwrap_or_else(|error| ScrubAnswer {
            failure: Some(error.with_advice()),
            why: Why::of_error(&error),
            ..ScrubAnswer::default()
        });
        serde_json::to_vec(&answer).map_err(|_| Errno::EIO)
    }

    fn carry_out(&self, order: &ScrubOrder) -> Result<ScrubAnswer> {
        match order.wish {
            OrderKind::Status => return self.tell(),
            OrderKind::Start | OrderKind::Resume => self.start(order)?,
            OrderKind::Cancel => self.cancel(),
            OrderKind::Limit => self.set_limit(order.device, order.limit)?,
        }
        // The order was carried out, even if the answer is incomplete.
        self.tell().or_else(|_| self.tell_without_files())
    }
}

/// Parses the text of a status. Errors: it is not a status.
fn status_of(text: &str, uuid: &str) -> Result<Status> {
    let uuid = uuid.parse().map_err(|_| Error::invalid(format!("UUID {uuid:?}")))?;
    Status::parse(text.as_bytes(), uuid)
}
