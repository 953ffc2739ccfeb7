//! The mount's end: the scrub as background work.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Error, ErrorKind, Result};
use creamery_fs::{DeviceErrors, Filesystem};
use creamery_fuse::RequestCounts;
use creamery_maint::scrub::{
    Counts, DeviceScrub, Ended, Finding, Findings, HostPaths, Mode, Pace, Recorder, Scrub, Sink, Status,
    StatusFile, Step, Together, host_paths, more_files_line,
};
use creamery_txn::{BackgroundWork, Due, Engine};
use creamery_volume::Mender;

use super::files::{FileText, KnownFiles};
use super::host_room::check_host_room;
use super::rest::{Rest, of_users, processors};
use super::{FoundText, OrderKind, ScrubAnswer, ScrubOrder};
use crate::access_times::{Watched, WriteRight};
use crate::lost_writes::Tell;

/// Time after which a scrub checks the limits again.
const LIMITS_EVERY: Duration = Duration::from_secs(1);
/// Bytes of a device that a step reads at most: this bounds the delay of other background work.
const STEP: u64 = 8 << 20;
/// Findings that are logged, sent in an answer, and whose files are named; further ones are counted.
const FINDINGS_MAX: usize = 1000;

/// The scrub of a mount.
pub(crate) struct Scrubbing {
    fs: Weak<Filesystem>,
    row: Arc<Watched>,
    /// The directory of its status, and the mount point; `None` if there is no such directory.
    kept: Option<(PathBuf, PathBuf)>,
    state: RankedMutex<State, { rank::LEAF }>,
    tell: OnceLock<Tell>,
    /// The requests to the mount.
    requests: OnceLock<Arc<RequestCounts>>,
    /// The number of those that were about the scrub.
    asked: AtomicU64,
    /// The paths of the devices: a server changes its working directory.
    paths: HostPaths,
}

#[derive(Default)]
struct State {
    /// Also `None` during a step.
    work: Option<Box<Work>>,
    is_running: bool,
    is_cancelled: bool,
    /// When the next step is due.
    due: Duration,
    last: Option<Status>,
    findings: Findings,
    /// Files of the remaining findings, in their order.
    files: Vec<(Vec<FileText>, u64)>,
    status_failure: Option<String>,
}

/// The rest of the work.
struct Work {
    recorder: Recorder,
    devices: VecDeque<(DeviceScrub, Pace)>,
    ended: Vec<(DevId, Counts, Ended)>,
    together: Arc<Together>,
    reads_only: bool,
    /// Whether repairs may have been made, which must become durable.
    mends: bool,
    /// Bytes of each device per second; `None`: the limit in the file of limits.
    limit: Option<u64>,
    rest: Rest,
}

impl Scrubbing {
    pub(crate) fn new(fs: &Arc<Filesystem>, row: &Arc<Watched>, kept: Option<(PathBuf, PathBuf)>) -> Self {
        let paths = host_paths(fs.engine());
        // A directory in the mount itself would keep the mount busy, and wait for itself.
        let kept = kept.filter(|(dir, point)| !lies_below(dir, point));
        let (fs, row) = (Arc::downgrade(fs), Arc::clone(row));
        Self {
            fs,
            row,
            kept,
            state: RankedMutex::default(),
            tell: OnceLock::new(),
            requests: OnceLock::new(),
            asked: AtomicU64::new(0),
            paths,
        }
    }

    /// Sets the writer of the log.
    pub(crate) fn tell_to(&self, tell: Tell) {
        let _ = self.tell.set(tell);
    }

    /// Makes the scrub rest for users of the mount, whose requests are counted there.
    pub(crate) fn rest_for(&self, requests: Arc<RequestCounts>) {
        let _ = self.requests.set(requests);
    }

    /// Counts a request about the scrub.
    pub(super) fn is_asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    fn file(&self, engine: &Engine) -> Option<StatusFile> {
        let (dir, _) = self.kept.as_ref()?;
        StatusFile::of_engine(dir, engine)
    }

    /// Starts a scrub. Errors: one runs; it repairs and the mount is read-only; those of the trees.
    pub(super) fn start(&self, order: &ScrubOrder) -> Result<()> {
        let fs = self.fs.upgrade().ok_or_else(gone)?;
        let engine = fs.engine();
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_running, true) {
            let what = "a scrub of this mount is running";
            let advice = "`creamery scrub status` shows how far it is, `creamery scrub cancel` ends it";
            return Err(Error::new(ErrorKind::Busy, what).advise(advice));
        }
        let last = std::mem::replace(&mut *state, State { is_running: true, ..State::default() });
        drop(state);
        match self.begin(engine, order) {
            Ok(work) => {
                self.state.lock().work = Some(Box::new(work));
                engine.background().wake();
                Ok(())
            }
            Err(error) => {
                *self.state.lock() = State { is_running: false, ..last };
                Err(error)
            }
        }
    }

    fn begin(&self, engine: &Engine, order: &ScrubOrder) -> Result<Work> {
        let may_write = engine.read_only().is_none() && self.row.write_in_background().is_ok();
        let file = self.file(engine);
        let last =
            file.as_ref().filter(|_| order.wish == OrderKind::Resume).map(StatusFile::read).transpose()?;
        let began = last.flatten().map_or(Mode::Mends, |last| last.mode());
        let mode = if order.reads_only { Mode::ReadsOnly } else { began };
        if mode == Mode::Mends && !may_write {
            let what = Error::new(ErrorKind::ReadOnly, "repairing through a read-only mount");
            return Err(what.advise("scrub it with --readonly (-r)"));
        }
        if mode == Mode::Mends {
            engine.volume().mender()?;
        }
        let point = self.kept.as_ref().map(|(_, point)| point.as_path());
        let running = file.map(|file| file.begin_in(point)).transpose()?;
        let recorder = match (order.wish, running) {
            (OrderKind::Resume, Some(running)) => Recorder::resume(running, engine, &self.paths, mode)?,
            (OrderKind::Resume, None) => {
                let what = "nothing to resume: the mount keeps no scrub status";
                return Err(Error::new(ErrorKind::NotFound, what));
            }
            (_, running) => Recorder::begin(running, engine, &self.paths, mode)?,
        };
        let mode = recorder.mode();
        let limit = Some(order.limit).filter(|limit| *limit > 0);
        let mut work = Work {
            recorder,
            devices: VecDeque::new(),
            ended: Vec::new(),
            together: Arc::default(),
            reads_only: mode == Mode::ReadsOnly,
            mends: mode == Mode::Mends,
            limit,
            rest: Rest::among(processors()),
        };
        self.state.lock().findings = work.recorder.findings();
        let found = StepFindings { scrubbing: self, recorder: &work.recorder, engine };
        let scrub = work.scrub(engine)?;
        let is_left = |id: &DevId| engine.volume().device(*id).is_some() && !work.recorder.is_done(*id);
        let left: Vec<DevId> = engine.devices().into_iter().map(|device| device.id).filter(is_left).collect();
        for id in left {
            match scrub.begin(id, &found) {
                Ok(device) => work.devices.push_back((device, Pace::default())),
                // The scrub of the other devices has begun, and replaces the last one.
                Err(error) => work.ended.push(failed((id, Counts::default()), &error, &found)),
            }
        }
        Ok(work)
    }

    /// Ends the scrub after its current reads.
    pub(super) fn cancel(&self) {
        let mut state = self.state.lock();
        state.is_cancelled = true;
        state.due = Duration::ZERO;
        drop(state);
        if let Some(fs) = self.fs.upgrade() {
            fs.engine().background().wake();
        }
    }

    /// Stores the limit of a device, or of all devices. Errors: no such device; there is no directory for it.
    pub(super) fn set_limit(&self, device: Option<u64>, limit: u64) -> Result<()> {
        let fs = self.fs.upgrade().ok_or_else(gone)?;
        let engine = fs.engine();
        let file = self
            .file(engine)
            .ok_or_else(|| Error::unsupported("setting limits: the mount keeps no scrub status"))?;
        let ids = engine.devices().into_iter().map(|device| device.id);
        let chosen: Vec<DevId> = ids.filter(|id| device.is_none_or(|device| id.get() == device)).collect();
        if chosen.is_empty() {
            return Err(Error::invalid(format!("no device with ID {}", device.unwrap_or_default())));
        }
        file.set_limits(&chosen.into_iter().map(|id| (id, limit)).collect())?;
        self.state.lock().due = Duration::ZERO;
        engine.background().wake();
        Ok(())
    }

    /// The state of the scrub, without the contents of files.
    pub(super) fn tell_without_files(&self) -> Result<ScrubAnswer> {
        self.tell_with(None)
    }

    /// The state of the scrub.
    pub(super) fn tell(&self) -> Result<ScrubAnswer> {
        let fs = self.fs.upgrade().ok_or_else(gone)?;
        let file = self.file(fs.engine());
        drop(fs);
        self.tell_with(file)
    }

    fn tell_with(&self, file: Option<StatusFile>) -> Result<ScrubAnswer> {
        let fs = self.fs.upgrade().ok_or_else(gone)?;
        let engine = fs.engine();
        let limits = file.as_ref().map_or(Ok(BTreeMap::new()), StatusFile::limits);
        let limits_failure = limits.as_ref().err().map(Error::with_advice);
        let limits = limits.unwrap_or_default();
        let limit = |device: creamery_txn::DeviceReport| {
            let path = self.paths.get(&device.id).cloned().unwrap_or_default();
            let path = path.into_os_string().into_vec();
            (device.id.get(), path, limits.get(&device.id).copied().unwrap_or(0))
        };
        let limits = engine.devices().into_iter().map(limit).collect();
        let hindrance = self.hindrance(engine);
        let state = self.state.lock();
        let mut answer = ScrubAnswer {
            uuid: engine.volume().fsid().to_string(),
            status: state.last.as_ref().map(Status::to_text),
            is_running: state.is_running,
            status_failure: state.status_failure.clone(),
            limits_failure,
            hindrance,
            limits,
            ..ScrubAnswer::default()
        };
        let (mut findings, files) = (state.findings.clone(), state.files.clone());
        drop(state);
        if answer.status.is_none()
            && let Some(file) = &file
            && let Some(last) = file.read()?
        {
            answer.status = Some(last.to_text()); // of an earlier mount
            findings = file.read_findings()?;
        }
        let files = files.into_iter().chain(std::iter::repeat((Vec::new(), 0)));
        let found = findings.iter().take(FINDINGS_MAX).zip(files);
        answer.findings = found.map(|(finding, files)| FoundText::of(finding, files)).collect();
        let cut = findings.left().len().saturating_sub(FINDINGS_MAX) as u64;
        answer.left_out = findings.left_out().saturating_add(cut);
        let path = file.map(|file| file.findings()).filter(|path| path.exists());
        answer.findings_file = path.map(|path| path.into_os_string().into_vec());
        Ok(answer)
    }

    /// The reason why nothing can be repaired through the mount, if there is one.
    fn hindrance(&self, engine: &Engine) -> Option<String> {
        // A query takes no right to write, because a remount would have to wait for it.
        if engine.read_only().is_some() || self.row.is_read_only() {
            let advice = "unmount it and scrub the image";
            return Some(format!("the mount is read-only: {advice}"));
        }
        engine.volume().check_mendable().err().map(|error| error.with_advice())
    }

    /// Ends the scrub with the mount: the rest is left for a later scrub.
    pub(crate) fn stop(&self) {
        let work = self.state.lock().work.take();
        let (Some(mut work), Some(fs)) = (work, self.fs.upgrade()) else { return };
        let engine = fs.engine();
        if let Err(error) = work.give_up(engine) {
            self.say(&format!("the scrub ended: {error}"));
        }
        // The commit may repair superblocks, so the status and the findings come after it.
        // A mount that became read-only while the scrub rested is not written to.
        if !work.reads_only
            && !self.row.was_read_only()
            && let Err(error) = self.count_errors(&fs, &mut work)
        {
            self.say(&format!("the numbers of `device stats` are not kept: {error}"));
        }
        work.ended.iter().for_each(|(dev, counts, _)| work.recorder.note(engine, (*dev, counts)));
        let flushed = if work.mends { engine.volume().mender().and_then(Mender::flush) } else { Ok(()) };
        if let Err(error) = flushed.and_then(|()| work.recorder.keep()) {
            self.say(&format!("the status of the scrub is not kept: {error}"));
        }
    }

    fn say(&self, line: &str) {
        if let Some(tell) = self.tell.get() {
            tell(line);
        }
    }

    /// Continues the scrub. Returns the rest of the work.
    fn go_on(&self, fs: &Filesystem, mut work: Box<Work>) -> Result<Option<Box<Work>>> {
        let engine = fs.engine();
        let now = engine.env().monotonic();
        // This reads a file, so it comes before the right to write.
        let waits = work.waits(now);
        let next = waits.iter().position(|(wait, _)| wait.is_zero());
        let limit = next.and_then(|next| waits[next].1);
        // A mount that becomes read-only waits while the right is held.
        let right = if work.reads_only { None } else { self.row.write_in_background().ok() };
        let is_aborted = engine.aborted().is_some();
        if is_aborted || !work.reads_only && (right.is_none() || engine.read_only().is_some()) {
            let why = if is_aborted { "was aborted" } else { "is read-only now" };
            self.say(&format!("the mount {why}, and its scrub has ended"));
            work.reads_only = true;
            self.state.lock().is_cancelled = true;
        }
        if self.state.lock().is_cancelled {
            work.give_up(engine)?;
        }
        if work.devices.is_empty() {
            self.end(fs, *work, right);
            return Ok(None);
        }
        let Some((mut device, mut pace)) = next.and_then(|next| work.devices.remove(next)) else {
            self.state.lock().due = due(now, &waits);
            return Ok(Some(work));
        };
        let found = StepFindings { scrubbing: self, recorder: &work.recorder, engine };
        let (before, worked) = (device.bytes_asked(), device.processor_time());
        let bytes = limit.map_or(STEP, |limit| Pace::step(limit).min(STEP));
        let scrub = work.scrub(engine)?;
        let step = scrub.step(&mut device, bytes, &found);
        match limit {
            Some(limit) => pace.read(now, device.bytes_asked() - before, limit),
            None => pace = Pace::default(),
        }
        if work.limit != Some(u64::MAX) {
            let about_scrub = self.asked.load(Ordering::Relaxed);
            let requests = self.requests.get().map_or(0, |counts| of_users(counts, about_scrub));
            work.rest.after_step(engine.env().monotonic(), device.processor_time() - worked, requests);
        }
        match step {
            Ok(Step::More | Step::Waits) => work.devices.push_back((device, pace)),
            Ok(Step::Ended(ended)) => work.ended.push((device.device(), *device.counts(), ended)),
            Err(error) => {
                scrub.give_up_as_failed(&mut device);
                work.ended.push(failed((device.device(), *device.counts()), &error, &found));
            }
        }
        // The guard of the step and the right to write are gone, so no writer and no remount waits for the write of the status.
        drop(right);
        let flush = || if work.mends { engine.volume().mender().and_then(Mender::flush) } else { Ok(()) };
        work.recorder.write_if_due(engine, &flush);
        let status = work.recorder.status();
        let now = engine.env().monotonic();
        let due = due(now, &work.waits(now));
        let mut state = self.state.lock();
        state.last = Some(status);
        state.due = due;
        drop(state);
        Ok(Some(work))
    }

    /// Ends the scrub of all devices. `right` is the right to write, if it repairs.
    fn end(&self, fs: &Filesystem, mut work: Work, right: Option<WriteRight<'_>>) {
        let engine = fs.engine();
        if work.mends
            && let Err(error) = engine.volume().mender().and_then(Mender::flush)
        {
            let error = error.context("repairs may not be durable");
            let found = StepFindings { scrubbing: self, recorder: &work.recorder, engine };
            // It is unknown what is durable: the next scrub reads the device again.
            for end in &mut work.ended {
                *end = failed((end.0, Counts::default()), &error, &found);
            }
        }
        let mut uncounted = None;
        if !work.reads_only
            && let Err(error) = self.count_errors(fs, &mut work)
        {
            uncounted = Some(format!("the numbers of `device stats` are not kept: {error}"));
        }
        // No remount waits while files are written and named.
        drop(right);
        let kept = work.recorder.end(engine, &work.ended);
        let status = work.recorder.status();
        let (named, files) = self.name_files(fs, &work.recorder);
        let findings = work.recorder.findings();
        let mut state = self.state.lock();
        state.is_running = false;
        (state.findings, state.files) = (findings, files);
        let failure = kept.as_ref().err().or(named.as_ref().err());
        state.status_failure = failure.map(|why| format!("the status is not kept: {why}")).or(uncounted);
        state.last = Some(kept.unwrap_or(status));
    }

    /// Finds the files of the remaining findings, as far as they are known, in the order of the findings. Does not search for findings that do not fit
    /// in an answer.
    fn name_files(&self, fs: &Filesystem, recorder: &Recorder) -> (Result<()>, Vec<(Vec<FileText>, u64)>) {
        let (mut all, mut known) = (Vec::new(), KnownFiles::default());
        let kept = recorder.name_files(FINDINGS_MAX, &mut |finding| {
            let is_wanted = finding.what.is_of_files() && !self.state.lock().is_cancelled;
            let at = finding.logical.filter(|_| is_wanted);
            let files = at.map(|at| known.files_of(fs, at)).unwrap_or_default();
            let lines = files.0.iter().map(FileText::line).chain(more_files_line(files.1)).collect();
            all.push(files);
            lines
        });
        (kept, all)
    }

    /// Adds the findings to the error counters of the filesystem. The commit of the counters also repairs bad superblocks.
    fn count_errors(&self, fs: &Filesystem, work: &mut Work) -> Result<()> {
        let engine = fs.engine();
        let mut is_changed = false;
        for (dev, counts, _) in &work.ended {
            let [read, corruption, generation] = work.recorder.unnoted((*dev, counts));
            let errors = DeviceErrors { read, corruption, generation, ..DeviceErrors::default() };
            if errors.any() {
                check_host_room(&self.paths)?;
                fs.add_device_errors(*dev, &errors)?;
                is_changed = true;
            }
        }
        if !is_changed {
            return Ok(());
        }
        engine.commit()?;
        let generation = engine.volume().generation();
        work.ended.iter().for_each(|(dev, counts, _)| work.recorder.noted((*dev, counts), generation));
        let scrub = work.scrub(engine)?;
        for (dev, counts, _) in &mut work.ended {
            if counts.super_errors > 0 && scrub.are_superblocks_good(*dev) {
                counts.unverified_errors -= counts.super_errors.min(counts.unverified_errors);
                counts.corrected_errors += counts.super_errors;
                work.recorder.superblocks_are_mended(*dev);
            }
        }
        Ok(())
    }
}

/// The time when the first device may be read, or limits are checked again: one may change between the check and the wait.
fn due(now: Duration, waits: &[(Duration, Option<u64>)]) -> Duration {
    let first = waits.iter().map(|(wait, _)| *wait).min().unwrap_or_default();
    now + first.min(LIMITS_EVERY)
}

impl Work {
    /// The wait of each device from `now` on, and its limit.
    fn waits(&self, now: Duration) -> Vec<(Duration, Option<u64>)> {
        let of_device = |(device, pace): &(DeviceScrub, Pace)| {
            let limit = self.limit.or_else(|| self.recorder.limit(device.device()));
            let wait = limit.map_or(Duration::ZERO, |limit| pace.wait(now, limit));
            (wait.max(self.rest.left(now)), limit)
        };
        self.devices.iter().map(of_device).collect()
    }

    /// Ends the scrub of all devices early, each with its counters.
    fn give_up(&mut self, engine: &Engine) -> Result<()> {
        let mut devices = std::mem::take(&mut self.devices);
        let scrub = self.scrub(engine)?;
        devices.iter_mut().for_each(|(device, _)| scrub.give_up(device));
        let cancelled =
            |(device, _): &(DeviceScrub, Pace)| (device.device(), *device.counts(), Ended::Cancelled);
        self.ended.extend(devices.iter().map(cancelled));
        self.ended.iter_mut().for_each(|(dev, counts, _)| *counts += scrub.unclaimed(*dev));
        Ok(())
    }

    fn mender<'e>(&self, engine: &'e Engine) -> Result<Option<Mender<'e>>> {
        if self.reads_only { Ok(None) } else { engine.volume().mender().map(Some) }
    }

    fn scrub<'e>(&self, engine: &'e Engine) -> Result<Scrub<'e>> {
        let scrub = match self.mender(engine)? {
            Some(mender) => Scrub::mending(engine, mender),
            None => Scrub::reading(engine),
        };
        // Other processes use the mount meanwhile.
        let threads = NonZero::new(processors().get() / 2).unwrap_or(NonZero::<usize>::MIN);
        Ok(scrub
            .beside_commits()
            .on_threads(threads)
            .starting_at(self.recorder.starts())
            .sharing(&self.together))
    }
}

/// The end of a device with these counters that cannot be scrubbed any more, which adds one error and a finding.
fn failed(
    (dev, mut counts): (DevId, Counts),
    error: &Error,
    found: &StepFindings<'_>,
) -> (DevId, Counts, Ended) {
    found.found(&Finding::of_device(dev, error));
    counts.uncorrectable_errors = counts.uncorrectable_errors.saturating_add(1);
    (dev, counts, Ended::Failed)
}

/// Whether a path, which need not exist, leads to `point` or below.
fn lies_below(path: &Path, point: &Path) -> bool {
    let Ok(point) = point.canonicalize() else { return false };
    path.ancestors().find_map(|above| above.canonicalize().ok()).is_none_or(|there| there.starts_with(&point))
}

fn gone() -> Error {
    Error::new(ErrorKind::Busy, "the mount is ending")
}

impl BackgroundWork for Scrubbing {
    fn name(&self) -> &'static str {
        "scrub"
    }

    fn due(&self) -> Due {
        let Some(fs) = self.fs.upgrade() else { return Due::Never };
        let now = fs.engine().env().monotonic();
        let state = self.state.lock();
        if state.work.is_none() {
            return Due::Never;
        }
        match state.due.saturating_sub(now) {
            Duration::ZERO => Due::Now,
            wait => Due::In(wait),
        }
    }

    fn step(&self) -> Result<()> {
        let Some(fs) = self.fs.upgrade() else { return Ok(()) };
        let Some(work) = self.state.lock().work.take() else { return Ok(()) };
        let _ends = EndsInPanic(self);
        match self.go_on(&fs, work) {
            Ok(left) => self.state.lock().work = left,
            Err(error) => {
                self.say(&format!("the scrub ended: {error}"));
                self.state.lock().is_running = false;
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Marks the scrub as ended if a panic drops its work.
struct EndsInPanic<'s>(&'s Scrubbing);

impl Drop for EndsInPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state.lock().is_running = false;
        }
    }
}

/// Receives the findings of a step.
struct StepFindings<'f> {
    scrubbing: &'f Scrubbing,
    recorder: &'f Recorder,
    engine: &'f Engine,
}

impl Sink for StepFindings<'_> {
    fn found(&self, finding: &Finding) {
        self.recorder.found(finding);
        let mut state = self.scrubbing.state.lock();
        state.findings.add(finding.clone());
        let is_said = state.findings.len() <= FINDINGS_MAX;
        drop(state);
        if is_said {
            self.scrubbing.say(&format!("scrub: {finding}"));
        }
    }

    fn goes_on(&self, device: DevId, counts: &Counts) -> bool {
        self.recorder.note(self.engine, (device, counts));
        !self.scrubbing.state.lock().is_cancelled
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Mount;
    use super::*;

    #[test]
    fn a_device_that_cannot_be_scrubbed_any_more_is_an_error_and_a_finding() {
        let Some(mount) = Mount::new() else { return };
        mount.start(true);
        let engine = mount.fs.engine();
        let mut work = mount.scrubbing.state.lock().work.take().unwrap();
        let (device, _) = work.devices.pop_front().unwrap();
        let found = StepFindings { scrubbing: &mount.scrubbing, recorder: &work.recorder, engine };
        let error = Error::new(ErrorKind::Io, "no tree can be read");
        let end = failed((device.device(), *device.counts()), &error, &found);
        work.ended.push(end);
        mount.scrubbing.state.lock().work = Some(work);
        mount.to_the_end();
        let (status, findings) = mount.kept();
        assert_eq!((status.ended, status.counts.uncorrectable_errors), (Some(Ended::Failed), 1));
        assert_eq!(findings.left().len(), 1, "{}", findings.to_text());
        assert!(findings.to_text().contains("no tree can be read"));
    }
}
