//! `creamery subvolume sync`.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use creamery::Filesystem;
use creamery_mount::Live;
use indicatif::{ProgressBar, ProgressStyle};

use super::target::{OnMount, failed_at};
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::place::Place;
use crate::view::WriteArgs;

/// Free the space of subvolumes that were deleted.
///
/// On a mount that happens in the background, some seconds after the last file of a deleted
/// subvolume was closed; in an image that is not mounted, here.
///
/// Examples:
///   creamery subvolume sync disk.img
///   creamery subvolume sync /mnt 256
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct SyncArgs {
    /// The image, or a directory of a live mount.
    #[arg(value_name = "IMAGE|PATH")]
    place: OsString,

    /// On a mount, wait for these only.
    #[arg(value_name = "ID")]
    ids: Vec<u64>,

    /// Seconds between two looks at a mount.
    #[arg(short = 's', value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..3600))]
    sleep: u64,

    #[command(flatten)]
    write: WriteArgs,
}

const COMMAND: &str = "subvolume sync";

pub(super) fn run(args: &SyncArgs) -> Result<(), Failure> {
    if let Some(OnMount { dir, path, .. }) = OnMount::of(COMMAND, &args.place)? {
        return sync_live(&dir, &path, args);
    }
    let mut images = Images::to_write(COMMAND, &args.write);
    let outcome = sync(args, &mut images);
    images.finish(outcome)
}

fn sync_live(dir: &Live, path: &Path, args: &SyncArgs) -> Result<(), Failure> {
    let bar = bar();
    let done = dir.sync_subvolumes(&args.ids, Duration::from_secs(args.sleep), |left| {
        bar.set_message(left.to_string());
        bar.inc(1);
    });
    bar.finish_and_clear();
    done.map_err(failed_at(COMMAND, path))
}

fn sync(args: &SyncArgs, images: &mut Images<'_>) -> Result<(), Failure> {
    let place = Place::parse(&args.place);
    let failed = images.failed(&place.image);
    drop_all(images.open(&place.image, Purpose::Write)?).map_err(failed)
}

/// Drops what was deleted, and shows that on a terminal.
pub(super) fn drop_all(fs: &Filesystem) -> creamery::Result<()> {
    let bar = bar();
    let done = fs.sync_subvolumes(|left| {
        bar.set_message(left.to_string());
        bar.inc(1);
    });
    bar.finish_and_clear();
    done
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let style =
        ProgressStyle::with_template("{spinner} dropping {msg} deleted subvolumes, {pos} steps, {elapsed}");
    bar.set_style(style.expect("a valid template"));
    bar
}
