//! `creamery subvolume get-default` and `set-default`.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Args;
use creamery::id::TreeId;
use creamery::subvolume::ListedSubvolume;
use creamery::{Error, ErrorKind};

use super::json::SubvolumeJson;
use super::named::NamedSubvolumes;
use super::target::{OnMount, failed_at};
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::output::{Output, writing};
use crate::view::{RescueArgs, WriteArgs};

/// Show which subvolume is mounted when none is named.
///
/// Examples:
///   creamery subvolume get-default disk.img
///   creamery subvolume get-default /mnt
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct GetDefaultArgs {
    /// The image, or a directory of a live mount.
    #[arg(value_name = "IMAGE|PATH")]
    place: OsString,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    rescue: RescueArgs,
}

/// Choose the subvolume that is mounted when none is named.
///
/// Paths of other commands begin in it, too, unless --subvol says otherwise. Number 5 is the
/// top level.
///
/// Examples:
///   creamery subvolume set-default disk.img:/system
///   creamery subvolume set-default 5 disk.img
///   creamery subvolume set-default /mnt/system
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct SetDefaultArgs {
    /// The subvolume, or its number and the image or a directory of a live mount.
    #[arg(value_name = "IMAGE:/PATH|PATH | ID IMAGE|PATH", required = true, num_args = 1..=2)]
    words: Vec<OsString>,

    #[command(flatten)]
    write: WriteArgs,
}

pub(super) fn get(args: &GetDefaultArgs) -> Result<(), Failure> {
    let view = args.rescue.view();
    let mut images = Images::new("subvolume get-default", &view);
    let failed = |error| Failure::new("subvolume get-default", error);
    let NamedSubvolumes { table, .. } = NamedSubvolumes::of(&mut images, &args.place)?;
    let found = table.get(table.default).ok_or_else(|| {
        let what = format!("{}: subvolume {}", args.place.display(), table.default);
        failed(Error::new(ErrorKind::NotFound, what))
    })?;
    let mut out = Output::new();
    let printed = if args.json { as_json(&mut out, found) } else { as_text(&mut out, found) };
    printed.map_err(writing).and_then(|()| out.finish()).map_err(failed)
}

fn as_json(out: &mut Output, found: &ListedSubvolume) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &SubvolumeJson::new(&found.info, found.path.as_deref()))?;
    writeln!(out)
}

fn as_text(out: &mut Output, ListedSubvolume { info, path, .. }: &ListedSubvolume) -> io::Result<()> {
    if info.id == TreeId::FS {
        return writeln!(out, "ID {} (FS_TREE)", info.id);
    }
    let parent = info.parent.map_or(0, |parent| parent.get());
    write!(out, "ID {} gen {} top level {parent} path ", info.id, info.generation.get())?;
    out.path_bytes(path.as_deref().unwrap_or(b"DELETED"))?;
    out.write_all(b"\n")
}

pub(super) fn set(args: &SetDefaultArgs) -> Result<(), Failure> {
    const COMMAND: &str = "subvolume set-default";
    let (id, text) = match &args.words[..] {
        [id, text] => {
            let number = id.to_str().and_then(|id| id.parse().ok());
            let not_a_number =
                || Failure::usage(COMMAND, &format!("invalid subvolume ID '{}'", id.display()));
            (Some(TreeId::new(number.ok_or_else(not_a_number)?)), text)
        }
        [text] => (None, text),
        // Options between the operands keep clap from counting them.
        _ => return Err(Failure::usage(COMMAND, "expected at most an ID and a path")),
    };
    let of_number = |failure: Failure| if id.is_some() { failure.of_number() } else { failure };
    if let Some(on_mount) = OnMount::of(COMMAND, text)? {
        let (dir, path) =
            if id.is_some() { (on_mount.dir, on_mount.path) } else { on_mount.directory(COMMAND)? };
        let set = dir.set_default_subvolume(id.map(TreeId::get));
        return set.map_err(failed_at(COMMAND, &path)).map_err(of_number);
    }
    let mut images = Images::to_write(COMMAND, &args.write);
    let place = images.place(text)?;
    let failed = images.failed(&place.image);
    let outcome = images.open(&place.image, Purpose::Write).and_then(|fs| {
        let wanted = id.map_or_else(|| fs.subvolumes().id_at(&place.path), Ok);
        wanted.and_then(|id| fs.subvolumes().set_default(id)).map_err(failed).map_err(of_number)
    });
    images.finish(outcome)
}
