//! The findings of a scrub, in the format of btrfs-progs, and as JSON.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use creamery::attributes::Timespec;
use creamery::check::DamagedFile;
use creamery::check::scrub::{
    Counts, Damage, DeviceReport, Ended, Finding, Mode, Outcome, Report, Searches, more_files_line,
};
use creamery::error::Escaped;
use creamery_base::{DevId, Uuid};
use serde::Serialize;

use crate::json::text_of;
use crate::output::Output;
use crate::time::Utc;
use crate::units::UnitArgs;

/// The findings of a scrub, of an image or of a mount.
pub(super) struct ShownScrub {
    pub(super) uuid: Uuid,
    pub(super) mode: Mode,
    pub(super) devices: Vec<ShownDevice>,
    pub(super) findings: Vec<ShownFinding>,
    /// The number of findings beyond the limit of the list.
    pub(super) left_out: u64,
    /// The file with all findings, if it is kept.
    pub(super) findings_file: Option<PathBuf>,
    /// The reason why nothing can be repaired, if there is one.
    pub(super) hindrance: Option<String>,
    /// The number of searches in the trees; unknown for a mount.
    pub(super) searches: Option<Searches>,
}

/// A finding, with some of the affected files, and the number of others.
pub(super) struct ShownFinding {
    pub(super) finding: Finding,
    pub(super) files: Vec<DamagedFile>,
    pub(super) more_files: u64,
}

/// The scrub of one device.
pub(super) struct ShownDevice {
    pub(super) id: DevId,
    pub(super) path: PathBuf,
    pub(super) counts: Counts,
    pub(super) ended: Option<Ended>,
}

impl From<Report> for ShownScrub {
    fn from(report: Report) -> Self {
        let device = |device: DeviceReport| ShownDevice {
            id: device.id,
            path: device.path,
            counts: device.counts,
            ended: Some(device.ended),
        };
        let finding = |damage: Damage| ShownFinding {
            finding: damage.finding,
            files: damage.files,
            more_files: damage.more_files,
        };
        Self {
            uuid: report.uuid,
            mode: report.mode,
            devices: report.devices.into_iter().map(device).collect(),
            findings: report.damages.into_iter().map(finding).collect(),
            left_out: report.left_out,
            findings_file: report.findings_file,
            hindrance: report.hindrance,
            searches: Some(report.searches),
        }
    }
}

impl ShownScrub {
    pub(super) fn counts(&self) -> Counts {
        let mut all = Counts::default();
        self.devices.iter().for_each(|device| all += device.counts);
        all
    }

    /// The end of the scrub: that of the device that ended worst.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.devices.iter().filter_map(|device| device.ended).max()
    }
}

/// Prints findings that were not repaired, with the affected files.
pub(super) fn damages(out: &mut Output, shown: &ShownScrub) -> io::Result<()> {
    let left = shown.findings.iter().filter(|found| found.finding.outcome != Outcome::Mended);
    left.into_iter().try_for_each(|ShownFinding { finding, files, more_files }| {
        writeln!(out, "{finding}")?;
        files.iter().try_for_each(|file| {
            write!(out, "  ")?;
            match file.raw_path() {
                Some(path) => write!(out, "{}", Escaped(&path))?,
                None => write!(out, "inode {} of subvolume {}", file.inode, file.subvolume)?,
            }
            writeln!(out, ", byte {}", file.offset)
        })?;
        more_files_line(*more_files).map_or(Ok(()), |line| writeln!(out, "  {line}"))
    })?;
    match shown.left_out {
        0 => Ok(()),
        more => {
            writeln!(out, "and {more} more findings, whose files are not listed: fix these, then scrub again")
        }
    }
}

/// The numbers of a device, or of all devices.
pub(super) struct Numbers {
    pub(super) counts: Counts,
    pub(super) started: Timespec,
    pub(super) resumed: Option<Timespec>,
    pub(super) status: &'static str,
    pub(super) seconds: u64,
    pub(super) is_running: bool,
    /// Bytes a second.
    pub(super) limit: Option<u64>,
}

impl Numbers {
    /// Prints the numbers in the format of btrfs-progs.
    pub(super) fn print(&self, out: &mut Output, units: &UnitArgs, is_raw: bool) -> io::Result<()> {
        writeln!(out, "Scrub started:    {}", Utc(self.started))?;
        if let Some(resumed) = self.resumed {
            writeln!(out, "Scrub resumed:    {}", Utc(resumed))?;
        }
        writeln!(out, "Status:           {}", self.status)?;
        writeln!(out, "Duration:         {}", Clock(self.seconds))?;
        if is_raw {
            return named(&self.counts)
                .into_iter()
                .try_for_each(|(name, number)| writeln!(out, "\t{name}: {number}"));
        }
        self.speed(out, units)?;
        self.errors(out)
    }

    fn speed(&self, out: &mut Output, units: &UnitArgs) -> io::Result<()> {
        let bytes = self.counts.data_bytes_scrubbed.saturating_add(self.counts.tree_bytes_scrubbed);
        let rate = bytes / self.seconds.max(1);
        let total = self.counts.size.max(bytes);
        if self.is_running {
            if let Some(left) = (total - bytes).checked_div(rate) {
                writeln!(out, "Time left:        {}", Clock(left))?;
            }
            let percent = bytes.saturating_mul(100).checked_div(total).unwrap_or(0);
            writeln!(out, "Total to scrub:   {}", units.show(total))?;
            writeln!(out, "Bytes scrubbed:   {}  ({percent}%)", units.show(bytes))?;
        } else {
            // A finished scrub has scrubbed everything there was.
            let total = if self.status == FINISHED { bytes } else { total };
            writeln!(out, "Total to scrub:   {}", units.show(total))?;
        }
        write!(out, "Rate:             {}/s", units.show(rate))?;
        if let Some(limit) = self.limit {
            write!(out, " (limit {}/s)", units.show(limit))?;
        }
        writeln!(out)
    }

    /// Prints the errors.
    fn errors(&self, out: &mut Output) -> io::Result<()> {
        let counts = &self.counts;
        if counts.errors() == 0 {
            return writeln!(out, "Error summary:    no errors found");
        }
        write!(out, "Error summary:   ")?;
        for (name, number) in [
            ("read", counts.read_errors),
            ("super", counts.super_errors),
            ("verify", counts.verify_errors),
            ("csum", counts.csum_errors),
            ("differing", counts.differing),
        ] {
            if number > 0 {
                write!(out, " {name}={number}")?;
            }
        }
        writeln!(out)?;
        writeln!(out, "  Corrected:      {}", counts.corrected_errors)?;
        writeln!(out, "  Uncorrectable:  {}", counts.uncorrectable_errors)?;
        writeln!(out, "  Unverified:     {}", counts.unverified_errors)
    }
}

/// Seconds as hours, minutes and seconds.
struct Clock(u64);

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(seconds) = self;
        write!(f, "{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

const FINISHED: &str = "finished";

/// The numbers by name, in the order of btrfs-progs; those at the end are ours.
const fn named(counts: &Counts) -> [(&'static str, u64); 17] {
    [
        ("data_extents_scrubbed", counts.data_extents_scrubbed),
        ("tree_extents_scrubbed", counts.tree_extents_scrubbed),
        ("data_bytes_scrubbed", counts.data_bytes_scrubbed),
        ("tree_bytes_scrubbed", counts.tree_bytes_scrubbed),
        ("read_errors", counts.read_errors),
        ("csum_errors", counts.csum_errors),
        ("verify_errors", counts.verify_errors),
        ("no_csum", counts.no_csum),
        ("csum_discards", 0),
        ("super_errors", counts.super_errors),
        ("malloc_errors", 0),
        ("uncorrectable_errors", counts.uncorrectable_errors),
        ("unverified_errors", counts.unverified_errors),
        ("corrected_errors", counts.corrected_errors),
        ("last_physical", counts.last_physical),
        ("parity_bytes_scrubbed", counts.parity_bytes_scrubbed),
        ("differing", counts.differing),
    ]
}

/// The end of a scrub in the words of btrfs-progs; a scrub without an end counts as interrupted.
pub(super) const fn status(ended: Option<Ended>) -> &'static str {
    match ended {
        Some(Ended::Whole) => FINISHED,
        Some(Ended::Cancelled) => "aborted",
        Some(Ended::Failed) => "failed",
        None => "interrupted",
    }
}

#[derive(Serialize)]
struct ScrubReportJson {
    uuid: String,
    mode: &'static str,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    extent_searches: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    csum_searches: Option<u64>,
    devices: Vec<ScrubDeviceJson>,
    findings: Vec<FindingJson>,
    /// The number of findings beyond the limit of the list.
    left_out: u64,
    #[serde(flatten)]
    findings_file: FindingsFileJson,
}

/// The file with the findings, if they are kept.
#[derive(Serialize)]
pub(super) struct FindingsFileJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    findings_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    findings_file_bytes: Option<String>,
}

impl FindingsFileJson {
    pub(super) fn of(path: Option<&Path>) -> Self {
        let (text, bytes) = path.map(|path| text_of(path.as_os_str().as_bytes())).unzip();
        Self { findings_file: text, findings_file_bytes: bytes.flatten() }
    }
}

/// The word for the mode of a scrub: whether it repairs.
pub(super) const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Mends => "mends",
        Mode::ReadsOnly => "read-only",
    }
}

#[derive(Serialize)]
struct ScrubDeviceJson {
    id: u64,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    status: &'static str,
    #[serde(flatten)]
    counts: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct FindingJson {
    what: &'static str,
    outcome: &'static str,
    device: u64,
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    logical: Option<u64>,
    why: String,
    files: Vec<DamagedFile>,
    /// The number of other affected files.
    more_files: u64,
}

pub(super) fn as_json(out: &mut Output, shown: &ShownScrub, took: Duration) -> io::Result<()> {
    let device = |device: &ShownDevice| {
        let (path, path_bytes) = text_of(device.path.as_os_str().as_bytes());
        let (status, counts) = (status(device.ended), numbers_as_json(&device.counts));
        ScrubDeviceJson { id: device.id.get(), path, path_bytes, status, counts }
    };
    let finding = |ShownFinding { finding, files, more_files }: &ShownFinding| FindingJson {
        what: finding.what.words(),
        outcome: finding.outcome.word(),
        device: finding.at.dev.get(),
        offset: finding.at.offset,
        logical: finding.logical.map(|at| at.get()),
        why: finding.why.clone(),
        files: files.clone(),
        more_files: *more_files,
    };
    let shown = ScrubReportJson {
        uuid: shown.uuid.to_string(),
        mode: mode(shown.mode),
        seconds: took.as_secs_f64(),
        extent_searches: shown.searches.map(|searches| searches.extent_searches),
        csum_searches: shown.searches.map(|searches| searches.csum_searches),
        devices: shown.devices.iter().map(device).collect(),
        findings: shown.findings.iter().map(finding).collect(),
        left_out: shown.left_out,
        findings_file: FindingsFileJson::of(shown.findings_file.as_deref()),
    };
    serde_json::to_writer_pretty(&mut *out, &shown)?;
    writeln!(out)
}

/// All numbers by name.
pub(super) fn numbers_as_json(counts: &Counts) -> serde_json::Map<String, serde_json::Value> {
    named(counts).into_iter().map(|(name, number)| (name.to_owned(), number.into())).collect()
}
