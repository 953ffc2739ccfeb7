//! `creamery undelete`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use creamery::history::{GoneFile, UndeleteOptions, gone_files, undelete};
use creamery::id::Generation;
use creamery::progress::{Lost, Progress, Skipped};
use creamery::{Error, ErrorKind, FileType};
use serde::Serialize;

use super::history::Searched;
use crate::descriptors;
use crate::failure::{Failure, complain, warn};
use crate::images::{in_image, warn_of, with_way_in};
use crate::interrupt;
use crate::json::{Array, text_of};
use crate::losses::{Losses, Watched};
use crate::names::NamePrinter;
use crate::output::{Output, writing};
use crate::path_in_image::PathInImage;
use crate::progress::ProgressArgs;
use crate::time::Utc;
use crate::view::DeviceArgs;

const COMMAND: &str = "undelete";

/// List deleted files, and restore one from an earlier commit.
///
/// IMAGE alone lists the files, directories and symbolic links that an earlier commit still
/// has (`creamery history`) and the last one has not: the generation of the newest commit
/// that has it, its type, its size, when it was changed, and its path. A renamed file is
/// not deleted. Only copying a file shows whether it can be read.
///
/// IMAGE:/PATH TARGET copies one to the host as `cp -a` does, a directory with all that can
/// be read in it. Data is checked by the checksums of its commit: overwritten data is an error,
/// never other content. Existing files are not replaced. The image is only read.
///
/// Examples:
///   creamery undelete disk.img
///   creamery undelete disk.img:/home/ada/thesis.tex .
///   creamery undelete --generation 1042 disk.img:/etc ./etc
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    override_usage = "creamery undelete [OPTIONS] <IMAGE>\n       creamery undelete [OPTIONS] <IMAGE:/PATH> <TARGET>"
)]
pub(crate) struct UndeleteArgs {
    /// The image, or the file to copy out of it.
    #[arg(value_name = "IMAGE[:/PATH]")]
    place: OsString,

    /// Where the copy goes: into it, if it is a directory.
    #[arg(value_name = "TARGET")]
    target: Option<PathBuf>,

    /// Copy from this commit [default: the newest that has the path, and a file there that the last one has not].
    #[arg(long, value_name = "N", requires = "target")]
    generation: Option<u64>,

    /// Replace files of the host.
    #[arg(short, long, requires = "target")]
    force: bool,

    /// Copy files without checksums (NODATASUM), too: their content may be another file's by now.
    #[arg(long, requires = "target")]
    unverified: bool,

    /// Print the list as one JSON array.
    #[arg(long, conflicts_with = "target")]
    json: bool,

    /// Print each name that is copied.
    #[arg(short, long, requires = "target")]
    verbose: bool,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    set: DeviceArgs,
}

pub(crate) fn run(args: &UndeleteArgs) -> Result<(), Failure> {
    let place = PathInImage::parse(&args.place);
    match &args.target {
        Some(target) => copy(args, &place, target),
        None if place.path == Path::new("/") => list(args, &place.image),
        None => {
            let what = format!("expected a target for {place}, or the image alone to list deleted files");
            Err(Failure::usage(COMMAND, &what))
        }
    }
}

#[derive(Serialize)]
struct GoneJson {
    generation: u64,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    mtime: String,
    unverified: bool,
    subvolume: u64,
    inode: u64,
}

impl GoneJson {
    fn new(file: &GoneFile) -> Self {
        let (path, path_bytes) = text_of(file.path.as_os_str().as_bytes());
        Self {
            generation: file.generation.get(),
            path,
            path_bytes,
            kind: file.file_type.name(),
            size: file.len,
            mtime: format!("{:#}", Utc(file.mtime)),
            unverified: file.is_unverified,
            subvolume: file.subvolume.get(),
            inode: file.ino.get(),
        }
    }
}

/// The word for a file's state in the output.
const fn word(file: &GoneFile) -> &'static str {
    match file.file_type {
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        _ if file.is_unverified => "unverified",
        _ => "file",
    }
}

fn print(out: &mut Output, file: &GoneFile) -> io::Result<()> {
    let GoneFile { generation, len, mtime, .. } = file;
    write!(out, "{generation} {:<10} {len:>12} {} ", word(file), Utc(*mtime))?;
    out.path(&file.path)?;
    out.write_all(b"\n")
}

fn list(args: &UndeleteArgs, image: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    let printing = |error| failed(writing(error));
    let mut out = Output::new();
    let searched = Searched::new(COMMAND, args.progress);
    let mut files = 0;
    let listed = match args.json {
        true => {
            let mut array = None;
            let mut begin = Some(&mut out);
            let listed = gone_files(args.set.of(image), &searched, &mut |file| {
                if let Some(out) = begin.take() {
                    array = Some(Array::begin(out).map_err(writing)?);
                }
                files += 1;
                array.as_mut().map_or(Ok(()), |array| array.push(&GoneJson::new(&file))).map_err(writing)
            });
            match (array, begin, &listed) {
                (Some(array), ..) => array.end().map_err(printing)?,
                (None, Some(out), Ok(_)) => Array::begin(out).and_then(Array::end).map_err(printing)?,
                _ => {}
            }
            listed
        }
        false => gone_files(args.set.of(image), &searched, &mut |file| {
            files += 1;
            print(&mut out, &file).map_err(writing)
        }),
    };
    searched.end(|| format!("found {files} files"));
    out.finish().map_err(failed)?;
    let listed = listed.map_err(|error| failed(with_way_in(&args.set.of(image), error)))?;
    listed.notes.iter().for_each(|note| warn_of(image, note));
    if listed.is_last_damaged {
        let shown = image.display();
        warn(&format!("{shown}: the last commit is damaged: files that it does not show count as deleted"));
    }
    if let [newest, ..] = listed.partial[..] {
        let (all, partial, shown) = (listed.commits, listed.partial.len(), image.display());
        warn(&format!(
            "{shown}: {partial} of {all} earlier commits are only partly readable, the newest is generation {newest}: the list may lack files"
        ));
    }
    Ok(())
}

/// Observes a running copy.
struct CopyObserver<'a> {
    watched: Watched<'a>,
    image: String,
    watch: Once,
    /// Files that were left out, as they exist and the option to replace them is missing.
    taken: AtomicU64,
    unverified: AtomicU64,
}

impl Progress for CopyObserver<'_> {
    fn entry(&self, path: &[u8], bytes: u64) {
        self.watched.entry(path, bytes);
    }

    fn in_place(&self, path: &[u8]) {
        self.watched.in_place(path);
    }

    fn go_on(&self) -> Result<(), Error> {
        // Nothing that a signal could leave behind is made before the first file.
        self.watch.call_once(interrupt::watch);
        self.watched.go_on()
    }

    fn lost(&self, path: &[u8], what: Lost, error: &Error) {
        self.watched.lost(path, what, error);
    }

    fn xattr_left_out(&self, path: &[u8], name: &[u8], error: &Error) {
        self.watched.xattr_left_out(path, name, error);
    }

    fn skipped(&self, path: &[u8], why: Skipped) {
        let (count, why) = match why {
            Skipped::Taken => (&self.taken, "the host already has a file of this name"),
            Skipped::Unverified => (&self.unverified, "its data has no checksums"),
            _ => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let (image, path) = (&self.image, creamery::error::Escaped(path));
        complain(&format!("{COMMAND}: {image}:{path}: left out: {why}"));
    }
}

fn copy(args: &UndeleteArgs, place: &PathInImage, target: &Path) -> Result<(), Failure> {
    let image = place.image.display().to_string();
    let failed = |error| Failure::new(COMMAND, in_image(&image, error));
    let names = NamePrinter::new(COMMAND, args.verbose, args.progress);
    let losses = Losses::new(COMMAND);
    let options = UndeleteOptions {
        generation: args.generation.map(Generation::new),
        force: args.force,
        unverified: args.unverified,
    };
    descriptors::allow_all();
    let watched = Watched::image(&place.image, &names, &losses);
    let (taken, unverified) = (AtomicU64::new(0), AtomicU64::new(0));
    let told = CopyObserver { watched, image: image.clone(), watch: Once::new(), taken, unverified };
    let outcome = undelete(args.set.of(&place.image), &place.path, target, &options, &told).map_err(failed);
    let (taken, unverified) = (told.taken.into_inner(), told.unverified.into_inner());
    let left_out = [
        (taken, "the host already has files of these names", "--force"),
        (unverified, "their data has no checksums", "--unverified"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, why, word)| {
        let what = Error::new(ErrorKind::AlreadyExists, format!("{count} files were left out: {why}"));
        Failure::new(COMMAND, what).plain().advise(format!("use {word} to copy them"))
    });
    let left_out = crate::failure::with_all(left_out.collect::<Vec<_>>(), Err);
    let outcome = outcome.map(|done| {
        if options.generation.is_none() && args.verbose {
            warn(&format!("{image}: generation {} was read", done.generation));
        }
    });
    losses.end(names.finish().and(outcome).and(left_out))
}
