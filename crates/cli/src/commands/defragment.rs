//! `creamery filesystem defragment`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::Args;
use creamery::compression::Compress;
use creamery::extents::{Defragment, Recompress};
use creamery::progress::Progress;
use creamery::{Error, ErrorKind, Filesystem, OpenOptions};
use creamery_mount::{LiveFile, begins_subvolume};
use serde::Serialize;

use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::interrupt;
use crate::names::NamePrinter;
use crate::output::{Output, writing};
use crate::path_in_image::{End, PathInImage};
use crate::progress::ProgressArgs;
use crate::size::{Human, Size};
use crate::view::{WriteArgs, refuse_if_on_mount};

/// Defragment files, or compress them.
///
/// Content and times stay the same. Rewritten data is no longer shared with other files or
/// snapshots, so the filesystem may become fuller.
///
/// Examples:
///   creamery filesystem defragment disk.img:/var/log/journal
///   creamery filesystem defragment -r -c zstd:9 disk.img:/usr
///   creamery filesystem defragment -r /mnt/database
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct DefragmentArgs {
    /// Files: in images that are not mounted, or on live mounts.
    #[arg(value_name = "IMAGE:/PATH|PATH", required = true)]
    places: Vec<OsString>,

    /// Also all files below directories, but not those in other subvolumes and on other mounts.
    #[arg(short, long)]
    recursive: bool,

    /// Compress all data with zlib, lzo or zstd; none: store all of it as it is.
    #[arg(short, long, value_name = "ALGORITHM[:LEVEL]", value_parser = recompress)]
    compress: Option<Recompress>,

    /// Where the range begins in each file.
    #[arg(short, long, value_name = "SIZE", default_value = "0")]
    start: Size,

    /// Bytes of the range [default: to the end].
    #[arg(short, long, value_name = "SIZE")]
    length: Option<Size>,

    /// Skip extents of at least this size.
    #[arg(short, long, value_name = "SIZE", default_value = "32M")]
    threshold: Size,

    /// Print the name of each file.
    #[arg(short = 'v', long)]
    verbose: bool,

    /// Print JSON.
    #[arg(long, conflicts_with = "verbose")]
    json: bool,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    write: WriteArgs,
}

const COMMAND: &str = "filesystem defragment";

/// Parses `ALGORITHM[:LEVEL]`, or `none`.
fn recompress(text: &str) -> Result<Recompress, Error> {
    let compress = Compress::option(text)?;
    Ok(compress.map_or(Recompress::Plain, |Compress { method, .. }| Recompress::With(method)))
}

/// The result of the command.
#[derive(Default, Serialize)]
struct DefragmentReport {
    files: u64,
    rewritten_bytes: u64,
    unchangeable_files: u64,
}

pub(crate) fn run(args: &DefragmentArgs) -> Result<(), Failure> {
    let wanted = Defragment {
        offset: args.start.0,
        len: args.length.map_or(u64::MAX, |Size(len)| len),
        threshold: args.threshold.0,
        compress: args.compress.unwrap_or_default(),
    };
    let names = NamePrinter::new(COMMAND, args.verbose, args.progress);
    interrupt::watch();
    let mut work = Work { args, wanted, names: &names, report: DefragmentReport::default() };
    let mut images = Images::to_write(COMMAND, &args.write);
    let outcome = with_all(&args.places, |text| match End::parse(text) {
        End::Host(path) => work.on_a_mount(&path),
        End::Image(place) => work.in_an_image(&mut images, &place),
    });
    let outcome = images.finish(outcome);
    let report = work.report;
    names.finish()?;
    let mut out = Output::new();
    let printed = print(&mut out, &report, args.json).map_err(writing).and_then(|()| out.finish());
    printed.map_err(|error| Failure::new(COMMAND, error)).and(outcome)
}

fn print(out: &mut Output, report: &DefragmentReport, json: bool) -> io::Result<()> {
    if json {
        serde_json::to_writer_pretty(&mut *out, report)?;
        return writeln!(out);
    }
    writeln!(out, "{} files looked at, {} rewritten", report.files, Human(report.rewritten_bytes))?;
    if report.unchangeable_files > 0 {
        writeln!(
            out,
            "{} files stay as they are: read-only, or marked immutable",
            report.unchangeable_files
        )?;
    }
    Ok(())
}

struct Work<'a> {
    args: &'a DefragmentArgs,
    wanted: Defragment,
    names: &'a NamePrinter,
    report: DefragmentReport,
}

impl Work<'_> {
    fn in_an_image(&mut self, images: &mut Images<'_>, place: &PathInImage) -> Result<(), Failure> {
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Write)?;
        self.below(fs, &place.path).map_err(failed)
    }

    fn below(&mut self, fs: &Filesystem, path: &Path) -> Result<(), Error> {
        if !self.args.recursive {
            return self.one(path, |wanted, names| {
                OpenOptions::new().write(true).open(fs, path)?.defragment(wanted, names)
            });
        }
        for entry in fs.walk(path)?.within_subvolume() {
            let entry = entry?;
            if entry.file_type().is_file() {
                let open = || OpenOptions::new().write(true).open(fs, entry.path());
                self.one(entry.path(), |wanted, names| open()?.defragment(wanted, names))?;
            }
        }
        Ok(())
    }

    fn on_a_mount(&mut self, path: &Path) -> Result<(), Failure> {
        let failed = |error| Failure::new(COMMAND, error);
        refuse_if_on_mount(path).map_err(failed)?;
        let meta = std::fs::symlink_metadata(path).map_err(|error| failed(at(path, error)))?;
        if !meta.is_dir() || !self.args.recursive {
            return self.live(path).map_err(failed)?.ok_or_else(|| {
                let text = format!("{} is not on a mount of an image", path.display());
                let advice = "name a file on a live mount, or IMAGE:/PATH in an image that is not mounted; on a mount of the kernel \
                              use `btrfs`";
                failed(Error::unsupported(text)).advise(advice)
            });
        }
        let mut left = vec![path.to_owned()];
        while let Some(dir) = left.pop() {
            let Some(entries) = present(&dir, std::fs::read_dir(&dir)).map_err(failed)? else { continue };
            for entry in entries {
                let path = entry.map_err(|error| failed(at(&dir, error)))?.path();
                let below = present(&path, std::fs::symlink_metadata(&path)).map_err(failed)?;
                let Some(below) = below else { continue };
                if below.is_file() {
                    match self.live(&path) {
                        // A path on no mount of ours is not below one.
                        Ok(_) => {}
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(error) => return Err(failed(error)),
                    }
                } else if below.is_dir() && below.dev() == meta.dev() && !begins_subvolume(below.ino()) {
                    left.push(path);
                }
            }
        }
        Ok(())
    }

    /// Defragments a file on a mount; `None` if the path is not on a mount of an image.
    fn live(&mut self, path: &Path) -> Result<Option<()>, Error> {
        let Some(file) = LiveFile::open(path)? else { return Ok(None) };
        self.one(path, |wanted, _| file.defragment(wanted)).map(Some)
    }

    fn one(
        &mut self,
        path: &Path,
        work: impl FnOnce(&Defragment, &dyn Progress) -> Result<u64, Error>,
    ) -> Result<(), Error> {
        self.names.go_on()?;
        self.names.entry(path.as_os_str().as_bytes(), 0);
        let shown = path.display().to_string();
        let is_fixed =
            |error: &Error| matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::PermissionDenied);
        match work(&self.wanted, self.names) {
            Err(error) if self.args.recursive && is_fixed(&error) => self.report.unchangeable_files += 1,
            Err(error) if error.to_string().contains(&shown) => return Err(error),
            Err(error) => return Err(error.context(&shown)),
            Ok(bytes) => self.report.rewritten_bytes += bytes,
        }
        self.report.files += 1;
        Ok(())
    }
}

/// `None` if the path was removed meanwhile.
fn present<T>(path: &Path, found: io::Result<T>) -> Result<Option<T>, Error> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some).map_err(|error| at(path, error)),
    }
}

fn at(path: &Path, error: io::Error) -> Error {
    Error::from(error).context(path.display())
}
