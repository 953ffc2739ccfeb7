//! `creamery scrub status`.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use creamery::Error;
use creamery::attributes::Timespec;
use creamery::check::scrub::{Counts, DeviceStatus, Ended, Mode, Runner, Status, StatusFile};
use creamery_base::{DevId, Uuid};
use creamery_mount::{Live, LiveScrub};
use serde::Serialize;

use super::kept::status_file;
use super::live;
use super::text::{self, Numbers};
use crate::failure::{Failure, warn};
use crate::json::text_of;
use crate::output::{Output, writing};
use crate::units::UnitArgs;
use crate::view::DeviceArgs;

const COMMAND: &str = "scrub status";

/// Show the progress of a scrub, or the result of the last one.
///
/// The status belongs to the path of the image on the host: a copy has none.
#[derive(Args, Debug)]
pub(crate) struct ScrubStatusArgs {
    /// The image or device, or a directory of a mount.
    #[arg(value_name = "IMAGE|DIR")]
    image: PathBuf,

    /// Print the numbers of each device.
    #[arg(short = 'd')]
    by_device: bool,

    /// Print all numbers as they are.
    #[arg(short = 'R')]
    all_numbers: bool,

    /// One JSON object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    units: UnitArgs,

    #[command(flatten)]
    set: DeviceArgs,
}

/// The state of a scrub.
struct Known {
    status: Status,
    is_running: bool,
    /// The id of the scrubbing process, if it is not a mount's server.
    pid: Option<u32>,
    /// The limit of each device, bytes a second.
    limits: Vec<(DevId, u64)>,
}

pub(super) fn run(args: &ScrubStatusArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    let asked = match live::mount_at(&args.image).map_err(failed)? {
        Some(mount) => {
            let live = LiveScrub::status(&mount).map_err(failed)?;
            if let Some(why) = &live.limits_failure {
                warn(&format!("limits are not shown: {why}"));
            }
            NamedScrub::of_mount(live)
        }
        None => {
            status_file(&args.image, &args.set).and_then(|file| NamedScrub::of_file(&file)).map_err(failed)?
        }
    };
    let mut out = Output::new();
    let printed = if args.json { as_json(&mut out, &asked) } else { as_text(&mut out, args, &asked) };
    printed.map_err(writing).and_then(|()| out.finish()).map_err(failed)
}

/// The scrub that the command asks for.
struct NamedScrub {
    uuid: Uuid,
    known: Option<Known>,
    /// The file with the findings, if there are any.
    findings: Option<PathBuf>,
}

impl NamedScrub {
    fn of_file(file: &StatusFile) -> Result<Self, Error> {
        let (status, runner) = file.read_with_runner()?;
        // The server has newer numbers than its file.
        if let Some(live) = runner.as_ref().and_then(|runner| of_server(file, runner)) {
            return Ok(Self::of_mount(live));
        }
        let (is_running, pid) = (runner.is_some(), runner.and_then(|runner| runner.pid()));
        let known = status.map(|status| Known { status, is_running, pid, limits: Vec::new() });
        let findings = Some(file.findings()).filter(|path| path.exists());
        Ok(Self { uuid: file.filesystem(), known, findings })
    }

    fn of_mount(live: LiveScrub) -> Self {
        let limits = live.limits.into_iter().filter_map(|(id, _, limit)| Some((id, limit?))).collect();
        let is_running = live.is_running;
        let known = live.status.map(|status| Known { status, is_running, pid: None, limits });
        Self { uuid: live.uuid, known, findings: live.findings_file }
    }
}

/// The scrub from the server of a mount, if a server scrubs the image and answers.
fn of_server(file: &StatusFile, runner: &Runner) -> Option<LiveScrub> {
    let live = LiveScrub::status(&Live::at(runner.mount()?).ok()??).ok()?;
    // By now another filesystem may be mounted there.
    let written = file.read().ok()??;
    let is_its = |status: &Status| {
        let identity = |device: &DeviceStatus| device.identity.clone();
        status.devices.iter().map(identity).eq(written.devices.iter().map(identity))
    };
    Some(live).filter(|live| live.status.as_ref().is_some_and(is_its))
}

impl Known {
    /// The state of a device's scrub, in the words of btrfs-progs.
    const fn state(&self, ended: Option<Ended>) -> &'static str {
        match (ended, self.is_running) {
            (None, true) => "running",
            (ended, _) => text::status(ended),
        }
    }

    /// The sums over all devices.
    fn all(&self) -> Numbers {
        let devices = &self.status.devices;
        let mut counts = Counts::default();
        devices.iter().for_each(|device| counts += device.counts);
        counts.size = devices.iter().fold(0, |sum, device| sum.saturating_add(device.counts.size));
        // A scrub that runs or died has no end; otherwise the worst end counts.
        let ended = devices.iter().map(|device| device.ended).min_by_key(|ended| match ended {
            None => 0,
            Some(Ended::Failed) => 1,
            Some(Ended::Cancelled) => 2,
            Some(Ended::Whole) => 3,
        });
        let time = |seconds: Option<u64>| seconds.map(time_of);
        Numbers {
            counts,
            started: time(devices.iter().map(|device| device.started).min()).unwrap_or_default(),
            resumed: time(devices.iter().map(|device| device.resumed).max().filter(|resumed| *resumed > 0)),
            status: self.state(ended.flatten()),
            seconds: devices.iter().map(|device| device.seconds).max().unwrap_or(0),
            is_running: self.is_running,
            limit: None,
        }
    }

    fn one(&self, device: &DeviceStatus) -> Numbers {
        Numbers {
            counts: device.counts,
            started: time_of(device.started),
            resumed: Some(device.resumed).filter(|resumed| *resumed > 0).map(time_of),
            status: self.state(device.ended),
            seconds: device.seconds,
            is_running: self.is_running && device.ended.is_none(),
            limit: self.limits.iter().find(|(id, _)| *id == device.id).map(|(_, limit)| *limit),
        }
    }
}

fn time_of(seconds: u64) -> Timespec {
    Timespec { sec: i64::try_from(seconds).unwrap_or(i64::MAX), nsec: 0 }
}

fn as_text(out: &mut Output, args: &ScrubStatusArgs, asked: &NamedScrub) -> io::Result<()> {
    writeln!(out, "UUID:             {}", asked.uuid)?;
    let Some(known) = &asked.known else { return writeln!(out, "\tno stats available") };
    if args.by_device {
        for device in &known.status.devices {
            write!(out, "\nScrub device ")?;
            out.path(&device.identity.path)?;
            let what = if known.is_running && device.ended.is_none() { "status" } else { "history" };
            writeln!(out, " (id {}) {what}", device.id)?;
            known.one(device).print(out, &args.units, args.all_numbers)?;
        }
    } else {
        known.all().print(out, &args.units, args.all_numbers)?;
    }
    if known.status.mode() == Mode::ReadsOnly {
        writeln!(out, "Mode:             read-only")?;
    }
    match &asked.findings {
        Some(path) => {
            write!(out, "Findings:         ")?;
            out.path(path)?;
            writeln!(out)
        }
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct ScrubStatusJson {
    uuid: String,
    /// The id of the scrubbing process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// `None` if there was no scrub.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    devices: Vec<ScrubStatusDeviceJson>,
    #[serde(flatten)]
    findings_file: text::FindingsFileJson,
}

#[derive(Serialize)]
struct ScrubStatusDeviceJson {
    id: u64,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    status: &'static str,
    started: u64,
    resumed: u64,
    seconds: u64,
    #[serde(flatten)]
    counts: serde_json::Map<String, serde_json::Value>,
}

fn as_json(out: &mut Output, asked: &NamedScrub) -> io::Result<()> {
    let known = asked.known.as_ref();
    let device = |known: &Known, device: &DeviceStatus| {
        let (path, path_bytes) = text_of(device.identity.path.as_os_str().as_bytes());
        ScrubStatusDeviceJson {
            id: device.id.get(),
            path,
            path_bytes,
            status: known.state(device.ended),
            started: device.started,
            resumed: device.resumed,
            seconds: device.seconds,
            counts: text::numbers_as_json(&device.counts),
        }
    };
    let devices = known.map_or_else(Vec::new, |known| {
        known.status.devices.iter().map(|status| device(known, status)).collect()
    });
    let shown = ScrubStatusJson {
        uuid: asked.uuid.to_string(),
        pid: known.and_then(|known| known.pid),
        mode: known.map(|known| text::mode(known.status.mode())),
        devices,
        findings_file: text::FindingsFileJson::of(asked.findings.as_deref()),
    };
    serde_json::to_writer_pretty(&mut *out, &shown)?;
    writeln!(out)
}
