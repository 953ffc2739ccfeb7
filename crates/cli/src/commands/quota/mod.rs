//! `creamery quota` and `creamery qgroup`.

mod change;
mod show;
mod side;

use clap::{Args, Subcommand};
use creamery::quota::QuotaChange;

use crate::failure::{Failure, warn};
use crate::output::tell;
use crate::progress::ProgressArgs;
use change::{AssignArgs, GroupArgs, QuotaLimitArgs};
use show::QuotaShowArgs;
use side::{PlaceArgs, Side};

const RESCAN: &str = "quota rescan";

/// Of quotas as a whole.
#[derive(Subcommand, Debug)]
pub(crate) enum QuotaCommand {
    Enable(EnableArgs),
    /// Disable quotas, and forget all groups and limits.
    Disable(DisableArgs),
    Rescan(RescanArgs),
    Status(QuotaStatusArgs),
}

/// Of groups.
#[derive(Subcommand, Debug)]
pub(crate) enum QgroupCommand {
    Show(QuotaShowArgs),
    /// Make a group.
    Create(GroupArgs),
    /// Remove a group that has no members and whose subvolume is gone.
    Destroy(GroupArgs),
    Assign(AssignArgs),
    /// Remove a group from another one.
    Remove(AssignArgs),
    Limit(QuotaLimitArgs),
    /// Remove the groups of subvolumes that are gone.
    ClearStale(DisableArgs),
}

/// Enable quotas: count the data of subvolumes.
///
/// Every subvolume gets a group, 0/NUMBER. An extent counts for all subvolumes that reach it, so
/// everything is counted once (a rescan); the command waits for that. Simple quotas count an
/// extent for the subvolume that made it, and no older extents.
///
/// Examples:
///   creamery quota enable disk.img
///   creamery quota enable --simple /mnt
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct EnableArgs {
    #[command(flatten)]
    place: PlaceArgs,

    /// Count an extent only for the subvolume that made it.
    #[arg(short = 's', long)]
    simple: bool,

    #[command(flatten)]
    progress: ProgressArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DisableArgs {
    #[command(flatten)]
    place: PlaceArgs,
}

/// Count everything anew.
///
/// The numbers are wrong after a writer without quotas, and after some changes of membership;
/// `creamery quota status` shows that.
#[derive(Args, Debug)]
pub(crate) struct RescanArgs {
    #[command(flatten)]
    place: PlaceArgs,

    /// Only show the progress of a running rescan.
    #[arg(short = 's', long)]
    status: bool,

    /// Wait until it is done; for an image, always.
    #[arg(short = 'w', long, conflicts_with = "status")]
    wait: bool,

    /// Wait for a running rescan, and begin none.
    #[arg(short = 'W', long, conflicts_with_all = ["status", "wait"])]
    wait_norescan: bool,

    #[command(flatten)]
    progress: ProgressArgs,
}

/// Show whether quotas are enabled, and their state.
#[derive(Args, Debug)]
pub(crate) struct QuotaStatusArgs {
    #[command(flatten)]
    place: PlaceArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs a subcommand of `creamery quota`.
pub(crate) fn run(command: &QuotaCommand) -> Result<(), Failure> {
    match command {
        QuotaCommand::Enable(args) => Side::with("quota enable", &args.place, |side| enable(args, side)),
        QuotaCommand::Disable(args) => {
            Side::with("quota disable", &args.place, |side| side.change(QuotaChange::Disable))
        }
        QuotaCommand::Rescan(args) if args.status => {
            Side::look(RESCAN, &args.place, |side| rescan_status(side))
        }
        QuotaCommand::Rescan(args) => Side::with(RESCAN, &args.place, |side| rescan(args, side)),
        QuotaCommand::Status(args) => {
            Side::look("quota status", &args.place, |side| show::status(&side.report()?.0, args.json))
        }
    }
}

/// Runs a subcommand of `creamery qgroup`.
pub(crate) fn run_qgroup(command: &QgroupCommand) -> Result<(), Failure> {
    match command {
        QgroupCommand::Show(args) => show::run(args),
        QgroupCommand::Create(args) => change::create(args),
        QgroupCommand::Destroy(args) => change::destroy(args),
        QgroupCommand::Assign(args) => change::assign(args),
        QgroupCommand::Remove(args) => change::remove(args),
        QgroupCommand::Limit(args) => change::limit(args),
        QgroupCommand::ClearStale(args) => {
            Side::with("qgroup clear-stale", &args.place, |side| side.change(QuotaChange::ClearStale))
        }
    }
}

/// Turns quotas on. As on Linux, quotas that are on already stay as they are, also inconsistent ones.
fn enable(args: &EnableArgs, side: &mut Side<'_>) -> Result<(), Failure> {
    let before = side.report()?.0;
    side.change(QuotaChange::Enable { simple: args.simple })?;
    if !before.enabled || before.rescan.is_some() {
        return side.wait_for_rescan(args.progress);
    }
    if before.inconsistent {
        warn("quotas are already enabled, but inconsistent; run `creamery quota rescan`");
    }
    Ok(())
}

fn rescan_status(side: &Side<'_>) -> Result<(), Failure> {
    match side.enabled()?.0.rescan {
        Some(at) => tell(format_args!("rescan operation running (current key {at})")),
        None => tell(format_args!("no rescan operation in progress")),
    }
    Ok(())
}

fn rescan(args: &RescanArgs, side: &mut Side<'_>) -> Result<(), Failure> {
    side.enabled()?;
    if !args.wait_norescan {
        side.change(QuotaChange::Rescan)?;
        tell(format_args!("quota rescan started"));
    }
    if args.wait || args.wait_norescan || side.is_image() {
        side.wait_for_rescan(args.progress)
    } else {
        Ok(())
    }
}
