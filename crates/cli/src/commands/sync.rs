//! `creamery sync`.

use std::path::PathBuf;

use clap::Args;
use creamery::ErrorKind;

use crate::failure::Failure;

/// Make all changes on a live mount durable.
///
/// When the command ends with status 0, everything that was written there before is in the image and survives
/// a power cut. sync(1) and syncfs(2) do not reach a filesystem in userspace; this does. An image
/// that is not mounted has nothing to make durable, and naming it is an error.
#[derive(Args, Debug)]
pub(crate) struct SyncArgs {
    /// The mount point, or the mounted image.
    #[arg(value_name = "DIR|IMAGE")]
    pub(crate) place: PathBuf,
}

pub(crate) fn run(args: &SyncArgs) -> Result<(), Failure> {
    creamery_mount::sync(&args.place).map_err(|error| {
        let not_ours = error.kind() == ErrorKind::InvalidInput;
        let failure = Failure::new("sync", error);
        if not_ours { failure.advise("`creamery mounts` lists all mounts") } else { failure }
    })
}
