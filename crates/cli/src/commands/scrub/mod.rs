//! `creamery scrub`.

mod background;
mod cancel;
mod limit;
mod live;
mod start;
mod status;
mod text;

use std::path::Path;

use clap::Subcommand;
use creamery::Error;
use creamery::check::scrub::{Scrub, StatusFile};

use crate::failure::Failure;
use crate::state;
use crate::view::DeviceArgs;

/// Read everything that is in use, and mend what is bad.
#[derive(Subcommand, Debug)]
pub(crate) enum ScrubCommand {
    Start(start::StartArgs),
    Status(status::StatusArgs),
    Cancel(cancel::CancelArgs),
    Resume(start::ResumeArgs),
    Limit(limit::LimitArgs),
}

pub(crate) fn run(command: &ScrubCommand) -> Result<(), Failure> {
    match command {
        ScrubCommand::Start(args) => start::start(args),
        ScrubCommand::Status(args) => status::run(args),
        ScrubCommand::Cancel(args) => cancel::run(args),
        ScrubCommand::Resume(args) => start::resume(args),
        ScrubCommand::Limit(args) => limit::run(args),
    }
}

/// The file with the status of the last scrub of an image.
fn status_file(image: &Path, set: &DeviceArgs) -> Result<StatusFile, Error> {
    Scrub::status_file(set.of(image), &state::dir()?)
}
