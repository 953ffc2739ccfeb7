//! Scrubs of live mounts, which their servers carry out.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use creamery::check::DamagedFile;
use creamery::check::scrub::{DeviceStatus, Status};
use creamery::env::{Env as _, SystemEnv};
use creamery::{Error, ErrorKind};
use creamery_mount::{Live, LiveFinding, LiveFindingFile, LiveScrub, is_fuse_mount, is_on_linux};

use super::finish::finish;
use super::run_args::{INTERRUPTED, NOTHING, RunArgs, Which};
use super::text::{ShownDevice, ShownFinding, ShownScrub};
use crate::failure::{Failure, warn};
use crate::interrupt;
use crate::output::tell;
use crate::progress;
use crate::view::refuse_on_mount;

/// Time between the first two polls, and maximum for later ones: a poll costs the mount something, too.
const AGAIN: Duration = Duration::from_millis(10);
const AGAIN_MAX: Duration = Duration::from_millis(500);

/// The mount that a directory is on; `None` if the place is no directory.
/// Errors: it is not on a mount of ours; devices are named, although the mount has its own.
pub(super) fn mount_at(place: &Path) -> Result<Option<Live>, Error> {
    let is_closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    if std::fs::metadata(place).is_err_and(|error| is_closed(&error)) && is_fuse_mount(place) {
        let what = format!("{}: only its mounter may access this mount", place.display());
        let advice = "scrub it as that user, or mount it with -o allow_other";
        return Err(Error::new(ErrorKind::PermissionDenied, what).advise(advice));
    }
    if !place.is_dir() {
        return Ok(None);
    }
    if let Some(live) = Live::at(place)? {
        refuse_on_mount(place)?;
        return Ok(Some(live));
    }
    let (what, advice) = match is_on_linux(place) {
        true => ("is a mount of Linux", "use `btrfs scrub` of btrfs-progs"),
        false => ("is a directory, but not a mount of an image", "name an image, or a mount of one"),
    };
    Err(Error::unsupported(format!("{} {what}", place.display())).advise(advice))
}

/// Begins or resumes a scrub; with -B waits for its end.
pub(super) fn begin(mount: &Live, args: &RunArgs, which: Which) -> Result<(), Failure> {
    let failed = |error: Error| {
        let is_nothing = which == Which::Resume && error.kind() == ErrorKind::NotFound;
        let failure = Failure::new(which.name(), error);
        if is_nothing { failure.plain().status(NOTHING) } else { failure }
    };
    if args.rewrite_parity {
        let what = "--rewrite-parity works on images, not on mounts";
        return Err(Failure::usage(which.name(), what));
    }
    if args.io_class.is_some() || args.io_level.is_some() {
        // Nightly jobs pass these options to `btrfs scrub`, and would not scrub at all if they were an error.
        warn(
            "-c and -n have no effect on a mount: its server keeps its I/O priority; --limit slows a scrub down",
        );
    }
    let limit = args.limit();
    let begun = match which {
        Which::Start => LiveScrub::start(mount, args.reads_only, limit),
        Which::Resume => LiveScrub::resume(mount, args.reads_only, limit),
    };
    let begun = begun.map_err(failed)?;
    if args.stays {
        return wait(mount, args, which);
    }
    if args.quiet {
        return Ok(());
    }
    tell(format_args!("scrub started on {}, fsid {}", args.image.display(), begun.uuid));
    begun.limits.iter().for_each(|(id, ..)| tell(format_args!("Starting scrub on devid {id}")));
    Ok(())
}

/// Waits for the end, and prints what was found. A signal ends it.
fn wait(mount: &Live, args: &RunArgs, which: Which) -> Result<(), Failure> {
    let failed = |error| Failure::new(which.name(), error);
    let (started, begun) = (SystemEnv.now(), Instant::now());
    interrupt::watch();
    interrupt::leaves(INTERRUPTED);
    let shown = progress::ShownProgress::unbounded(which.name(), args.progress);
    let mut again = AGAIN;
    let ended = loop {
        let now = LiveScrub::status(mount).map_err(failed)?;
        if !now.is_running {
            break now;
        }
        let devices = now.status.iter().flat_map(|status| &status.devices);
        let bytes: u64 =
            devices.map(|device| device.counts.data_bytes_scrubbed + device.counts.tree_bytes_scrubbed).sum();
        shown.at(|| format!("{} scrubbed", args.units.show(bytes)));
        if interrupt::go_on().is_err() {
            LiveScrub::cancel(mount).map_err(failed)?;
        }
        sleep(again);
        again = (again * 2).min(AGAIN_MAX);
    };
    shown.bar.finish_and_clear();
    if let Some(why) = &ended.status_failure {
        warn(why);
    }
    finish(args, which, &as_shown(ended), (started, begun.elapsed()))
}

fn as_shown(ended: LiveScrub) -> ShownScrub {
    let file = |file: LiveFindingFile| {
        let found = DamagedFile::new(file.subvolume, file.inode, file.byte);
        match file.path {
            Some(path) => found.at(&path),
            None => found,
        }
    };
    let with_files = |found: LiveFinding| ShownFinding {
        finding: found.finding,
        files: found.files.into_iter().map(file).collect(),
        more_files: found.more_files,
    };
    let mode = ended.status.as_ref().map(Status::mode).unwrap_or_default();
    let devices = ended.status.map(|status| status.devices).unwrap_or_default();
    let device = |device: DeviceStatus| ShownDevice {
        id: device.id,
        path: device.identity.path,
        counts: device.counts,
        ended: device.ended,
    };
    ShownScrub {
        uuid: ended.uuid,
        mode,
        devices: devices.into_iter().map(device).collect(),
        findings: ended.findings.into_iter().map(with_files).collect(),
        left_out: ended.left_out,
        findings_file: ended.findings_file,
        hindrance: ended.hindrance,
        searches: None,
    }
}
