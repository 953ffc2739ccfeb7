//! The data of a scrub beside the image, written by the recorder that images and mounts share.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use creamery::Image;
use creamery::device::{BlockDevice, MemoryDevice};
use creamery_base::{DevId, Error, ErrorKind, FixedEnv, Logical, Physical, Timespec};
use creamery_maint::scrub::{
    Counts, Ended, Finding, FindingKind, Mode, Outcome, Recorder, Scrub, Sink, StatusFile, host_paths,
};
use creamery_testkit::harness::{Bench, Case};
use creamery_txn::{Engine, Options};
use creamery_volume::{Rescue, Volume};

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&Path) -> Result<()>| {
        let name = format!("scrub-matrix/{name}");
        Case::new(name, &[], move |bench: &Bench| run(&bench.scratch.dir("status")?))
    };
    vec![
        case("superblocks-that-are-judged-again-count-once", superblocks),
        case("findings-of-a-device-that-is-done-are-kept", of_a_device_that_is_done),
        case("what-has-no-place-among-the-findings-outlives-a-kill", left_out),
        case("a-scrub-that-cannot-begin-leaves-the-findings", cannot_begin),
        case("a-device-that-failed-is-gone-on-with", failed_device),
        case("findings-are-those-of-the-status-that-was-written", failed_flush),
    ]
}

const DEV: DevId = DevId::new(1);

/// A filesystem on one device with a bad superblock copy.
fn open() -> Result<Arc<Engine>> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(256 << 20));
    Image::make_on(Arc::clone(&device)).run()?;
    device.write_at(64 << 20, &[0; 4096])?;
    let volume = Volume::open_for_rescue(device, Rescue::default())?;
    let env = Arc::new(FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 1));
    Ok(Engine::open(volume, Options { read_only: true, env, ..Options::default() })?)
}

fn file(dir: &Path, engine: &Engine) -> Result<StatusFile> {
    StatusFile::of_engine(dir, engine).context("a device is there")
}

fn begin(dir: &Path, engine: &Engine) -> Result<Recorder> {
    let running = file(dir, engine)?.begin()?;
    Ok(Recorder::begin(Some(running), engine, &host_paths(engine), Mode::ReadsOnly)?)
}

fn resume(dir: &Path, engine: &Engine) -> Result<Recorder> {
    let running = file(dir, engine)?.begin()?;
    Ok(Recorder::resume(running, engine, &host_paths(engine), Mode::ReadsOnly)?)
}

struct FoundByRecorder<'f>(&'f Recorder);

impl Sink for FoundByRecorder<'_> {
    fn found(&self, finding: &Finding) {
        self.0.found(finding);
    }

    fn goes_on(&self, _: DevId, _: &Counts) -> bool {
        true
    }
}

fn lost(offset: u64) -> Finding {
    Finding {
        what: FindingKind::Data,
        at: Physical { dev: DEV, offset },
        logical: Some(Logical::new(offset)),
        why: "checksum mismatch".to_owned(),
        outcome: Outcome::Lost,
    }
}

/// A scrub that is cancelled before its first step, and the scrub that resumes it.
fn superblocks(dir: &Path) -> Result<()> {
    let engine = open()?;
    let scrub = Scrub::reading(&engine).beside_commits();
    let recorder = begin(dir, &engine)?;
    let device = scrub.begin(DEV, &FoundByRecorder(&recorder))?;
    ensure!(device.counts().super_errors == 1, "{:?}", device.counts());
    recorder.end(&engine, &[(DEV, *device.counts(), Ended::Cancelled)])?;
    drop(recorder);
    for _ in 0..2 {
        let recorder = resume(dir, &engine)?;
        let device = scrub.begin(DEV, &FoundByRecorder(&recorder))?;
        let status = recorder.end(&engine, &[(DEV, *device.counts(), Ended::Cancelled)])?;
        let counts = status.devices[0].counts;
        ensure!(counts.super_errors == 1 && counts.unverified_errors == 1, "{counts:?}");
        ensure!(recorder.findings().len() == 1, "{}", recorder.findings().to_text());
    }
    Ok(())
}

/// A finished device has findings behind its last place: in areas that were not scrubbed.
fn of_a_device_that_is_done(dir: &Path) -> Result<()> {
    let engine = open()?;
    let recorder = begin(dir, &engine)?;
    recorder.found(&lost(8 << 20));
    let counts = Counts { last_physical: 1 << 20, ..Counts::default() };
    recorder.end(&engine, &[(DEV, counts, Ended::Whole)])?;
    drop(recorder);
    let file = file(dir, &engine)?;
    let mut status = file.read()?.context("it was written")?;
    // Another device is not finished.
    let mut other = status.devices[0].clone();
    (other.id, other.ended) = (DevId::new(2), Some(Ended::Cancelled));
    status.devices.push(other);
    file.begin()?.write(&status)?;
    let recorder = resume(dir, &engine)?;
    ensure!(recorder.findings().len() == 1, "{}", recorder.findings().to_text());
    ensure!(recorder.is_done(DEV), "it is done");
    Ok(())
}

/// A device that fails counts as one error, which the scrub that resumes does not keep.
fn failed_device(dir: &Path) -> Result<()> {
    let engine = open()?;
    let recorder = begin(dir, &engine)?;
    recorder.found(&lost(1 << 20));
    recorder.found(&Finding::of_device(DEV, &Error::new(ErrorKind::Io, "no tree can be read")));
    let counts = Counts { uncorrectable_errors: 2, last_physical: 2 << 20, ..Counts::default() };
    recorder.end(&engine, &[(DEV, counts, Ended::Failed)])?;
    drop(recorder);
    for _ in 0..2 {
        let recorder = resume(dir, &engine)?;
        let before = recorder.before(DEV).uncorrectable_errors;
        ensure!(before == 1, "{before} errors");
        ensure!(recorder.findings().len() == 1, "{}", recorder.findings().to_text());
    }
    Ok(())
}

/// A flush fails: the status stays unchanged, and so do the findings that it counts.
fn failed_flush(dir: &Path) -> Result<()> {
    let engine = open()?;
    let recorder = begin(dir, &engine)?;
    recorder.found(&lost(1 << 20));
    let counts =
        Counts { csum_errors: 1, uncorrectable_errors: 1, last_physical: 2 << 20, ..Counts::default() };
    recorder.note(&engine, (DEV, &counts));
    recorder.write_if_due(&engine, &|| Ok(()));
    let more =
        Counts { csum_errors: 2, uncorrectable_errors: 2, last_physical: 4 << 20, ..Counts::default() };
    recorder.found(&lost(3 << 20));
    recorder.note(&engine, (DEV, &more));
    recorder.write_if_due(&engine, &|| Err(Error::new(ErrorKind::Io, "it does not flush")));
    ensure!(recorder.end(&engine, &[(DEV, more, Ended::Whole)]).is_err(), "the flush failed");
    recorder.name_files(usize::MAX, &mut |_| Vec::new())?;
    drop(recorder);
    let recorder = resume(dir, &engine)?;
    let (before, findings) = (recorder.before(DEV), recorder.findings());
    ensure!(before.uncorrectable_errors == 1 && findings.len() == 1, "{before:?}: {}", findings.to_text());
    Ok(())
}

/// Findings of either kind that are stored.
const KEPT: u64 = 10_000;

fn left_out(dir: &Path) -> Result<()> {
    let engine = open()?;
    let recorder = begin(dir, &engine)?;
    for (from, to, more) in [(0, KEPT + 3, 3), (KEPT + 3, KEPT + 5, 5), (0, 0, 5)] {
        (from..to).for_each(|number| recorder.found(&lost(number << 12)));
        // If writing takes no time, errors are stored at once.
        recorder.note(&engine, (DEV, &Counts { csum_errors: to + more, ..Counts::default() }));
        recorder.write_if_due(&engine, &|| Ok(()));
        let read = file(dir, &engine)?.read_findings()?;
        ensure!((read.left().len() as u64, read.left_out()) == (KEPT, more), "{} more", read.left_out());
    }
    Ok(())
}

fn cannot_begin(dir: &Path) -> Result<()> {
    let engine = open()?;
    let recorder = begin(dir, &engine)?;
    recorder.found(&lost(8 << 20));
    recorder.end(&engine, &[(DEV, Counts::default(), Ended::Whole)])?;
    drop(recorder);
    let file = file(dir, &engine)?;
    std::fs::remove_file(file.path())?;
    // A file does not replace a directory with content.
    std::fs::create_dir_all(file.path().join("in-the-way"))?;
    ensure!(begin(dir, &engine).is_err(), "the status has no place");
    ensure!(file.read_findings()?.len() == 1, "the findings of the last scrub are there");
    Ok(())
}
