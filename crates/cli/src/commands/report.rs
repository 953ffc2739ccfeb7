//! `creamery report`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use creamery::progress::Progress as _;
use creamery::report::{Overview, PictureKind};
use creamery::{Error, ErrorKind, Image};

use crate::failure::Failure;
use crate::images::{warn_of, with_way_in};
use crate::interrupt;
use crate::names::NamePrinter;
use crate::output::{Output, writing};
use crate::progress::ProgressArgs;
use crate::view::RescueArgs;

/// Make a page of a filesystem: its layout, the use of its space, its errors.
///
/// The page is one file of HTML without script, and needs nothing else: a map of the disk, the
/// space by directory, the subvolumes, what the filesystem is, and what a check of its trees
/// found. What cannot be read is listed, and the exit status is 1 then. Nothing is written to the
/// image.
///
/// Examples:
///   creamery report disk.img -o report.html
///   creamery report --svg map disk.img > map.svg
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ReportArgs {
    /// The image or device, or a partition of one (disk.raw@2).
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// Where the page goes; - and no file is standard output.
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// One picture alone, as SVG.
    #[arg(long, value_name = "PICTURE")]
    svg: Option<Picture>,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    rescue: RescueArgs,
}

/// A picture.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Picture {
    /// Chunks in the order of the disk's bytes.
    Map,
    /// Space by directory.
    Treemap,
}

const COMMAND: &str = "report";

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    let names = NamePrinter::new(COMMAND, false, args.progress);
    interrupt::watch();
    names.go_on().map_err(failed)?;
    let mut options = args.rescue.set.options(Image::options().rescue(args.rescue.all()));
    if let Some(generation) = args.rescue.generation() {
        options = options.generation(generation);
    }
    let overview = Overview::of(&args.image, options, &names)
        .map_err(|error| failed(with_way_in(&args.rescue.set.of(&args.image), error)))?;
    let ended = names.finish();
    overview.notes().iter().for_each(|note| warn_of(&args.image, note));
    let picture = args.svg.map(|picture| match picture {
        Picture::Map => PictureKind::Map,
        Picture::Treemap => PictureKind::Treemap,
    });
    match args.output.as_ref().filter(|path| *path != Path::new("-")) {
        Some(path) => overview.save(picture, path).map_err(failed)?,
        None => {
            let text = picture.map_or_else(|| overview.html(), |picture| overview.svg(picture));
            let mut out = Output::new();
            out.write_all(text.as_bytes()).map_err(writing).and_then(|()| out.finish()).map_err(failed)?;
        }
    }
    ended?;
    match overview.unread() {
        0 => Ok(()),
        count => {
            let what = format!("{count} files or directories could not be read");
            Err(failed(
                Error::new(ErrorKind::Unreadable, what)
                    .context(args.image.display())
                    .advise("the page lists them"),
            ))
        }
    }
}
