//! Scrub: reads everything in use on each device, and repairs bad copies from good ones.

mod found;
mod progress;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::lock::RankedMutex;
use creamery_base::{DevId, Error, ErrorKind, Result, TreeId, Uuid};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_fs::DeviceErrors;
use creamery_maint::scrub::{Recorder, Scrub as Walker, Sink, host_paths};
use creamery_txn::{BackgroundThreads, Engine, Options};
use creamery_volume::{DeviceSet, Mender, NamedSet, Rescue, Volume};

use self::found::ScrubFindings;
use crate::Image;
use crate::check::files_of;

pub use creamery_maint::scrub::{
    Counts, DeviceStatus, Ended, Finding, FindingKind, Findings, Identity, Mode, Outcome, Runner, Running,
    Searches, Status, StatusFile, more_files_line,
};
pub use creamery_tree::ReadAheadCounters;
pub use progress::{NoProgress, Progress};
pub use report::{Damage, DeviceReport, Report};

/// Options of a scrub.
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
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scrub {
    reads_only: bool,
    without_read_ahead: bool,
    accepts_unsummed: bool,
    limit: Option<u64>,
    /// The directory of its status, and whether it resumes the scrub there.
    status: Option<(PathBuf, bool)>,
}

impl Scrub {
    /// Writes nothing: repairs that are possible are reported.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { reads_only: true, ..self }
    }

    /// Turns off read-ahead of the trees, to measure its benefit.
    #[must_use]
    pub fn without_read_ahead(self) -> Self {
        Self { without_read_ahead: true, ..self }
    }

    /// Also rewrites parity that does not match its data if the data has no checksum, and takes that data as correct. Without this such
    /// parity is reported and left.
    #[must_use]
    pub fn rewriting_parity(self) -> Self {
        Self { accepts_unsummed: true, ..self }
    }

    /// Limits the reads of each device, bytes per second; with `u64::MAX` there is no limit, not even a stored one.
    #[must_use]
    pub fn limit(self, bytes_per_second: u64) -> Self {
        Self { limit: Some(bytes_per_second.max(1)), ..self }
    }

    /// Keeps its status in this directory while it runs ([`status_file`](Self::status_file)). Limits that are stored there apply.
    #[must_use]
    pub fn kept_in(self, dir: impl Into<PathBuf>) -> Self {
        Self { status: Some((dir.into(), false)), ..self }
    }

    /// Resumes the last scrub whose status is in this directory. A scrub that only reads stays so: start a new one to repair the damage
    /// that its first part found.
    #[must_use]
    pub fn resuming(self, dir: impl Into<PathBuf>) -> Self {
        Self { status: Some((dir.into(), true)), ..self }
    }

    /// Returns the file in a directory with the status of the last scrub of a filesystem ([`kept_in`](Self::kept_in)). It need not exist.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use creamery::check::scrub::{NoProgress, Scrub};
    /// Scrub::default().kept_in(dir.path()).run(&image, &NoProgress)?;
    /// let status = Scrub::status_file(&image, dir.path())?.read()?.expect("it was scrubbed");
    /// assert!(status.devices.iter().all(|device| !device.is_resumable()));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// The devices cannot be opened, or have no superblock.
    pub fn status_file(image: impl Into<NamedSet>, dir: &Path) -> Result<StatusFile> {
        let mut members = image.into().superblocks(&mut |_| ())?;
        members.sort_by_key(|(_, superblock)| superblock.dev_item().dev_id());
        // A filesystem made from a seed has its own UUID, and is newer than the seed.
        let newest = members.iter().map(|(_, superblock)| superblock).max_by_key(|one| one.generation());
        let fsid = newest.ok_or_else(|| Error::invalid("no device given"))?.fsid();
        let first = members.iter().find(|(_, superblock)| superblock.fsid() == fsid);
        let (path, _) = first.expect("the newest is one of them");
        let place = FileDevice::open(path, Access::ReadOnlyForced)?.id().numbers();
        Ok(StatusFile::new(dir, fsid, place))
    }

    /// Scrubs the filesystem on an image, each of its devices separately. A repair needs all devices, each one named: it does not write to
    /// a device that it found itself. The findings on the only device of a filesystem are added to its error counters
    /// ([`device_errors`](crate::volume::Volume::device_errors)).
    ///
    /// # Errors
    /// When it cannot be opened, or is open elsewhere; when a repair finds devices missing or with missed writes. Damage is not an error.
    pub fn run(&self, image: impl Into<NamedSet>, progress: &dyn Progress) -> Result<Report> {
        let set = image.into();
        self.as_it_began(&set)?.run_set(&set, progress)
    }

    /// Returns the options of a resumed scrub: one that only reads stays so.
    /// Errors: the scrub does not go with the options.
    fn as_it_began(&self, set: &NamedSet) -> Result<Self> {
        let Some((dir, true)) = &self.status else { return Ok(self.clone()) };
        // Opening reports why the status is not available.
        let Ok(file) = Self::status_file(set.clone(), dir) else { return Ok(self.clone()) };
        match file.read()?.map(|last| last.mode()) {
            Some(Mode::ReadsOnly) if self.accepts_unsummed => {
                let what = "the scrub to resume is read-only (-r), but --rewrite-parity writes";
                Err(Error::invalid(what).advise("begin a new one with `creamery scrub start`"))
            }
            Some(Mode::ReadsOnly) => Ok(self.clone().read_only()),
            _ => Ok(self.clone()),
        }
    }

    fn run_set(&self, set: &NamedSet, progress: &dyn Progress) -> Result<Report> {
        if !self.reads_only {
            refuse_seeds(set)?;
        }
        let access = if self.reads_only { Access::ReadOnly } else { Access::ReadWrite };
        let run = |devices: DeviceSet| {
            // The scrub counts as running as long as the recorder exists.
            let (mut report, recorder) = self.run_on_set(&devices, progress)?;
            // A resumed scrub keeps its mode, whatever the options say.
            if report.mode == Mode::Mends {
                count_errors(&mut report, &devices, &recorder);
            }
            report.add_before(&recorder);
            Ok(report)
        };
        set.open(access, run).map_err(|error| if self.reads_only { error } else { with_devices(error, set) })
    }

    /// Scrubs the filesystem on devices of your own (see [`device`](crate::device)): all of them, in any order. Only repairs write.
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
    /// Those of [`run`](Self::run).
    pub fn run_on(
        &self,
        devices: impl IntoIterator<Item = Arc<dyn BlockDevice>>,
        progress: &dyn Progress,
    ) -> Result<Report> {
        let (mut report, recorder) = self.run_on_set(&devices.into_iter().collect(), progress)?;
        report.add_before(&recorder);
        Ok(report)
    }

    fn run_on_set(&self, devices: &DeviceSet, progress: &dyn Progress) -> Result<(Report, Recorder)> {
        let volume = match self.reads_only {
            true => Volume::open_for_rescue(devices.clone(), Rescue::default())?,
            false => Volume::open_for_mending(devices.clone())?,
        };
        let engine = Engine::open(volume, Options { read_only: true, ..Options::default() })?;
        let mender = match self.reads_only {
            true => None,
            false => Some(engine.volume().mender().map_err(|error| {
                let first = error.advice().unwrap_or("connect the devices first");
                let advice = format!("scrub it with --readonly (-r), or {first}");
                error.context("mending").advise(advice)
            })?),
        };
        let recorder = self.recorder(&engine)?;
        let mender = mender.filter(|_| recorder.mode() == Mode::Mends);
        let _readers = engine.start_background(BackgroundThreads::usual());
        let found = ScrubFindings {
            engine: &engine,
            mender,
            progress,
            recorder: &recorder,
            limit: self.limit,
            bytes: RankedMutex::default(),
        };
        let devices_there = engine.devices().into_iter().map(|device| device.id);
        let devices_there: Vec<DevId> =
            devices_there.filter(|id| engine.volume().device(*id).is_some()).collect();
        progress.begins(engine.volume().fsid(), &devices_there);
        let mut report = Report::of(engine.volume(), recorder.mode());
        (report.devices, report.searches) = self.scrub_all(&engine, mender, &found);
        for device in &mut report.devices {
            let mender = mender.filter(|mender| mender.has_rewritten(device.id));
            if let Some(Err(error)) = mender.map(|mender| mender.flush_device(device.id)) {
                device.counts.uncorrectable_errors += 1;
                device.ended = Ended::Failed;
                found.found(&Finding::of_device(device.id, &error.context("repairs are not durable")));
            }
        }
        let findings = recorder.findings();
        report.left_out = findings.left_out();
        let damage =
            |finding: &Finding| Damage { finding: finding.clone(), files: Vec::new(), more_files: 0 };
        report.damages = findings.iter().map(damage).collect();
        report.keep(&recorder, &engine);
        report.read_ahead = [TreeId::EXTENT, TreeId::CSUM].map(|tree| engine.read_ahead_of(tree));
        drop(engine);
        name_files(&mut report, devices, &|| progress.names_on() && !recorder.is_asked_to_end());
        report.keep_files(&recorder);
        Ok((report, recorder))
    }

    /// The recorder of the findings, and of the status if that is wanted.
    fn recorder(&self, engine: &Engine) -> Result<Recorder> {
        let paths = host_paths(engine);
        let mode = if self.reads_only { Mode::ReadsOnly } else { Mode::Mends };
        let Some((dir, resumes)) = &self.status else { return Recorder::begin(None, engine, &paths, mode) };
        let file = StatusFile::of_engine(dir, engine);
        let file = file.ok_or_else(|| Error::new(ErrorKind::DeviceMissing, "all devices are missing"))?;
        let running = file.begin()?;
        match resumes {
            true => Recorder::resume(running, engine, &paths, mode),
            false => Recorder::begin(Some(running), engine, &paths, mode),
        }
    }

    /// Scrubs all present devices at once.
    fn scrub_all(
        &self,
        engine: &Engine,
        mender: Option<Mender<'_>>,
        found: &ScrubFindings<'_>,
    ) -> (Vec<DeviceReport>, Searches) {
        let scrub = mender.map_or_else(|| Walker::reading(engine), |mender| Walker::mending(engine, mender));
        let scrub = if self.without_read_ahead { scrub.without_read_ahead() } else { scrub };
        let scrub = if self.accepts_unsummed { scrub.accepting_unsummed() } else { scrub };
        let scrub = scrub.starting_at(found.recorder.starts());
        let with_device = |id| Some((id, engine.volume().device(id)?));
        let there: Vec<_> =
            engine.devices().into_iter().filter_map(|device| with_device(device.id)).collect();
        let is_done = |id| found.recorder.is_done(id);
        let outcomes: Vec<Result<_>> = std::thread::scope(|threads| {
            let begin = |(id, _): &(DevId, _)| {
                let (id, scrub) = (*id, &scrub);
                let device = move || match is_done(id) {
                    true => Ok((Counts::default(), Ended::Whole)),
                    false => scrub.device(id, found),
                };
                std::thread::Builder::new().spawn_scoped(threads, device)
            };
            let running: Vec<_> = there.iter().map(begin).collect();
            let end = |one: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| match one {
                Ok(one) => one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(error) => Err(Error::from(error).context("starting a thread")),
            };
            running.into_iter().map(end).collect()
        });
        let report = |((id, device), outcome): ((DevId, Arc<dyn BlockDevice>), Result<_>)| {
            let (mut counts, ended) = outcome.unwrap_or_else(|error| {
                found.found(&Finding::of_device(id, &error));
                (Counts { uncorrectable_errors: 1, ..Counts::default() }, Ended::Failed)
            });
            counts += scrub.unclaimed(id);
            DeviceReport { id, path: device.host_path(), counts, ended }
        };
        (there.into_iter().zip(outcomes).map(report).collect(), scrub.searches())
    }
}

/// Adds the findings on the only device of a filesystem to its error counters. With several devices only repairs write.
fn count_errors(report: &mut Report, devices: &DeviceSet, recorder: &Recorder) {
    let [device] = &report.devices[..] else { return };
    let has_log = report.has_log;
    let [read, corruption, generation] = recorder.unnoted((device.id, &device.counts));
    let errors = DeviceErrors { read, corruption, generation, ..DeviceErrors::default() };
    if !errors.any() {
        return;
    }
    let is_in_doubt = |damage: &Damage| {
        damage.finding.what == FindingKind::Superblock && damage.finding.outcome != Outcome::Mended
    };
    let counted = match has_log {
        // The log needs a replay. A mount without writes leaves it.
        true => {
            let advice = format!("replay it with `creamery touch {}:/`", device.path.display());
            Err(Error::new(ErrorKind::Busy, "the log is not replayed").advise(advice))
        }
        // A commit would rewrite all copies.
        false if report.damages.iter().any(is_in_doubt) => {
            let what = Error::new(ErrorKind::Corrupt, "a superblock copy is damaged or outdated");
            Err(what.advise("run `creamery rescue super-recover`"))
        }
        false => Image::options().write().open_set(devices.clone()).and_then(|fs| {
            fs.fs.add_device_errors(device.id, &errors)?;
            fs.fs.engine().commit()?;
            // A status with this commit is not resumed after an older state was restored.
            recorder.noted((device.id, &device.counts), fs.fs.engine().volume().generation());
            fs.close()?;
            recorder.keep()
        }),
    };
    if let Err(error) = counted {
        let error = error.context("the numbers of `device stats` are not kept");
        let advice = error.advice().map_or_else(String::new, |advice| format!("; {advice}"));
        report.not_kept.get_or_insert(format!("{error}{advice}"));
    }
}

/// Finds the files of bad data. This judges nothing: a sector whose file cannot be named stays an address.
fn name_files(report: &mut Report, devices: &DeviceSet, goes_on: &dyn Fn() -> bool) {
    let is_data = |damage: &&mut Damage| damage.finding.what.is_of_files();
    let is_left = |damage: &&mut Damage| damage.finding.outcome != Outcome::Mended;
    let mut damages = report.damages.iter_mut().filter(is_data).filter(is_left).peekable();
    if damages.peek().is_none() {
        return;
    }
    let rescue = Rescue { ignore_bad_roots: true, ignore_super_flags: true, ..Rescue::default() };
    let Ok(fs) = Image::options().rescue(rescue).open_set(devices.clone()) else { return };
    // Each bad copy is a separate finding.
    let mut known = BTreeMap::new();
    for damage in damages {
        if !goes_on() {
            break;
        }
        let Some(at) = damage.finding.logical else { continue };
        (damage.files, damage.more_files) = known.entry(at).or_insert_with(|| files_of(&fs, at)).clone();
    }
}

/// Rejects a filesystem made from a seed: nothing is written to the seed. Errors: it was made from a seed.
fn refuse_seeds(set: &NamedSet) -> Result<()> {
    // Opening reports why superblocks cannot be read.
    let members = set.superblocks(&mut |_| ()).unwrap_or_default();
    let fsids: Vec<Uuid> = members.iter().map(|(_, superblock)| superblock.fsid()).collect();
    if fsids.iter().all(|fsid| Some(fsid) == fsids.first()) {
        return Ok(());
    }
    let what = "repairing a filesystem with a seed device";
    Err(Error::unsupported(what).advise("scrub it with --readonly (-r)"))
}

/// Adds the devices that were found but not named to the advice of an error.
fn with_devices(error: Error, set: &NamedSet) -> Error {
    if error.kind() != ErrorKind::DeviceMissing {
        return error;
    }
    let found = set.superblocks(&mut |_| ()).unwrap_or_default();
    let others = found.iter().skip(set.named().count());
    let words: Vec<String> = others.map(|(path, _)| format!("--device {}", path.display())).collect();
    match words.is_empty() {
        true => error,
        false => {
            error.context("repairing needs all devices by name").advise(format!("add {}", words.join(" ")))
        }
    }
}
