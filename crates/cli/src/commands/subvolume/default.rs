//! `creamery subvolume get-default` and `set-default`.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Args;
use creamery::{Filesystem, ListedSubvolume, TreeId};

use super::json::SubvolumeJson;
use super::listed::listed;
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::output::{Output, writing};
use crate::view::ViewArgs;

/// Show which subvolume is mounted when none is named.
///
/// Examples:
///   creamery subvolume get-default disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct GetDefaultArgs {
    /// The image.
    #[arg(value_name = "IMAGE")]
    image: OsString,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Choose the subvolume that is mounted when none is named.
///
/// Paths of other commands begin in it, too, unless --subvol says otherwise. Number 5 is the
/// top level.
///
/// Examples:
///   creamery subvolume set-default disk.img:/system
///   creamery subvolume set-default 5 disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct SetDefaultArgs {
    /// The subvolume, or its number and the image.
    #[arg(value_name = "IMAGE:/PATH | ID IMAGE", required = true, num_args = 1..=2)]
    words: Vec<OsString>,

    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn get(args: &GetDefaultArgs) -> Result<(), Failure> {
    let view = ViewArgs::default();
    let mut images = Images::new("subvolume get-default", &view);
    let place = images.place(&args.image)?;
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    let found = default(fs).map_err(failed)?;
    let mut out = Output::new();
    let printed = if args.json { as_json(&mut out, &found) } else { as_text(&mut out, &found) };
    let told = |error| Failure::new("subvolume get-default", error);
    printed.map_err(writing).and_then(|()| out.finish()).map_err(told)
}

fn default(fs: &Filesystem) -> creamery::Result<ListedSubvolume> {
    let info = fs.subvolume_info(fs.default_subvolume())?;
    Ok(listed(&fs.subvolumes()?, info))
}

fn as_json(out: &mut Output, found: &ListedSubvolume) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &SubvolumeJson::new(&found.info, found.path.as_deref()))?;
    writeln!(out)
}

fn as_text(out: &mut Output, ListedSubvolume { info, path }: &ListedSubvolume) -> io::Result<()> {
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
                || Failure::usage(COMMAND, &format!("{} is no number of a subvolume", id.display()));
            (Some(TreeId::new(number.ok_or_else(not_a_number)?)), text)
        }
        words => (None, &words[0]),
    };
    let mut images = Images::new(COMMAND, &args.view);
    let place = images.place(text)?;
    let failed = images.failed(&place.image);
    let outcome = images.open(&place.image, Purpose::Write).and_then(|fs| {
        let id = id.map_or_else(|| fs.subvolume_at(&place.path), Ok);
        id.and_then(|id| fs.set_default_subvolume(id)).map_err(failed)
    });
    images.finish(outcome)
}
