//! `creamery diff`.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use creamery::diff::{DiffSide, DiffSummary, DiffTrouble, Difference};
use serde::Serialize;

use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::names::NamePrinter;
use crate::output::{Output, writing};
use crate::path_in_image::PathInImage;
use crate::progress::ProgressArgs;
use crate::view::ViewArgs;

/// Compare two images, subvolumes or directories.
///
/// OLD and NEW may lie in one image or in two; nothing is written. A line for each name that
/// differs, in the byte order of the paths, with a tab before the path:
///   D                 only OLD has it
///   A                 only NEW has it
///   M content,mode    both have it, and these differ: content, mode, owner, xattr, time
///                     (of modification), flags (of chattr), or type alone
/// A subvolume that only one has ends with a slash, and its content is not listed. "." is
/// OLD and NEW themselves, and comes first. A renamed file is a D and an A.
///
/// In one image, shared extents count as equal without being read, so damage there is not
/// noticed.
///
/// The exit status is 0 without differences, 1 with differences, and 2 after an error.
///
/// Examples:
///   creamery diff disk.img:/snapshots/monday disk.img:/home
///   creamery diff --stat old.img new.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct DiffArgs {
    /// The old state.
    #[arg(value_name = "OLD")]
    old: OsString,

    /// The new state.
    #[arg(value_name = "NEW")]
    new: OsString,

    /// Put a zero byte behind each path instead of a line's end.
    #[arg(short = '0', long, conflicts_with_all = ["stat", "json"])]
    null: bool,

    /// Print how many names differ, and the bytes of their files, instead of the names.
    #[arg(long)]
    stat: bool,

    /// Print one JSON array; with --stat one object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    view: ViewArgs,
}

const COMMAND: &str = "diff";
/// The exit status of diff(1) for differences.
const DIFFERENT: u8 = 1;
const TROUBLE: u8 = 2;

#[derive(Serialize)]
struct DifferenceJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    change: &'static str,
    kinds: Vec<&'static str>,
    subvolume: bool,
}

#[derive(Serialize)]
struct SummaryJson {
    added: u64,
    removed: u64,
    modified: u64,
    added_bytes: u64,
    removed_bytes: u64,
    changed_bytes: u64,
}

/// The output for differences as they come.
enum DiffPrinter<'a> {
    /// Each line, followed by this byte.
    Lines(&'a mut Output, &'static [u8; 1]),
    Json(Array<'a, Output>),
    /// Differences are only counted.
    Nothing,
}

impl DiffPrinter<'_> {
    fn print(&mut self, difference: &Difference) -> io::Result<()> {
        match self {
            Self::Lines(out, end) => {
                write!(out, "{}", difference.change.letter())?;
                for (number, kind) in difference.kinds.iter().enumerate() {
                    write!(out, "{}{}", if number == 0 { ' ' } else { ',' }, kind.name())?;
                }
                out.write_all(b"\t")?;
                out.path(&difference.path)?;
                out.write_all(&end[..])
            }
            Self::Json(array) => {
                let (path, path_bytes) = text_of(difference.path.as_os_str().as_bytes());
                let kinds = difference.kinds.iter().map(|kind| kind.name()).collect();
                let (change, subvolume) = (difference.change.name(), difference.is_subvolume);
                array.push(&DifferenceJson { path, path_bytes, change, kinds, subvolume })
            }
            Self::Nothing => Ok(()),
        }
    }
}

pub(crate) fn run(args: &DiffArgs) -> Result<(), Failure> {
    let mut out = Output::new();
    let names = NamePrinter::new(COMMAND, false, args.progress);
    // A progress line would disturb the lines of differences.
    let names = if io::stdout().is_terminal() && !args.stat { names.unseen() } else { names };
    let compared = diff(args, &names, &mut out);
    let ended = names.finish();
    let finished = out.finish().map_err(|error| Failure::new(COMMAND, error));
    let outcome = compared.and_then(|summary| ended.and(finished).map(|()| summary));
    match outcome {
        Ok(summary) if summary.is_empty() => Ok(()),
        Ok(_) => Err(Failure::silent(COMMAND, DIFFERENT)),
        Err(failure) => Err(failure.status(TROUBLE)),
    }
}

/// Prints the differences, and each error. Errors: the first error, which is printed already.
fn diff(args: &DiffArgs, names: &NamePrinter, out: &mut Output) -> Result<DiffSummary, Failure> {
    let printing = |error| Failure::new(COMMAND, writing(error));
    let mut images = Images::new(COMMAND, &args.view);
    let [old, new] = places(args, &images)?;
    images.open(&old.image, Purpose::Read)?;
    images.open(&new.image, Purpose::Read)?;
    let (before, after) = (images.get(&old.image), images.get(&new.image));
    let failed = |trouble: DiffTrouble| match trouble.side {
        Some(DiffSide::Old) => images.failed(&old.image)(trouble.error),
        Some(DiffSide::New) => images.failed(&new.image)(trouble.error),
        None => Failure::new(COMMAND, trouble.error),
    };
    let differences = before.diff(&old.path, after, &new.path, names).map_err(failed)?;
    let mut printer = match (args.stat, args.json) {
        (true, _) => DiffPrinter::Nothing,
        (false, true) => DiffPrinter::Json(Array::begin(out).map_err(printing)?),
        (false, false) => DiffPrinter::Lines(out, if args.null { b"\0" } else { b"\n" }),
    };
    let mut summary = DiffSummary::default();
    let mut first = None;
    for item in differences {
        match item {
            Ok(difference) => {
                summary.count(&difference);
                printer.print(&difference).map_err(printing)?;
            }
            Err(trouble) => drop(first.get_or_insert(failed(trouble).tell())),
        }
    }
    if let DiffPrinter::Json(array) = printer {
        array.end().map_err(printing)?;
    }
    if args.stat {
        print_summary(args, out, summary).map_err(printing)?;
    }
    first.map_or(Ok(summary), Err)
}

/// The two places; different host paths of one image are unified.
fn places(args: &DiffArgs, images: &Images<'_>) -> Result<[PathInImage; 2], Failure> {
    let (old, mut new) = (images.place(&args.old)?, images.place(&args.new)?);
    if let (Ok(one), Ok(other)) = (old.image.canonicalize(), new.image.canonicalize())
        && one == other
    {
        new.image.clone_from(&old.image);
    }
    Ok([old, new])
}

fn print_summary(args: &DiffArgs, out: &mut Output, summary: DiffSummary) -> io::Result<()> {
    let DiffSummary { added, removed, modified, added_bytes, removed_bytes, changed_bytes, .. } = summary;
    if args.json {
        let json = SummaryJson { added, removed, modified, added_bytes, removed_bytes, changed_bytes };
        serde_json::to_writer_pretty(&mut *out, &json)?;
        return writeln!(out);
    }
    writeln!(out, "added: {added}, with {added_bytes} bytes of files")?;
    writeln!(out, "removed: {removed}, with {removed_bytes} bytes of files")?;
    writeln!(out, "modified: {modified}, with {changed_bytes} bytes of files whose content or type differs")
}
