//! `creamery filesystem du`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;

use clap::Args;
use creamery::extents::{DiskUsage, FileUsage};
use creamery_mount::LiveBtrfs;
use serde::Serialize;

use crate::failure::{Failure, warn, with_all};
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::live::live_btrfs;
use crate::output::{Output, writing};
use crate::units::UnitArgs;
use crate::view::ViewArgs;

/// Show how much data files refer to, and how much of it they share.
///
/// Exclusive is data with a single reference: snapshots and clones share. Set shared is the
/// data that the files of an argument share, each extent once. Directories are counted with all
/// below, subvolumes too. On a live mount (also of Linux' own Btrfs) data that is not written
/// back yet does not count.
///
/// Examples:
///   creamery filesystem du disk.img
///   creamery filesystem du -s /mnt/home
///   creamery filesystem du -s --mbytes disk.img:/work disk.img:/snapshots
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct DuArgs {
    /// Files or directories.
    #[arg(value_name = "IMAGE:/PATH|PATH", required = true)]
    places: Vec<OsString>,

    /// One line for each argument.
    #[arg(short = 's', long)]
    summarize: bool,

    /// One JSON array; all figures are bytes.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    units: UnitArgs,

    #[command(flatten)]
    view: ViewArgs,
}

const COMMAND: &str = "filesystem du";

#[derive(Serialize)]
struct DuRow {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    total: u64,
    exclusive: u64,
    /// Shared bytes of an argument; `None` for the parts of an argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_shared: Option<u64>,
    #[serde(skip)]
    shown: OsString,
}

impl DuRow {
    fn new(shown: OsString, FileUsage { total, exclusive }: FileUsage, set_shared: Option<u64>) -> Self {
        let (path, path_bytes) = text_of(shown.as_encoded_bytes());
        Self { path, path_bytes, total, exclusive, set_shared, shown }
    }
}

/// The output for rows as they come.
enum Sink<'a> {
    Json(Array<'a, Output>),
    Table(&'a mut Output, &'a UnitArgs),
}

impl Sink<'_> {
    fn row(&mut self, row: &DuRow) -> std::io::Result<()> {
        let (out, units) = match self {
            Self::Json(array) => return array.push(row),
            Self::Table(out, units) => (out, units),
        };
        let [total, exclusive] = [row.total, row.exclusive].map(|bytes| units.show(bytes));
        let shared = row.set_shared.map_or_else(|| "-".to_owned(), |bytes| units.show(bytes));
        write!(out, "{total:>10}  {exclusive:>10}  {shared:>10}  ")?;
        out.path(row.shown.as_ref())?;
        writeln!(out)
    }
}

pub(crate) fn run(args: &DuArgs) -> Result<(), Failure> {
    let printing = |error| Failure::new(COMMAND, writing(error));
    let mut images = Images::new(COMMAND, &args.view);
    let mut out = Output::new();
    let mut sink = if args.json {
        Sink::Json(Array::begin(&mut out).map_err(printing)?)
    } else {
        writeln!(out, "{:>10}  {:>10}  {:>10}  Filename", "Total", "Exclusive", "Set shared")
            .map_err(printing)?;
        Sink::Table(&mut out, &args.units)
    };
    let outcome = with_all(&args.places, |text| {
        let mut written = Ok(());
        let mut below = |shown: OsString, usage: FileUsage| {
            if written.is_ok() && !args.summarize {
                written = sink.row(&DuRow::new(shown, usage, None));
            }
        };
        let (shown, usage, set_shared) = match live_btrfs(COMMAND, text)? {
            Some(live) => of_mount(&live, &mut below)?,
            None => of_image(&mut images, text, &mut below)?,
        };
        written.and_then(|()| sink.row(&DuRow::new(shown, usage, Some(set_shared)))).map_err(printing)
    });
    if let Sink::Json(array) = sink {
        array.end().map_err(printing)?;
    }
    out.finish().map_err(|error| Failure::new(COMMAND, error)).and(outcome)
}

/// An argument as it is shown, the data of all files in it, and the bytes that they share. `below` is called for each file and directory in
/// it.
type Counted = (OsString, FileUsage, u64);

fn of_image(
    images: &mut Images<'_>,
    text: &OsStr,
    below: &mut dyn FnMut(OsString, FileUsage),
) -> Result<Counted, Failure> {
    let place = images.place(text)?;
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    let shown = |path: &Path| {
        let mut shown = place.image.as_os_str().to_owned();
        shown.push(":");
        shown.push(path);
        shown
    };
    let counted =
        fs.extents().disk_usage(&place.path, |path, usage| below(shown(path), usage)).map_err(failed)?;
    let DiskUsage { total, exclusive, set_shared, .. } = counted;
    Ok((shown(&place.path), FileUsage { total, exclusive }, set_shared))
}

fn of_mount(live: &LiveBtrfs, below: &mut dyn FnMut(OsString, FileUsage)) -> Result<Counted, Failure> {
    let each = |path: &Path, usage| below(path.as_os_str().to_owned(), usage);
    let counted = live.disk_usage(each, |error| warn(&format!("{error}: not counted")));
    let (usage, set_shared) = counted.map_err(|error| Failure::new(COMMAND, error))?;
    Ok((live.path().as_os_str().to_owned(), usage, set_shared))
}
