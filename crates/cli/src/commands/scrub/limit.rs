//! `creamery scrub limit`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use creamery::Error;
use creamery::check::scrub::Scrub;
use creamery_base::DevId;
use serde::Serialize;

use super::refuse_mount;
use crate::failure::Failure;
use crate::output::{Output, writing};
use crate::size::Size;
use crate::state;
use crate::units::UnitArgs;
use crate::view::DeviceArgs;

const COMMAND: &str = "scrub limit";

/// Show or set how fast scrubs read each device.
///
/// A scrub that runs follows the limits, and so does each later one, but for one with --limit. They are kept beside the status of the scrub.
///
/// Examples:
///   creamery scrub limit disk.img
///   creamery scrub limit -a -l 50M disk.img
///   creamery scrub limit -d 2 -l 0 m1.img --device m2.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct LimitArgs {
    /// The image or device.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// All devices.
    #[arg(short = 'a', long, requires = "limit", conflicts_with = "devid")]
    all: bool,

    /// The device with this number.
    #[arg(short = 'd', long, value_name = "DEVID", requires = "limit")]
    devid: Option<u64>,

    /// Bytes a second; 0, as fast as it can be.
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
    /// Bytes a second; null, as fast as it can be.
    limit: Option<u64>,
}

pub(super) fn run(args: &LimitArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    if args.limit.is_some() && !args.all && args.devid.is_none() {
        return Err(Failure::usage(COMMAND, "-l without -a or -d: which devices is it for?"));
    }
    refuse_mount(&args.image).map_err(failed)?;
    let mut members = args.set.of(&args.image).superblocks(&mut |_| ()).map_err(failed)?;
    members.sort_by_key(|(_, superblock)| superblock.dev_item().dev_id());
    let dir = state::dir().map_err(failed)?;
    let file = Scrub::status_file(args.set.of(&args.image), &dir).map_err(failed)?;
    let mut limits = file.limits().map_err(failed)?;
    let ids: Vec<DevId> = members.iter().map(|(_, superblock)| superblock.dev_item().dev_id()).collect();
    if let Some(Size(limit)) = args.limit {
        let chosen = |id: &DevId| args.all || args.devid == Some(id.get());
        if !ids.iter().any(chosen) {
            let what = format!("device {} is not there", args.devid.unwrap_or_default());
            return Err(failed(Error::invalid(what)));
        }
        limits.extend(ids.iter().filter(|id| chosen(id)).map(|id| (*id, limit)));
        file.set_limits(&limits).map_err(failed)?;
    }
    let uuid = members.first().map(|(_, superblock)| superblock.fsid().to_string()).unwrap_or_default();
    let paths = members.into_iter().map(|(path, _)| path);
    let rows: Vec<(DevId, PathBuf)> = ids.into_iter().zip(paths).collect();
    let mut out = Output::new();
    print(&mut out, args, &uuid, (&rows, &limits))
        .map_err(writing)
        .and_then(|()| out.finish())
        .map_err(failed)
}

fn print(
    out: &mut Output,
    args: &LimitArgs,
    uuid: &str,
    (rows, limits): (&[(DevId, PathBuf)], &BTreeMap<DevId, u64>),
) -> std::io::Result<()> {
    use std::io::Write;
    let limit = |id: &DevId| limits.get(id).copied().filter(|limit| *limit > 0);
    if args.json {
        let device =
            |(id, path): &(DevId, PathBuf)| LimitJson { id: id.get(), path: path.clone(), limit: limit(id) };
        let shown = LimitsJson { uuid: uuid.to_owned(), devices: rows.iter().map(device).collect() };
        serde_json::to_writer_pretty(&mut *out, &shown)?;
        return writeln!(out);
    }
    writeln!(out, "UUID: {uuid}")?;
    let shown =
        |id: &DevId| limit(id).map_or_else(|| "-".to_owned(), |limit| args.units.show(limit).to_string());
    let cells: Vec<_> = rows.iter().map(|(id, path)| (id.to_string(), shown(id), path)).collect();
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
