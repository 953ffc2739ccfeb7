//! `creamery mv` and `creamery ln`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Args;
use creamery::copy::NameOptions;
use creamery::{Error, ErrorKind, Filesystem};

use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::names::NamePrinter;
use crate::path_in_image::{End, JustMade, PathInImage};
use crate::progress::ProgressArgs;
use crate::view::WriteArgs;

/// The longest target of a symbolic link in Linux, bytes.
const TARGET_MAX: usize = 4095;

/// Where new names go.
#[derive(Args, Debug)]
struct MvTarget {
    /// Put the new names into this directory.
    #[arg(short = 't', long, value_name = "IMAGE:/DIR", conflicts_with = "no_target_directory")]
    target_directory: Option<OsString>,

    /// Use the destination as the new name, even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
}

impl MvTarget {
    /// Splits the operands into the sources and the target.
    fn split<'a>(
        &'a self,
        command: &'static str,
        places: &'a [OsString],
    ) -> Result<(&'a [OsString], &'a OsStr), Failure> {
        if let Some(to) = &self.target_directory {
            return Ok((places, to));
        }
        match places.split_last() {
            Some((to, from)) if !from.is_empty() => {
                if self.no_target_directory && from.len() > 1 {
                    return Err(Failure::usage(command, "-T takes one source and one destination"));
                }
                Ok((from, to))
            }
            _ => Err(Failure::usage(command, "missing destination after the source")),
        }
    }

    /// Opens the target's filesystem for writing. Errors: the sources need a directory, and `to` is none.
    fn open<'i>(
        &self,
        images: &'i mut Images<'_>,
        from: &[OsString],
        to: &PathInImage,
    ) -> Result<&'i Filesystem, Failure> {
        let failed = images.failed(&to.image);
        let fs = images.open(&to.image, Purpose::Write)?;
        let wants_directory = self.target_directory.is_some() || from.len() > 1;
        if wants_directory && !fs.metadata(&to.path).map_err(&failed)?.is_dir() {
            return Err(failed(Error::new(ErrorKind::NotADirectory, to.path.display().to_string())));
        }
        Ok(fs)
    }
}

/// Move and rename files within an image.
///
/// When the destination is a directory the files go into it. Between subvolumes of an image
/// files are copied, with their data shared, and removed. From one image to another, or
/// to the host, use cp -a and rm -r.
///
/// Examples:
///   creamery mv disk.img:/etc/motd disk.img:/etc/issue
///   creamery mv -t disk.img:/srv disk.img:/a disk.img:/b
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, override_usage = "creamery mv [OPTIONS] <IMAGE:/SOURCE>... <IMAGE:/DEST>")]
pub(crate) struct MvArgs {
    /// The sources, then the destination.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    places: Vec<OsString>,

    #[command(flatten)]
    target: MvTarget,

    /// Replace existing files (default).
    #[arg(short = 'f', long, overrides_with = "no_clobber")]
    force: bool,

    /// Do not replace existing files.
    #[arg(short = 'n', long)]
    no_clobber: bool,

    /// Print each name that is moved.
    #[arg(short = 'v', long)]
    verbose: bool,

    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) fn run(args: &MvArgs) -> Result<(), Failure> {
    let (from, to) = args.target.split("mv", &args.places)?;
    let ends: Vec<End> = from.iter().map(|text| End::parse(text)).chain([End::parse(to)]).collect();
    let images = ends.iter().map(|end| match end {
        End::Image(place) => Some(&*place.image),
        End::Host(_) => None,
    });
    let images: Vec<Option<&Path>> = images.collect();
    if images.iter().any(|image| *image != images[0]) || images[0].is_none() {
        let (what, advice) = match images[0] {
            None if images.iter().all(Option::is_none) => ("all paths are on the host", "use mv(1)"),
            _ => ("expected all paths in one image", "use `creamery cp -a`, then remove the source"),
        };
        let failure = Failure::new("mv", Error::new(ErrorKind::CrossDevice, what)).plain();
        return Err(failure.advise(advice));
    }
    let to = PathInImage::parse(to);
    let names = NamePrinter::new("mv", args.verbose, ProgressArgs::default());
    let mut open = Images::to_write("mv", &args.write);
    let outcome = move_all(args, &mut open, from, &to, &names);
    let outcome = open.finish(outcome);
    names.finish().and(outcome)
}

fn move_all(
    args: &MvArgs,
    images: &mut Images<'_>,
    from: &[OsString],
    to: &PathInImage,
    names: &NamePrinter,
) -> Result<(), Failure> {
    let failed = images.failed(&to.image);
    let fs = args.target.open(images, from, to)?;
    let options = NameOptions {
        exact: args.target.no_target_directory,
        keep: args.no_clobber,
        ..NameOptions::default()
    };
    let mut made = JustMade::default();
    with_all(from, |text| {
        let place = PathInImage::parse(text);
        made.claim(&place.path, to).map_err(&failed)?;
        if options.rename(fs, &place.path, &to.path).map_err(&failed)? {
            creamery::progress::Progress::entry(names, place.path.as_os_str().as_encoded_bytes(), 0);
        }
        Ok(())
    })
}

/// Make links in an image.
///
/// A hard link is one more name of a file, in its own subvolume. A symbolic link (-s) holds
/// the text before the last argument, unchanged. If the name of the link is a directory, the
/// link is made in it.
///
/// Examples:
///   creamery ln disk.img:/usr/bin/vim disk.img:/usr/bin/vi
///   creamery ln -s ../usr/share/zoneinfo/UTC disk.img:/etc/localtime
///   creamery ln -sfn v2 disk.img:/srv/current
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, override_usage = "creamery ln [OPTIONS] <IMAGE:/FILE|TEXT>... <IMAGE:/LINK>")]
pub(crate) struct LnArgs {
    /// The files, or with -s the texts, then the link.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    places: Vec<OsString>,

    #[command(flatten)]
    target: MvTarget,

    /// Make symbolic links.
    #[arg(short = 's', long)]
    symbolic: bool,

    /// Replace existing files.
    #[arg(short = 'f', long)]
    force: bool,

    /// Treat a destination that is a symbolic link to a directory as a file.
    #[arg(short = 'n', long)]
    no_dereference: bool,

    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) fn run_ln(args: &LnArgs) -> Result<(), Failure> {
    let (from, to) = args.target.split("ln", &args.places)?;
    let mut images = Images::to_write("ln", &args.write);
    let to = images.place(to)?;
    let outcome = link_all(args, &mut images, from, &to);
    images.finish(outcome)
}

fn link_all(
    args: &LnArgs,
    images: &mut Images<'_>,
    from: &[OsString],
    to: &PathInImage,
) -> Result<(), Failure> {
    let failed = images.failed(&to.image);
    let fs = args.target.open(images, from, to)?;
    let options = NameOptions {
        exact: args.target.no_target_directory,
        no_dereference: args.no_dereference,
        replace: args.force,
        keep: false,
    };
    let mut made = JustMade::default();
    with_all(from, |text| {
        made.claim(Path::new(text), to).map_err(&failed)?;
        if args.symbolic {
            return options.symlink(fs, text, &to.path).map_err(|error| match error.kind() {
                // The error can also be about the name.
                ErrorKind::NameTooLong if text.len() > TARGET_MAX => {
                    failed(error).plain().advise("the maximum is 4095 bytes")
                }
                _ => failed(error),
            });
        }
        let place = PathInImage::parse(text);
        if place.image != to.image {
            let what = "a hard link cannot leave its image";
            let failure = Failure::new("ln", Error::new(ErrorKind::CrossDevice, what)).plain();
            return Err(failure.advise("name the file as IMAGE:/PATH, or use -s"));
        }
        options.hard_link(fs, &place.path, &to.path).map_err(|error| match error.kind() {
            ErrorKind::IsADirectory => failed(error).plain().advise("use -s"),
            ErrorKind::CrossDevice => failed(error).advise("use -s, or `creamery cp --reflink`"),
            _ => failed(error),
        })
    })
}
