//! `creamery subvolume delete`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use creamery::id::TreeId;
use creamery::subvolume::ListedSubvolume;
use creamery::{Error, ErrorKind, Filesystem};
use creamery_mount::{DeletedSubvolume, Live};

use super::sync::drop_all;
use super::target::{Target, failed_at, live};
use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::output::tell;
use crate::path_in_image::{End, PathInImage, parent_of};
use crate::progress::ProgressArgs;
use crate::view::WriteArgs;

/// Delete subvolumes and their content.
///
/// Data shared with snapshots stays. In an image their space is free when the command ends; an
/// interrupted one leaves the rest to the next writer, or to `creamery subvolume sync`. On a mount
/// it is freed in the background, some seconds after the last of their files was closed.
///
/// Examples:
///   creamery subvolume delete disk.img:/backup
///   creamery subvolume delete -R /mnt/machines
///   creamery subvolume delete -i 256 disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct DeleteArgs {
    /// The subvolumes; with -i an image, or a directory of a live mount.
    #[arg(value_name = "IMAGE:/PATH|PATH", required = true)]
    places: Vec<OsString>,

    /// The subvolume with this number.
    #[arg(short = 'i', value_name = "ID")]
    id: Option<u64>,

    /// Delete also the subvolumes in them.
    #[arg(short = 'R', long)]
    recursive: bool,

    /// On a mount, sync after all deletions.
    #[arg(short = 'c', long)]
    commit_after: bool,

    /// On a mount, sync after each deletion.
    #[arg(short = 'C', long)]
    commit_each: bool,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    write: WriteArgs,
}

const COMMAND: &str = "subvolume delete";

pub(super) fn run(args: &DeleteArgs) -> Result<(), Failure> {
    if args.id.is_some() && args.places.len() > 1 {
        return Err(Failure::usage(COMMAND, "-i takes one image or mount"));
    }
    let mut images = Images::to_write(COMMAND, &args.write);
    let outcome = delete_all(args, &mut images);
    images.finish(outcome)
}

fn delete_all(args: &DeleteArgs, images: &mut Images<'_>) -> Result<(), Failure> {
    let (mut changed, mut mounts): (Vec<PathBuf>, Vec<Live>) = (Vec::new(), Vec::new());
    let mut deleted: Vec<(PathBuf, Vec<String>)> = Vec::new();
    let outcome = with_all(&args.places, |text| match target(args, text)? {
        Target::Image(place) => {
            let (lines, outcome) = delete_in_image(args, images, &place)?;
            if !lines.is_empty() && !changed.contains(&place.image) {
                changed.push(place.image.clone());
            }
            deleted.push((place.image, lines));
            outcome
        }
        Target::Live(entry) => {
            let deleted = match args.id {
                Some(id) => entry.dir.delete_subvolume_by_id(id, args.recursive),
                None => entry.dir.delete_subvolume(&entry.name, args.recursive),
            };
            let told =
                deleted.map_err(failed_at(COMMAND, &entry.path)).map_err(|failed| advise(args, failed));
            let told = told.map(|gone| print_deleted(args, &entry.path, &gone));
            let synced = if args.commit_each { entry.dir.sync() } else { Ok(()) };
            let synced = synced.map_err(failed_at(COMMAND, &entry.path));
            if args.commit_after && !mounts.iter().any(|other| other.is_beside(&entry.dir)) {
                mounts.push(entry.dir);
            }
            told.and(synced)
        }
    });
    let synced = with_all(mounts, |mount| mount.sync().map_err(|error| Failure::new(COMMAND, error)));
    let dropped = with_all(changed, |image| {
        // A printed line claims that the deletion is committed, so the commit comes first.
        images.get(&image).sync().map_err(images.failed(&image))?;
        let of_image = deleted.iter().filter(|(of, _)| *of == image);
        of_image.flat_map(|(_, lines)| lines).for_each(|line| tell(format_args!("{line}")));
        drop_all(COMMAND, images.get(&image), args.progress).map_err(images.failed(&image))
    });
    // If `outcome` is printed already, it is one failure of several: failures of syncing and dropping are printed, too.
    let after = synced.and(dropped);
    if outcome.as_ref().is_err_and(Failure::is_told) {
        after.map_err(Failure::tell).and(outcome)
    } else {
        outcome.and(after)
    }
}

fn target(args: &DeleteArgs, text: &OsString) -> Result<Target, Failure> {
    match (args.id, End::parse(text)) {
        (Some(_), End::Host(path)) if path.is_dir() => {
            let dir = live(COMMAND, &path, &path)?;
            Ok(Target::Live(super::target::Entry { dir, name: OsString::new(), path }))
        }
        (Some(_), End::Host(image)) => Ok(Target::Image(PathInImage { image, path: "/".into() })),
        _ => Target::of(COMMAND, text),
    }
}

/// Deletes a subvolume of an image. Returns the lines to print once the deletion is committed, and whether everything was deleted.
fn delete_in_image(
    args: &DeleteArgs,
    images: &mut Images<'_>,
    place: &PathInImage,
) -> Result<(Vec<String>, Result<(), Failure>), Failure> {
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Write)?;
    let mut lines = Vec::new();
    let mut delete = || -> Result<(), Error> {
        let id = args.id.map_or_else(|| fs.subvolumes().id_at(&place.path), |id| Ok(TreeId::new(id)));
        if args.recursive {
            return delete_with_nested(fs, place, id?, &mut lines);
        }
        if args.id.is_none() {
            // The deletion itself gives the error for a wrong path, so it runs before the id is unwrapped.
            fs.subvolumes().delete(&place.path)?;
            lines.push(line_of(id?.get(), Durable::Yes, &place.to_string()));
            return Ok(());
        }
        let id = id?;
        let listed = fs.subvolumes().list()?;
        fs.subvolumes().delete_by_id(id)?;
        lines.push(line_of_listed(place, &listed, id));
        Ok(())
    };
    let outcome = delete().map_err(failed).map_err(|failed| advise(args, failed));
    Ok((lines, outcome))
}

fn delete_with_nested(
    fs: &Filesystem,
    place: &PathInImage,
    id: TreeId,
    lines: &mut Vec<String>,
) -> Result<(), Error> {
    let listed = fs.subvolumes().list()?;
    let mut ids = fs.subvolumes().nested(id)?;
    ids.push(id);
    // Subvolumes that cannot be deleted are refused before others are gone.
    let stay = [TreeId::FS, fs.subvolumes().default_id(), fs.subvolumes().opened()];
    if let Some(id) = ids.iter().rev().find(|id| stay.contains(id)) {
        return fs.subvolumes().delete_by_id(*id);
    }
    ids.into_iter().try_for_each(|id| {
        fs.subvolumes().delete_by_id(id)?;
        lines.push(line_of_listed(place, &listed, id));
        Ok(())
    })
}

/// Whether the deletion is durable when the command ends.
#[derive(Clone, Copy)]
enum Durable {
    Yes,
    Later,
}

/// A line about a deleted subvolume, in the words of btrfs-progs.
fn line_of(id: u64, durable: Durable, place: &str) -> String {
    let commit = match durable {
        Durable::Yes => "commit",
        Durable::Later => "no-commit",
    };
    format!("Delete subvolume {id} ({commit}): '{place}'")
}

fn line_of_listed(place: &PathInImage, listed: &[ListedSubvolume], id: TreeId) -> String {
    let path = listed.iter().find(|listed| listed.info.id == id).and_then(|listed| listed.path.clone());
    let path = creamery::error::Escaped(&path.unwrap_or_default()).to_string();
    line_of(id.get(), Durable::Yes, &format!("{}:/{path}", place.image.display()))
}

/// Prints the subvolumes that a mount deleted. After a deletion by number the line has the path that the user wrote. Else it has the whole
/// path of the operand, and nested subvolumes follow behind that.
fn print_deleted(args: &DeleteArgs, path: &Path, gone: &[DeletedSubvolume]) {
    let durable = if args.commit_after || args.commit_each { Durable::Yes } else { Durable::Later };
    let top = gone.last().map(|last| &last.path[..]).unwrap_or_default();
    let whole = parent_of(path).canonicalize().ok().zip(path.file_name()).map(|(dir, name)| dir.join(name));
    let whole = whole.unwrap_or_else(|| path.to_owned());
    for DeletedSubvolume { id, path: at } in gone {
        let below = at.strip_prefix(top).map_or(&at[..], trimmed);
        let shown = match (args.id, below) {
            (Some(_), _) => path.join(os(at)),
            (None, b"") => whole.clone(),
            (None, below) => whole.join(os(below)),
        };
        let shown = creamery::error::Escaped(shown.as_os_str().as_bytes()).to_string();
        tell(format_args!("{}", line_of(*id, durable, &shown)));
    }
}

/// `below` without its leading slash.
fn trimmed(below: &[u8]) -> &[u8] {
    below.strip_prefix(b"/").unwrap_or(below)
}

fn os(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

fn advise(args: &DeleteArgs, failure: Failure) -> Failure {
    match failure.kind() {
        ErrorKind::NotFound if args.id.is_some() => failure.advise("`creamery subvolume list` shows the IDs"),
        ErrorKind::DirectoryNotEmpty => failure.advise("delete the subvolumes in it first, or use -R"),
        _ => failure,
    }
}
