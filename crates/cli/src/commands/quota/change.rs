//! `creamery qgroup create`, `destroy`, `assign`, `remove` and `limit`.

use std::ffi::OsString;

use clap::Args;
use creamery::id::QgroupId;
use creamery::quota::QuotaChange;

use super::side::{PlaceArgs, Side};
use crate::failure::Failure;
use crate::output::tell;
use crate::progress::ProgressArgs;
use crate::size::Size;
use crate::view::WriteArgs;

#[derive(Args, Debug)]
pub(crate) struct GroupArgs {
    /// The group: a level, a slash and a number; 0/NUMBER is a subvolume's.
    #[arg(value_name = "QGROUPID")]
    group: QgroupId,

    #[command(flatten)]
    place: PlaceArgs,
}

/// Make a group a member of another one, whose level is higher.
///
/// Data of the members counts for the group, once. If the member shares data, a rescan follows.
#[derive(Args, Debug)]
pub(crate) struct AssignArgs {
    /// Rescan if that is needed (default).
    #[arg(long, overrides_with = "no_rescan")]
    rescan: bool,

    /// Do not rescan, even if the numbers are wrong then.
    #[arg(long)]
    no_rescan: bool,

    /// The member.
    #[arg(value_name = "SRC")]
    member: QgroupId,

    /// The group that it is a member of.
    #[arg(value_name = "DST")]
    group: QgroupId,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    place: PlaceArgs,
}

/// Limit the data of a group.
///
/// A write over the limit fails with "disk quota exceeded". Without a group, the group of the
/// path's subvolume is limited.
///
/// Examples:
///   creamery qgroup limit 10G disk.img:/home
///   creamery qgroup limit -e none 1/100 /mnt
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct QuotaLimitArgs {
    /// Limit exclusive data instead of referenced data.
    #[arg(short = 'e')]
    exclusive: bool,

    /// Count compressed sizes (default).
    #[arg(short = 'c')]
    compressed: bool,

    /// The most bytes, or none.
    #[arg(value_name = "SIZE|none", value_parser = parse_limit)]
    most: Most,

    /// The group [default: that of the path's subvolume]; and the image, or a path in it or on a live mount.
    #[arg(value_names = ["QGROUPID", "IMAGE[:/PATH]|PATH"], num_args = 1..=2, required = true)]
    of: Vec<OsString>,

    #[command(flatten)]
    write: WriteArgs,
}

/// A limit in bytes, or no limit.
#[derive(Clone, Copy, Debug)]
struct Most(Option<u64>);

fn parse_limit(text: &str) -> Result<Most, String> {
    if text == "none" { Ok(Most(None)) } else { text.parse().map(|Size(bytes)| Most(Some(bytes))) }
}

pub(super) fn create(args: &GroupArgs) -> Result<(), Failure> {
    Side::with("qgroup create", &args.place, |side| side.change(QuotaChange::Create(args.group)))
}

pub(super) fn destroy(args: &GroupArgs) -> Result<(), Failure> {
    Side::with("qgroup destroy", &args.place, |side| side.change(QuotaChange::Destroy(args.group)))
}

pub(super) fn assign(args: &AssignArgs) -> Result<(), Failure> {
    let (member, group) = (args.member, args.group);
    related("qgroup assign", args, QuotaChange::Assign { member, group })
}

pub(super) fn remove(args: &AssignArgs) -> Result<(), Failure> {
    let (member, group) = (args.member, args.group);
    related("qgroup remove", args, QuotaChange::Remove { member, group })
}

fn related(command: &'static str, args: &AssignArgs, change: QuotaChange) -> Result<(), Failure> {
    Side::with(command, &args.place, |side| {
        side.change(change)?;
        let report = side.report()?.0;
        if !report.inconsistent {
            return Ok(());
        }
        if args.no_rescan {
            crate::failure::warn("quotas may be inconsistent, rescan needed");
            return Ok(());
        }
        tell(format_args!("Quota data changed, rescan scheduled"));
        // A running rescan begins anew by itself.
        if report.rescan.is_none() {
            side.change(QuotaChange::Rescan)?;
        }
        if side.is_image() { side.wait_for_rescan(args.progress) } else { Ok(()) }
    })
}

pub(super) fn limit(args: &QuotaLimitArgs) -> Result<(), Failure> {
    const COMMAND: &str = "qgroup limit";
    let (most, exclusive) = (args.most.0, args.exclusive);
    let (group, place) = match &args.of[..] {
        [place] => (None, place),
        [group, place] => (Some(group), place),
        // Options between the operands keep clap from counting them.
        _ => return Err(Failure::usage(COMMAND, "expected at most a group and a path")),
    };
    let parse =
        |group: &OsString| group.to_string_lossy().parse().map_err(|error| Failure::new(COMMAND, error));
    let group = group.map(parse).transpose()?;
    let place = PlaceArgs { place: place.clone(), write: args.write.clone() };
    Side::with(COMMAND, &place, |side| side.change(QuotaChange::Limit { group, most, exclusive }))
}
