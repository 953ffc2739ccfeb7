//! `creamery subvolume find-new`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::ControlFlow;

use clap::Args;
use creamery::extents::NewExtent;
use creamery::id::Generation;
use serde::Serialize;

use super::target::{OnMount, failed_at};
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::output::{Output, writing};
use crate::view::ViewArgs;

/// List what was written to files of a subvolume since a transaction.
///
/// The last line has the transaction that changed the subvolume last. Next time, ask from the
/// number after it on.
///
/// Examples:
///   creamery subvolume find-new disk.img:/home 120
///   creamery subvolume find-new /mnt/home 120
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct FindNewArgs {
    /// The subvolume.
    #[arg(value_name = "IMAGE:/PATH|PATH")]
    place: OsString,

    /// The first transaction of which extents are listed.
    #[arg(value_name = "GENERATION")]
    since: u64,

    /// One JSON array, without the last line.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArgs,
}

#[derive(Serialize)]
struct NewExtentJson {
    inode: u64,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    file_offset: u64,
    length: u64,
    disk_start: u64,
    offset: u64,
    generation: u64,
    compressed: bool,
    inline: bool,
    preallocated: bool,
}

const COMMAND: &str = "subvolume find-new";

pub(super) fn run(args: &FindNewArgs) -> Result<(), Failure> {
    let mut images = Images::new(COMMAND, &args.view);
    let mut out = Output::new();
    let mut find = |print: &mut dyn FnMut(&NewExtent) -> io::Result<()>| {
        let mut printed = Ok(());
        let marker = find_new(args, &mut images, &mut |extent| {
            printed = print(&extent);
            if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        printed.map_err(|error| Failure::new(COMMAND, writing(error))).and(marker)
    };
    let told = |error| Failure::new(COMMAND, writing(error));
    if args.json {
        let mut array = Array::begin(&mut out).map_err(told)?;
        let found = find(&mut |extent| array.push(&NewExtentJson::new(extent)));
        // With or without an error the output is one valid document.
        array.end().map_err(told)?;
        found?;
    } else {
        let marker = find(&mut |extent| as_line(&mut out, extent))?;
        writeln!(out, "transid marker was {}", marker.get()).map_err(told)?;
    }
    out.finish().map_err(|error| Failure::new(COMMAND, error))
}

fn find_new(
    args: &FindNewArgs,
    images: &mut Images<'_>,
    each: &mut dyn FnMut(NewExtent) -> ControlFlow<()>,
) -> Result<Generation, Failure> {
    let since = Generation::new(args.since);
    if let Some(on_mount) = OnMount::of(COMMAND, &args.place)? {
        let (subvolume, path) = on_mount.directory(COMMAND)?;
        return subvolume.find_new(since, each).map_err(failed_at(COMMAND, &path));
    }
    let place = images.place(&args.place)?;
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    fs.subvolumes().id_at(&place.path).and_then(|id| fs.extents().find_new(id, since, each)).map_err(failed)
}

fn as_line(out: &mut Output, extent: &NewExtent) -> io::Result<()> {
    let NewExtent { ino, file_offset, len, disk_start, offset, generation, .. } = extent;
    write!(out, "inode {ino} file offset {file_offset} len {len} disk start {disk_start} offset {offset} ")?;
    let flags =
        [(extent.is_compressed, "COMPRESS"), (extent.is_inline, "INLINE"), (extent.is_prealloc, "PREALLOC")];
    let flags: Vec<&str> = flags.into_iter().filter(|(is, _)| *is).map(|(_, flag)| flag).collect();
    let flags = if flags.is_empty() { "NONE".to_owned() } else { flags.join("|") };
    write!(out, "gen {} flags {flags} ", generation.get())?;
    out.path_bytes(&extent.path)?;
    out.write_all(b"\n")
}

impl NewExtentJson {
    fn new(extent: &NewExtent) -> Self {
        let (path, path_bytes) = text_of(&extent.path);
        Self {
            inode: extent.ino.get(),
            path,
            path_bytes,
            file_offset: extent.file_offset,
            length: extent.len,
            disk_start: extent.disk_start,
            offset: extent.offset,
            generation: extent.generation.get(),
            compressed: extent.is_compressed,
            inline: extent.is_inline,
            preallocated: extent.is_prealloc,
        }
    }
}
