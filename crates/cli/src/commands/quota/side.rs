//! The quotas of an image that is not mounted, or of a live mount.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::Args;
use creamery::id::TreeId;
use creamery::quota::{QuotaChange, QuotaReport};
use creamery::{Error, ErrorKind, Filesystem};
use creamery_mount::Live;

use crate::commands::subvolume::target::{OnMount, failed_at};
use crate::failure::Failure;
use crate::images::{Images, Purpose, in_image};
use crate::interrupt;
use crate::path_in_image::PathInImage;
use crate::progress::{ProgressArgs, ShownProgress};
use crate::view::WriteArgs;

const COUNTED: &str = "all is counted";
const NOT_ENABLED: &str = "use `creamery quota enable`";
/// Time between two polls of a mount.
const AGAIN: Duration = Duration::from_millis(50);
/// Time without progress after which a rescan counts as stalled: longer than one step takes, and than the pause after a failed step.
const STALLED: Duration = Duration::from_secs(60);

#[derive(Args, Debug)]
pub(crate) struct PlaceArgs {
    /// The image, or a path in it or on a live mount.
    #[arg(value_name = "IMAGE[:/PATH]|PATH")]
    pub(super) place: OsString,

    #[command(flatten)]
    pub(super) write: WriteArgs,
}

/// An image, or a live mount.
pub(super) enum Side<'a> {
    Image { command: &'static str, fs: &'a Filesystem, place: PathInImage },
    Live { command: &'static str, on_mount: OnMount },
}

impl Side<'_> {
    /// Opens the place that `args` names for writing, runs `work` on it, and makes the change durable.
    pub(super) fn with(
        command: &'static str,
        args: &PlaceArgs,
        work: impl FnOnce(&mut Side<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        Self::with_for(command, args, Purpose::Write, work)
    }

    /// Opens the place that `args` names for reading, and runs `work` on it.
    pub(super) fn look(
        command: &'static str,
        args: &PlaceArgs,
        work: impl FnOnce(&mut Side<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        Self::with_for(command, args, Purpose::Read, work)
    }

    fn with_for(
        command: &'static str,
        args: &PlaceArgs,
        purpose: Purpose,
        work: impl FnOnce(&mut Side<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if let Some(on_mount) = OnMount::of(command, &args.place)? {
            return work(&mut Side::Live { command, on_mount });
        }
        let mut images = Images::to_write(command, &args.write);
        let place = images.place(&args.place)?;
        let outcome = images
            .open(&place.image, purpose)
            .and_then(|fs| work(&mut Side::Image { command, fs, place: place.clone() }));
        images.finish(outcome)
    }

    pub(super) const fn is_image(&self) -> bool {
        matches!(self, Self::Image { .. })
    }

    /// Prefixes an error with the image or mount.
    fn failed(&self) -> impl Fn(Error) -> Failure + use<> {
        let (command, shown) = match self {
            Self::Image { command, place, .. } => (*command, place.image.display().to_string()),
            Self::Live { command, on_mount } => (*command, on_mount.path.display().to_string()),
        };
        move |error| {
            let (kind, text) = (error.kind(), error.to_string());
            let failure = Failure::new(command, in_image(&shown, error));
            match kind {
                ErrorKind::NotFound if text.contains("quotas are not") => failure.advise(NOT_ENABLED),
                ErrorKind::NotFound if text.contains("quota group") => {
                    failure.advise("`creamery qgroup show` lists the groups")
                }
                ErrorKind::Busy => failure.advise("wait, or remove its users first"),
                _ => failure,
            }
        }
    }

    pub(super) fn change(&mut self, change: QuotaChange) -> Result<(), Failure> {
        let failed = self.failed();
        match self {
            Self::Image { fs, place, .. } => fs.quotas().change(&change, &place.path),
            Self::Live { on_mount, .. } => on_mount.dir.change_quotas(change),
        }
        .map_err(failed)
    }

    /// The quotas, and the subvolume that the path is in.
    pub(super) fn report(&self) -> Result<(QuotaReport, TreeId), Failure> {
        let told = match self {
            Self::Image { fs, place, .. } => {
                fs.metadata(&place.path).and_then(|meta| Ok((fs.quotas().report()?, meta.subvolume())))
            }
            Self::Live { on_mount, .. } => on_mount.dir.quota_report(),
        };
        told.map_err(self.failed())
    }

    /// Like [`Side::report`], but an error if quotas are off.
    pub(super) fn enabled(&self) -> Result<(QuotaReport, TreeId), Failure> {
        let told = self.report()?;
        if told.0.enabled {
            return Ok(told);
        }
        let error = Error::new(ErrorKind::NotFound, "quotas are not enabled");
        Err(self.failed()(error))
    }

    /// Makes earlier writes durable, so that quotas count them.
    pub(super) fn sync(&self) -> Result<(), Failure> {
        match self {
            Self::Image { .. } => Ok(()),
            Self::Live { command, on_mount } => {
                on_mount.dir.sync().map_err(failed_at(command, &on_mount.path))
            }
        }
    }

    /// Waits until the rescan is complete, and shows its progress on a terminal.
    pub(super) fn wait_for_rescan(&self, progress: ProgressArgs) -> Result<(), Failure> {
        let (Self::Image { command, .. } | Self::Live { command, .. }) = self;
        let shown = ShownProgress::unbounded(command, progress);
        let done = match self {
            Self::Image { fs, .. } => count_all(fs, &shown),
            Self::Live { on_mount, .. } => wait_live(&on_mount.dir, &shown),
        };
        shown.end_with(|| if done.is_ok() { COUNTED } else { "not all is counted" }.to_owned());
        done.map_err(self.failed())
    }
}

/// Runs a rescan to its end. If a signal interrupts it, the next writer of the image goes on with the rest, as after a crash.
fn count_all(fs: &Filesystem, shown: &ShownProgress) -> creamery::Result<()> {
    interrupt::watch();
    let mut steps: u64 = 0;
    // The report has the error that ended a rescan, also if another thread took that step. The next commit writes the end of the rescan.
    while fs
        .quotas()
        .rescan_step()
        .or_else(|error| if error.kind().is_damage() { Ok(false) } else { Err(error) })?
    {
        steps += 1;
        shown.at(|| format!("counting what subvolumes have, {steps} steps"));
        interrupt::go_on().or_else(|end| fs.sync().and(Err(end)))?;
    }
    fs.sync()?;
    check_counted(&fs.quotas().report()?)
}

fn check_counted(report: &QuotaReport) -> creamery::Result<()> {
    if report.inconsistent {
        let why = report.rescan_failure.as_deref().unwrap_or("the quota groups are inconsistent");
        return Err(Error::new(ErrorKind::Corrupt, format!("the rescan is incomplete: {why}")));
    }
    Ok(())
}

fn wait_live(dir: &Live, shown: &ShownProgress) -> creamery::Result<()> {
    let (mut seen, mut since) = (None, Instant::now());
    loop {
        let report = dir.quota_report()?.0;
        match report.rescan {
            None => return check_counted(&report).and_then(|()| dir.sync()),
            mark if mark != seen => (seen, since) = (mark, Instant::now()),
            // A read-only mount does not count.
            _ if since.elapsed() > STALLED => {
                return Err(Error::new(ErrorKind::Busy, "the rescan makes no progress"));
            }
            _ => {}
        }
        shown.at(|| "counting what subvolumes have".to_owned());
        std::thread::sleep(AGAIN);
    }
}
