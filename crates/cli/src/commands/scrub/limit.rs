//! `creamery scrub limit`.

use std::path::PathBuf;

use clap::Args;
use creamery::check::scrub::Scrub;
use creamery::{Error, ErrorKind};
use creamery_base::{DevId, Uuid};
use creamery_mount::{Live, LiveScrub};
use serde::Serialize;

use super::live;
use crate::failure::Failure;
use crate::output::{Output, writing};
use crate::size::Size;
use crate::state;
use crate::units::UnitArgs;
use crate::view::DeviceArgs;

const COMMAND: &str = "scrub limit";

/// Show or set how fast scrubs read each device.
///
/// Running and later scrubs follow the limits, except one with --limit. The limits are kept beside
/// the status of the scrub.
///
/// Examples:
///   creamery scrub limit disk.img
///   creamery scrub limit -a -l 50M disk.img
///   creamery scrub limit -d 2 -l 0 m1.img --device m2.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ScrubLimitArgs {
    /// The image or device, or a directory of a mount.
    #[arg(value_name = "IMAGE|DIR")]
    image: PathBuf,

    /// All devices.
    #[arg(short = 'a', long, requires = "limit", conflicts_with = "devid")]
    all: bool,

    /// The device with this number.
    #[arg(short = 'd', long, value_name = "DEVID", requires = "limit")]
    devid: Option<u64>,

    /// Bytes a second; 0 is unlimited.
    #[arg(short = 'l', long, value_name = "SIZE")]
    limit: Option<Size>,

    /// One JSON object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    units: UnitArgs,

    #[command(flatten)]
    set: DeviceArgs,
}

#[derive(Serialize)]
struct LimitsJson {
    uuid: String,
    devices: Vec<LimitJson>,
}

#[derive(Serialize)]
struct LimitJson {
    id: u64,
    path: PathBuf,
    /// Bytes a second; `None` is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

pub(super) fn run(args: &ScrubLimitArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    if args.limit.is_some() && !args.all && args.devid.is_none() {
        return Err(Failure::usage(COMMAND, "-l requires -a or -d DEVID"));
    }
    let limits = match live::mount_at(&args.image).map_err(failed)? {
        Some(mount) => of_mount(&mount, args),
        None => of_image(args),
    };
    let mut out = Output::new();
    print(&mut out, args, &limits.map_err(failed)?)
        .map_err(writing)
        .and_then(|()| out.finish())
        .map_err(failed)
}

/// The limits of a filesystem: device, path, and bytes a second.
struct Limits {
    uuid: Uuid,
    rows: Vec<(DevId, PathBuf, Option<u64>)>,
}

fn of_mount(mount: &Live, args: &ScrubLimitArgs) -> Result<Limits, Error> {
    let live = match args.limit {
        Some(Size(limit)) => LiveScrub::set_limit(mount, args.devid, limit)?,
        None => LiveScrub::status(mount)?,
    };
    if let Some(failure) = live.limits_failure {
        return Err(Error::new(ErrorKind::InvalidData, failure));
    }
    Ok(Limits { uuid: live.uuid, rows: live.limits })
}

fn of_image(args: &ScrubLimitArgs) -> Result<Limits, Error> {
    let mut members = args.set.of(&args.image).superblocks(&mut |_| ())?;
    members.sort_by_key(|(_, superblock)| superblock.dev_item().dev_id());
    let file = Scrub::status_file(args.set.of(&args.image), &state::dir()?)?;
    let ids: Vec<DevId> = members.iter().map(|(_, superblock)| superblock.dev_item().dev_id()).collect();
    let limits = if let Some(Size(limit)) = args.limit {
        let chosen = |id: &DevId| args.all || args.devid == Some(id.get());
        if !ids.iter().any(chosen) {
            return Err(Error::invalid(format!("no device with ID {}", args.devid.unwrap_or_default())));
        }
        file.set_limits(&ids.iter().filter(|id| chosen(id)).map(|id| (*id, limit)).collect())?
    } else {
        file.limits()?
    };
    let limit = |id: DevId| limits.get(&id).copied().filter(|limit| *limit > 0);
    let rows = ids.iter().zip(members).map(|(id, (path, _))| (*id, path, limit(*id))).collect();
    Ok(Limits { uuid: file.filesystem(), rows })
}

fn print(out: &mut Output, args: &ScrubLimitArgs, limits: &Limits) -> std::io::Result<()> {
    use std::io::Write;
    let Limits { uuid, rows } = limits;
    if args.json {
        let device = |(id, path, limit): &(DevId, PathBuf, Option<u64>)| LimitJson {
            id: id.get(),
            path: path.clone(),
            limit: *limit,
        };
        let shown = LimitsJson { uuid: uuid.to_string(), devices: rows.iter().map(device).collect() };
        serde_json::to_writer_pretty(&mut *out, &shown)?;
        return writeln!(out);
    }
    writeln!(out, "UUID: {uuid}")?;
    let shown = |limit: &Option<u64>| {
        limit.map_or_else(|| "-".to_owned(), |limit| args.units.show(limit).to_string())
    };
    let cells: Vec<_> = rows.iter().map(|(id, path, limit)| (id.to_string(), shown(limit), path)).collect();
    let width = |head: &str, of: fn(&(String, String, &PathBuf)) -> usize| {
        cells.iter().map(of).fold(head.len(), usize::max)
    };
    let (ids, limits) = (width("Id", |cell| cell.0.len()), width("Limit", |cell| cell.1.len()));
    writeln!(out, "{:<ids$}  {:<limits$}  Path", "Id", "Limit")?;
    writeln!(out, "{}  {}  ----", "-".repeat(ids), "-".repeat(limits))?;
    cells.iter().try_for_each(|(id, limit, path)| {
        write!(out, "{id:>ids$}  {limit:>limits$}  ")?;
        out.path(path)?;
        writeln!(out)
    })
}
