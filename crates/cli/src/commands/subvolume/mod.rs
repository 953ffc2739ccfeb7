//! `creamery subvolume`.

mod create;
mod delete;
mod snapshot;
mod sync;

use clap::Subcommand;

use crate::failure::Failure;

/// Work with subvolumes and snapshots of an image that is not mounted.
#[derive(Subcommand, Debug)]
pub(crate) enum SubvolumeCommand {
    Create(create::CreateArgs),
    Delete(delete::DeleteArgs),
    Snapshot(snapshot::SnapshotArgs),
    Sync(sync::SyncArgs),
}

pub(crate) fn run(command: &SubvolumeCommand) -> Result<(), Failure> {
    match command {
        SubvolumeCommand::Create(args) => create::run(args),
        SubvolumeCommand::Delete(args) => delete::run(args),
        SubvolumeCommand::Snapshot(args) => snapshot::run(args),
        SubvolumeCommand::Sync(args) => sync::run(args),
    }
}
