//! Scrub: reading everything that is in use on each device, and mending what is bad from what is good.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Error, ErrorKind, Physical, Result, Uuid};
use creamery_device::{Access, BlockDevice};
use creamery_maint::scrub::{Scrub as Walker, Sink};
use creamery_txn::{BackgroundThreads, Engine, Options};
use creamery_volume::{DeviceSet, NamedSet, Rescue, Volume};

use crate::Image;
use crate::check::{DamagedFile, files_of};

pub use creamery_maint::scrub::{Counts, Ended, Finding, Outcome, What};

/// Findings that are kept; the rest is counted.
const FINDINGS_MAX: usize = 10_000;
/// Findings whose files are named.
const NAMED_MAX: usize = 1_000;

/// How to scrub.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::check::scrub::{NoProgress, Scrub};
/// let report = Scrub::default().run(&image, &NoProgress)?;
/// assert_eq!(report.counts().errors(), 0);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scrub {
    reads_only: bool,
    without_read_ahead: bool,
}

/// Receives the progress of a scrub, from several threads.
///
/// ```
/// use creamery::check::scrub::Progress;
/// struct Print;
/// impl Progress for Print {
///     fn scrubbed(&self, bytes: u64) -> bool {
///         println!("{bytes} bytes");
///         true
///     }
/// }
/// ```
pub trait Progress: Sync {
    /// So many bytes of data and tree blocks are scrubbed, those of all devices together. Whether to go on.
    fn scrubbed(&self, bytes: u64) -> bool;
}

/// Reports to nobody, and goes on.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::check::scrub::{NoProgress, Scrub};
/// Scrub::default().read_only().run(&image, &NoProgress)?;
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn scrubbed(&self, _: u64) -> bool {
        true
    }
}

/// What was scrubbed of a device.
///
/// ```no_run
/// # fn example(device: &creamery::check::scrub::DeviceReport) {
/// println!("device {}: {:?}, {} errors", device.id, device.ended, device.counts.errors());
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceReport {
    /// Its number in the filesystem.
    pub id: DevId,
    /// Where it is on the host.
    pub path: PathBuf,
    /// What was counted.
    pub counts: Counts,
    /// How it ended.
    pub ended: Ended,
}

/// Something bad, and the files that have it.
///
/// ```no_run
/// # fn example(damage: &creamery::check::scrub::Damage) {
/// println!("{}: {:?}, {} files", damage.finding.at, damage.finding.outcome, damage.files.len());
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Damage {
    /// What is bad.
    pub finding: Finding,
    /// The files that have it, a few at most.
    pub files: Vec<DamagedFile>,
}

/// What a scrub found.
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
    /// Each device.
    pub devices: Vec<DeviceReport>,
    /// What is bad, as much as is kept: first what is left, then what was mended.
    pub damages: Vec<Damage>,
    /// How much of what is left has no place there.
    pub left_out: u64,
}

impl Report {
    /// The numbers of all devices together.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut all = Counts::default();
        self.devices.iter().for_each(|device| all += device.counts);
        all
    }

    /// How it ended: as the device that ended worst.
    #[must_use]
    pub fn ended(&self) -> Ended {
        self.devices.iter().map(|device| device.ended).max().unwrap_or(Ended::Whole)
    }
}

/// Findings that are kept: what was mended takes no place of what is left.
#[derive(Default)]
struct Kept {
    left: Vec<Finding>,
    mended: Vec<Finding>,
    /// What is left and has no place.
    left_out: u64,
}

/// Collects findings, and reports progress.
struct Found<'p> {
    progress: &'p dyn Progress,
    kept: RankedMutex<Kept, { rank::LEAF }>,
    /// Bytes of each device.
    bytes: RankedMutex<HashMap<DevId, u64>, { rank::LEAF }>,
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
        let mut bytes = self.bytes.lock();
        bytes.insert(device, counts.data_bytes_scrubbed + counts.tree_bytes_scrubbed);
        let all = bytes.values().sum();
        drop(bytes);
        self.progress.scrubbed(all)
    }
}

impl Scrub {
    /// Writes nothing: what could be mended is said.
    #[must_use]
    pub const fn read_only(self) -> Self {
        Self { reads_only: true, ..self }
    }

    /// Reads nothing of the trees ahead, to measure what that is worth.
    #[must_use]
    pub const fn without_read_ahead(self) -> Self {
        Self { without_read_ahead: true, ..self }
    }

    /// Scrubs the filesystem on an image, each of its devices by itself. To mend it needs all of its devices, each one named: it writes to none that it found by
    /// itself.
    ///
    /// # Errors
    /// When it cannot be opened, or somebody else has it open; when devices are missing or missed writes, and it is to be mended. Damage found is no error.
    pub fn run(self, image: impl Into<NamedSet>, progress: &dyn Progress) -> Result<Report> {
        let set = image.into();
        let access = if self.reads_only { Access::ReadOnly } else { Access::ReadWrite };
        set.open(access, |devices| self.run_on_set(&devices, progress))
            .map_err(|error| if self.reads_only { error } else { with_devices(error, &set) })
    }

    /// Scrubs the filesystem on devices of one's own (see [`device`](crate::device)): all of them, in any order.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use creamery::check::scrub::{NoProgress, Scrub};
    /// use creamery::device::{BlockDevice, MemoryDevice};
    /// let memory: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(256 << 20));
    /// creamery::Image::make_on(Arc::clone(&memory)).run()?;
    /// let report = Scrub::default().run_on([memory], &NoProgress)?;
    /// assert!(report.damages.is_empty());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_on(
        self,
        devices: impl IntoIterator<Item = Arc<dyn BlockDevice>>,
        progress: &dyn Progress,
    ) -> Result<Report> {
        self.run_on_set(&devices.into_iter().collect(), progress)
    }

    fn run_on_set(self, devices: &DeviceSet, progress: &dyn Progress) -> Result<Report> {
        let volume = match self.reads_only {
            true => Volume::open_for_rescue(devices.clone(), Rescue::default())?,
            false => Volume::open_for_mending(devices.clone())?,
        };
        let engine = Engine::open(volume, Options { read_only: true, ..Options::default() })?;
        let volume = engine.volume();
        let mender = match self.reads_only {
            true => None,
            false => Some(volume.mender().map_err(|error| {
                let advice = "scrub it with --readonly (-r), or bring the devices back first";
                error.context("mending").advise(advice)
            })?),
        };
        let scrub =
            mender.map_or_else(|| Walker::reading(&engine), |mender| Walker::mending(&engine, mender));
        let scrub = if self.without_read_ahead { scrub.without_read_ahead() } else { scrub };
        let _readers = engine.start_background(BackgroundThreads::usual());
        let found = Found { progress, kept: RankedMutex::default(), bytes: RankedMutex::default() };
        let with_device = |id| Some((id, volume.device(id)?));
        let there: Vec<_> =
            engine.devices().into_iter().filter_map(|device| with_device(device.id)).collect();
        let outcomes: Vec<Result<_>> = std::thread::scope(|threads| {
            let begin = |(id, _): &(DevId, _)| {
                let (id, scrub, found) = (*id, &scrub, &found);
                threads.spawn(move || scrub.device(id, found))
            };
            let running: Vec<_> = there.iter().map(begin).collect();
            let end = |one: std::thread::ScopedJoinHandle<'_, _>| {
                one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            running.into_iter().map(end).collect()
        });
        let mut report =
            Report { uuid: volume.fsid(), devices: Vec::new(), damages: Vec::new(), left_out: 0 };
        for ((id, device), outcome) in there.into_iter().zip(outcomes) {
            let path = device.host_path();
            let (counts, ended) = outcome.unwrap_or_else(|error| {
                found.found(&of_device(id, &error));
                (Counts { uncorrectable_errors: 1, ..Counts::default() }, Ended::Failed)
            });
            report.devices.push(DeviceReport { id, path, counts, ended });
        }
        if let Some(Err(error)) = mender.map(creamery_volume::Mender::flush)
            && let Some(device) = report.devices.first_mut()
        {
            device.counts.uncorrectable_errors += 1;
            found.found(&of_device(device.id, &error.context("what was mended is not durable")));
        }
        let Kept { left, mended, left_out } = found.kept.into_inner();
        report.left_out = left_out;
        let all = left.into_iter().chain(mended);
        report.damages = all.map(|finding| Damage { finding, files: Vec::new() }).collect();
        name_files(&mut report, devices);
        Ok(report)
    }
}

/// Names the files of what is bad of data. It judges nothing: what cannot be named stays an address.
fn name_files(report: &mut Report, devices: &DeviceSet) {
    let is_data = |damage: &&mut Damage| matches!(damage.finding.what, What::Data | What::Differing);
    let mut damages = report.damages.iter_mut().filter(is_data).take(NAMED_MAX).peekable();
    if damages.peek().is_none() {
        return;
    }
    let rescue = Rescue { ignore_bad_roots: true, ignore_super_flags: true, ..Rescue::default() };
    let Ok(fs) = Image::options().rescue(rescue).open_set(devices.clone()) else { return };
    for damage in damages {
        damage.files = damage.finding.logical.map_or_else(Vec::new, |at| files_of(&fs, at));
    }
}

/// What names all devices, where some were found and are not named.
fn with_devices(error: Error, set: &NamedSet) -> Error {
    if error.kind() != ErrorKind::DeviceMissing {
        return error;
    }
    let found = set.superblocks(&mut |_| ()).unwrap_or_default();
    let others = found.iter().skip(set.named().count());
    let words: Vec<String> = others.map(|(path, _)| format!("--device {}", path.display())).collect();
    match words.is_empty() {
        true => error,
        false => error
            .context("mending writes to devices that are named alone")
            .advise(format!("add {}", words.join(" "))),
    }
}

/// A device that could not be scrubbed at all.
fn of_device(dev: DevId, error: &Error) -> Finding {
    let at = Physical { dev, offset: 0 };
    Finding { what: What::NotScrubbed, at, logical: None, why: error.to_string(), outcome: Outcome::Lost }
}
