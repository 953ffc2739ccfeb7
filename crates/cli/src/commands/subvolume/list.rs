//! `creamery subvolume list`: the columns, filters and orders of btrfs-progs.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::io::{self, Write};

use clap::Args;
use creamery::Uuid;
use creamery::id::TreeId;
use creamery::subvolume::{ListedSubvolume, SubvolumeInfo};

use super::json::SubvolumeJson;
use super::named::NamedSubvolumes;
use crate::failure::Failure;
use crate::images::Images;
use crate::json::Array;
use crate::output::{Output, Printed, writing};
use crate::time::Utc;
use crate::view::ViewArgs;

/// List subvolumes and snapshots.
///
/// The top level, number 5, is not in the list. Paths begin at the top level; those of
/// subvolumes in the one that is named begin there. Times are in UTC.
///
/// Examples:
///   creamery subvolume list disk.img
///   creamery subvolume list -t --sort=-gen disk.img
///   creamery subvolume list -s -o disk.img:/backup
///   creamery subvolume list /mnt
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct SubvolumeListArgs {
    /// The image, or a directory in it or on a live mount.
    #[arg(value_name = "IMAGE[:/PATH]|PATH")]
    place: OsString,

    /// Only those directly in the subvolume that is named.
    #[arg(short = 'o', help_heading = "Which paths")]
    only_below: bool,

    /// All, with <FS_TREE>/ before those that are not directly in the subvolume that is named.
    #[arg(short = 'a', help_heading = "Which paths")]
    all: bool,

    /// The subvolume that it is in.
    #[arg(short = 'p', help_heading = "Columns")]
    parent: bool,

    /// The transaction that made it.
    #[arg(short = 'c', help_heading = "Columns")]
    ogeneration: bool,

    /// The transaction that last changed it, which is printed anyway.
    #[arg(short = 'g', help_heading = "Columns")]
    generation: bool,

    /// Its UUID.
    #[arg(short = 'u', help_heading = "Columns")]
    uuid: bool,

    /// UUID of the subvolume that it is a snapshot of.
    #[arg(short = 'q', help_heading = "Columns")]
    parent_uuid: bool,

    /// UUID that it had where it was sent from.
    #[arg(short = 'R', help_heading = "Columns")]
    received_uuid: bool,

    /// Only snapshots, with the times at which they were taken.
    #[arg(short = 's', help_heading = "Which kinds")]
    snapshots: bool,

    /// Only read-only ones.
    #[arg(short = 'r', help_heading = "Which kinds")]
    read_only: bool,

    /// Only those that were deleted and still take space.
    #[arg(short = 'd', help_heading = "Which kinds")]
    deleted: bool,

    /// Print a table.
    #[arg(short = 't', conflicts_with = "json")]
    table: bool,

    /// Only those last changed by this transaction; +N is N or later, -N is N or earlier.
    #[arg(short = 'G', value_name = "[+|-]N", allow_hyphen_values = true, help_heading = "Order")]
    filter_generation: Option<Bound>,

    /// Only those made by this transaction, likewise.
    #[arg(short = 'C', value_name = "[+|-]N", allow_hyphen_values = true, help_heading = "Order")]
    filter_ogeneration: Option<Bound>,

    /// Sort by gen, ogen, rootid or path, comma-separated; - in front means descending.
    #[arg(long, value_name = "KEYS", allow_hyphen_values = true, value_delimiter = ',')]
    #[arg(help_heading = "Order")]
    sort: Vec<SortKey>,

    /// One JSON array with all that is known of each.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArgs,
}

/// A filter by transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bound {
    Exactly(u64),
    AtLeast(u64),
    AtMost(u64),
}

impl std::str::FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (bound, digits): (fn(u64) -> Self, &str) = match text.as_bytes().first() {
            Some(b'+') => (Self::AtLeast, &text[1..]),
            Some(b'-') => (Self::AtMost, &text[1..]),
            _ => (Self::Exactly, text),
        };
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| is_number);
        number.map(bound).ok_or_else(|| "expected a transaction ID, such as 7, +7 or -7".to_owned())
    }
}

impl Bound {
    const fn has(self, number: u64) -> bool {
        match self {
            Self::Exactly(wanted) => number == wanted,
            Self::AtLeast(least) => number >= least,
            Self::AtMost(most) => number <= most,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListColumn {
    Generation,
    Ogeneration,
    Id,
    Path,
}

/// A sort order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SortKey {
    column: ListColumn,
    descending: bool,
}

impl std::str::FromStr for SortKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let descending = text.starts_with('-');
        let column = match text.strip_prefix(['-', '+']).unwrap_or(text) {
            "gen" => ListColumn::Generation,
            "ogen" => ListColumn::Ogeneration,
            "rootid" => ListColumn::Id,
            "path" => ListColumn::Path,
            _ => return Err("expected gen, ogen, rootid or path".to_owned()),
        };
        Ok(Self { column, descending })
    }
}

impl SortKey {
    fn compare(self, one: &SubvolumeRow, other: &SubvolumeRow) -> Ordering {
        let (info, than) = (&one.of.info, &other.of.info);
        let order = match self.column {
            ListColumn::Generation => info.generation.cmp(&than.generation),
            ListColumn::Ogeneration => info.otransid.cmp(&than.otransid),
            ListColumn::Id => info.id.cmp(&than.id),
            ListColumn::Path => one.path.cmp(&other.path),
        };
        if self.descending { order.reverse() } else { order }
    }
}

/// A printed subvolume, with its path relative to the subvolume of the operand.
struct SubvolumeRow {
    of: ListedSubvolume,
    path: Vec<u8>,
}

pub(super) fn run(args: &SubvolumeListArgs) -> Result<(), Failure> {
    let mut images = Images::new("subvolume list", &args.view);
    let rows = rows(args, NamedSubvolumes::of(&mut images, &args.place)?);
    images.note_beginnings();
    let mut out = Output::new();
    let printed = match (args.json, args.table) {
        (true, _) => as_json(&mut out, &rows),
        (_, true) => as_table(&mut out, args, &rows),
        _ => as_lines(&mut out, args, &rows),
    };
    let told = |error| Failure::new("subvolume list", error);
    printed.map_err(writing).and_then(|()| out.finish()).map_err(told)
}

fn rows(args: &SubvolumeListArgs, NamedSubvolumes { table, here, .. }: NamedSubvolumes) -> Vec<SubvolumeRow> {
    let own = table.get(here).and_then(|listed| listed.path.clone());
    let prefix = own.filter(|path| !path.is_empty()).map(|path| [&path[..], b"/"].concat());
    let is_wanted = |listed: &ListedSubvolume| {
        let info = &listed.info;
        info.id != TreeId::FS
            && info.is_deleted == args.deleted
            && (!args.only_below || args.all || info.parent == Some(here))
            && (!args.snapshots || info.is_snapshot)
            && (!args.read_only || info.is_read_only())
            && args.filter_generation.is_none_or(|bound| bound.has(info.generation.get()))
            && args.filter_ogeneration.is_none_or(|bound| bound.has(info.otransid.get()))
    };
    let row = |of: ListedSubvolume| {
        let path = match (&of.path, &prefix) {
            (None, _) => b"DELETED".to_vec(),
            (Some(path), _) if args.all && of.info.parent != Some(here) => {
                [b"<FS_TREE>/", &path[..]].concat()
            }
            (Some(path), Some(prefix)) if !args.all && !args.only_below => {
                path.strip_prefix(&prefix[..]).unwrap_or(path).to_vec()
            }
            (Some(path), _) => path.clone(),
        };
        SubvolumeRow { of, path }
    };
    let mut rows: Vec<SubvolumeRow> = table.subvolumes.into_iter().filter(is_wanted).map(row).collect();
    rows.sort_by(|one, other| {
        let unequal = args.sort.iter().map(|key| key.compare(one, other)).find(|order| order.is_ne());
        unequal.unwrap_or(Ordering::Equal)
    });
    rows
}

/// The text of a column.
type TextOf = fn(&SubvolumeInfo) -> String;

/// The columns before the path, each with its head.
fn columns(args: &SubvolumeListArgs) -> Vec<(&'static str, TextOf)> {
    let has_ogeneration = args.ogeneration || args.snapshots || args.filter_ogeneration.is_some();
    let all: [(&'static str, bool, TextOf); 9] = [
        ("ID", true, |info| info.id.to_string()),
        ("gen", true, |info| info.generation.get().to_string()),
        ("cgen", has_ogeneration, |info| info.otransid.get().to_string()),
        ("parent", args.parent, parent),
        ("top level", true, parent),
        ("otime", args.snapshots, |info| {
            if info.otime.sec == 0 { "-".to_owned() } else { Utc(info.otime).to_string() }
        }),
        ("parent_uuid", args.parent_uuid, |info| uuid(info.parent_uuid)),
        ("received_uuid", args.received_uuid, |info| uuid(info.received_uuid)),
        ("uuid", args.uuid, |info| uuid(info.uuid)),
    ];
    all.into_iter().filter(|(_, wanted, _)| *wanted).map(|(head, _, text)| (head, text)).collect()
}

fn parent(info: &SubvolumeInfo) -> String {
    info.parent.map_or(0, |parent| parent.get()).to_string()
}

fn uuid(uuid: Option<Uuid>) -> String {
    uuid.map_or_else(|| format!("{:<36}", "-"), |uuid| uuid.to_string())
}

fn as_lines(out: &mut Output, args: &SubvolumeListArgs, rows: &[SubvolumeRow]) -> io::Result<()> {
    let columns = columns(args);
    for row in rows {
        for (head, text) in &columns {
            write!(out, "{head} {} ", text(&row.of.info))?;
        }
        out.write_all(b"path ")?;
        out.path_bytes(&row.path)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Prints a table as btrfs-progs does: tabs, and a second one behind the broad head "top level".
fn as_table(out: &mut Output, args: &SubvolumeListArgs, rows: &[SubvolumeRow]) -> io::Result<()> {
    let columns = columns(args);
    let heads = || columns.iter().map(|(head, _)| *head).chain(["path"]);
    let out = &mut Printed(out);
    for head in heads() {
        write!(out, "{head}\t")?;
    }
    out.write_all(b"\n")?;
    for head in heads() {
        write!(out, "{}\t", "-".repeat(head.len()))?;
    }
    out.write_all(b"\n")?;
    for row in rows {
        for (head, text) in &columns {
            write!(out, "{}{}", text(&row.of.info), if *head == "top level" { "\t\t" } else { "\t" })?;
        }
        out.write_all(&row.path)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn as_json(out: &mut Output, rows: &[SubvolumeRow]) -> io::Result<()> {
    let mut array = Array::begin(out)?;
    for row in rows {
        array.push(&SubvolumeJson::new(&row.of.info, row.of.path.as_deref()))?;
    }
    array.end()
}
