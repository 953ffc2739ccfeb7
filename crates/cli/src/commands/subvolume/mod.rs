//! `creamery subvolume`.

mod create;
mod default;
mod delete;
mod find_new;
mod json;
mod list;
pub(super) mod named;
mod show;
mod snapshot;
mod sync;
pub(super) mod target;

use clap::Subcommand;

use crate::failure::Failure;

/// Work with subvolumes and snapshots, of an image that is not mounted or of a live mount.
#[derive(Subcommand, Debug)]
pub(crate) enum SubvolumeCommand {
    Create(create::CreateArgs),
    Delete(delete::DeleteArgs),
    FindNew(find_new::FindNewArgs),
    GetDefault(default::GetDefaultArgs),
    List(list::SubvolumeListArgs),
    SetDefault(default::SetDefaultArgs),
    Show(show::SubvolumeShowArgs),
    Snapshot(snapshot::SnapshotArgs),
    Sync(sync::SubvolumeSyncArgs),
}

pub(crate) fn run(command: &SubvolumeCommand) -> Result<(), Failure> {
    match command {
        SubvolumeCommand::Create(args) => create::run(args),
        SubvolumeCommand::Delete(args) => delete::run(args),
        SubvolumeCommand::FindNew(args) => find_new::run(args),
        SubvolumeCommand::GetDefault(args) => default::get(args),
        SubvolumeCommand::List(args) => list::run(args),
        SubvolumeCommand::SetDefault(args) => default::set(args),
        SubvolumeCommand::Show(args) => show::run(args),
        SubvolumeCommand::Snapshot(args) => snapshot::run(args),
        SubvolumeCommand::Sync(args) => sync::run(args),
    }
}
