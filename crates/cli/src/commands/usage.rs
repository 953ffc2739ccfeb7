//! `creamery filesystem df` and `filesystem usage`, which tell of block groups what they hold.
//!
//! Both print what btrfs-progs prints of a mount of the kernel, but for what only a kernel has: the reserve that it keeps for
//! commits, and what `statfs` makes of it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use creamery::{BlockGroups, Filesystem, MemberDevice};
use serde::Serialize;

use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::json::{Array, Header};
use crate::output::{Output, writing};
use crate::units::{UnitArgs, UnitLetters};
use crate::view::{LongHelp, RescueArgs};

/// How figures are shown.
#[derive(Args, Debug)]
struct Form {
    #[command(flatten)]
    units: UnitArgs,

    #[command(flatten)]
    letters: UnitLetters,

    /// A JSON array of images.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    rescue: RescueArgs,

    #[command(flatten)]
    help: LongHelp,
}

impl Form {
    fn units(&self) -> UnitArgs {
        self.letters.or(&self.units)
    }
}

/// Tell of each kind of block group how much there is and how much of it is used.
///
/// Examples:
///   creamery filesystem df disk.img
///   creamery filesystem df -b disk.raw@2
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub(crate) struct FilesystemDfArgs {
    /// The image.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    #[command(flatten)]
    form: Form,

    /// The JSON of btrfs-progs.
    #[arg(long, hide = true)]
    format_json: bool,
}

/// Tell how full filesystems are: as a whole, by kind of block group, and what no chunk has.
///
/// Examples:
///   creamery filesystem usage disk.img
///   creamery filesystem usage -b disk.raw@2
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub(crate) struct UsageArgs {
    /// The images.
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,

    #[command(flatten)]
    form: Form,
}

#[derive(Serialize)]
struct UsageJson {
    image: String,
    size: u64,
    allocated: u64,
    unallocated: u64,
    available: u64,
    block_groups: Vec<GroupsJson>,
}

#[derive(Serialize)]
struct GroupsJson {
    kind: String,
    profile: String,
    copies: u64,
    total: u64,
    used: u64,
}

impl UsageJson {
    fn new(image: &Path, fs: &Filesystem) -> Self {
        let (size, allocated) = on_devices(fs);
        let groups = fs.block_groups().into_iter().map(|group| {
            let BlockGroups { kind, profile, copies, total, used, .. } = group;
            GroupsJson { kind, profile, copies, total, used }
        });
        Self {
            image: image.display().to_string(),
            size,
            allocated,
            unallocated: size.saturating_sub(allocated),
            available: fs.usage().available,
            block_groups: groups.collect(),
        }
    }
}

/// Bytes of all devices, and what chunks have of them.
fn on_devices(fs: &Filesystem) -> (u64, u64) {
    fs.devices()
        .iter()
        .fold((0, 0), |(size, used), device| (size + device.total_bytes, used + device.used_bytes))
}

pub(crate) fn run_df(args: &FilesystemDfArgs) -> Result<(), Failure> {
    let units = args.form.units();
    print("filesystem df", &[&args.image], &args.form, |out, fs| {
        if args.format_json {
            return as_btrfs_progs(out, fs);
        }
        fs.block_groups().into_iter().try_for_each(|group| {
            let BlockGroups { kind, profile, total, used, .. } = group;
            writeln!(out, "{kind}, {profile}: total={}, used={}", units.show(total), units.show(used))
        })
    })
}

#[derive(Serialize)]
struct FormatJson {
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

fn as_btrfs_progs(out: &mut Output, fs: &Filesystem) -> io::Result<()> {
    let groups = fs.block_groups().into_iter().map(|group| {
        let BlockGroups { kind, profile, total, used, .. } = group;
        GroupFormatJson { kind, profile, total, used }
    });
    let shown = FormatJson { header: Header::FIRST, groups: groups.collect() };
    serde_json::to_writer_pretty(&mut *out, &shown)?;
    writeln!(out)
}

pub(crate) fn run(args: &UsageArgs) -> Result<(), Failure> {
    let units = args.form.units();
    let (images, mut between) = (args.images.iter().collect::<Vec<_>>(), "");
    print("filesystem usage", &images, &args.form, |out, fs| {
        out.write_all(std::mem::replace(&mut between, "\n").as_bytes())?;
        overall(out, fs, &units)?;
        each_kind(out, fs, &units)
    })
}

/// What `each` prints of every image, or a document of all.
fn print(
    command: &'static str,
    paths: &[&PathBuf],
    form: &Form,
    mut each: impl FnMut(&mut Output, &Filesystem) -> io::Result<()>,
) -> Result<(), Failure> {
    let view = form.rescue.view();
    let mut images = Images::new(command, &view);
    let told = |error| Failure::new(command, writing(error));
    let mut out = Output::new();
    let outcome = if form.json {
        let mut array = Array::begin(&mut out).map_err(told)?;
        let outcome = with_all(paths, |path| {
            let image = images.place(path.as_os_str())?.image;
            array.push(&UsageJson::new(&image, images.open(&image, Purpose::Read)?)).map_err(told)
        });
        array.end().map_err(told)?;
        outcome
    } else {
        with_all(paths, |path| {
            let image = images.place(path.as_os_str())?.image;
            each(&mut out, images.open(&image, Purpose::Read)?).map_err(told)
        })
    };
    out.finish().map_err(|error| Failure::new(command, error)).and(outcome)
}

fn overall(out: &mut Output, fs: &Filesystem, units: &UnitArgs) -> io::Result<()> {
    let (groups, figures) = (fs.block_groups(), fs.usage());
    let sum = |bytes: fn(&BlockGroups) -> u64, kind: &str| -> u64 {
        groups.iter().filter(|group| group.kind.contains(kind)).map(bytes).sum()
    };
    let ratio = |kind: &str| {
        let on_devices = sum(|group| group.total * group.copies, kind);
        on_devices as f64 / sum(|group| group.total, kind).max(1) as f64
    };
    let (size, allocated) = on_devices(fs);
    let unallocated = size.saturating_sub(allocated);
    let (of_data, of_metadata) = (ratio("Data"), ratio("Metadata"));
    let free = sum(|group| group.total - group.used, "Data");
    let behind = |ratio: f64| free + (unallocated as f64 / ratio.max(1.0)) as u64;
    let most = groups.iter().map(|group| group.copies).max().unwrap_or(1) as f64;
    let width = if units.are_usual() { 10 } else { 18 };
    let line = |out: &mut Output, name: &str, bytes: u64| {
        writeln!(out, "    {name}:\t\t{:>width$}", units.show(bytes))
    };
    writeln!(out, "Overall:")?;
    line(out, "Device size", size)?;
    line(out, "Device allocated", allocated)?;
    line(out, "Device unallocated", unallocated)?;
    line(out, "Device missing", 0)?;
    let slack = |device: &MemberDevice| device.len.unwrap_or(0).saturating_sub(device.total_bytes);
    line(out, "Device slack", fs.devices().iter().map(slack).sum())?;
    writeln!(out, "    Used:\t\t\t{:>width$}", units.show(sum(|group| group.used * group.copies, "")))?;
    let (estimated, least) = (units.show(behind(of_data)), units.show(behind(most)));
    writeln!(out, "    Free (estimated):\t\t{estimated:>width$}\t(min: {least})")?;
    line(out, "Free (statfs, df)", figures.available)?;
    writeln!(out, "    Data ratio:\t\t\t{of_data:>width$.2}")?;
    writeln!(out, "    Metadata ratio:\t\t{of_metadata:>width$.2}")?;
    let is_double = groups
        .iter()
        .enumerate()
        .any(|(at, group)| groups[..at].iter().any(|other| other.kind == group.kind));
    writeln!(out, "    Multiple profiles:\t\t{:>width$}", if is_double { "yes" } else { "no" })
}

fn each_kind(out: &mut Output, fs: &Filesystem, units: &UnitArgs) -> io::Result<()> {
    let (mut groups, devices) = (fs.block_groups(), fs.devices());
    // The chunk tree's are last.
    groups.sort_by_key(|group| group.kind == "System");
    let lie = |out: &mut Output, path: Option<&Path>, bytes: u64| {
        out.write_all(b"   ")?;
        out.path(path.unwrap_or(Path::new("missing")))?;
        writeln!(out, "\t{:>10}", units.show(bytes))
    };
    let on = |out: &mut Output, bytes: u64| match &devices[..] {
        [device] => lie(out, device.path.as_deref(), bytes),
        _ => Ok(()),
    };
    for BlockGroups { kind, profile, copies, total, used, .. } in groups {
        let percent = 100.0 * used as f64 / total.max(1) as f64;
        let (shown, shown_used) = (units.show(total), units.show(used));
        writeln!(out, "\n{kind},{profile}: Size:{shown}, Used:{shown_used} ({percent:.2}%)")?;
        on(out, total * copies)?;
    }
    writeln!(out, "\nUnallocated:")?;
    devices.iter().try_for_each(|device| {
        lie(out, device.path.as_deref(), device.total_bytes.saturating_sub(device.used_bytes))
    })
}
