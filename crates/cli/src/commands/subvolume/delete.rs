//! `creamery subvolume delete`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use creamery::ErrorKind;

use super::sync::drop_all;
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::place::Place;
use crate::view::ViewArgs;

/// Delete subvolumes with all that is in them.
///
/// What they share with snapshots stays. Their space is free when the command ends; one that
/// is interrupted leaves the rest for the next time somebody writes to the image, or for
/// `creamery subvolume sync`.
///
/// Examples:
///   creamery subvolume delete disk.img:/backup
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct DeleteArgs {
    /// The subvolumes.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    places: Vec<OsString>,

    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &DeleteArgs) -> Result<(), Failure> {
    let mut images = Images::new("subvolume delete", &args.view);
    let outcome = delete_all(args, &mut images);
    images.finish(outcome)
}

fn delete_all(args: &DeleteArgs, images: &mut Images<'_>) -> Result<(), Failure> {
    let mut changed: Vec<PathBuf> = Vec::new();
    for text in &args.places {
        let place = Place::parse(text);
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Write)?;
        fs.delete_subvolume(&place.path).map_err(|error| {
            let has_others = error.kind() == ErrorKind::DirectoryNotEmpty;
            let failure = failed(error);
            if has_others { failure.advise("delete the subvolumes in it first") } else { failure }
        })?;
        println!("Delete subvolume '{place}'");
        if !changed.contains(&place.image) {
            changed.push(place.image);
        }
    }
    for image in changed {
        drop_all(images.get(&image)).map_err(images.failed(&image))?;
    }
    Ok(())
}
