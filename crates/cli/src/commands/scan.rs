//! `creamery rescue scan`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use creamery::rescue::{FoundFilesystem, FoundSuperblock, scan};
use serde::Serialize;

use super::history::Searched;
use crate::failure::{Failure, warn};
use crate::images::quoted;
use crate::json::Array;
use crate::output::{Output, writing};
use crate::progress::ProgressArgs;

const COMMAND: &str = "rescue scan";

/// Find filesystems in a file or on a disk, also without a superblock or partition table.
///
/// It reads all of FILE, and counts the intact tree blocks and superblocks of each UUID. For each
/// filesystem it prints the counts, and how to read it. The one with the most tree blocks comes
/// first. The list has at most 256 filesystems.
///
/// Examples:
///   creamery rescue scan disk.raw
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ScanArgs {
    /// The file or device.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print one JSON array.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    progress: ProgressArgs,
}

#[derive(Serialize)]
struct FoundJson {
    fsid: String,
    node_size: u32,
    checksum: String,
    generation: u64,
    blocks: u64,
    root_blocks: u64,
    devices: u64,
    superblocks: Vec<SuperblockJson>,
}

#[derive(Serialize)]
struct SuperblockJson {
    copy: usize,
    start: u64,
}

impl From<&FoundFilesystem> for FoundJson {
    fn from(found: &FoundFilesystem) -> Self {
        let copy = |one: &FoundSuperblock| SuperblockJson { copy: one.copy, start: one.start };
        Self {
            fsid: found.fsid.to_string(),
            node_size: found.node_size,
            checksum: found.checksum.to_string(),
            generation: found.generation.get(),
            blocks: found.blocks,
            root_blocks: found.root_blocks,
            devices: found.devices,
            superblocks: found.superblocks.iter().map(copy).collect(),
        }
    }
}

pub(crate) fn run(args: &ScanArgs) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    let searched = Searched::new(COMMAND, args.progress);
    let found = scan(&args.file, &searched);
    searched.end(|| "looked for filesystems".to_owned());
    let found = found.map_err(failed)?;
    let shown = args.file.display();
    if found.unread > 0 {
        warn(&format!("{shown}: {} bytes could not be read and are skipped", found.unread));
    }
    if found.others > 0 {
        warn(&format!(
            "{shown}: the list is full: {} blocks of other filesystems are not counted",
            found.others
        ));
    }
    let mut out = Output::new();
    let printed = match args.json {
        true => as_json(&mut out, &found.filesystems),
        false => found.filesystems.iter().try_for_each(|one| print(&mut out, &args.file, one)),
    };
    printed.map_err(writing).and_then(|()| out.finish()).map_err(failed)?;
    if found.filesystems.is_empty() && !args.json {
        warn(&format!("{shown}: no tree block and no superblock of a Btrfs filesystem was found"));
    }
    Ok(())
}

fn as_json(out: &mut Output, found: &[FoundFilesystem]) -> io::Result<()> {
    let mut array = Array::begin(out)?;
    found.iter().try_for_each(|one| array.push(&FoundJson::from(one)))?;
    array.end()
}

fn print(out: &mut Output, file: &Path, found: &FoundFilesystem) -> io::Result<()> {
    let FoundFilesystem { fsid, node_size, checksum, generation, blocks, .. } = found;
    writeln!(
        out,
        "{fsid}: {blocks} tree blocks of {node_size} bytes, checksum {checksum}, newest generation {generation}"
    )?;
    write!(out, "    ")?;
    let Some(best) = found.superblocks.iter().min_by_key(|one| one.copy) else {
        return writeln!(
            out,
            "no superblock is left, and reading needs one; a copy of the disk or of the partition may have one"
        );
    };
    let part = if best.start == 0 { String::new() } else { format!("@@{}", best.start) };
    let image = quoted(&format!("{}{part}", file.display()));
    if found.devices > 1 {
        return writeln!(
            out,
            "it has {} devices, this is one: put the others beside it, or name them with --device, for `creamery ls {image}:/`",
            found.devices
        );
    }
    match best.copy {
        0 => writeln!(out, "creamery ls {image}:/"),
        copy => writeln!(
            out,
            "creamery restore -u {copy} {image} DIR; `creamery rescue super-recover` writes the first superblock anew"
        ),
    }
}
