//! `creamery scrub cancel`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use creamery::{Error, ErrorKind};
use creamery_mount::{Live, LiveScrub};

use super::kept::status_file;
use super::live;
use crate::failure::Failure;
use crate::output::tell;
use crate::view::DeviceArgs;

const COMMAND: &str = "scrub cancel";
/// Time between two polls for the end.
const AGAIN: Duration = Duration::from_millis(10);
/// The exit status if no scrub runs.
const NOT_RUNNING: u8 = 2;

/// Stop a running scrub.
///
/// It stops after its current read; `creamery scrub resume` continues there. The command returns when the scrub has ended.
///
/// The exit status is 0 when it has ended, 2 when none runs, 1 when that failed.
#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// The image, device or mount that is scrubbed.
    #[arg(value_name = "IMAGE|DIR")]
    image: PathBuf,

    #[command(flatten)]
    set: DeviceArgs,
}

pub(super) fn run(args: &CancelArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    if let Some(mount) = live::mount_at(&args.image).map_err(failed)? {
        return cancel_live(&mount, args);
    }
    let runner = status_file(&args.image, &args.set).and_then(|file| file.runner()).map_err(failed)?;
    let Some(runner) = runner else { return Err(not_running(args)) };
    runner.cancel().map_err(failed)?;
    tell(format_args!("scrub cancelled"));
    Ok(())
}

/// Makes the server of a mount end its scrub, and waits for the end.
fn cancel_live(mount: &Live, args: &CancelArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    let mut now = LiveScrub::status(mount).map_err(failed)?;
    if !now.is_running {
        return Err(not_running(args));
    }
    now = LiveScrub::cancel(mount).map_err(failed)?;
    while now.is_running {
        std::thread::sleep(AGAIN);
        now = LiveScrub::status(mount).map_err(failed)?;
    }
    tell(format_args!("scrub cancelled"));
    Ok(())
}

fn not_running(args: &CancelArgs) -> Failure {
    let what = format!("{}: no scrub runs", args.image.display());
    Failure::new(COMMAND, Error::new(ErrorKind::NotFound, what)).plain().status(NOT_RUNNING)
}
