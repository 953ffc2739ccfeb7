//! `creamery filesystem`.

use std::io::Write;

use creamery::{ErrorKind, Image};
use serde::Serialize;

use super::du;
use crate::args::{FilesystemCommand, TrimArgs};
use crate::failure::Failure;
use crate::output::{Output, writing};
use crate::size::{Human, Size};

#[derive(Serialize)]
struct Row {
    place: String,
    trimmed_bytes: u64,
}

pub(crate) fn run(command: &FilesystemCommand) -> Result<(), Failure> {
    match command {
        FilesystemCommand::Du(args) => du::run(args),
        FilesystemCommand::Trim(args) => run_trim(args),
    }
}

fn run_trim(args: &TrimArgs) -> Result<(), Failure> {
    let failed = |error: creamery::Error| {
        let unsupported = error.kind() == ErrorKind::Unsupported;
        let failure = Failure::new("filesystem trim", error);
        if unsupported {
            failure.advise("the device, or the host's filesystem, cannot discard")
        } else {
            failure
        }
    };
    let trimmed_bytes = trim(args).map_err(failed)?;
    let row = Row { place: args.place.display().to_string(), trimmed_bytes };
    let mut out = Output::new();
    let printed = if args.json { as_json(&mut out, &row) } else { as_text(&mut out, &row) };
    printed
        .map_err(writing)
        .and_then(|()| out.finish())
        .map_err(|error| Failure::new("filesystem trim", error))
}

fn trim(args: &TrimArgs) -> creamery::Result<u64> {
    let Size(minimum) = args.minimum;
    if args.place.is_dir() {
        return creamery_mount::trim(&args.place, minimum);
    }
    let fs = Image::options().write(true).open(&args.place)?;
    let trimmed = fs.trim(minimum)?;
    fs.close()?;
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
