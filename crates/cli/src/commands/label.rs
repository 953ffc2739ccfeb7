//! `creamery filesystem label`.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;

use super::subvolume::target::OnMount;
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::output::{Output, writing};
use crate::view::{RescueArgs, WriteArgs};

/// Print the label of a filesystem, or change it.
///
/// Without LABEL it prints the label, as btrfs-progs does. An empty LABEL removes it.
///
/// Examples:
///   creamery filesystem label disk.img
///   creamery filesystem label disk.img backup
///   creamery filesystem label /mnt backup
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct LabelArgs {
    /// The image, or a path on a live mount.
    #[arg(value_name = "IMAGE|PATH")]
    place: OsString,

    /// The new label, at most 255 bytes.
    #[arg(value_name = "LABEL")]
    label: Option<OsString>,

    /// Write from another superblock copy if the first one is damaged; changes synced after the last commit are lost.
    #[arg(long)]
    usesupercopy: bool,

    #[command(flatten)]
    rescue: RescueArgs,
}

const COMMAND: &str = "filesystem label";

pub(crate) fn run(args: &LabelArgs) -> Result<(), Failure> {
    if let Some(on_mount) = OnMount::of(COMMAND, &args.place)? {
        let failed = |error: creamery::Error| Failure::new(COMMAND, error.context(on_mount.path.display()));
        return match &args.label {
            Some(label) => on_mount.dir.set_label(label.as_encoded_bytes()).map_err(failed),
            None => print(&on_mount.dir.label().map_err(failed)?),
        };
    }
    let write = WriteArgs { usesupercopy: args.usesupercopy, view: args.rescue.view() };
    let mut images = Images::to_write(COMMAND, &write);
    let place = images.place(&args.place)?;
    let failed = images.failed(&place.image);
    let Some(label) = &args.label else {
        return print(&images.open_at(&place, Purpose::Read)?.volume().label());
    };
    let outcome = images.open_at(&place, Purpose::Write);
    let outcome = outcome.and_then(|fs| fs.volume().set_label(label.as_encoded_bytes()).map_err(failed));
    images.finish(outcome)
}

fn print(label: &[u8]) -> Result<(), Failure> {
    let mut out = Output::new();
    let printed = out.path_bytes(label).and_then(|()| out.write_all(b"\n")).map_err(writing);
    printed.and_then(|()| out.finish()).map_err(|error| Failure::new(COMMAND, error))
}
