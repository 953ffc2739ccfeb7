//! `creamery filesystem show`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use creamery::volume::{HostFilesystem, MemberDevice, filesystem_of_superblocks, filesystems_of_host};
use creamery::{Error, ErrorKind, Filesystem};
use creamery_mount::{LiveFacts, LiveMount, ServerState};
use serde::Serialize;

use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose, warn_of};
use crate::json::{Array, text_of, text_of_path};
use crate::live::live_at;
use crate::output::{Output, writing};
use crate::path_in_image::is_image;
use crate::units::UnitArgs;
use crate::view::RescueArgs;

const COMMAND: &str = "filesystem show";

/// Show the filesystems of images: label, UUID, devices and how much of each is used.
///
/// Without an operand the images that are mounted are shown, and the filesystems on block devices
/// of the host. A UUID or a label selects among these. Missing devices are a line below the
/// others. The text is that of btrfs-progs; --json prints more: generation, sizes of blocks,
/// checksum, features.
///
/// Examples:
///   creamery filesystem show
///   creamery filesystem show disk.img /mnt
///   creamery filesystem show --json disk.raw@2
///   creamery filesystem show backup
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ShowArgs {
    /// The images, or directories of live mounts, or UUIDs or labels.
    #[arg(value_name = "IMAGE|DIR|UUID|LABEL")]
    places: Vec<OsString>,

    /// Without an operand: only mounted images.
    #[arg(short, long, conflicts_with = "places")]
    mounted: bool,

    /// Without an operand: only block devices.
    #[arg(short = 'd', long, conflicts_with_all = ["places", "mounted"])]
    all_devices: bool,

    #[command(flatten)]
    units: UnitArgs,

    /// A JSON array of filesystems.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    rescue: RescueArgs,
}

#[derive(Serialize)]
struct ShownJson {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_bytes: Option<String>,
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_bytes: Option<String>,
    uuid: String,
    metadata_uuid: String,
    generation: u64,
    used: u64,
    node_size: u32,
    sector_size: u32,
    checksum: String,
    features: Vec<String>,
    device_count: u64,
    devices: Vec<ShownDeviceJson>,
}

#[derive(Serialize)]
struct ShownDeviceJson {
    id: u64,
    uuid: String,
    size: u64,
    used: u64,
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

impl From<MemberDevice> for ListedDevice {
    fn from(device: MemberDevice) -> Self {
        Self {
            id: device.id.get(),
            uuid: device.uuid.to_string(),
            size: device.total_bytes,
            used: device.used_bytes,
            path: device.path.map(|path| std::path::absolute(&path).unwrap_or(path)),
        }
    }
}

/// The filesystem of an image, or of a live mount.
struct ShownFilesystem {
    image: PathBuf,
    label: Vec<u8>,
    facts: LiveFacts,
    devices: Vec<ListedDevice>,
    /// The number of its devices, found or missing.
    device_count: u64,
}

struct ListedDevice {
    id: u64,
    uuid: String,
    size: u64,
    used: u64,
    path: Option<PathBuf>,
}

impl ShownFilesystem {
    fn of_image(image: &Path, fs: &Filesystem) -> Self {
        let devices = fs.volume().devices().into_iter().map(ListedDevice::from);
        let facts = LiveFacts {
            uuid: fs.volume().uuid().to_string(),
            metadata_uuid: fs.volume().metadata_uuid().to_string(),
            generation: fs.volume().generation().get(),
            bytes_used: fs.volume().bytes_used(),
            node_size: fs.volume().node_size(),
            sector_size: fs.volume().sector_size(),
            checksum: fs.volume().checksum_type().to_string(),
            features: fs.volume().features(),
            ..LiveFacts::default()
        };
        let (label, devices) = (fs.volume().label(), devices.collect());
        Self::new(image, label, facts, devices)
    }

    /// A filesystem with all of its devices, missing ones too.
    fn new(image: &Path, label: Vec<u8>, facts: LiveFacts, devices: Vec<ListedDevice>) -> Self {
        let device_count = devices.len() as u64;
        Self { image: image.to_owned(), label, facts, devices, device_count }
    }

    /// A filesystem as its superblocks describe it.
    fn of_superblocks(found: HostFilesystem) -> Self {
        let facts = LiveFacts {
            uuid: found.uuid.to_string(),
            metadata_uuid: found.metadata_uuid.to_string(),
            generation: found.generation.get(),
            bytes_used: found.bytes_used,
            node_size: found.node_size,
            sector_size: found.sector_size,
            checksum: found.checksum.to_string(),
            features: found.features,
            ..LiveFacts::default()
        };
        let image = found.devices.first().and_then(|device| device.path.clone()).unwrap_or_default();
        let devices = found.devices.into_iter().map(ListedDevice::from).collect();
        Self { image, label: found.label, facts, devices, device_count: found.device_count }
    }

    /// Whether `word` is its UUID or its label.
    fn is_called(&self, word: &OsStr) -> bool {
        self.label == word.as_bytes() || self.facts.uuid.as_bytes().eq_ignore_ascii_case(word.as_bytes())
    }

    /// The filesystem of our mount at the directory `dir`; the output calls it `image`.
    fn of_mount(dir: &Path, image: &Path) -> Result<Self, Failure> {
        let failed = |error: Error| Failure::new(COMMAND, error);
        let live = live_at(COMMAND, dir)?;
        if live.is_linux() {
            let what = format!("{} is on a mount of Linux' own Btrfs", dir.display());
            return Err(failed(Error::unsupported(what)).advise("use `btrfs filesystem show` of btrfs-progs"));
        }
        live.check_directory().map_err(failed)?;
        let devices = live.devices().map_err(failed)?.into_iter().map(|device| ListedDevice {
            id: device.id.get(),
            uuid: device.uuid.to_string(),
            size: device.total_bytes,
            used: device.used_bytes,
            path: Some(device.path).filter(|path| !path.as_os_str().is_empty()),
        });
        let devices = devices.collect();
        let (label, facts) = (live.label().map_err(failed)?, live.facts().map_err(failed)?);
        Ok(Self::new(image, label, facts, devices))
    }

    /// The filesystem of the image or mount that `text` names. A mounted image is asked through its mount.
    fn named(images: &mut Images<'_>, text: &OsStr) -> Result<Self, Failure> {
        if Path::new(text).is_dir() {
            let dir = Path::new(text);
            return Self::of_mount(dir, &creamery_mount::image_at(dir).unwrap_or_else(|| dir.to_owned()));
        }
        let path = Path::new(text);
        let of_image =
            |images: &mut Images<'_>| images.open(path, Purpose::Read).map(|fs| Self::of_image(path, fs));
        let shown = images.image_or_mount(text, of_image, |_, point| Self::of_mount(point, path));
        shown.or_else(|failure| match failure.kind() {
            // Superblocks have enough for the output.
            ErrorKind::DeviceMissing => {
                let found = filesystem_of_superblocks(images.set_of(path));
                found.iter().flat_map(|found| &found.notes).for_each(|note| warn_of(path, note));
                let shown = found.map(|found| Self { image: path.to_owned(), ..Self::of_superblocks(found) });
                shown.map_err(|_| failure)
            }
            _ => Err(failure),
        })
    }

    fn as_json(&self) -> ShownJson {
        let (image, image_bytes) = text_of(self.image.as_os_str().as_bytes());
        let (label, label_bytes) = text_of(&self.label);
        let devices = self.devices.iter().map(|device| {
            let (path, path_bytes) = text_of_path(device.path.as_deref());
            let ListedDevice { id, size, used, .. } = *device;
            ShownDeviceJson { id, uuid: device.uuid.clone(), size, used, path, path_bytes }
        });
        let facts = self.facts.clone();
        ShownJson {
            image,
            image_bytes,
            label,
            label_bytes,
            uuid: facts.uuid,
            metadata_uuid: facts.metadata_uuid,
            generation: facts.generation,
            used: facts.bytes_used,
            node_size: facts.node_size,
            sector_size: facts.sector_size,
            checksum: facts.checksum,
            features: facts.features,
            device_count: self.device_count,
            devices: devices.collect(),
        }
    }
}

/// All mounted images, each once.
fn mounted() -> Result<Vec<LiveMount>, Failure> {
    let mut mounts = creamery_mount::live_mounts().map_err(|error| Failure::new(COMMAND, error))?;
    let mut seen = HashSet::new();
    let process = |mount: &LiveMount| match &mount.server {
        ServerState::Answers(facts) => Some(facts.process),
        _ => None,
    };
    mounts.retain(|mount| seen.insert((mount.image.clone(), process(mount))));
    Ok(mounts)
}

fn of_live(mount: &LiveMount) -> Result<ShownFilesystem, Failure> {
    let (image, point) = (mount.image.display(), mount.point.display());
    let why = match mount.server {
        ServerState::Answers(_) => return ShownFilesystem::of_mount(&mount.point, &mount.image),
        ServerState::Dead => "its server has died",
        ServerState::Refuses => "only its mounter may access the mount",
        ServerState::Hidden => "another mount hides it",
        ServerState::Silent => "its server does not answer",
    };
    let what = Error::new(ErrorKind::Io, format!("{image}, which is mounted at {point}: {why}"));
    Err(Failure::new(COMMAND, what).plain())
}

/// One item of the output.
enum ShowItem {
    /// The filesystem of this image or mount.
    Named(OsString),
    Live(LiveMount),
    /// A filesystem that was found.
    Found(ShownFilesystem),
}

/// All mounted filesystems, and those on block devices that are not mounted.
fn all(args: &ShowArgs) -> Result<Vec<ShowItem>, Failure> {
    let live = if args.all_devices { Vec::new() } else { mounted()? };
    let facts = live.iter().filter_map(|mount| match &mount.server {
        ServerState::Answers(facts) => Some(facts.uuid.clone()),
        _ => None,
    });
    let known: HashSet<String> = facts.collect();
    let found = if args.mounted { Vec::new() } else { filesystems_of_host() };
    let others = found.into_iter().filter(|found| !known.contains(&found.uuid.to_string()));
    let others = others.map(|found| ShowItem::Found(ShownFilesystem::of_superblocks(found)));
    Ok(live.into_iter().map(ShowItem::Live).chain(others).collect())
}

/// The filesystem that an operand means: that of a file or a directory, or else the one with that UUID or label.
fn meant(args: &ShowArgs, word: &OsString) -> Result<Vec<ShowItem>, Failure> {
    if Path::new(word).is_dir() || is_image(Path::new(word)) {
        return Ok(vec![ShowItem::Named(word.clone())]);
    }
    let shown = |what: ShowItem| match what {
        // A mount that does not answer gives no label.
        ShowItem::Live(mount) => of_live(&mount).ok(),
        ShowItem::Found(shown) => Some(shown),
        ShowItem::Named(_) => None,
    };
    let called = all(args)?.into_iter().filter_map(shown).filter(|shown| shown.is_called(word));
    let found: Vec<ShowItem> = called.map(ShowItem::Found).collect();
    // A word with a slash or an @ is a path or a partition, not a label.
    let is_name = !word.as_bytes().iter().any(|letter| b"/@".contains(letter));
    if found.is_empty() && is_name {
        let what = format!("no image, mounted filesystem or block device with the name '{}'", word.display());
        return Err(Failure::new(COMMAND, Error::new(ErrorKind::NotFound, what))
            .advise("name a file, or see `creamery filesystem show`"));
    }
    Ok(if found.is_empty() { vec![ShowItem::Named(word.clone())] } else { found })
}

pub(crate) fn run(args: &ShowArgs) -> Result<(), Failure> {
    let view = args.rescue.view();
    let mut images = Images::new(COMMAND, &view);
    let mut wanted = if args.places.is_empty() { all(args)? } else { Vec::new() };
    for word in &args.places {
        wanted.extend(meant(args, word)?);
    }
    print(args, wanted, |what| match what {
        ShowItem::Named(text) => ShownFilesystem::named(&mut images, &text),
        ShowItem::Live(mount) => of_live(&mount),
        ShowItem::Found(shown) => Ok(shown),
    })
}

/// Prints the output of `show` for each of `places`.
fn print<T>(
    args: &ShowArgs,
    places: Vec<T>,
    mut show: impl FnMut(T) -> Result<ShownFilesystem, Failure>,
) -> Result<(), Failure> {
    let told = |error| Failure::new(COMMAND, writing(error));
    let mut out = Output::new();
    let outcome = if args.json {
        let mut array = Array::begin(&mut out).map_err(told)?;
        let outcome = with_all(places, |place| array.push(&show(place)?.as_json()).map_err(told));
        array.end().map_err(told)?;
        outcome
    } else {
        with_all(places, |place| as_text(&mut out, show(place)?, &args.units).map_err(told))
    };
    out.finish().map_err(|error| Failure::new(COMMAND, error)).and(outcome)
}

fn as_text(out: &mut Output, shown: ShownFilesystem, units: &UnitArgs) -> io::Result<()> {
    let ShownFilesystem { label, devices, facts, device_count, .. } = shown;
    out.write_all(b"Label: ")?;
    match &label[..] {
        b"" => out.write_all(b"none ")?,
        label => {
            out.write_all(b"'")?;
            out.path_bytes(label)?;
            out.write_all(b"' ")?;
        }
    }
    writeln!(out, " uuid: {}", facts.uuid)?;
    writeln!(out, "\tTotal devices {} FS bytes used {}", device_count, units.show(facts.bytes_used))?;
    let mut found = 0;
    for device in devices {
        let Some(path) = device.path else { continue };
        found += 1;
        let [size, used] = [device.size, device.used].map(|bytes| units.show(bytes));
        write!(out, "\tdevid {:>4} size {size} used {used} path ", device.id)?;
        out.path(&std::path::absolute(&path).unwrap_or(path))?;
        writeln!(out)?;
    }
    if found < device_count {
        writeln!(out, "\t*** Some devices missing")?;
    }
    Ok(())
}
