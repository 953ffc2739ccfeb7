//! `creamery rescue`.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use creamery::Error;
use creamery::id::{Generation, Logical, TreeId};
use creamery::rescue::{self, FindRoot, RootCandidate, Roots, SuperRecovery};

use crate::failure::{Failure, warn};
use crate::output::{Output, writing};
use crate::view::DeviceArgs;

/// Exit status of btrfs-progs: some copies were written.
const RECOVERED: u8 = 2;
const ABORTED: u8 = 4;

#[derive(Subcommand, Debug)]
pub(crate) enum RescueCommand {
    ClearSpaceCache(ClearSpaceCacheArgs),
    FindRoot(FindRootArgs),
    Scan(super::scan::ScanArgs),
    SuperRecover(SuperRecoverArgs),
    ZeroLog(ZeroLogArgs),
    #[command(hide = true)]
    ChunkRecover(RescueNotHere),
    #[command(hide = true)]
    ClearInoCache(RescueNotHere),
    #[command(hide = true)]
    ClearUuidTree(RescueNotHere),
    #[command(hide = true)]
    CreateControlDevice(RescueNotHere),
    #[command(hide = true)]
    FixDeviceSize(RescueNotHere),
}

/// Drop the log of changes that were synced after the last commit.
///
/// Use it if the log cannot be replayed, so that the image cannot be mounted read-write. Changes
/// synced since the last commit are lost, up to 30 seconds in most cases.
///
/// Examples:
///   creamery rescue zero-log disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ZeroLogArgs {
    /// The image or device, or a partition of one (disk.raw@2).
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// Rewrite damaged copies of the superblock from the newest intact one.
///
/// The exit status is that of btrfs-progs: 0 when all copies are intact, 2 when some were
/// written, 4 when the answer was no, 1 when it failed.
///
/// Examples:
///   creamery rescue super-recover -v disk.img
///   creamery rescue super-recover -y disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct SuperRecoverArgs {
    /// The image or device, or a partition of one (disk.raw@2).
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// Do not ask.
    #[arg(short)]
    yes: bool,

    /// Print which copies are intact.
    #[arg(short, long)]
    verbose: bool,
}

/// Find blocks that may be the lost root of a tree.
///
/// A commit leaves the blocks of the one before where they were until their space is used
/// again.
///
/// Examples:
///   creamery rescue find-root disk.img
///   creamery rescue find-root -o 5 -g 100 disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct FindRootArgs {
    /// The image or device, or a partition of one (disk.raw@2).
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// Continue after the root that the superblock names.
    #[arg(short = 'a')]
    all: bool,

    /// Of this tree [default: 1, the root tree].
    #[arg(short = 'o', value_name = "OBJECTID")]
    tree: Option<u64>,

    /// Minimum generation.
    #[arg(short = 'g', value_name = "GENERATION", default_value_t = 0, hide_default_value = true)]
    generation: u64,

    /// Minimum level.
    #[arg(short = 'l', value_name = "LEVEL", default_value_t = 0, hide_default_value = true)]
    level: u8,

    #[command(flatten)]
    set: DeviceArgs,
}

/// Give back the space of free space caches of the old kind (v1).
///
/// Linux no longer keeps them. The first commit of any writer frees them; this command makes one.
///
/// Examples:
///   creamery rescue clear-space-cache v1 disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct ClearSpaceCacheArgs {
    /// The kind of cache.
    #[arg(value_name = "v1")]
    kind: String,

    /// The image or device, or a partition of one (disk.raw@2).
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// Not supported: btrfs-progs has it.
#[derive(Args, Debug)]
pub(crate) struct RescueNotHere {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub(crate) fn run(command: &RescueCommand) -> Result<(), Failure> {
    match command {
        RescueCommand::ZeroLog(args) => zero_log(&args.image),
        RescueCommand::SuperRecover(args) => super_recover(args),
        RescueCommand::FindRoot(args) => find_root(args),
        RescueCommand::Scan(args) => super::scan::run(args),
        RescueCommand::ClearSpaceCache(args) => clear_space_cache(args),
        RescueCommand::ChunkRecover(_) => {
            Err(not_here("rescue chunk-recover", "rebuilding the chunk tree from the devices"))
        }
        RescueCommand::ClearInoCache(_) => {
            Err(not_here("rescue clear-ino-cache", "inode caches are ignored, and stay"))
        }
        RescueCommand::ClearUuidTree(_) => Err(not_here(
            "rescue clear-uuid-tree",
            "the UUID tree is kept; rescue=ignorebadroots reads without it",
        )),
        RescueCommand::CreateControlDevice(_) => {
            Err(not_here("rescue create-control-device", "nothing here needs /dev/btrfs-control"))
        }
        RescueCommand::FixDeviceSize(_) => Err(not_here("rescue fix-device-size", "changing device sizes")),
    }
}

fn not_here(command: &'static str, why: &str) -> Failure {
    Failure::new(command, Error::unsupported(why))
        .advise(format!("use `btrfs {command}` of btrfs-progs on an image that is not mounted"))
}

fn zero_log(image: &Path) -> Result<(), Failure> {
    const COMMAND: &str = "rescue zero-log";
    let failed = |error| Failure::new(COMMAND, error);
    let (root, level) = rescue::zero_log(image).map_err(failed)?.unwrap_or((Logical::new(0), 0));
    let mut out = Output::new();
    let mut print = || -> io::Result<()> {
        write!(out, "Clearing log on ")?;
        out.path(image)?;
        writeln!(out, ", previous log_root {root}, level {level}")
    };
    print().map_err(writing).and_then(|()| out.finish()).map_err(failed)
}

fn clear_space_cache(args: &ClearSpaceCacheArgs) -> Result<(), Failure> {
    const COMMAND: &str = "rescue clear-space-cache";
    match args.kind.as_str() {
        "v1" => rescue::clear_space_cache(&args.image).map_err(|error| Failure::new(COMMAND, error))?,
        "v2" => return Err(not_here(COMMAND, "the free space tree (v2) is kept")),
        _ => return Err(Failure::usage(COMMAND, "expected v1 or v2")),
    }
    let mut out = Output::new();
    let printed = writeln!(out, "Free space cache cleared").map_err(writing);
    printed.and_then(|()| out.finish()).map_err(|error| Failure::new(COMMAND, error))
}

fn super_recover(args: &SuperRecoverArgs) -> Result<(), Failure> {
    const COMMAND: &str = "rescue super-recover";
    let failed = |error| Failure::new(COMMAND, error);
    let copies = SuperRecovery::open(&args.image).map_err(failed)?;
    let mut out = Output::new();
    if args.verbose {
        list(&mut out, &args.image, &copies).map_err(writing).map_err(failed)?;
    }
    if copies.bad().is_empty() {
        let said = writeln!(out, "All supers are valid, no need to recover").map_err(writing);
        return said.and_then(|()| out.finish()).map_err(failed);
    }
    let is_wanted = args.yes || ask(&mut out).map_err(writing).map_err(failed)?;
    let (said, status) = match is_wanted {
        true => ("Recovered bad superblocks successful", RECOVERED),
        false => ("Aborted to recover bad superblocks", ABORTED),
    };
    if is_wanted {
        copies.recover().map_err(failed)?;
    }
    writeln!(out, "{said}").map_err(writing).and_then(|()| out.finish()).map_err(failed)?;
    Err(Failure::silent(COMMAND, status))
}

fn list(out: &mut Output, image: &Path, copies: &SuperRecovery) -> io::Result<()> {
    write!(out, "All Devices:\n\tDevice: id = {}, name = ", copies.dev_id())?;
    out.path(image)?;
    writeln!(out, "\n\nBefore Recovering:")?;
    for (title, offsets) in [("good", copies.good()), ("bad", copies.bad())] {
        writeln!(out, "\t[All {title} supers]:")?;
        for offset in offsets {
            write!(out, "\t\tdevice name = ")?;
            out.path(image)?;
            writeln!(out, "\n\t\tsuperblock bytenr = {offset}\n")?;
        }
    }
    writeln!(out)
}

fn ask(out: &mut Output) -> io::Result<bool> {
    write!(
        out,
        "Make sure this is a btrfs disk otherwise the tool will destroy other fs, Are you sure? [y/N]: "
    )?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim_start().starts_with(['y', 'Y']))
}

fn find_root(args: &FindRootArgs) -> Result<(), Failure> {
    const COMMAND: &str = "rescue find-root";
    let failed = |error| Failure::new(COMMAND, error);
    let what = FindRoot {
        tree: args.tree.map_or(TreeId::ROOT, TreeId::new),
        generation: Generation::new(args.generation),
        level: args.level,
        all: args.all,
    };
    let roots = rescue::find_roots(args.set.of(&args.image), &what).map_err(failed)?;
    if let Some(error) = &roots.unread {
        let what = "the chunk tree is only partly readable, so only known chunks are searched";
        warn(&format!("{}: {what}: {error}", args.image.display()));
    }
    let mut out = Output::new();
    let printed = print_roots(&mut out, what.tree, &roots).map_err(writing);
    printed.and_then(|()| out.finish()).map_err(failed)
}

fn print_roots(out: &mut Output, tree: TreeId, roots: &Roots) -> io::Result<()> {
    match roots.wanted {
        Some((generation, level)) => {
            writeln!(out, "Superblock thinks the generation is {generation}")?;
            writeln!(out, "Superblock thinks the level is {level}")?;
        }
        None => {
            let tree = tree.get();
            writeln!(out, "Superblock doesn't contain generation info for root {tree}")?;
            writeln!(out, "Superblock doesn't contain the level info for root {tree}")?;
        }
    }
    if let Some(RootCandidate { logical, generation, level }) = roots.found {
        writeln!(out, "Found tree root at {logical} gen {generation} level {level}")?;
    }
    for RootCandidate { logical, generation, level } in &roots.others {
        write!(out, "Well block {logical}(gen: {generation} level: {level}) seems good, ")?;
        match roots.wanted {
            None => writeln!(out, "but we are unsure about the correct generation/level")?,
            Some(wanted) if wanted == (*generation, *level) => writeln!(out, "and it matches superblock")?,
            Some((generation, level)) => {
                writeln!(out, "but generation/level doesn't match, want gen: {generation} level: {level}")?
            }
        }
    }
    Ok(())
}
