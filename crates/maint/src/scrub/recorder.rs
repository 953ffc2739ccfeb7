//! Stores the status of a running scrub, so that another scrub can go on where it stopped.
//!
//! # Invariants
//! - SCRUB-4: everything that a status counts as done is durable: the devices are flushed between counting and writing.
//!   Shown by `status`, the case scrub-matrix/a-status-calls-nothing-done-that-is-not-durable, and by `failed_flush`.
//! - SCRUB-7: the file of findings belongs to the scrub of the status, and has all findings that its numbers count. The findings of the
//!   last scrub go before the status of a new one comes, and new findings are written before the numbers that count them. A scrub that is
//!   resumed keeps those of its earlier parts. Shown by `of_one_scrub`, the case
//!   scrub/findings-are-those-of-all-parts-of-one-scrub.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Error, ErrorKind, Generation, Result};
use creamery_txn::Engine;

use super::findings::Stopped;
use super::status_file::Running;
use super::{Counts, DeviceStatus, Ended, Finding, Findings, Identity, Mode, Status};

/// The paths of devices on the host.
pub type HostPaths = BTreeMap<DevId, PathBuf>;

/// Time between two writes of a running scrub's status.
const EVERY: Duration = Duration::from_secs(5);
/// The minimum ratio of other work to the time for writing the status of errors.
const OTHER_WORK: u32 = 9;

/// Stores the status of a running scrub.
///
/// ```no_run
/// # fn example(engine: &creamery_txn::Engine, file: &creamery_maint::scrub::StatusFile) -> creamery_base::Result<()> {
/// use creamery_maint::scrub::{Mode, Recorder, Scrub, host_paths};
/// let recorder = Recorder::begin(Some(file.begin()?), engine, &host_paths(engine), Mode::ReadsOnly)?;
/// let scrub = Scrub::reading(engine).starting_at(recorder.starts());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Recorder {
    /// `None` if no place is known for the status.
    running: Option<Running>,
    /// The counts and seconds of the scrubs that this one resumes.
    before: BTreeMap<DevId, (Counts, u64)>,
    begun: Duration,
    state: RankedMutex<State, { rank::LEAF }>,
}

#[derive(Debug)]
struct State {
    status: Status,
    /// The time of the last write; `is_being_written` is set while a thread writes.
    written: Duration,
    /// The number of errors in the last write.
    written_errors: u64,
    /// The duration of the last write.
    writing: Duration,
    is_being_written: bool,
    failure: Option<Error>,
    has_failed: bool,
    findings: Findings,
    /// Findings that are in no file yet.
    unwritten: Vec<Finding>,
    /// The number of findings beyond the limit, as the file has it.
    written_left_out: u64,
    /// The limits of devices when they were last read, bytes a second.
    limits: BTreeMap<DevId, u64>,
}

impl Recorder {
    /// Begins a scrub of all devices from their beginning.
    ///
    /// # Errors
    /// The status cannot be written, or the limits of devices cannot be read.
    pub fn begin(running: Option<Running>, engine: &Engine, paths: &HostPaths, mode: Mode) -> Result<Self> {
        Self::with(running, (engine, paths), mode, None)
    }

    /// Goes on where the last scrub stopped. It only reads if the last one did, or if this one is to ([`mode`](Self::mode)).
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin). [`ErrorKind::NotFound`]: there is no last scrub, or it is complete. [`ErrorKind::InvalidInput`]: it
    /// was one of other devices, or has seen a later commit than the present one.
    pub fn resume(running: Running, engine: &Engine, paths: &HostPaths, mode: Mode) -> Result<Self> {
        let nothing = || {
            let what = format!(
                "nothing to resume: no scrub of filesystem {} was cancelled or interrupted",
                engine.volume().fsid()
            );
            Error::new(ErrorKind::NotFound, what).advise("begin one with `creamery scrub start`")
        };
        let mut last = running.file().read()?.ok_or_else(nothing)?;
        if !last.devices.iter().any(DeviceStatus::is_resumable) {
            return Err(nothing());
        }
        let mut findings = running.file().read_findings()?;
        let again = findings.keep_found(|dev| {
            let its = last.devices.iter().find(|device| device.id == dev);
            match its.map(|device| (device.ended, device.counts.last_physical)) {
                Some((Some(Ended::Whole), _)) => Stopped::Nowhere,
                Some((Some(Ended::Failed), place)) => Stopped::Failed(place),
                None => Stopped::Failed(0),
                Some((_, place)) => Stopped::At(place),
            }
        });
        let mode = if last.mode() == Mode::ReadsOnly { Mode::ReadsOnly } else { mode };
        for device in &mut last.devices {
            let failures = again.iter().filter(|dev| **dev == device.id).count() as u64;
            device.counts.uncorrectable_errors = device.counts.uncorrectable_errors.saturating_sub(failures);
        }
        Self::with(Some(running), (engine, paths), mode, Some((last, findings)))
    }

    fn with(
        running: Option<Running>,
        (engine, paths): (&Engine, &HostPaths),
        mode: Mode,
        last: Option<(Status, Findings)>,
    ) -> Result<Self> {
        let (last, findings) = last.map_or_else(Default::default, |(last, findings)| (Some(last), findings));
        let (env, fsid, generation) = (engine.env(), engine.volume().fsid(), engine.volume().generation());
        let now = u64::try_from(env.now().sec).unwrap_or(0);
        let (mut devices, mut before) = (Vec::new(), BTreeMap::new());
        for (id, identity) in identities(engine, paths) {
            let last = last.as_ref().and_then(|last| last.devices.iter().find(|device| device.id == id));
            if let Some(last) = last.filter(|last| last.identity != identity) {
                return Err(of_another(running.as_ref(), last, &identity));
            }
            if let Some(last) = last.filter(|last| last.generation > generation) {
                return Err(of_older_state(running.as_ref(), last.generation, generation));
            }
            let device = match last {
                Some(last) => DeviceStatus {
                    counts: match last.counts {
                        counts if counts.last_physical > 0 || !last.is_resumable() => counts,
                        counts => counts.mended_before_it_began(),
                    },
                    resumed: now,
                    mode,
                    generation,
                    ended: last.ended.filter(|_| !last.is_resumable()),
                    ..last.clone()
                },
                None => DeviceStatus::new((id, identity), (now, generation), mode),
            };
            before.insert(id, (device.counts, device.seconds));
            devices.push(device);
        }
        let status = Status { fsid, devices };
        let limits = match &running {
            Some(running) => running.file().limits()?,
            None => BTreeMap::new(),
        };
        let state = State {
            limits,
            written_errors: errors_of(&status),
            writing: Duration::ZERO,
            status,
            written: env.monotonic(),
            is_being_written: false,
            failure: None,
            has_failed: false,
            written_left_out: findings.left_out(),
            findings,
            unwritten: Vec::new(),
        };
        if let Some(running) = &running {
            running.begin_with(&state.status, &state.findings)?;
        }
        Ok(Self { running, before, begun: env.monotonic(), state: RankedMutex::new(state) })
    }

    /// Whether this scrub repairs.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.state.lock().status.mode()
    }

    /// The offset at which each device goes on, bytes.
    #[must_use]
    pub fn starts(&self) -> BTreeMap<DevId, u64> {
        self.before.iter().map(|(id, (counts, _))| (*id, counts.last_physical)).collect()
    }

    /// Whether an earlier scrub has completed the device.
    #[must_use]
    pub fn is_done(&self, dev: DevId) -> bool {
        self.state.lock().status.devices.iter().any(|device| device.id == dev && device.ended.is_some())
    }

    /// The counts of a device by the scrubs that this one resumes.
    #[must_use]
    pub fn before(&self, dev: DevId) -> Counts {
        self.before.get(&dev).map(|(counts, _)| *counts).unwrap_or_default()
    }

    /// The stored limit of a device, bytes a second. If limits cannot be read, the last ones hold.
    #[must_use]
    pub fn limit(&self, dev: DevId) -> Option<u64> {
        let now = self.running.as_ref()?.file().limits();
        let mut state = self.state.lock();
        if let Ok(now) = now {
            state.limits = now;
        }
        state.limits.get(&dev).copied()
    }

    /// The file with the findings; `None` if there are none, or they are not kept.
    #[must_use]
    pub fn findings_file(&self) -> Option<PathBuf> {
        let path = self.running.as_ref()?.file().findings();
        (!self.state.lock().findings.is_empty()).then_some(path)
    }

    /// Adds a finding.
    pub fn found(&self, finding: &Finding) {
        let mut state = self.state.lock();
        if state.findings.add(finding.clone()) && self.running.is_some() {
            state.unwritten.push(finding.clone());
        }
    }

    /// The findings, also those of the scrubs that this one resumes.
    #[must_use]
    pub fn findings(&self) -> Findings {
        self.state.lock().findings.clone()
    }

    /// Notes that a commit has rewritten the superblocks of a device.
    pub fn superblocks_are_mended(&self, dev: DevId) {
        self.state.lock().findings.superblocks_are_mended(dev);
    }

    /// The part of a device's counts that the filesystem's own counters lack, if this scrub has counted `counts`: read errors, corruption,
    /// generation errors.
    #[must_use]
    pub fn unnoted(&self, (dev, counts): (DevId, &Counts)) -> [u64; 3] {
        let all = self.noted_by(dev, counts);
        let state = self.state.lock();
        let device = state.status.devices.iter().find(|device| device.id == dev);
        let noted = device.map_or([0; 3], |device| device.noted);
        std::array::from_fn(|number| all[number].saturating_sub(noted[number]))
    }

    /// Notes that the filesystem's counters include them since the commit of this generation.
    pub fn noted(&self, (dev, counts): (DevId, &Counts), generation: Generation) {
        let all = self.noted_by(dev, counts);
        let mut state = self.state.lock();
        state.status.devices.iter_mut().for_each(|device| device.generation = generation);
        if let Some(device) = state.status.devices.iter_mut().find(|device| device.id == dev) {
            device.noted = all;
        }
    }

    fn noted_by(&self, dev: DevId, counts: &Counts) -> [u64; 3] {
        let mut all = self.before(dev);
        all += *counts;
        [all.read_errors, all.corruption_errors(), all.generation_errors]
    }

    /// Ends the findings: names the files with damage, for up to `most` findings, and writes all findings anew. If the status could not be
    /// written, the file keeps the findings of the status that is there.
    ///
    /// # Errors
    /// The findings cannot be written.
    pub fn name_files(&self, most: usize, files: &mut dyn FnMut(&Finding) -> Vec<String>) -> Result<()> {
        let mut findings = self.findings();
        findings.name_files(most, files);
        let mut state = self.state.lock();
        state.findings = findings;
        if state.has_failed {
            return Ok(()); // the file has those that the status counts
        }
        let news = state.all();
        drop(state);
        self.running.as_ref().map_or(Ok(()), |running| news.findings.write(running))
    }

    /// Whether a request to end the scrub has come.
    #[must_use]
    pub fn is_asked_to_end(&self) -> bool {
        self.running.as_ref().is_some_and(Running::is_asked_to_end)
    }

    /// Notes the counts of a device. Counts that are less far than earlier ones are ignored: of two threads with a batch each, the one that
    /// was less far may report later.
    pub fn note(&self, engine: &Engine, (dev, counts): (DevId, &Counts)) {
        let (now, generation) = (engine.env().monotonic(), engine.volume().generation());
        let mut state = self.state.lock();
        let is_farther =
            |device: &DeviceStatus| device.id == dev && device.counts.last_physical > counts.last_physical;
        if !state.status.devices.iter().any(is_farther) {
            self.count(&mut state, (dev, counts), now, generation);
        }
    }

    /// Writes the status, after `flush`, if the last write was some seconds ago, or an error was counted since. With many errors it takes a
    /// tenth of the time at most. A killed process loses the counts since then.
    pub fn write_if_due(&self, engine: &Engine, flush: &dyn Fn() -> Result<()>) {
        if self.running.is_none() {
            return;
        }
        let now = engine.env().monotonic();
        let mut state = self.state.lock();
        let errors = errors_of(&state.status);
        let since = now.saturating_sub(state.written);
        let is_due = since >= EVERY || errors != state.written_errors && since >= OTHER_WORK * state.writing;
        // After a failed flush it is unknown which writes are durable.
        if !is_due || state.failure.is_some() || std::mem::replace(&mut state.is_being_written, true) {
            return;
        }
        let news = state.news();
        drop(state);
        let written = flush().and_then(|()| self.write(&news));
        let mut state = self.state.lock();
        state.written = engine.env().monotonic();
        state.writing = state.written.saturating_sub(now);
        state.written_errors = errors;
        state.is_being_written = false;
        if let Err(error) = written {
            state.failure.get_or_insert(error);
        }
    }

    fn count(
        &self,
        state: &mut State,
        (dev, counts): (DevId, &Counts),
        now: Duration,
        generation: Generation,
    ) {
        let (before, seconds) = self.before.get(&dev).copied().unwrap_or_default();
        if let Some(device) = state.status.devices.iter_mut().find(|device| device.id == dev) {
            device.counts = before;
            device.counts += *counts;
            device.generation = generation;
            device.seconds = seconds + now.saturating_sub(self.begun).as_secs();
        }
    }

    /// Ends the scrub, with its own counts and the end of each device. The caller must have made its writes durable. It counts as running
    /// until this is dropped.
    ///
    /// # Errors
    /// The status could not be written, now or before.
    pub fn end(&self, engine: &Engine, devices: &[(DevId, Counts, Ended)]) -> Result<Status> {
        let (now, generation) = (engine.env().monotonic(), engine.volume().generation());
        let mut state = self.state.lock();
        for (dev, counts, ended) in devices {
            self.count(&mut state, (*dev, counts), now, generation);
            if let Some(device) = state.status.devices.iter_mut().find(|device| device.id == *dev) {
                device.ended = Some(*ended);
            }
        }
        let (news, failure) = (state.all(), state.failure.take());
        state.has_failed |= failure.is_some();
        drop(state);
        let written = failure.map_or_else(|| self.write(&news), Err);
        self.state.lock().has_failed |= written.is_err();
        written.map(|()| news.status)
    }

    fn write(&self, News { status, findings }: &News) -> Result<()> {
        let Some(running) = &self.running else { return Ok(()) };
        findings.write(running)?;
        running.write(status)
    }

    /// Writes all findings and the status of a scrub that pauses. The caller must have made its writes durable.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn keep(&self) -> Result<()> {
        let news = self.state.lock().all();
        self.write(&news)
    }

    /// The present status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.state.lock().status.clone()
    }
}

/// The number of errors on all devices.
fn errors_of(status: &Status) -> u64 {
    status.devices.iter().fold(0, |sum, device| sum.saturating_add(device.counts.errors()))
}

/// The data to write: the status, and findings.
struct News {
    status: Status,
    findings: ToWrite,
}

enum ToWrite {
    All(Findings),
    /// Findings that are in no file.
    More(Vec<Finding>),
}

impl ToWrite {
    fn write(&self, running: &Running) -> Result<()> {
        match self {
            Self::All(findings) => running.write_findings(findings),
            Self::More(findings) => running.add_findings(findings),
        }
    }
}

impl State {
    /// The findings that are in no file. The last line has the number of those beyond the limit, so all are rewritten if it changes.
    fn news(&mut self) -> News {
        if self.findings.left_out() != self.written_left_out {
            return self.all();
        }
        let findings = ToWrite::More(std::mem::take(&mut self.unwritten));
        News { status: self.status.clone(), findings }
    }

    fn all(&mut self) -> News {
        self.unwritten.clear();
        self.written_left_out = self.findings.left_out();
        News { status: self.status.clone(), findings: ToWrite::All(self.findings.clone()) }
    }
}

/// The present devices, and the identity of each, which differs from those of its copies.
fn identities(engine: &Engine, paths: &HostPaths) -> Vec<(DevId, Identity)> {
    let identity = |device: creamery_txn::DeviceReport| {
        let place = engine.volume().device(device.id)?.id().numbers();
        let path = paths.get(&device.id).cloned().unwrap_or_default();
        Some((device.id, Identity { uuid: device.uuid, place, path }))
    };
    engine.devices().into_iter().filter_map(identity).collect()
}

/// The absolute paths of the present devices, without links and `..`: a device has one path, regardless of the name it was opened by, also
/// for a process that later leaves the directory to which that name was relative.
#[must_use]
pub fn host_paths(engine: &Engine) -> HostPaths {
    let path = |id: DevId| Some((id, one_path(engine.volume().device(id)?.host_path())));
    engine.devices().into_iter().filter_map(|device| path(device.id)).collect()
}

/// The canonical path of a file. A suffix for a partition stays.
fn one_path(path: PathBuf) -> PathBuf {
    let of_folder = || {
        let folder = std::path::absolute(&path).ok()?.parent()?.canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(of_folder).unwrap_or(path)
}

fn of_older_state(running: Option<&Running>, seen: Generation, found: Generation) -> Error {
    let what = format!(
        "status of scrub {}: the image was replaced by an older state: the scrub has seen generation {seen}, found {found}",
        running.map(|running| running.file().path()).unwrap_or_default().display(),
    );
    Error::new(ErrorKind::InvalidInput, what).advise("begin a new one with `creamery scrub start`")
}

fn of_another(running: Option<&Running>, last: &DeviceStatus, found: &Identity) -> Error {
    let Identity { uuid, place, path } = &last.identity;
    let what = format!(
        "status of scrub {}: device {} was {} (UUID {uuid}, place {place:?}), found {} (UUID {}, place {:?})",
        running.map(|running| running.file().path()).unwrap_or_default().display(),
        last.id,
        path.display(),
        found.path.display(),
        found.uuid,
        found.place,
    );
    Error::new(ErrorKind::InvalidInput, what).advise("begin a new one with `creamery scrub start`")
}
