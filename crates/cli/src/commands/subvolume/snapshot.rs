//! `creamery subvolume snapshot`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use creamery::id::QgroupId;
use creamery::{Error, Filesystem};
use creamery_mount::Live;

use super::target::{OnMount, Target, failed_at};
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::output::tell;
use crate::path_in_image::{End, PathInImage};
use crate::view::WriteArgs;

/// Take a snapshot of a subvolume: a second subvolume with the same content.
///
/// It costs as little for a million files as for one: both share what neither has changed.
/// Subvolumes in it are empty directories in the snapshot.
///
/// Examples:
///   creamery subvolume snapshot -r disk.img:/home /backup
///   creamery subvolume snapshot disk.img:/ disk.img:/root.old
///   creamery subvolume snapshot -r /mnt/home /mnt/backup
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct SnapshotArgs {
    /// The subvolume, in an image or on a live mount.
    #[arg(value_name = "IMAGE:/PATH|PATH")]
    source: OsString,

    /// The new name in the same image or mount, or a directory in which it gets the name of the subvolume.
    #[arg(value_name = "[IMAGE:]/PATH|PATH")]
    target: OsString,

    /// Make it read-only.
    #[arg(short = 'r', long)]
    read_only: bool,

    /// Add it to this quota group; may be repeated.
    #[arg(short = 'i', value_name = "QGROUPID")]
    quota_groups: Vec<QgroupId>,

    #[command(flatten)]
    write: WriteArgs,
}

const COMMAND: &str = "subvolume snapshot";

pub(super) fn run(args: &SnapshotArgs) -> Result<(), Failure> {
    let mut images = Images::to_write(COMMAND, &args.write);
    let outcome = snapshot(args, &mut images);
    images.finish(outcome)
}

fn snapshot(args: &SnapshotArgs, images: &mut Images<'_>) -> Result<(), Failure> {
    if let Some(on_mount) = OnMount::of(COMMAND, &args.source)? {
        let (of, path) = on_mount.directory(COMMAND)?;
        return snapshot_live(&of, &path, args);
    }
    let source = PathInImage::parse(&args.source);
    let failed = images.failed(&source.image);
    let named = target(&source, &args.target).map_err(&failed)?;
    let fs = images.open(&source.image, Purpose::Write)?;
    let path = within(fs, &source, named).map_err(&failed)?;
    let snapshot = fs.subvolumes().snapshot(&source.path, &path).in_groups(&args.quota_groups);
    let made = if args.read_only { snapshot.read_only().run() } else { snapshot.run() };
    made.map_err(&failed)?;
    let kind = if args.read_only { "readonly snapshot" } else { "snapshot" };
    tell(format_args!("Create {kind} of '{source}' in '{}:{}'", source.image.display(), path.display()));
    Ok(())
}

fn snapshot_live(of: &Live, source: &Path, args: &SnapshotArgs) -> Result<(), Failure> {
    let mut path = PathBuf::from(&args.target);
    if path.is_dir() {
        let whole = source.canonicalize();
        let whole =
            whole.map_err(|error| Failure::new(COMMAND, Error::from(error).context(source.display())))?;
        path.push(whole.file_name().unwrap_or_default());
    }
    let entry = match Target::of(COMMAND, path.as_os_str())? {
        Target::Live(entry) => entry,
        Target::Image(place) => {
            let text = format!("{place} is not on the mount of {}", source.display());
            return Err(Failure::new(COMMAND, Error::invalid(text)));
        }
    };
    let made = entry.dir.create_snapshot(of, &entry.name, args.read_only, &args.quota_groups);
    made.map_err(failed_at(COMMAND, &path))?;
    let kind = if args.read_only { "readonly snapshot" } else { "snapshot" };
    tell(format_args!("Create {kind} of '{}' in '{}'", source.display(), path.display()));
    Ok(())
}

/// The path that `text` names in the image of `source`.
fn target(source: &PathInImage, text: &OsString) -> Result<PathBuf, Error> {
    match End::parse(text) {
        End::Image(place) if place.image == source.image => Ok(place.path),
        End::Host(path) if path.is_absolute() => Ok(path),
        End::Image(place) => {
            let text = format!("{place}: a snapshot cannot leave its image");
            Err(Error::invalid(text))
        }
        End::Host(path) => Err(Error::invalid(format!("{}: expected /PATH or IMAGE:/PATH", path.display()))),
    }
}

/// `path`, or the name of `source` in it if it is a directory.
fn within(fs: &Filesystem, source: &PathInImage, path: PathBuf) -> Result<PathBuf, Error> {
    if !fs.metadata(&path).is_ok_and(|meta| meta.is_dir()) {
        return Ok(path);
    }
    let name = source.path.file_name().ok_or_else(|| {
        Error::invalid(format!("{} is a directory: add a name for the snapshot", path.display()))
    })?;
    Ok(path.join(name))
}
