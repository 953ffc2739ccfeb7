//! `creamery subvolume create`.

use std::ffi::OsString;

use clap::Args;
use creamery::{Error, Filesystem};

use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::place::Place;
use crate::view::ViewArgs;

/// Create subvolumes.
///
/// Examples:
///   creamery subvolume create disk.img:/home
///   creamery subvolume create -p disk.img:/var/lib/machines
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct CreateArgs {
    /// The new subvolumes.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    places: Vec<OsString>,

    /// The directories that they are in, too.
    #[arg(short = 'p', long)]
    parents: bool,

    /// Quota groups that they belong to: not yet.
    #[arg(short = 'i', value_name = "QGROUPID", hide = true)]
    quota_groups: Vec<String>,

    #[command(flatten)]
    view: ViewArgs,
}

const COMMAND: &str = "subvolume create";

pub(super) fn run(args: &CreateArgs) -> Result<(), Failure> {
    let mut images = Images::new(COMMAND, &args.view);
    let outcome = create_all(args, &mut images);
    images.finish(outcome)
}

fn create_all(args: &CreateArgs, images: &mut Images<'_>) -> Result<(), Failure> {
    if let Some(group) = args.quota_groups.first() {
        let what = Error::unsupported(format!("-i {group}: subvolumes in quota groups"));
        return Err(Failure::new(COMMAND, what).advise("leave -i out"));
    }
    for text in &args.places {
        let place = images.place(text)?;
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Write)?;
        create(fs, &place, args.parents).map_err(&failed)?;
        println!("Create subvolume '{place}'");
    }
    Ok(())
}

fn create(fs: &Filesystem, place: &Place, parents: bool) -> creamery::Result<()> {
    if let Some(parent) = place.path.parent().filter(|_| parents) {
        fs.create_dir_all(parent)?;
    }
    fs.create_subvolume(&place.path)
}
