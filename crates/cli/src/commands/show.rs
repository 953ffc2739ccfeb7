//! `creamery filesystem show`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use creamery::{Error, ErrorKind, Filesystem};
use creamery_mount::{LiveFacts, LiveMount, ServerState};
use serde::Serialize;

use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::live::live_at;
use crate::output::{Output, writing};
use crate::units::UnitArgs;
use crate::view::RescueArgs;

const COMMAND: &str = "filesystem show";

/// Tell what filesystems images have: label, UUID, devices and how much of each is used.
///
/// Without an operand the images that are mounted are shown; devices are not searched.
/// The text is that of btrfs-progs; --json tells more: generation, sizes of blocks, checksum,
/// features.
///
/// Examples:
///   creamery filesystem show
///   creamery filesystem show disk.img /mnt
///   creamery filesystem show --json disk.raw@2
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ShowArgs {
    /// The images, or directories of live mounts.
    #[arg(value_name = "IMAGE|DIR")]
    places: Vec<OsString>,

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
    devices: Vec<DeviceJson>,
}

#[derive(Serialize)]
struct DeviceJson {
    id: u64,
    uuid: String,
    size: u64,
    used: u64,
    path: Option<String>,
}

/// A filesystem: that of an image, or of a live mount.
struct Shown {
    image: PathBuf,
    label: Vec<u8>,
    facts: LiveFacts,
    devices: Vec<Device>,
}

struct Device {
    id: u64,
    uuid: String,
    size: u64,
    used: u64,
    path: Option<PathBuf>,
}

impl Shown {
    fn of_image(image: &Path, fs: &Filesystem) -> Self {
        let devices = fs.volume().devices().into_iter().map(|device| Device {
            id: device.id.get(),
            uuid: device.uuid.to_string(),
            size: device.total_bytes,
            used: device.used_bytes,
            path: device.path.map(|path| std::path::absolute(&path).unwrap_or(path)),
        });
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
        Self { image: image.to_owned(), label: fs.volume().label(), devices: devices.collect(), facts }
    }

    /// Of the mount of ours that the directory `dir` is on; `image` is what it is called.
    fn of_mount(dir: &Path, image: &Path) -> Result<Self, Failure> {
        let failed = |error: Error| Failure::new(COMMAND, error);
        let live = live_at(COMMAND, dir)?;
        if live.is_linux() {
            let what = format!("{} is on a mount of Linux' own Btrfs", dir.display());
            return Err(failed(Error::unsupported(what)).advise("use `btrfs filesystem show` of btrfs-progs"));
        }
        live.check_directory().map_err(failed)?;
        let devices = live.devices().map_err(failed)?.into_iter().map(|device| Device {
            id: device.id.get(),
            uuid: device.uuid.to_string(),
            size: device.total_bytes,
            used: device.used_bytes,
            // The server tells it as it was named to it, from a directory that nobody else knows.
            path: Some(device.path).filter(|path| path.is_absolute()).or_else(|| Some(image.to_owned())),
        });
        let devices = devices.collect();
        let (label, facts) = (live.label().map_err(failed)?, live.facts().map_err(failed)?);
        Ok(Self { image: image.to_owned(), label, facts, devices })
    }

    /// Of the image or mount that `text` names. An image that is mounted is asked by its mount.
    fn named(images: &mut Images<'_>, text: &OsStr) -> Result<Self, Failure> {
        if Path::new(text).is_dir() {
            let dir = Path::new(text);
            return Self::of_mount(dir, &creamery_mount::image_at(dir).unwrap_or_else(|| dir.to_owned()));
        }
        let path = Path::new(text);
        let of_image =
            |images: &mut Images<'_>| images.open(path, Purpose::Read).map(|fs| Self::of_image(path, fs));
        images.image_or_mount(text, of_image, |_, point| Self::of_mount(point, path))
    }

    fn as_json(&self) -> ShownJson {
        let (image, image_bytes) = text_of(self.image.as_os_str().as_bytes());
        let (label, label_bytes) = text_of(&self.label);
        let devices = self.devices.iter().map(|device| DeviceJson {
            id: device.id,
            uuid: device.uuid.clone(),
            size: device.size,
            used: device.used,
            path: device.path.as_ref().map(|path| path.display().to_string()),
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
            devices: devices.collect(),
        }
    }
}

/// All images that are mounted, each once.
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

fn of_live(mount: &LiveMount) -> Result<Shown, Failure> {
    let (image, point) = (mount.image.display(), mount.point.display());
    let why = match mount.server {
        ServerState::Answers(_) => return Shown::of_mount(&mount.point, &mount.image),
        ServerState::Dead => "the program that served it has died",
        ServerState::Refuses => "the mount lets nobody in but its mounter",
        ServerState::Hidden => "another mount hides it",
        ServerState::Silent => "its server does not answer",
    };
    let what = Error::new(ErrorKind::Io, format!("{image}, which is mounted at {point}: {why}"));
    Err(Failure::new(COMMAND, what).plain())
}

pub(crate) fn run(args: &ShowArgs) -> Result<(), Failure> {
    let view = args.rescue.view();
    let mut images = Images::new(COMMAND, &view);
    if args.places.is_empty() {
        return print(args, &mounted()?, of_live);
    }
    print(args, &args.places, |text| Shown::named(&mut images, text))
}

/// Prints what `show` makes of each of `places`.
fn print<T>(
    args: &ShowArgs,
    places: &[T],
    mut show: impl FnMut(&T) -> Result<Shown, Failure>,
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

fn as_text(out: &mut Output, shown: Shown, units: &UnitArgs) -> io::Result<()> {
    let Shown { label, devices, facts, .. } = shown;
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
    writeln!(out, "\tTotal devices {} FS bytes used {}", devices.len(), units.show(facts.bytes_used))?;
    for device in devices {
        let [size, used] = [device.size, device.used].map(|bytes| units.show(bytes));
        write!(out, "\tdevid {:>4} size {size} used {used} path ", device.id)?;
        match device.path {
            Some(path) => out.path(&std::path::absolute(&path).unwrap_or(path))?,
            None => out.write_all(b"<missing disk> MISSING")?,
        }
        writeln!(out)?;
    }
    Ok(())
}
