//! `creamery qgroup show` and `creamery quota status`, in the format of btrfs-progs.

use std::cmp::Ordering;
use std::io::{self, Write};
use std::str::FromStr;

use clap::Args;
use creamery::error::Escaped;
use creamery::id::{Logical, QgroupId};
use creamery::quota::{QgroupReport, QuotaReport};
use serde::Serialize;

use super::side::{PlaceArgs, Side};
use crate::failure::Failure;
use crate::json::{Header, text_of};
use crate::output::writing;
use crate::units::UnitArgs;

const COMMAND: &str = "qgroup show";

/// List quota groups.
///
/// Examples:
///   creamery qgroup show -re disk.img
///   creamery qgroup show -F --json /mnt/home
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[expect(clippy::struct_excessive_bools, reason = "one for each option")]
pub(crate) struct QuotaShowArgs {
    #[command(flatten)]
    place: PlaceArgs,

    /// The groups of which each is a member.
    #[arg(short = 'p', help_heading = "Columns")]
    parents: bool,

    /// The members of each.
    #[arg(short = 'c', help_heading = "Columns")]
    children: bool,

    /// Limits of referenced data.
    #[arg(short = 'r', help_heading = "Columns")]
    max_referenced: bool,

    /// Limits of exclusive data.
    #[arg(short = 'e', help_heading = "Columns")]
    max_exclusive: bool,

    /// Only those that the subvolume of the path is in.
    #[arg(short = 'F', help_heading = "Which groups")]
    all_of_path: bool,

    /// Only that of the subvolume of the path.
    #[arg(short = 'f', help_heading = "Which groups", conflicts_with = "all_of_path")]
    of_path: bool,

    /// Sort by qgroupid, rfer, excl, max_rfer, max_excl or path; - in front means descending.
    #[arg(long, value_delimiter = ',', value_name = "COLUMNS", allow_hyphen_values = true)]
    sort: Vec<Sort>,

    /// On a mount, make all writes durable first.
    #[arg(long)]
    sync: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// The JSON of btrfs-progs.
    #[arg(long, hide = true)]
    format_json: bool,

    #[command(flatten)]
    units: UnitArgs,
}

#[derive(Clone, Copy, Debug)]
enum QuotaColumn {
    Id,
    Referenced,
    Exclusive,
    MaxReferenced,
    MaxExclusive,
    Path,
}

/// A column, and whether its order is descending.
#[derive(Clone, Copy, Debug)]
struct Sort(QuotaColumn, bool);

impl FromStr for Sort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix('-').or_else(|| text.strip_prefix('+')).unwrap_or(text);
        let column = match name {
            "qgroupid" => QuotaColumn::Id,
            "rfer" => QuotaColumn::Referenced,
            "excl" => QuotaColumn::Exclusive,
            "max_rfer" => QuotaColumn::MaxReferenced,
            "max_excl" => QuotaColumn::MaxExclusive,
            "path" => QuotaColumn::Path,
            _ => {
                return Err(format!(
                    "unknown column '{name}': expected qgroupid, rfer, excl, max_rfer, max_excl or path"
                ));
            }
        };
        Ok(Self(column, text.starts_with('-')))
    }
}

impl Sort {
    fn compare(self, a: &QgroupReport, b: &QgroupReport) -> Ordering {
        // No limit counts as the highest.
        let limit = |most: Option<u64>| most.unwrap_or(u64::MAX);
        let order = match self.0 {
            QuotaColumn::Id => a.id.cmp(&b.id),
            QuotaColumn::Referenced => a.referenced.cmp(&b.referenced),
            QuotaColumn::Exclusive => a.exclusive.cmp(&b.exclusive),
            QuotaColumn::MaxReferenced => limit(a.max_referenced).cmp(&limit(b.max_referenced)),
            QuotaColumn::MaxExclusive => limit(a.max_exclusive).cmp(&limit(b.max_exclusive)),
            // Groups of groups come last.
            QuotaColumn::Path => (a.path.is_none(), &a.path).cmp(&(b.path.is_none(), &b.path)),
        };
        if self.1 { order.reverse() } else { order }
    }
}

pub(super) fn run(args: &QuotaShowArgs) -> Result<(), Failure> {
    Side::look(COMMAND, &args.place, |side| {
        if args.sync {
            side.sync()?;
        }
        let (mut report, here) = side.enabled()?;
        if report.inconsistent && report.rescan.is_none() {
            crate::failure::warn("qgroup data inconsistent, rescan recommended");
        } else if report.rescan.is_some() {
            crate::failure::warn("rescan is running, qgroup data may be incorrect");
        }
        if args.all_of_path || args.of_path {
            let own = QgroupId::of(here);
            let wanted = if args.all_of_path { with_ancestors(&report, own) } else { vec![own] };
            report.groups.retain(|group| wanted.contains(&group.id));
        }
        report.groups.sort_by(|a, b| {
            args.sort
                .iter()
                .map(|sort| sort.compare(a, b))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        });
        let header = args.format_json.then_some(Header::FIRST);
        let printed =
            if args.json || args.format_json { print_json(&report, header) } else { print(&report, args) };
        printed.map_err(|error| Failure::new(COMMAND, writing(error)))
    })
}

fn with_ancestors(report: &QuotaReport, id: QgroupId) -> Vec<QgroupId> {
    let mut wanted = vec![id];
    // Groups of higher levels come later.
    for group in &report.groups {
        if wanted.contains(&group.id) {
            wanted.extend(&group.parents);
        }
    }
    wanted
}

fn names(ids: &[QgroupId]) -> String {
    if ids.is_empty() {
        return "-".to_owned();
    }
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The text of the last column.
fn path_of(group: &QgroupReport, simple: bool) -> String {
    match &group.path {
        Some(path) if path.is_empty() => "<toplevel>".to_owned(),
        Some(path) => Escaped(path).to_string(),
        // btrfs-progs names the relation the other way round: these are the groups that this one is a member of.
        None if group.id.level() > 0 => {
            let of: Vec<_> = group.parents.iter().map(ToString::to_string).collect();
            let plural = if of.len() == 1 { "" } else { "s" };
            format!("{}<{} member qgroup{plural}>", of.join(" "), of.len())
        }
        None if group.is_deleted => "<under deletion>".to_owned(),
        None if simple && group.referenced > 0 => "<squota space holder>".to_owned(),
        None => "<stale>".to_owned(),
    }
}

/// A column of the table.
struct ShownColumn {
    title: &'static str,
    /// Minimum number of characters.
    width: usize,
    is_right: bool,
    cells: Vec<String>,
}

fn print(report: &QuotaReport, args: &QuotaShowArgs) -> io::Result<()> {
    let size = |bytes: u64| args.units.show(bytes);
    let limit = |most: Option<u64>| most.map_or_else(|| "none".to_owned(), size);
    let mut columns = Vec::new();
    // The widths of btrfs-progs.
    let mut column = |is_wanted: bool, title, width, is_right, of: &dyn Fn(&QgroupReport) -> String| {
        if is_wanted {
            columns.push(ShownColumn {
                title,
                width,
                is_right,
                cells: report.groups.iter().map(of).collect(),
            });
        }
    };
    column(true, "Qgroupid", 8, false, &|group| group.id.to_string());
    column(true, "Referenced", 13, true, &|group| size(group.referenced));
    column(true, "Exclusive", 12, true, &|group| size(group.exclusive));
    column(args.max_referenced, "Max referenced", 15, true, &|group| limit(group.max_referenced));
    column(args.max_exclusive, "Max exclusive", 14, true, &|group| limit(group.max_exclusive));
    column(args.parents, "Parent", 8, false, &|group| names(&group.parents));
    column(args.children, "Child", 5, false, &|group| names(&group.members));
    let mut out = io::stdout().lock();
    let mut line = |cell: &dyn Fn(&ShownColumn) -> String, last: &str| {
        for column in &columns {
            let longest = column.cells.iter().map(String::len).max().unwrap_or(0);
            let (cell, width) = (cell(column), longest.max(column.width));
            if column.is_right {
                write!(out, "{cell:>width$} ")?;
            } else {
                write!(out, "{cell:<width$} ")?;
            }
        }
        writeln!(out, "  {last}")
    };
    line(&|column| column.title.to_owned(), "Path ")?;
    line(&|column| "-".repeat(column.title.len()), "---- ")?;
    report.groups.iter().enumerate().try_for_each(|(row, group)| {
        line(&|column| column.cells[row].clone(), &path_of(group, report.simple))
    })
}

#[derive(Serialize)]
struct GroupJson {
    qgroupid: String,
    referenced: u64,
    max_referenced: Limit,
    exclusive: u64,
    max_exclusive: Limit,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    parents: Vec<String>,
    children: Vec<String>,
}

/// A number of bytes, or "none".
struct Limit(Option<u64>);

impl Serialize for Limit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(bytes) => serializer.serialize_u64(bytes),
            None => serializer.serialize_str("none"),
        }
    }
}

#[derive(Serialize)]
struct QuotaShownJson {
    #[serde(rename = "__header", skip_serializing_if = "Option::is_none")]
    header: Option<Header>,
    #[serde(rename = "qgroup-show")]
    groups: Vec<GroupJson>,
}

fn print_json(report: &QuotaReport, header: Option<Header>) -> io::Result<()> {
    let ids = |ids: &[QgroupId]| ids.iter().map(ToString::to_string).collect();
    let group = |group: &QgroupReport| {
        let (path, path_bytes) = text_of(group.path.as_deref().unwrap_or_default());
        GroupJson {
            qgroupid: group.id.to_string(),
            referenced: group.referenced,
            max_referenced: Limit(group.max_referenced),
            exclusive: group.exclusive,
            max_exclusive: Limit(group.max_exclusive),
            path,
            path_bytes,
            parents: ids(&group.parents),
            children: ids(&group.members),
        }
    };
    let shown = QuotaShownJson { header, groups: report.groups.iter().map(group).collect() };
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &shown)?;
    writeln!(out)
}

#[derive(Serialize)]
struct QuotaStatusJson {
    enabled: bool,
    mode: Option<&'static str>,
    inconsistent: bool,
    rescan: Option<Logical>,
    qgroups: usize,
}

/// Prints the status of quotas.
pub(super) fn status(report: &QuotaReport, json: bool) -> Result<(), Failure> {
    let mode = match (report.enabled, report.simple) {
        (false, _) => None,
        (true, true) => Some("squota (simple accounting)"),
        (true, false) => Some("qgroup (full accounting)"),
    };
    let printed = if json {
        let mode = mode.map(|mode| mode.split_once(' ').map_or(mode, |(word, _)| word));
        let (enabled, inconsistent, rescan) = (report.enabled, report.inconsistent, report.rescan);
        let status = QuotaStatusJson { enabled, mode, inconsistent, rescan, qgroups: report.groups.len() };
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, &status).map_err(io::Error::from).and_then(|()| writeln!(out))
    } else {
        print_status(report, mode)
    };
    printed.map_err(|error| Failure::new("quota status", writing(error)))
}

fn print_status(report: &QuotaReport, mode: Option<&str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let yes = |is: bool| if is { "yes" } else { "no" };
    writeln!(out, "Enabled:       {}", yes(report.enabled))?;
    let Some(mode) = mode else { return Ok(()) };
    writeln!(out, "Mode:          {mode}")?;
    writeln!(out, "Inconsistent:  {}", yes(report.inconsistent))?;
    match report.rescan {
        Some(at) => writeln!(out, "Rescan:        running, at {at}")?,
        None => writeln!(out, "Rescan:        not running")?,
    }
    writeln!(out, "Quota groups:  {}", report.groups.len())
}
