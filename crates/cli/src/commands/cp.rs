//! `creamery cp`.

use std::ffi::OsString;
use std::path::Path;

use creamery::copy::CopyOptions;
use creamery::progress::OnError;
use creamery::{Error, ErrorKind, Image};

use super::cat::cat_all;
use crate::archives::is_stream;
use crate::args::CpArgs;
use crate::descriptors;
use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::interrupt;
use crate::losses::{Losses, Watched};
use crate::names::NamePrinter;
use crate::output::Output;
use crate::path_in_image::{End, JustMade, PathInImage, is_image};

/// Advice on how to get the undamaged parts of a file.
const BRINGS_MORE: &str = "use --ignore-errors to copy the intact parts";

pub(crate) fn run(args: &CpArgs) -> Result<(), Failure> {
    let told = |error| Failure::new("cp", error);
    let Some((to, from)) = args.places.split_last().filter(|(_, from)| !from.is_empty()) else {
        return Err(Failure::usage("cp", "missing destination after the source"));
    };
    if to.is_empty() {
        return Err(nameless("the destination"));
    }
    let to = End::parse(to);
    let from: Vec<End> = from.iter().map(|text| End::parse(text)).collect();
    if let (End::Host(target), [End::Image(place)]) = (&to, &from[..])
        && is_stream(target)
    {
        return to_stdout(place, args);
    }
    if matches!(to, End::Host(_)) && from.iter().any(|end| matches!(end, End::Host(_))) {
        if from.iter().any(is_nameless) {
            return Err(nameless("a source"));
        }
        let both = told(Error::invalid("both paths are on the host"));
        let meant = args.places.iter().find_map(meant).unwrap_or_else(|| "IMAGE:/PATH".into());
        return Err(both.advise(format!("name a file in an image as {meant}, or use cp(1)")));
    }
    descriptors::allow_all();
    let mut images = Images::to_write("cp", &args.write);
    if is_out_of_others(&from, &to) {
        images = images.sparing_written();
    }
    let names = NamePrinter::new("cp", args.verbose, args.progress);
    let losses = if args.ignore_errors { Losses::new("cp") } else { Losses::new("cp").advising(BRINGS_MORE) };
    let target = if let End::Host(path) = &to { Some(path.as_path()) } else { None };
    let mut losses = losses.reported(args.report.as_deref(), target)?;
    if !from.iter().chain([&to]).any(|end| matches!(end, End::Host(path) if interrupt::may_wait(path))) {
        interrupt::watch();
    }
    let outcome = copy_all(&mut images, &from, &to, args, &names, &losses);
    images.note_in(&mut losses);
    let outcome = images.finish(outcome);
    losses.end(names.finish().and(outcome))
}

fn nameless(what: &str) -> Failure {
    let error = Error::invalid(format!("{what} is empty"));
    Failure::new("cp", error).advise("name a file in an image (IMAGE:/PATH) or on the host")
}

fn is_nameless(end: &End) -> bool {
    matches!(end, End::Host(path) if path.as_os_str().is_empty())
}

/// The probable place in an image, if the word names an image alone, or lacks the slash behind the colon.
fn meant(word: &OsString) -> Option<String> {
    let text = word.to_string_lossy();
    match text.split_once(':') {
        Some((image, path)) if is_image(image.as_ref()) => Some(format!("{image}:/{path}")),
        _ => Image::options().open(word).ok().map(|_image| format!("{text}:/PATH")),
    }
}

/// Whether all sources are in other images than the target.
fn is_out_of_others(from: &[End], to: &End) -> bool {
    let End::Image(to) = to else { return false };
    from.iter().all(|end| matches!(end, End::Image(place) if place.image != to.image))
}

/// Copies a file to standard output, as `creamery cat` does.
fn to_stdout(place: &PathInImage, args: &CpArgs) -> Result<(), Failure> {
    let mut images = Images::new("cp", &args.write.view);
    let mut out = Output::new();
    let mut losses = Losses::new("cp").reported(args.report.as_deref(), None)?;
    let lost = args.ignore_errors.then_some(&losses);
    let outcome = cat_all(&mut images, place, &mut out, lost);
    images.note_in(&mut losses);
    losses.end(out.finish().map_err(|error| Failure::new("cp", error)).and(outcome))
}

/// The sources that match the patterns in images; the shell has expanded those of the host.
fn expanded(images: &mut Images<'_>, from: &[End]) -> Vec<Result<End, Failure>> {
    let mut sources = Vec::new();
    for end in from {
        match end {
            End::Host(_) => sources.push(Ok(end.clone())),
            End::Image(place) => match images.expand(place, Purpose::Read) {
                Ok(found) => sources.extend(found.into_iter().map(|place| Ok(End::Image(place)))),
                Err(failure) => sources.push(Err(failure)),
            },
        }
    }
    sources
}

/// Errors: there are several sources, and the target is no directory.
fn check_target(images: &mut Images<'_>, to: &End, sources: usize) -> Result<(), Failure> {
    if sources <= 1 {
        return Ok(());
    }
    let error = match to {
        End::Image(place) => {
            let failed = images.failed(&place.image);
            let fs = images.open(&place.image, Purpose::Write)?;
            if fs.metadata(&place.path).is_ok_and(|meta| meta.is_dir()) {
                return Ok(());
            }
            failed(Error::new(ErrorKind::NotADirectory, place.path.display().to_string()))
        }
        End::Host(path) if path.is_dir() => return Ok(()),
        End::Host(path) => Failure::new("cp", Error::from(ErrorKind::NotADirectory).on_host(path)),
    };
    Err(error.advise("several sources need a directory as destination"))
}

fn copy_all(
    images: &mut Images<'_>,
    from: &[End],
    to: &End,
    args: &CpArgs,
    names: &NamePrinter,
    losses: &Losses,
) -> Result<(), Failure> {
    let told = |error| Failure::new("cp", error);
    // The target image is opened first, for writing, as it may be among the sources, too.
    if let End::Image(place) = to {
        images.open(&place.image, Purpose::Write)?;
    }
    let sources = expanded(images, from);
    check_target(images, to, sources.len())?;
    let mut made = JustMade::default();
    with_all(sources, |end| {
        let end = &end?;
        if is_nameless(end) {
            return Err(nameless("a source"));
        }
        // Directories of one name are merged.
        let (source, is_directory) = match end {
            End::Host(path) => (path, path.is_dir()),
            End::Image(place) => {
                let fs = images.open(&place.image, Purpose::Read)?;
                (&place.path, fs.metadata(&place.path).is_ok_and(|meta| meta.is_dir()))
            }
        };
        if !is_directory {
            made.claim(source, to).map_err(told)?;
        }
        copy(images, end, to, args, names, losses)
    })
}

fn copy(
    images: &mut Images<'_>,
    from: &End,
    to: &End,
    args: &CpArgs,
    names: &NamePrinter,
    losses: &Losses,
) -> Result<(), Failure> {
    let options = CopyOptions {
        recursive: args.recursive,
        archive: args.archive,
        preserve: args.preserve,
        reflink: args.reflink.into(),
        on_error: if args.ignore_errors { OnError::PastDamage } else { OnError::NextFile },
        replace_images: args.force,
    };
    let watched = |image: &Path| Watched::image(image, names, losses);
    match (from, to) {
        (End::Host(source), End::Image(place)) if is_stream(source) => {
            let failed = images.failed(&place.image);
            let stdin = std::io::stdin().lock();
            images.get(&place.image).copy_in_stream(stdin, &place.path).map_err(failed)
        }
        (End::Host(source), End::Image(place)) => {
            let failed = images.failed(&place.image);
            let fs = images.get(&place.image);
            fs.copy_in(source, &place.path)
                .options(options)
                .progress(&Watched::host(source, &place.image, names, losses))
                .run()
                .map_err(failed)
        }
        (End::Image(place), End::Host(target)) => {
            let failed = images.failed(&place.image);
            let fs = images.open(&place.image, Purpose::Read)?;
            let copied =
                fs.copy_out(&place.path, target).options(options).progress(&watched(&place.image)).run();
            copied.map_err(|error| match (error.kind(), error.is_on_host()) {
                _ if options.replace_images => failed(error),
                (ErrorKind::AlreadyExists, true) if target.is_dir() => {
                    failed(error).advise("use --force to replace it")
                }
                (ErrorKind::AlreadyExists, true) => failed(error)
                    .advise(format!("use {}:/ to copy into it, or --force to replace it", target.display())),
                _ => failed(error),
            })
        }
        (End::Image(source), End::Image(target)) => {
            let failed = images.failed(&source.image);
            images.open(&source.image, Purpose::Read)?;
            let (source_fs, target_fs) = (images.get(&source.image), images.get(&target.image));
            let watched = watched(&source.image);
            source_fs
                .copy_between(&source.path, target_fs, &target.path)
                .options(options)
                .progress(&watched)
                .run()
                .map_err(failed)
        }
        (End::Host(_), End::Host(_)) => unreachable!("refused before"),
    }
}
