//! `creamery subvolume sync`.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use creamery::Filesystem;
use creamery_mount::Live;

use super::target::{OnMount, failed_at};
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::interrupt;
use crate::path_in_image::PathInImage;
use crate::progress::{ProgressArgs, ShownProgress};
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
pub(crate) struct SubvolumeSyncArgs {
    /// The image, or a directory of a live mount.
    #[arg(value_name = "IMAGE|PATH")]
    place: OsString,

    /// On a mount, wait for these only.
    #[arg(value_name = "ID")]
    ids: Vec<u64>,

    /// Seconds between two polls of a mount.
    #[arg(short = 's', value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..3600))]
    sleep: u64,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    write: WriteArgs,
}

const COMMAND: &str = "subvolume sync";
const DROPPED: &str = "nothing is left of what was deleted";
const NOT_DROPPED: &str = "not all that was deleted is dropped";

pub(super) fn run(args: &SubvolumeSyncArgs) -> Result<(), Failure> {
    if let Some(OnMount { dir, path, .. }) = OnMount::of(COMMAND, &args.place)? {
        return sync_live(&dir, &path, args);
    }
    let mut images = Images::to_write(COMMAND, &args.write);
    let outcome = sync(args, &mut images);
    images.finish(outcome)
}

fn sync_live(dir: &Live, path: &Path, args: &SubvolumeSyncArgs) -> Result<(), Failure> {
    let shown = ShownProgress::unbounded(COMMAND, args.progress);
    let done = dir.sync_subvolumes(&args.ids, Duration::from_secs(args.sleep), |left| {
        shown.at(|| format!("waiting for {left} deleted subvolumes"));
    });
    shown.end_with(|| if done.is_ok() { DROPPED } else { NOT_DROPPED }.to_owned());
    done.map_err(failed_at(COMMAND, path))
}

fn sync(args: &SubvolumeSyncArgs, images: &mut Images<'_>) -> Result<(), Failure> {
    let place = PathInImage::parse(&args.place);
    let failed = images.failed(&place.image);
    drop_all(COMMAND, images.open(&place.image, Purpose::Write)?, args.progress).map_err(failed)
}

/// Drops deleted subvolumes. If a signal interrupts it, the next call goes on with the rest.
pub(super) fn drop_all(
    command: &'static str,
    fs: &Filesystem,
    progress: ProgressArgs,
) -> creamery::Result<()> {
    interrupt::watch();
    let (shown, mut steps) = (ShownProgress::unbounded(command, progress), 0_u64);
    let done = fs.subvolumes().sync_deleted(|left| {
        steps += 1;
        shown.at(|| format!("dropping {left} deleted subvolumes, {steps} steps"));
        interrupt::go_on().or_else(|end| fs.sync().and(Err(end)))
    });
    shown.end_with(|| if done.is_ok() { DROPPED } else { NOT_DROPPED }.to_owned());
    done
}
