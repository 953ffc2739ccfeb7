//! `creamery filesystem`.

use std::io::Write;

use creamery::{ErrorKind, Image};
use serde::Serialize;

use super::{defragment, du, fiemap, label, resize, show, usage};
use crate::args::{FilesystemCommand, TrimArgs};
use crate::failure::Failure;
use crate::output::{Output, writing};
use crate::size::{Human, Size};
use crate::view::refuse_if_on_mount;

#[derive(Serialize)]
struct FilesystemRow {
    place: String,
    trimmed_bytes: u64,
}

pub(crate) fn run(command: &FilesystemCommand) -> Result<(), Failure> {
    match command {
        FilesystemCommand::Defragment(args) => defragment::run(args),
        FilesystemCommand::Df(args) => usage::run_df(args),
        FilesystemCommand::Du(args) => du::run(args),
        FilesystemCommand::Fiemap(args) => fiemap::run(args),
        FilesystemCommand::Label(args) => label::run(args),
        FilesystemCommand::Resize(args) => resize::run(args),
        FilesystemCommand::Show(args) => show::run(args),
        FilesystemCommand::Trim(args) => run_trim(args),
        FilesystemCommand::Usage(args) => usage::run(args),
    }
}

fn run_trim(args: &TrimArgs) -> Result<(), Failure> {
    let trimmed_bytes = trim(args)?;
    let row = FilesystemRow { place: args.place.display().to_string(), trimmed_bytes };
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
            failed(error).advise("the device or the host's filesystem does not support discard")
        }
        _ => failed(error),
    };
    if args.place.is_dir() {
        refuse_if_on_mount(&args.place).map_err(failed)?;
        return creamery_mount::trim(&args.place, minimum).map_err(not_trimmed);
    }
    let options = Image::options().write();
    let options = if args.usesupercopy { options.use_super_copy() } else { options };
    let fs = options.open(&args.place).map_err(failed)?;
    let trimmed = fs.volume().trim(minimum).map_err(not_trimmed)?;
    fs.close().map_err(failed)?;
    Ok(trimmed)
}

fn as_json(out: &mut Output, row: &FilesystemRow) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, row)?;
    writeln!(out)
}

fn as_text(out: &mut Output, row: &FilesystemRow) -> std::io::Result<()> {
    let FilesystemRow { place, trimmed_bytes } = row;
    writeln!(out, "{place}: {} ({trimmed_bytes} bytes) trimmed", Human(*trimmed_bytes))
}
