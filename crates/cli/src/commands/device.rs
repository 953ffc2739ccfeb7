//! `creamery device`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use creamery::id::DevId;
use creamery::volume::{DeviceErrors, MemberDevice};
use creamery_mount::{LiveBtrfs, LiveDevice};
use serde::Serialize;

use crate::columns::{self, Column};
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::json::{Array, Header, text_of};
use crate::live::{is_block_device, live_btrfs};
use crate::output::{Output, writing};
use crate::view::RescueArgs;

/// Work with the devices of a filesystem.
#[derive(Subcommand, Debug)]
pub(crate) enum DeviceCommand {
    Stats(DeviceStatsArgs),
    Survey(super::survey::SurveyArgs),
}

/// Print the error counts of devices, as Linux keeps them.
///
/// Linux keeps the numbers in the filesystem, and a scrub adds the errors that it finds. Creamery
/// reports other errors to the reader or the writer, and does not count them.
///
/// With -z the numbers are printed, and then set to 0. On a live mount only root may do that,
/// and on a mount of an image its mounter, too. Images of several devices are not written to.
///
/// Examples:
///   creamery device stats disk.img
///   creamery device stats --check /mnt
///   creamery device stats -z disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct DeviceStatsArgs {
    /// The image, a directory of a live mount (also of Linux' own Btrfs), or one device of the latter.
    #[arg(value_name = "IMAGE|DEVICE|PATH")]
    place: OsString,

    /// End with status 64 if any number is not 0.
    #[arg(short = 'c', long)]
    check: bool,

    /// Set the numbers to 0 once they are printed.
    #[arg(short = 'z', long)]
    reset: bool,

    /// In columns.
    #[arg(short = 'T', conflicts_with_all = ["json", "format_json"])]
    tabular: bool,

    /// One JSON array.
    #[arg(long)]
    json: bool,

    /// The JSON of btrfs-progs.
    #[arg(long, hide = true)]
    format_json: bool,

    #[command(flatten)]
    rescue: RescueArgs,
}

const COMMAND: &str = "device stats";
/// The exit status of `--check` if there are errors.
pub(crate) const ANY: u8 = 64;

/// A device and its error counts.
struct DeviceStatsRow {
    id: DevId,
    path: PathBuf,
    errors: DeviceErrors,
}

impl DeviceStatsRow {
    /// A missing device has no path, so its number identifies it.
    fn new(id: DevId, path: PathBuf, errors: DeviceErrors) -> Self {
        let path = if path.as_os_str().is_empty() { format!("devid:{id}").into() } else { path };
        Self { id, path, errors }
    }
}

#[derive(Serialize)]
struct RowJson {
    id: u64,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    write_errors: u64,
    read_errors: u64,
    flush_errors: u64,
    corruption_errors: u64,
    generation_errors: u64,
}

#[derive(Serialize)]
struct DeviceFormatJson {
    #[serde(rename = "__header")]
    header: Header,
    #[serde(rename = "device-stats")]
    devices: Vec<RowFormatJson>,
}

#[derive(Serialize)]
struct RowFormatJson {
    device: String,
    devid: u64,
    write_io_errs: u64,
    read_io_errs: u64,
    flush_io_errs: u64,
    corruption_errs: u64,
    generation_errs: u64,
}

pub(crate) fn run(command: &DeviceCommand) -> Result<(), Failure> {
    match command {
        DeviceCommand::Stats(args) => stats(args),
        DeviceCommand::Survey(args) => super::survey::run(args),
    }
}

fn stats(args: &DeviceStatsArgs) -> Result<(), Failure> {
    let path = Path::new(&args.place);
    let rows = if is_block_device(path) {
        let found = LiveBtrfs::of_device(path).map_err(|error| Failure::new(COMMAND, error))?;
        match found {
            Some((live, device)) => of_live(args, &live, vec![device])?,
            None => of_image(args)?,
        }
    } else if let Some(live) = live_btrfs(COMMAND, &args.place)? {
        live.check_directory().map_err(|error| Failure::new(COMMAND, error))?;
        let devices = live.devices().map_err(|error| Failure::new(COMMAND, error))?;
        of_live(args, &live, devices)?
    } else {
        of_image(args)?
    };
    if args.check && rows.iter().any(|row| row.errors.any()) {
        return Err(Failure::silent(COMMAND, ANY));
    }
    Ok(())
}

fn print(args: &DeviceStatsArgs, rows: &[DeviceStatsRow]) -> Result<(), Failure> {
    let mut out = Output::new();
    let printed = match args {
        DeviceStatsArgs { format_json: true, .. } => as_btrfs_progs(&mut out, rows),
        DeviceStatsArgs { json: true, .. } => as_json(&mut out, rows),
        DeviceStatsArgs { tabular: true, .. } => as_table(&mut out, rows),
        _ => as_text(&mut out, rows),
    };
    printed.map_err(writing).and_then(|()| out.finish()).map_err(|error| Failure::new(COMMAND, error))
}

/// Prints the error counts of devices of a live mount.
fn of_live(
    args: &DeviceStatsArgs,
    live: &LiveBtrfs,
    devices: Vec<LiveDevice>,
) -> Result<Vec<DeviceStatsRow>, Failure> {
    let (rows, unread) = of_devices(live, devices, args.reset)?;
    // No other place has the numbers that were reset, so they are printed before the error of another device.
    print(args, &rows)?;
    unread.map_or(Ok(rows), Err)
}

/// Prints the error counts in an image. With -z they are set to 0 when they are printed.
fn of_image(args: &DeviceStatsArgs) -> Result<Vec<DeviceStatsRow>, Failure> {
    let view = args.rescue.view();
    let mut images = Images::new(COMMAND, &view);
    let place = images.place(&args.place)?;
    let failed = images.failed(&place.image);
    let purpose = if args.reset { Purpose::Write } else { Purpose::Read };
    let mut rows = Vec::new();
    let outcome = images.open_at(&place, purpose).and_then(|fs| {
        let volume = fs.volume();
        for MemberDevice { id, path, .. } in volume.devices() {
            let errors = volume.device_errors(id).map_err(&failed)?;
            rows.push(DeviceStatsRow::new(id, path.unwrap_or_default(), errors));
        }
        print(args, &rows)?;
        let written = if args.reset { &rows[..] } else { &[] };
        written.iter().try_for_each(|row| volume.reset_device_errors(row.id).map(drop)).map_err(&failed)
    });
    images.finish(outcome).map(|()| rows)
}

fn of_devices(
    live: &LiveBtrfs,
    devices: Vec<LiveDevice>,
    reset: bool,
) -> Result<(Vec<DeviceStatsRow>, Option<Failure>), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    let (mut rows, mut unread) = (Vec::new(), None);
    for device in devices {
        let errors = if reset { live.reset_device_errors(device.id) } else { live.device_errors(device.id) };
        match errors {
            Ok(errors) => rows.push(DeviceStatsRow::new(device.id, device.path, errors)),
            Err(error) => {
                unread.get_or_insert_with(|| failed(error.context(device.path.display())));
            }
        }
    }
    // Without any device there is nothing to print.
    if rows.is_empty() { unread.map_or(Ok((rows, None)), Err) } else { Ok((rows, unread)) }
}

fn as_text(out: &mut Output, rows: &[DeviceStatsRow]) -> io::Result<()> {
    for DeviceStatsRow { path, errors, .. } in rows {
        let DeviceErrors { write, read, flush, corruption, generation } = *errors;
        for (name, count) in [
            ("write_io_errs", write),
            ("read_io_errs", read),
            ("flush_io_errs", flush),
            ("corruption_errs", corruption),
            ("generation_errs", generation),
        ] {
            out.write_all(b"[")?;
            out.path(path)?;
            writeln!(out, "].{name:<16} {count}")?;
        }
    }
    Ok(())
}

fn as_table(out: &mut Output, rows: &[DeviceStatsRow]) -> io::Result<()> {
    let column = |name: &str, is_text, cell: fn(&DeviceStatsRow) -> String| Column {
        heads: vec![name.to_owned()],
        cells: rows.iter().map(cell).collect(),
        is_text,
    };
    let columns = [
        column("Id", false, |row| row.id.to_string()),
        column("Path", true, |row| row.path.display().to_string()),
        column("Write errors", false, |row| row.errors.write.to_string()),
        column("Read errors", false, |row| row.errors.read.to_string()),
        column("Flush errors", false, |row| row.errors.flush.to_string()),
        column("Corruption errors", false, |row| row.errors.corruption.to_string()),
        column("Generation errors", false, |row| row.errors.generation.to_string()),
    ];
    columns::print(out, &columns, None)
}

fn as_json(out: &mut Output, rows: &[DeviceStatsRow]) -> io::Result<()> {
    let mut array = Array::begin(out)?;
    for DeviceStatsRow { id, path, errors } in rows {
        let (path, path_bytes) = text_of(path.as_os_str().as_bytes());
        array.push(&RowJson {
            id: id.get(),
            path,
            path_bytes,
            write_errors: errors.write,
            read_errors: errors.read,
            flush_errors: errors.flush,
            corruption_errors: errors.corruption,
            generation_errors: errors.generation,
        })?;
    }
    array.end()
}

fn as_btrfs_progs(out: &mut Output, rows: &[DeviceStatsRow]) -> io::Result<()> {
    let row = |row: &DeviceStatsRow| RowFormatJson {
        device: row.path.display().to_string(),
        devid: row.id.get(),
        write_io_errs: row.errors.write,
        read_io_errs: row.errors.read,
        flush_io_errs: row.errors.flush,
        corruption_errs: row.errors.corruption,
        generation_errs: row.errors.generation,
    };
    let shown = DeviceFormatJson { header: Header::FIRST, devices: rows.iter().map(row).collect() };
    serde_json::to_writer_pretty(&mut *out, &shown)?;
    writeln!(out)
}
