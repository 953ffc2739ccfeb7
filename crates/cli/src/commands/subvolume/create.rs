//! `creamery subvolume create`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Args;
use creamery::id::QgroupId;
use creamery::{Error, Filesystem};

use super::target::{Target, failed_at, live};
use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::output::tell;
use crate::path_in_image::{End, PathInImage, parent_of};
use crate::view::WriteArgs;

/// Create subvolumes.
///
/// Examples:
///   creamery subvolume create disk.img:/home
///   creamery subvolume create -p disk.img:/var/lib/machines
///   creamery subvolume create -i 1/100 /mnt/home
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct CreateArgs {
    /// The new subvolumes, in an image or on a live mount.
    #[arg(value_name = "IMAGE:/PATH|PATH", required = true)]
    places: Vec<OsString>,

    /// Create their parent directories, too.
    #[arg(short = 'p', long)]
    parents: bool,

    /// Add them to this quota group; may be repeated.
    #[arg(short = 'i', value_name = "QGROUPID")]
    quota_groups: Vec<QgroupId>,

    #[command(flatten)]
    write: WriteArgs,
}

const COMMAND: &str = "subvolume create";

pub(super) fn run(args: &CreateArgs) -> Result<(), Failure> {
    let mut images = Images::to_write(COMMAND, &args.write);
    let outcome = create_all(args, &mut images);
    images.finish(outcome)
}

fn create_all(args: &CreateArgs, images: &mut Images<'_>) -> Result<(), Failure> {
    with_all(&args.places, |text| create_one(args, images, text))
}

fn create_one(args: &CreateArgs, images: &mut Images<'_>, text: &OsStr) -> Result<(), Failure> {
    if args.parents {
        make_parents(text)?;
    }
    match Target::of(COMMAND, text)? {
        Target::Image(place) => {
            let failed = images.failed(&place.image);
            let fs = images.open(&place.image, Purpose::Write)?;
            create(fs, &place, args).map_err(&failed)?;
            tell(format_args!("Create subvolume '{place}'"));
        }
        Target::Live(entry) => {
            let made = entry.dir.create_subvolume(&entry.name, &args.quota_groups);
            made.map_err(failed_at(COMMAND, &entry.path))?;
            tell(format_args!("Create subvolume '{}'", entry.path.display()));
        }
    }
    Ok(())
}

/// Makes the directories above a path on a live mount.
fn make_parents(text: &OsStr) -> Result<(), Failure> {
    let End::Host(path) = End::parse(text) else { return Ok(()) };
    let parent = parent_of(&path);
    if parent.exists() {
        return Ok(());
    }
    let there = parent.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    live(COMMAND, there, &path)?;
    let made = std::fs::create_dir_all(parent);
    made.map_err(|error| Failure::new(COMMAND, Error::from(error).context(parent.display())))
}

fn create(fs: &Filesystem, place: &PathInImage, args: &CreateArgs) -> creamery::Result<()> {
    if let Some(parent) = place.path.parent().filter(|_| args.parents) {
        fs.create_dir_all(parent)?;
    }
    fs.subvolumes().create_in_groups(&place.path, &args.quota_groups)
}
