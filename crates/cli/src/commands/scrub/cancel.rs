//! `creamery scrub cancel`.

use std::path::PathBuf;

use clap::Args;
use creamery::{Error, ErrorKind};

use super::status_file;
use crate::failure::Failure;
use crate::output::tell;
use crate::view::DeviceArgs;

const COMMAND: &str = "scrub cancel";
/// Nothing runs.
const NOT_RUNNING: u8 = 2;

/// End a scrub that runs.
///
/// It ends after what it reads at the moment; `creamery scrub resume` goes on there. The command returns when the scrub has ended.
///
/// The exit status is 0 when it has ended, 2 where none runs, 1 where that failed.
#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// The image or device that is scrubbed.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    #[command(flatten)]
    set: DeviceArgs,
}

pub(super) fn run(args: &CancelArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    let runner = status_file(&args.image, &args.set).and_then(|file| file.runner()).map_err(failed)?;
    let Some(runner) = runner else {
        let what = format!("{}: no scrub runs", args.image.display());
        return Err(failed(Error::new(ErrorKind::NotFound, what)).plain().status(NOT_RUNNING));
    };
    runner.cancel().map_err(failed)?;
    tell(format_args!("scrub cancelled"));
    Ok(())
}
