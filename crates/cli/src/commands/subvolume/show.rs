//! `creamery subvolume show`.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Args;
use creamery::attributes::Timespec;
use creamery::id::TreeId;
use creamery::subvolume::{ListedSubvolume, SubvolumeInfo};
use creamery::{Error, ErrorKind, Uuid};
use serde::Serialize;

use super::json::SubvolumeJson;
use super::named::NamedSubvolumes;
use crate::failure::Failure;
use crate::images::Images;
use crate::json::text_of;
use crate::output::{Output, writing};
use crate::time::Utc;
use crate::view::ViewArgs;

/// Show the properties of a subvolume.
///
/// Times are in UTC. What quotas count is not shown.
///
/// Examples:
///   creamery subvolume show disk.img:/home
///   creamery subvolume show -r 256 disk.img
///   creamery subvolume show /mnt/home
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct SubvolumeShowArgs {
    /// The subvolume, or with -r and -u the image or a directory of a live mount.
    #[arg(value_name = "IMAGE:/PATH|PATH")]
    place: OsString,

    /// The subvolume with this number.
    #[arg(short = 'r', long = "rootid", value_name = "ID", conflicts_with = "uuid")]
    id: Option<u64>,

    /// The subvolume with this UUID.
    #[arg(short = 'u', long, value_name = "UUID")]
    uuid: Option<Uuid>,

    /// Bytes instead of rounded sizes, where there are any.
    #[arg(short = 'b', long)]
    raw: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArgs,
}

/// A subvolume and the snapshots of it.
struct SubvolumeDetails {
    of: ListedSubvolume,
    snapshots: Vec<Vec<u8>>,
    has_quota_groups: bool,
}

#[derive(Serialize)]
struct FactsJson {
    #[serde(flatten)]
    subvolume: SubvolumeJson,
    snapshots: Vec<String>,
}

pub(super) fn run(args: &SubvolumeShowArgs) -> Result<(), Failure> {
    let mut images = Images::new("subvolume show", &args.view);
    let told = NamedSubvolumes::of(&mut images, &args.place)?;
    let failed = |error: Error| Failure::new("subvolume show", error.context(args.place.display()));
    let facts = facts(args, &told).map_err(failed).map_err(|failure| match (args.id, args.uuid) {
        (None, None) => failure,
        _ => failure.of_number(),
    })?;
    let mut out = Output::new();
    let printed = if args.json { as_json(&mut out, &facts) } else { as_text(&mut out, &facts) };
    let told = |error| Failure::new("subvolume show", error);
    printed.map_err(writing).and_then(|()| out.finish()).map_err(told)
}

fn facts(
    args: &SubvolumeShowArgs,
    NamedSubvolumes { table, here, is_root }: &NamedSubvolumes,
) -> Result<SubvolumeDetails, Error> {
    let not_found = |what: String| Error::new(ErrorKind::NotFound, what);
    let of = match (args.id, args.uuid) {
        (Some(id), _) => table.get(TreeId::new(id)).ok_or_else(|| not_found(format!("subvolume {id}")))?,
        (_, Some(uuid)) => {
            table.get_by_uuid(uuid).ok_or_else(|| not_found(format!("a subvolume with UUID {uuid}")))?
        }
        _ if !is_root => return Err(Error::invalid("not the root of a subvolume")),
        _ => table.get(*here).ok_or_else(|| not_found(format!("subvolume {here}")))?,
    };
    let uuid = of.info.uuid;
    let of_it = |other: &&ListedSubvolume| uuid.is_some() && other.info.parent_uuid == uuid;
    let snapshots = table.subvolumes.iter().filter(of_it).filter_map(|other| other.path.clone()).collect();
    Ok(SubvolumeDetails { of: of.clone(), snapshots, has_quota_groups: table.has_quota_groups })
}

fn as_json(out: &mut Output, facts: &SubvolumeDetails) -> io::Result<()> {
    let SubvolumeDetails { of, snapshots, .. } = facts;
    let subvolume = SubvolumeJson::new(&of.info, of.path.as_deref());
    let snapshots = snapshots.iter().map(|path| text_of(path).0).collect();
    serde_json::to_writer_pretty(&mut *out, &FactsJson { subvolume, snapshots })?;
    writeln!(out)
}

fn as_text(out: &mut Output, facts: &SubvolumeDetails) -> io::Result<()> {
    let SubvolumeDetails { of: ListedSubvolume { info, path, .. }, snapshots, has_quota_groups } = facts;
    let is_top = info.id == TreeId::FS;
    let path: &[u8] = match path {
        None => b"DELETED",
        Some(_) if is_top => b"/",
        Some(path) => path,
    };
    out.path_bytes(path)?;
    out.write_all(b"\n\tName: \t\t\t")?;
    out.path_bytes(if is_top { b"<FS_TREE>" } else { &info.name })?;
    out.write_all(b"\n")?;
    for (what, text) in lines(info) {
        writeln!(out, "\t{what}{text}")?;
    }
    writeln!(out, "\tSnapshot(s):")?;
    for snapshot in snapshots {
        out.write_all(b"\t\t\t\t")?;
        out.path_bytes(snapshot)?;
        out.write_all(b"\n")?;
    }
    if *has_quota_groups {
        return writeln!(out, "\tQuota group:\t\t0/{}", info.id);
    }
    writeln!(out, "\tQuota group:\t\tn/a")
}

fn lines(info: &SubvolumeInfo) -> [(&'static str, String); 14] {
    let uuid = |uuid: Option<Uuid>| uuid.map_or_else(|| "-".to_owned(), |uuid| uuid.to_string());
    let time = |time: Timespec| {
        if time.sec == 0 { "-".to_owned() } else { format!("{} +0000", Utc(time)) }
    };
    let parent = info.parent.map_or(0, |parent| parent.get()).to_string();
    let flags = if info.is_read_only() { "readonly" } else { "-" };
    // For a subvolume that was never sent, btrfs-progs 6.14 prints its creation time.
    let stime = if info.stime.sec == 0 { info.otime } else { info.stime };
    [
        ("UUID: \t\t\t", uuid(info.uuid)),
        ("Parent UUID: \t\t", uuid(info.parent_uuid)),
        ("Received UUID: \t\t", uuid(info.received_uuid)),
        ("Creation time: \t\t", time(info.otime)),
        ("Subvolume ID: \t\t", info.id.to_string()),
        ("Generation: \t\t", info.generation.get().to_string()),
        ("Gen at creation: \t", info.otransid.get().to_string()),
        ("Parent ID: \t\t", parent.clone()),
        ("Top level ID: \t\t", parent),
        ("Flags: \t\t\t", flags.to_owned()),
        ("Send transid: \t\t", info.stransid.get().to_string()),
        ("Send time: \t\t", time(stime)),
        ("Receive transid: \t", info.rtransid.get().to_string()),
        ("Receive time: \t\t", time(info.rtime)),
    ]
}
