//! `creamery filesystem label`.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::output::{Output, writing};
use crate::view::WriteArgs;

/// Print the label of a filesystem, or change it.
///
/// Without LABEL the one that there is is printed, as btrfs-progs prints it. An empty one
/// takes it away. The image may not be mounted.
///
/// Examples:
///   creamery filesystem label disk.img
///   creamery filesystem label disk.img backup
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct LabelArgs {
    /// The image.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The new label, at most 255 bytes.
    #[arg(value_name = "LABEL")]
    label: Option<OsString>,

    /// Write from a copy of the superblock when the first one is damaged; what was synced after the last commit is lost then.
    #[arg(long)]
    usesupercopy: bool,
}

pub(crate) fn run(args: &LabelArgs) -> Result<(), Failure> {
    const COMMAND: &str = "filesystem label";
    let write = WriteArgs { usesupercopy: args.usesupercopy, ..WriteArgs::default() };
    let mut images = Images::to_write(COMMAND, &write);
    let place = images.place(args.image.as_os_str())?;
    let failed = images.failed(&place.image);
    let Some(label) = &args.label else {
        let label = images.open(&place.image, Purpose::Read)?.label();
        let mut out = Output::new();
        let printed = out.path_bytes(&label).and_then(|()| out.write_all(b"\n")).map_err(writing);
        return printed.and_then(|()| out.finish()).map_err(|error| Failure::new(COMMAND, error));
    };
    let outcome = images.open(&place.image, Purpose::Write);
    let outcome = outcome.and_then(|fs| fs.set_label(label.as_encoded_bytes()).map_err(failed));
    images.finish(outcome)
}
