//! `creamery filesystem show`.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use creamery::Filesystem;
use serde::Serialize;

use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::json::{Array, text_of};
use crate::output::{Output, writing};
use crate::units::UnitArgs;
use crate::view::RescueArgs;

const COMMAND: &str = "filesystem show";

/// Tell what filesystems images have: label, UUID, devices and how much of each is used.
///
/// The text is that of btrfs-progs; --json tells more: generation, sizes of blocks, checksum,
/// features.
///
/// Examples:
///   creamery filesystem show disk.img
///   creamery filesystem show --json disk.raw@2
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ShowArgs {
    /// The images.
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,

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

impl ShownJson {
    fn new(image: &Path, fs: &Filesystem) -> Self {
        let (shown, image_bytes) = text_of(image.as_os_str().as_bytes());
        let (label, label_bytes) = text_of(&fs.label());
        let devices = fs.devices().into_iter().map(|device| DeviceJson {
            id: device.id.get(),
            uuid: device.uuid.to_string(),
            size: device.total_bytes,
            used: device.used_bytes,
            path: device.path.map(|path| path.display().to_string()),
        });
        Self {
            image: shown,
            image_bytes,
            label,
            label_bytes,
            uuid: fs.uuid().to_string(),
            metadata_uuid: fs.metadata_uuid().to_string(),
            generation: fs.generation().get(),
            used: fs.bytes_used(),
            node_size: fs.node_size(),
            sector_size: fs.sector_size(),
            checksum: fs.checksum_type().to_string(),
            features: fs.features(),
            devices: devices.collect(),
        }
    }
}

pub(crate) fn run(args: &ShowArgs) -> Result<(), Failure> {
    let view = args.rescue.view();
    let mut images = Images::new(COMMAND, &view);
    let told = |error| Failure::new(COMMAND, writing(error));
    let mut out = Output::new();
    let outcome = if args.json {
        let mut array = Array::begin(&mut out).map_err(told)?;
        let outcome = with_all(&args.images, |image| {
            let fs = images.open(image, Purpose::Read)?;
            array.push(&ShownJson::new(image, fs)).map_err(told)
        });
        array.end().map_err(told)?;
        outcome
    } else {
        with_all(&args.images, |image| {
            let fs = images.open(image, Purpose::Read)?;
            as_text(&mut out, fs, &args.units).map_err(told)
        })
    };
    out.finish().map_err(|error| Failure::new(COMMAND, error)).and(outcome)
}

fn as_text(out: &mut Output, fs: &Filesystem, units: &UnitArgs) -> io::Result<()> {
    let (label, devices) = (fs.label(), fs.devices());
    out.write_all(b"Label: ")?;
    match &label[..] {
        b"" => out.write_all(b"none ")?,
        label => {
            out.write_all(b"'")?;
            out.path_bytes(label)?;
            out.write_all(b"' ")?;
        }
    }
    writeln!(out, " uuid: {}", fs.uuid())?;
    writeln!(out, "\tTotal devices {} FS bytes used {}", devices.len(), units.show(fs.bytes_used()))?;
    for device in devices {
        let [size, used] = [device.total_bytes, device.used_bytes].map(|bytes| units.show(bytes));
        write!(out, "\tdevid {:>4} size {size} used {used} path ", device.id.get())?;
        match device.path {
            Some(path) => out.path(&std::path::absolute(&path).unwrap_or(path))?,
            None => out.write_all(b"<missing disk> MISSING")?,
        }
        writeln!(out)?;
    }
    Ok(())
}
