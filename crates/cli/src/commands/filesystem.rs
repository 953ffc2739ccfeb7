//! `creamery filesystem`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use creamery::{ErrorKind, Image};
use serde::Serialize;

use super::{defragment, du, fiemap};
use crate::args::{FilesystemCommand, TrimArgs};
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::output::{Output, writing};
use crate::size::{Human, Size};
use crate::view::WriteArgs;

/// Print the label of a filesystem, or change it.
///
/// Without LABEL the one that there is is printed, as btrfs-progs prints it. An empty one
/// takes it away. The image may not be mounted.
///
/// Examples:
///   creamery filesystem label disk.img
///   creamery filesystem label disk.img backup
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct LabelArgs {
    /// The image.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The new label, at most 255 bytes.
    #[arg(value_name = "LABEL")]
    label: Option<OsString>,

    /// Write from a copy of the superblock when the first one is damaged; what was synced after the last commit is lost then.
    #[arg(long)]
    usesupercopy: bool,
}

fn label(args: &LabelArgs) -> Result<(), Failure> {
    const COMMAND: &str = "filesystem label";
    let write = WriteArgs { usesupercopy: args.usesupercopy, ..WriteArgs::default() };
    let mut images = Images::to_write(COMMAND, &write);
    let place = images.place(args.image.as_os_str())?;
    let failed = images.failed(&place.image);
    let Some(label) = &args.label else {
        let label = images.open(&place.image, Purpose::Read)?.label();
        let mut out = Output::new();
        let printed = out.path_bytes(&label).and_then(|()| out.write_all(b"\n")).map_err(writing);
        return printed.and_then(|()| out.finish()).map_err(|error| Failure::new(COMMAND, error));
    };
    let outcome = images.open(&place.image, Purpose::Write);
    let outcome = outcome.and_then(|fs| fs.set_label(label.as_encoded_bytes()).map_err(failed));
    images.finish(outcome)
}

#[derive(Serialize)]
struct Row {
    place: String,
    trimmed_bytes: u64,
}

pub(crate) fn run(command: &FilesystemCommand) -> Result<(), Failure> {
    match command {
        FilesystemCommand::Defragment(args) => defragment::run(args),
        FilesystemCommand::Du(args) => du::run(args),
        FilesystemCommand::Fiemap(args) => fiemap::run(args),
        FilesystemCommand::Label(args) => label(args),
        FilesystemCommand::Trim(args) => run_trim(args),
    }
}

fn run_trim(args: &TrimArgs) -> Result<(), Failure> {
    let trimmed_bytes = trim(args)?;
    let row = Row { place: args.place.display().to_string(), trimmed_bytes };
    let mut out = Output::new();
    let printed = if args.json { as_json(&mut out, &row) } else { as_text(&mut out, &row) };
    printed
        .map_err(writing)
        .and_then(|()| out.finish())
        .map_err(|error| Failure::new("filesystem trim", error))
}

fn trim(args: &TrimArgs) -> Result<u64, Failure> {
    let Size(minimum) = args.minimum;
    let failed = |error| Failure::new("filesystem trim", error);
    let not_trimmed = |error: creamery::Error| match error.kind() {
        ErrorKind::Unsupported => {
            failed(error).advise("the device, or the host's filesystem, cannot discard")
        }
        _ => failed(error),
    };
    if args.place.is_dir() {
        return creamery_mount::trim(&args.place, minimum).map_err(not_trimmed);
    }
    let options = Image::options().write(true).use_super_copy(args.usesupercopy);
    let fs = options.open(&args.place).map_err(failed)?;
    let trimmed = fs.trim(minimum).map_err(not_trimmed)?;
    fs.close().map_err(failed)?;
    Ok(trimmed)
}

fn as_json(out: &mut Output, row: &Row) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, row)?;
    writeln!(out)
}

fn as_text(out: &mut Output, row: &Row) -> std::io::Result<()> {
    let Row { place, trimmed_bytes } = row;
    writeln!(out, "{place}: {} ({trimmed_bytes} bytes) trimmed", Human(*trimmed_bytes))
}
