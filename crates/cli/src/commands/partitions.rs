//! `creamery inspect-internal partitions`.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use creamery::partitions::{self, Disk, Listed};
use serde::Serialize;

use crate::failure::{Failure, warn, with_all};
use crate::json::Array;
use crate::output::{Output, writing};
use crate::size::Human;

const COMMAND: &str = "partitions";

/// List the partitions of disk images and block devices.
///
/// The first column is the number of a partition: name it as IMAGE@NUMBER in place of an image.
/// GPT and MBR tables are read, and never changed. Notes about the table itself go to stderr.
///
/// Examples:
///   creamery inspect partitions disk.raw
///   creamery ls disk.raw@2:/etc
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct PartitionsArgs {
    /// The disk images or devices.
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,

    /// One JSON array, with an element for each disk; sizes and places are bytes.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DiskJson {
    image: String,
    table: String,
    sector_size: u64,
    size: u64,
    notes: Vec<String>,
    partitions: Vec<PartitionJson>,
}

#[derive(Serialize)]
struct PartitionJson {
    image: String,
    number: u32,
    start: u64,
    size: u64,
    #[serde(rename = "type")]
    kind: String,
    type_name: Option<&'static str>,
    name: String,
    uuid: Option<String>,
    fits: bool,
    has_btrfs: bool,
}

pub(crate) fn run(args: &PartitionsArgs) -> Result<(), Failure> {
    let told = |error| Failure::new(COMMAND, error);
    let mut disks = Vec::new();
    let outcome = with_all(&args.images, |image| {
        disks.push((image, partitions::list(image).map_err(told)?));
        Ok(())
    });
    if disks.is_empty() {
        return outcome;
    }
    let mut out = Output::new();
    let print = |out: &mut Output| match args.json {
        true => as_json(out, &disks),
        false => disks.iter().try_for_each(|(image, disk)| as_text(out, image, disk)),
    };
    print(&mut out).map_err(writing).and_then(|()| out.finish()).map_err(told).and(outcome)
}

/// The name by which the program opens a partition.
fn named(image: &Path, listed: &Listed) -> String {
    format!("{}@{}", image.display(), listed.partition.number)
}

fn as_json(out: &mut Output, disks: &[(&PathBuf, Disk)]) -> std::io::Result<()> {
    let mut array = Array::begin(out)?;
    for (image, disk) in disks {
        let rows = disk.partitions.iter().map(|listed| {
            let it = &listed.partition;
            PartitionJson {
                image: named(image, listed),
                number: it.number,
                start: it.start,
                size: it.len,
                kind: it.kind.code(),
                type_name: it.kind.name(),
                name: it.name.clone(),
                uuid: it.uuid.map(|uuid| uuid.to_string()),
                fits: listed.fits,
                has_btrfs: listed.has_btrfs,
            }
        });
        array.push(&DiskJson {
            image: image.display().to_string(),
            table: disk.kind.to_string().to_lowercase(),
            sector_size: disk.sector_size,
            size: disk.len,
            notes: disk.notes.clone(),
            partitions: rows.collect(),
        })?;
    }
    array.end()
}

fn as_text(out: &mut Output, image: &Path, disk: &Disk) -> std::io::Result<()> {
    disk.notes.iter().for_each(|note| warn(&format!("{}: {note}", image.display())));
    write!(out, "{:5} {:>14} {:>12} {:5}  {:28} Name, of ", "", "Start", "Size", "", "Type")?;
    out.path(image)?;
    writeln!(out, " ({}, {}, sectors of {})", disk.kind, Human(disk.len), disk.sector_size)?;
    for listed in &disk.partitions {
        let it = &listed.partition;
        let (number, size) = (format!("@{}", it.number), Human(it.len));
        let btrfs = if listed.has_btrfs { "Btrfs" } else { "" };
        write!(out, "{number:5} {:>14} {size:>12} {btrfs:5}  {:28} ", it.start, it.kind)?;
        out.path_bytes(it.name.as_bytes())?;
        writeln!(out, "{}", if listed.fits { "" } else { " (reaches behind the end)" })?;
    }
    Ok(())
}
