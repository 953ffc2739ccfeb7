//! `creamery dedupe`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use creamery::extents::DedupeReport;
use serde::Serialize;

use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::interrupt;
use crate::names::NamePrinter;
use crate::output::{Output, writing};
use crate::progress::ProgressArgs;
use crate::size::Human;
use crate::view::WriteArgs;

/// Let files with equal content share their data.
///
/// Directories are searched recursively. Whole files are compared, byte by byte. Only the free
/// space changes.
///
/// Examples:
///   creamery dedupe disk.img:/home disk.img:/srv
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct DedupeArgs {
    /// Files and directories.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    pub(crate) places: Vec<OsString>,

    /// Print each name that is read.
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,

    /// Bytes instead of rounded sizes.
    #[arg(long)]
    pub(crate) raw: bool,

    /// Print JSON.
    #[arg(long, conflicts_with = "verbose")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) progress: ProgressArgs,

    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// The result of deduplicating in one image.
#[derive(Serialize)]
struct DedupeJson {
    image: String,
    files: u64,
    equal_files: u64,
    shared_bytes: u64,
    already_shared_bytes: u64,
    unchangeable_files: u64,
}

pub(crate) fn run(args: &DedupeArgs) -> Result<(), Failure> {
    const COMMAND: &str = "dedupe";
    let mut images = Images::to_write(COMMAND, &args.write);
    let mut places: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for text in &args.places {
        let place = images.place(text)?;
        places.entry(place.image).or_default().push(place.path);
    }
    let names = NamePrinter::new(COMMAND, args.verbose, args.progress);
    interrupt::watch();
    let mut reports = Vec::new();
    let outcome = with_all(&places, |(image, paths)| {
        let failed = images.failed(image);
        let fs = images.open(image, Purpose::Write)?;
        reports.push((image, fs.extents().dedupe(paths, &names).map_err(failed)?));
        Ok(())
    });
    let outcome = images.finish(outcome);
    names.finish()?;
    let mut out = Output::new();
    let mut print = || {
        for (image, report) in &reports {
            match args.json {
                true => as_json(&mut out, image.display().to_string(), report)?,
                false => as_text(&mut out, report, args.raw)?,
            }
        }
        Ok(())
    };
    let printed = print().map_err(writing).and_then(|()| out.finish());
    printed.map_err(|error| Failure::new(COMMAND, error)).and(outcome)
}

fn as_json(out: &mut Output, image: String, report: &DedupeReport) -> io::Result<()> {
    let DedupeReport { files, equal_files, shared_bytes, already_shared_bytes, unchangeable_files, .. } =
        *report;
    let json =
        DedupeJson { image, files, equal_files, shared_bytes, already_shared_bytes, unchangeable_files };
    serde_json::to_writer_pretty(&mut *out, &json)?;
    writeln!(out)
}

fn as_text(out: &mut Output, report: &DedupeReport, raw: bool) -> io::Result<()> {
    let size = |bytes: u64| if raw { bytes.to_string() } else { Human(bytes).to_string() };
    writeln!(out, "{} files looked at, {} of them like another", report.files, report.equal_files)?;
    let (new, old) = (size(report.shared_bytes), size(report.already_shared_bytes));
    writeln!(out, "{new} shared now, {old} were before")?;
    if report.unchangeable_files > 0 {
        let count = report.unchangeable_files;
        writeln!(out, "{count} files stay as they are: read-only, or marked immutable")?;
    }
    Ok(())
}
