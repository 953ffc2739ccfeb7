//! `creamery filesystem df` and `filesystem usage`: the space in block groups.
//!
//! Both print the output of btrfs-progs for a mount of the kernel. For images and for mounts of ours, values are missing that only a kernel
//! has: the reserve for commits, and its part in `statfs`.

mod facts;
mod overall;
mod table;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use creamery::id::DevId;
use creamery::volume::BlockGroups;
use serde::Serialize;

use self::facts::{FilesystemUsage, Groups};
use self::overall::Overall;
use crate::failure::{Failure, warn, with_all};
use crate::images::Images;
use crate::json::{Array, Header, text_of, text_of_path};
use crate::output::{Output, writing};
use crate::units::{UnitArgs, UnitLetters};
use crate::view::{LongHelp, RescueArgs};

/// How figures are shown.
#[derive(Args, Debug)]
struct UsageForm {
    #[command(flatten)]
    units: UnitArgs,

    #[command(flatten)]
    letters: UnitLetters,

    /// A JSON array of images and mounts.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    rescue: RescueArgs,

    #[command(flatten)]
    help: LongHelp,
}

impl UsageForm {
    fn units(&self) -> UnitArgs {
        self.letters.or(&self.units)
    }
}

/// Show the size of each kind of block group, and how much of it is used.
///
/// Examples:
///   creamery filesystem df disk.img
///   creamery filesystem df -b disk.raw@2
///   creamery filesystem df /mnt
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub(crate) struct FilesystemDfArgs {
    /// The image, or a directory of a live mount, which can be one of Linux' own Btrfs.
    #[arg(value_name = "IMAGE|PATH")]
    place: OsString,

    #[command(flatten)]
    form: UsageForm,

    /// The JSON of btrfs-progs.
    #[arg(long, hide = true)]
    format_json: bool,
}

/// Show how full filesystems are: as a whole, by kind of block group, and unallocated space.
///
/// Examples:
///   creamery filesystem usage disk.img
///   creamery filesystem usage -b disk.raw@2
///   creamery filesystem usage -T /mnt
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub(crate) struct UsageArgs {
    /// The images, or directories of live mounts, which can be of Linux' own Btrfs.
    #[arg(value_name = "IMAGE|PATH", required = true)]
    places: Vec<OsString>,

    /// Print a table of the devices.
    #[arg(short = 'T')]
    tabular: bool,

    #[command(flatten)]
    form: UsageForm,
}

#[derive(Serialize)]
struct UsageJson {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_bytes: Option<String>,
    #[serde(flatten)]
    overall: Overall,
    block_groups: Vec<GroupsJson>,
    devices: Vec<UsageDeviceJson>,
}

#[derive(Serialize)]
struct GroupsJson {
    kind: String,
    profile: String,
    copies: u64,
    total: u64,
    used: u64,
    /// The bytes of each device that chunks occupy; empty if the mount does not report them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<ShareJson>,
}

#[derive(Serialize)]
struct ShareJson {
    device: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct UsageDeviceJson {
    id: u64,
    /// `None` for a missing device.
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    size: u64,
    slack: u64,
    unallocated: u64,
}

impl UsageJson {
    fn new(facts: &FilesystemUsage) -> Self {
        let groups = facts.groups.iter().map(|Groups { sum, on }| {
            let BlockGroups { kind, profile, copies, total, used, .. } = sum.clone();
            let share = |(id, bytes): &(DevId, u64)| ShareJson { device: id.get(), bytes: *bytes };
            let devices = on.iter().map(share).collect();
            GroupsJson { kind, profile, copies, total, used, devices }
        });
        let devices = facts.devices.iter().map(|device| {
            let (path, path_bytes) = text_of_path(device.path.as_deref());
            let (size, slack, unallocated) = (device.total, device.slack, device.unallocated());
            UsageDeviceJson { id: device.id.get(), path, path_bytes, size, slack, unallocated }
        });
        let (image, image_bytes) = text_of(facts.place.as_os_str().as_bytes());
        Self {
            image,
            image_bytes,
            overall: Overall::of(facts),
            block_groups: groups.collect(),
            devices: devices.collect(),
        }
    }
}

/// The name of a kernel's reserve in the list of block groups.
const RESERVE: (&str, &str) = ("GlobalReserve", "single");

pub(crate) fn run_df(args: &FilesystemDfArgs) -> Result<(), Failure> {
    let units = args.form.units();
    print("filesystem df", std::slice::from_ref(&args.place), &args.form, |out, facts| {
        if args.format_json {
            return as_btrfs_progs(out, facts);
        }
        let mut line = |kind: &str, profile: &str, total: u64, used: u64| {
            writeln!(out, "{kind}, {profile}: total={}, used={}", units.show(total), units.show(used))
        };
        for Groups { sum, .. } in &facts.groups {
            line(&sum.kind, &sum.profile, sum.total, sum.used)?;
        }
        facts.reserve.map_or(Ok(()), |(total, used)| line(RESERVE.0, RESERVE.1, total, used))
    })
}

#[derive(Serialize)]
struct UsageFormatJson {
    #[serde(rename = "__header")]
    header: Header,
    #[serde(rename = "filesystem-df")]
    groups: Vec<GroupFormatJson>,
}

#[derive(Serialize)]
struct GroupFormatJson {
    #[serde(rename = "bg-type")]
    kind: String,
    #[serde(rename = "bg-profile")]
    profile: String,
    total: u64,
    used: u64,
}

fn as_btrfs_progs(out: &mut Output, facts: &FilesystemUsage) -> io::Result<()> {
    let of = |kind: &str, profile: &str, total, used| GroupFormatJson {
        kind: kind.to_owned(),
        profile: profile.to_owned(),
        total,
        used,
    };
    let groups =
        facts.groups.iter().map(|Groups { sum, .. }| of(&sum.kind, &sum.profile, sum.total, sum.used));
    let reserve = facts.reserve.map(|(total, used)| of(RESERVE.0, RESERVE.1, total, used));
    let shown = UsageFormatJson { header: Header::FIRST, groups: groups.chain(reserve).collect() };
    serde_json::to_writer_pretty(&mut *out, &shown)?;
    writeln!(out)
}

pub(crate) fn run(args: &UsageArgs) -> Result<(), Failure> {
    let units = args.form.units();
    let mut between = "";
    print("filesystem usage", &args.places, &args.form, |out, facts| {
        out.write_all(std::mem::replace(&mut between, "\n").as_bytes())?;
        if facts.reserve.is_some() && !facts.has_shares {
            warn("the figures per device need root");
        }
        Overall::of(facts).print(out, &units)?;
        if args.tabular {
            writeln!(out)?;
            return table::print(out, facts, &units);
        }
        each_kind(out, facts, &units)
    })
}

/// Prints the output of `each` for every image or mount, or one document for all.
fn print(
    command: &'static str,
    places: &[OsString],
    form: &UsageForm,
    mut each: impl FnMut(&mut Output, &FilesystemUsage) -> io::Result<()>,
) -> Result<(), Failure> {
    let view = form.rescue.view();
    let mut images = Images::new(command, &view);
    let told = |error| Failure::new(command, writing(error));
    let mut out = Output::new();
    let outcome = if form.json {
        let mut array = Array::begin(&mut out).map_err(told)?;
        let outcome = with_all(places, |place| {
            array.push(&UsageJson::new(&FilesystemUsage::of(&mut images, place)?)).map_err(told)
        });
        array.end().map_err(told)?;
        outcome
    } else {
        with_all(places, |place| each(&mut out, &FilesystemUsage::of(&mut images, place)?).map_err(told))
    };
    out.finish().map_err(|error| Failure::new(command, error)).and(outcome)
}

fn each_kind(out: &mut Output, facts: &FilesystemUsage, units: &UnitArgs) -> io::Result<()> {
    let lie = |out: &mut Output, path: Option<&Path>, bytes: u64| {
        out.write_all(b"   ")?;
        out.path(path.unwrap_or(Path::new("missing")))?;
        writeln!(out, "\t{:>10}", units.show(bytes))
    };
    for Groups { sum, on } in facts.in_order() {
        let BlockGroups { kind, profile, total, used, .. } = sum;
        let percent = 100.0 * *used as f64 / (*total).max(1) as f64;
        let (shown, shown_used) = (units.show(*total), units.show(*used));
        writeln!(out, "\n{kind},{profile}: Size:{shown}, Used:{shown_used} ({percent:.2}%)")?;
        for (id, bytes) in on {
            let device = facts.devices.iter().find(|device| device.id == *id);
            lie(out, device.and_then(|device| device.path.as_deref()), *bytes)?;
        }
    }
    if !facts.has_shares && facts.reserve.is_some() {
        return writeln!(out);
    }
    writeln!(out, "\nUnallocated:")?;
    facts.devices.iter().try_for_each(|device| lie(out, device.path.as_deref(), device.unallocated()))
}
