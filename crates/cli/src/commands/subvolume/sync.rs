//! `creamery subvolume sync`.

use std::ffi::OsString;

use clap::Args;
use creamery::Filesystem;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::place::Place;
use crate::view::ViewArgs;

/// Free the space of subvolumes that were deleted.
///
/// On a mount that happens in the background, some seconds after the last file of a deleted
/// subvolume was closed; in an image that is not mounted, here.
///
/// Examples:
///   creamery subvolume sync disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct SyncArgs {
    /// The image.
    #[arg(value_name = "IMAGE")]
    image: OsString,

    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &SyncArgs) -> Result<(), Failure> {
    let mut images = Images::new("subvolume sync", &args.view);
    let outcome = sync(args, &mut images);
    images.finish(outcome)
}

fn sync(args: &SyncArgs, images: &mut Images<'_>) -> Result<(), Failure> {
    let place = Place::parse(&args.image);
    let failed = images.failed(&place.image);
    drop_all(images.open(&place.image, Purpose::Write)?).map_err(failed)
}

/// Drops what was deleted, and shows that on a terminal.
pub(super) fn drop_all(fs: &Filesystem) -> creamery::Result<()> {
    let bar = ProgressBar::new_spinner();
    let style =
        ProgressStyle::with_template("{spinner} dropping {msg} deleted subvolumes, {pos} steps, {elapsed}");
    bar.set_style(style.expect("a valid template"));
    let done = fs.sync_subvolumes(|left| {
        bar.set_message(left.to_string());
        bar.inc(1);
    });
    bar.finish_and_clear();
    done
}
