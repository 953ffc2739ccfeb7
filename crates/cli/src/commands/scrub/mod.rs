//! `creamery scrub`.

mod background;
mod cancel;
mod finish;
mod kept;
mod limit;
mod live;
mod run_args;
mod start;
mod status;
mod text;

use clap::Subcommand;

use crate::failure::Failure;

/// Exit statuses besides 0 and 1, as in `btrfs scrub`: there is nothing to end or to resume; errors are left.
pub(crate) const STATUSES: [u8; 2] = [run_args::NOTHING, finish::LEFT];

/// Read everything in use, and repair errors.
#[derive(Subcommand, Debug)]
pub(crate) enum ScrubCommand {
    Start(start::StartArgs),
    Status(status::ScrubStatusArgs),
    Cancel(cancel::CancelArgs),
    Resume(start::ResumeArgs),
    Limit(limit::ScrubLimitArgs),
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
