//! `creamery mounts`.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use creamery::error::Escaped;
use creamery_mount::{LiveFacts, LiveMount, ServerState};
use serde::Serialize;

use crate::columns::{self, Column};
use crate::failure::Failure;
use crate::json::{Array, text_of};
use crate::output::{Output, writing};

const COMMAND: &str = "mounts";

/// List the images that are mounted.
///
/// Each line has an image, where it is mounted, the subvolume that is mounted there, whether it can be
/// written, and the process that serves it. After an error has ended all writing, that is "aborted".
/// The kernel's own mounts are not listed (findmnt -t btrfs).
///
/// Examples:
///   creamery mounts
///   creamery mounts --json | jq -r '.[].mount_point'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct MountsArgs {
    /// One JSON array.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct MountsRow {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_bytes: Option<String>,
    mount_point: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mount_point_bytes: Option<String>,
    subvolume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subvolume_bytes: Option<String>,
    subvolume_id: Option<u64>,
    uuid: Option<String>,
    read_only: bool,
    aborted: Option<bool>,
    user: u32,
    process: Option<u32>,
    server: &'static str,
}

impl MountsRow {
    fn of(mount: &LiveMount) -> Self {
        let (image, image_bytes) = text_of(mount.image.as_os_str().as_bytes());
        let (mount_point, mount_point_bytes) = text_of(mount.point.as_os_str().as_bytes());
        let facts = facts_of(mount);
        let path = facts.and_then(path_of).map(|path| text_of(&path));
        let (subvolume, subvolume_bytes) = path.map_or((None, None), |(text, bytes)| (Some(text), bytes));
        Self {
            image,
            image_bytes,
            mount_point,
            mount_point_bytes,
            subvolume,
            subvolume_bytes,
            subvolume_id: facts.map(|facts| facts.subvolume),
            uuid: facts.map(|facts| facts.uuid.clone()),
            read_only: mount.is_read_only || is_aborted(mount),
            aborted: facts.and_then(|facts| facts.aborted),
            user: mount.mounter,
            process: facts.map(|facts| facts.process),
            server: state_of(mount),
        }
    }
}

fn facts_of(mount: &LiveMount) -> Option<&LiveFacts> {
    if let ServerState::Answers(facts) = &mount.server { Some(facts) } else { None }
}

fn is_aborted(mount: &LiveMount) -> bool {
    facts_of(mount).and_then(|facts| facts.aborted) == Some(true)
}

/// The subvolume's path from the top level, with a leading slash.
fn path_of(facts: &LiveFacts) -> Option<Vec<u8>> {
    Some([b"/", &facts.subvolume_path.as_ref()?[..]].concat())
}

const fn state_of(mount: &LiveMount) -> &'static str {
    match mount.server {
        ServerState::Answers(_) => "answers",
        ServerState::Dead => "dead",
        ServerState::Refuses => "refuses",
        ServerState::Hidden => "hidden",
        ServerState::Silent => "silent",
    }
}

pub(crate) fn run(args: &MountsArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    let mounts = creamery_mount::live_mounts().map_err(failed)?;
    let mut out = Output::new();
    let printed = if args.json { as_json(&mut out, &mounts) } else { as_table(&mut out, &mounts) };
    printed.map_err(writing).and_then(|()| out.finish()).map_err(failed)
}

fn as_json(out: &mut Output, mounts: &[LiveMount]) -> io::Result<()> {
    let mut array = Array::begin(out)?;
    mounts.iter().try_for_each(|mount| array.push(&MountsRow::of(mount)))?;
    array.end()
}

/// Prints the table; prints nothing if nothing is mounted, as losetup(8) does.
fn as_table(out: &mut Output, mounts: &[LiveMount]) -> io::Result<()> {
    if mounts.is_empty() {
        return Ok(());
    }
    let escaped = |bytes: &[u8]| Escaped(bytes).to_string();
    let column = |head: &str, is_text: bool, cell: &dyn Fn(&LiveMount) -> String| Column {
        heads: vec![head.to_owned()],
        cells: mounts.iter().map(cell).collect(),
        is_text,
    };
    let subvolume = |mount: &LiveMount| match (facts_of(mount), facts_of(mount).and_then(path_of)) {
        (_, Some(path)) => escaped(&path),
        (Some(facts), None) => facts.subvolume.to_string(),
        (None, None) => "-".to_owned(),
    };
    let process = |mount: &LiveMount| match facts_of(mount) {
        Some(facts) => facts.process.to_string(),
        None => state_of(mount).to_owned(),
    };
    let way = |mount: &LiveMount| match mount.is_read_only {
        _ if is_aborted(mount) => "aborted".to_owned(),
        true => "ro".to_owned(),
        false => "rw".to_owned(),
    };
    let columns = [
        column("Image", true, &|mount| escaped(mount.image.as_os_str().as_bytes())),
        column("Mounted at", true, &|mount| escaped(mount.point.as_os_str().as_bytes())),
        column("Subvolume", true, &subvolume),
        column("Mode", true, &way),
        column("Process", false, &process),
    ];
    columns::print(out, &columns, None)?;
    out.flush()
}
