//! `creamery filesystem du`.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::Args;
use creamery::DiskUsage;
use serde::Serialize;

use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::output::{Output, writing};
use crate::place::Place;
use crate::units::UnitArgs;
use crate::view::ViewArgs;

/// Show how much data files refer to, and how much of it they share.
///
/// Exclusive is what no other file refers to, nor the file itself elsewhere: snapshots and
/// clones share. Set shared is what all files of an argument share, each piece once.
/// Directories are counted with all below, subvolumes too.
///
/// Examples:
///   creamery filesystem du disk.img
///   creamery filesystem du -s --mbytes disk.img:/work disk.img:/snapshots
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct DuArgs {
    /// Files or directories.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
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
struct Row {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    total: u64,
    exclusive: u64,
    /// None in what is part of an argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    set_shared: Option<u64>,
    #[serde(skip)]
    shown: OsString,
}

impl Row {
    fn new(place: &Place, total: u64, exclusive: u64, set_shared: Option<u64>) -> Self {
        let mut shown = place.image.as_os_str().to_owned();
        shown.push(":");
        shown.push(&place.path);
        let (path, path_bytes) = text_of(shown.as_encoded_bytes());
        Self { path, path_bytes, total, exclusive, set_shared, shown }
    }
}

/// Where rows go as they come.
enum Sink<'a> {
    Json(Array<'a, Output>),
    Table(&'a mut Output, &'a UnitArgs),
}

impl Sink<'_> {
    fn row(&mut self, row: &Row) -> std::io::Result<()> {
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
        let place = Place::parse(text);
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Read)?;
        let mut written = Ok(());
        let below = |path: &Path, usage: creamery::FileUsage| {
            if written.is_ok() && !args.summarize {
                let place = Place { image: place.image.clone(), path: path.to_owned() };
                written = sink.row(&Row::new(&place, usage.total, usage.exclusive, None));
            }
        };
        let counted = fs.disk_usage(&place.path, below).map_err(failed)?;
        let DiskUsage { total, exclusive, set_shared, .. } = counted;
        written
            .and_then(|()| sink.row(&Row::new(&place, total, exclusive, Some(set_shared))))
            .map_err(printing)
    });
    if let Sink::Json(array) = sink {
        array.end().map_err(printing)?;
    }
    out.finish().map_err(|error| Failure::new(COMMAND, error)).and(outcome)
}
