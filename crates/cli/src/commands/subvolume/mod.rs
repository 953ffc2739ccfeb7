//! `creamery subvolume`.

mod create;
mod default;
mod delete;
mod find_new;
mod json;
mod list;
mod show;
mod snapshot;
mod sync;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Subcommand;
use creamery::{Error, ListedSubvolume, SubvolumeInfo, TreeId};

use crate::failure::Failure;
use crate::place::Place;

/// Work with subvolumes and snapshots of an image that is not mounted.
#[derive(Subcommand, Debug)]
pub(crate) enum SubvolumeCommand {
    Create(create::CreateArgs),
    Delete(delete::DeleteArgs),
    FindNew(find_new::FindNewArgs),
    GetDefault(default::GetDefaultArgs),
    List(list::ListArgs),
    SetDefault(default::SetDefaultArgs),
    Show(show::ShowArgs),
    Snapshot(snapshot::SnapshotArgs),
    Sync(sync::SyncArgs),
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

/// The place that `text` names, in an image.
pub(crate) fn place_of(command: &'static str, text: &OsStr) -> Result<Place, Failure> {
    let place = Place::parse(text);
    if place.image.is_dir() {
        let what = Error::unsupported(format!("{} is a directory of the host", place.image.display()));
        let advice =
            "name an image that is not mounted, as IMAGE:/PATH, or use `btrfs` on a mount of the kernel";
        return Err(Failure::new(command, what).advise(advice));
    }
    Ok(place)
}

/// A subvolume with its path, which `all` knows; that of the top level is empty.
fn listed(all: &[ListedSubvolume], info: SubvolumeInfo) -> ListedSubvolume {
    let path = if info.id == TreeId::FS {
        Some(Vec::new())
    } else {
        all.iter().find(|other| other.info.id == info.id).and_then(|other| other.path.clone())
    };
    ListedSubvolume { info, path }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
