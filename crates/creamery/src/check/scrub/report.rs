//! The report of a scrub.

use std::path::PathBuf;

use creamery_base::{DevId, Uuid};
use creamery_maint::scrub::{Counts, Ended, Finding, Mode, Recorder, Searches, file_line, more_files_line};
use creamery_tree::ReadAheadCounters;
use creamery_txn::Engine;
use creamery_volume::Volume;

use crate::check::DamagedFile;

/// The part of a scrub report about one device.
///
/// ```no_run
/// # fn example(device: &creamery::check::scrub::DeviceReport) {
/// println!("device {}: {:?}, {} errors", device.id, device.ended, device.counts.errors());
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceReport {
    /// The number of the device in the filesystem.
    pub id: DevId,
    /// The path of the device on the host.
    pub path: PathBuf,
    /// The counters of the device.
    pub counts: Counts,
    /// How the scrub of this device ended.
    pub ended: Ended,
}

/// A finding, and the files that it affects.
///
/// ```no_run
/// # fn example(damage: &creamery::check::scrub::Damage) {
/// println!("{}: {:?}, {} files", damage.finding.at, damage.finding.outcome, damage.files.len());
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Damage {
    /// The finding.
    pub finding: Finding,
    /// The files that it affects, a few at most.
    pub files: Vec<DamagedFile>,
    /// The number of affected files that are not in `files`.
    pub more_files: u64,
}

/// The result of a scrub.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::check::scrub::{NoProgress, Scrub};
/// let report = Scrub::default().run(&image, &NoProgress)?;
/// assert_eq!(report.devices.len(), 1);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The filesystem's UUID.
    pub uuid: Uuid,
    /// Whether the scrub repairs; a resumed scrub keeps its mode.
    pub mode: Mode,
    /// The report of each device.
    pub devices: Vec<DeviceReport>,
    /// Findings, as many as are kept: first the remaining ones, then the repaired ones. They include those of all scrubs that this one
    /// resumed.
    pub damages: Vec<Damage>,
    /// The number of remaining findings that did not fit. Their files are not named.
    pub left_out: u64,
    /// The file with the findings, if they are kept.
    pub findings_file: Option<PathBuf>,
    /// The reason why nothing can be repaired now: a device is missing, or missed writes.
    pub hindrance: Option<String>,
    /// Tree blocks that were read ahead, of the extent tree and of the checksum tree.
    pub read_ahead: [ReadAheadCounters; 2],
    /// Number of searches of the extent tree and the checksum tree.
    pub searches: Searches,
    /// The part that could not be stored, and why: the status, if that is wanted, or the counters of `device stats`.
    pub not_kept: Option<String>,
    pub(super) has_log: bool,
}

impl Report {
    pub(super) fn of(volume: &Volume, mode: Mode) -> Self {
        let (devices, damages) = (Vec::new(), Vec::new());
        let superblock = volume.superblock();
        let has_log = superblock.log_root().is_some();
        Self {
            uuid: superblock.fsid(),
            mode,
            devices,
            damages,
            left_out: 0,
            findings_file: None,
            hindrance: volume.check_mendable().err().map(|error| error.with_advice()),
            read_ahead: <[ReadAheadCounters; 2]>::default(),
            searches: Searches::default(),
            not_kept: None,
            has_log,
        }
    }

    /// Stores the status.
    pub(super) fn keep(&mut self, recorder: &Recorder, engine: &Engine) {
        // After a failure it is unknown what is durable: the next scrub reads the device again.
        let counts = |device: &DeviceReport| match device.ended {
            Ended::Failed => Counts { uncorrectable_errors: 1, ..Counts::default() },
            Ended::Whole | Ended::Cancelled => device.counts,
        };
        let ended: Vec<_> =
            self.devices.iter().map(|device| (device.id, counts(device), device.ended)).collect();
        let kept = recorder.end(engine, &ended);
        self.not_kept = kept.err().map(|error| error.context("the status is not kept").to_string());
    }

    /// Stores the names of files with remaining damage.
    pub(super) fn keep_files(&mut self, recorder: &Recorder) {
        let line = |file: &DamagedFile| {
            file_line(file.raw_path().as_deref(), (file.subvolume, file.inode), file.offset)
        };
        // The findings are in the same order here: the remaining ones come first.
        let mut damages = self.damages.iter();
        let mut files = |finding: &Finding| {
            let its = damages.next().filter(|damage| damage.finding.at == finding.at);
            let more = its.map_or(0, |its| its.more_files);
            let lines = its.into_iter().flat_map(|its| its.files.iter().map(line));
            lines.chain(more_files_line(more)).collect()
        };
        let kept = recorder.name_files(usize::MAX, &mut files);
        self.findings_file = recorder.findings_file().filter(|_| kept.is_ok());
        if let Err(error) = kept {
            self.not_kept.get_or_insert(error.context("the findings are not kept").to_string());
        }
    }

    /// Adds the counters of earlier scrubs that this one resumed.
    pub(super) fn add_before(&mut self, recorder: &Recorder) {
        for device in &mut self.devices {
            device.counts += recorder.before(device.id);
        }
    }

    /// The counters of all devices together.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut all = Counts::default();
        self.devices.iter().for_each(|device| all += device.counts);
        all
    }

    /// How the scrub ended: the worst end of its devices.
    #[must_use]
    pub fn ended(&self) -> Ended {
        self.devices.iter().map(|device| device.ended).max().unwrap_or(Ended::Whole)
    }
}
