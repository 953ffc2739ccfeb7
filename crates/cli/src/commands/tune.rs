//! `creamery tune`, which is btrfstune.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use creamery::volume::{Conversion, SuperblockChange};
use creamery::{Error, ErrorKind, Filesystem, Image, Uuid};
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{Failure, warn};
use crate::images::{Images, Purpose};
use crate::interrupt;
use crate::output::{Output, tell};
use crate::progress::{ProgressArgs, ShownProgress};
use crate::source_date;
use crate::view::WriteArgs;

const COMMAND: &str = "tune";

/// Change features, the UUID or the seed flag of a filesystem.
///
/// The image must not be mounted. Only the superblock is written, except by -u, -U and
/// --convert-...: a feature applies from then on, and the UUID of -m and -M stands beside
/// the one in all tree blocks.
///
/// Examples:
///   creamery tune -r -x -n disk.img
///   creamery tune -m disk.img
///   creamery tune -f -u disk.img
///   creamery tune -S 1 disk.img
///   creamery tune --convert-to-block-group-tree disk.img
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[expect(clippy::struct_excessive_bools, reason = "one for each option")]
pub(crate) struct TuneArgs {
    /// Let a file have more names in a directory than fit one item (extref).
    #[arg(short = 'r')]
    extref: bool,

    /// Let tree blocks take less in the extent tree (skinny-metadata).
    #[arg(short = 'x')]
    skinny_metadata: bool,

    /// Keep no items for the holes of files (no-holes).
    #[arg(short = 'n')]
    no_holes: bool,

    /// 1: make it a read-only seed, from which others are made; 0, with -f: clear the seed flag.
    #[arg(short = 'S', value_name = "0|1", value_parser = is_seed)]
    seeding: Option<bool>,

    /// Allow -S 0, which makes filesystems unusable that were made from this one; with -u and -U, do not ask.
    #[arg(short)]
    force: bool,

    /// Give it a random UUID; tree blocks keep theirs (metadata_uuid).
    #[arg(short = 'm', conflicts_with_all = ["uuid", "extref", "skinny_metadata", "no_holes", "seeding"])]
    random_uuid: bool,

    /// Give it this UUID; tree blocks keep theirs (metadata_uuid).
    #[arg(short = 'M', value_name = "UUID", value_parser = uuid, conflicts_with_all = ["extref", "skinny_metadata", "no_holes", "seeding"])]
    uuid: Option<Uuid>,

    /// Give it a random UUID, in all tree blocks, or continue an interrupted change.
    #[arg(short = 'u', conflicts_with_all = ["rewrite_to", "random_uuid", "uuid", "extref", "skinny_metadata", "no_holes", "seeding"])]
    rewrite: bool,

    /// Give it this UUID, in all tree blocks. Until then it cannot be opened.
    #[arg(short = 'U', value_name = "UUID", value_parser = uuid, conflicts_with_all = ["random_uuid", "uuid", "extref", "skinny_metadata", "no_holes", "seeding"])]
    rewrite_to: Option<Uuid>,

    #[command(flatten)]
    convert: ConvertArgs,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    not_here: TuneNotHere,

    /// The image or device, or a partition of one (disk.raw@2).
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// Where it tells of its space.
#[derive(Args, Debug)]
#[group(multiple = false)]
struct ConvertArgs {
    /// Use a free space tree.
    #[arg(long, conflicts_with_all = NOTHING_ELSE)]
    convert_to_free_space_tree: bool,

    /// Use a block group tree, with which a large filesystem mounts faster.
    #[arg(long, conflicts_with_all = NOTHING_ELSE)]
    convert_to_block_group_tree: bool,

    /// Use the extent tree for block groups, for Linux before 6.1.
    #[arg(long, conflicts_with_all = NOTHING_ELSE)]
    convert_from_block_group_tree: bool,
}

/// Not supported: btrfstune has it.
#[derive(Args, Debug)]
struct TuneNotHere {
    #[arg(long, hide = true)]
    csum: Option<String>,
    #[arg(long, hide = true)]
    enable_simple_quota: bool,
    #[arg(long, hide = true)]
    remove_simple_quota: bool,
}

/// Options that cannot be combined with a conversion.
const NOTHING_ELSE: [&str; 8] =
    ["extref", "skinny_metadata", "no_holes", "seeding", "random_uuid", "uuid", "rewrite", "rewrite_to"];

/// Parses a UUID as uuid_parse(3): with its dashes, and nothing around it.
fn uuid(text: &str) -> Result<Uuid, &'static str> {
    const LEN: usize = 36;
    Uuid::try_parse(text).ok().filter(|_| text.len() == LEN).ok_or("expected a UUID with its dashes")
}

fn is_seed(text: &str) -> Result<bool, &'static str> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("expected 0 or 1"),
    }
}

pub(crate) fn run(args: &TuneArgs) -> Result<(), Failure> {
    args.not_here.refuse()?;
    if args.rewrite || args.rewrite_to.is_some() {
        return rewrite(args);
    }
    if let Some(conversion) = args.convert.conversion() {
        return convert(args, conversion);
    }
    let image = args.image.display();
    let uuid = match args.uuid {
        None if args.random_uuid => {
            Some(another_uuid(&args.image).map_err(|error| Failure::new(COMMAND, error))?)
        }
        uuid => uuid,
    };
    let mut change = SuperblockChange::default();
    if args.extref {
        change = change.extref();
    }
    if args.skinny_metadata {
        change = change.skinny_metadata();
    }
    if args.no_holes {
        change = change.no_holes();
    }
    if let Some(uuid) = uuid {
        change = change.uuid(uuid);
    }
    if let Some(is_seed) = args.seeding {
        if !is_seed && !args.force {
            let what = format!("{image}: filesystems made from this seed may become unusable");
            return Err(Failure::new(COMMAND, Error::invalid(what)).advise("use -f to clear the seed flag"));
        }
        change = change.seeding(is_seed);
    }
    if change == SuperblockChange::default() {
        return Err(Failure::usage(
            COMMAND,
            "no change: expected -r, -x, -n, -S, -m, -M, -u, -U or --convert-...",
        ));
    }
    let is_changed = Image::change_superblock(&args.image, &change);
    match (is_changed.map_err(|error| Failure::new(COMMAND, error))?, args.seeding) {
        // As with btrfstune, a feature that is on already is no error.
        (false, Some(is_seed)) => {
            let what = if is_seed { "already a seed" } else { "not a seed" };
            Err(Failure::new(COMMAND, Error::invalid(format!("{image}: {what}"))))
        }
        (true, Some(false)) => {
            warn(&format!("{image}: no longer a seed"));
            Ok(())
        }
        _ => Ok(()),
    }
}

impl ConvertArgs {
    fn conversion(&self) -> Option<Conversion> {
        let wishes = [
            (self.convert_to_free_space_tree, Conversion::ToFreeSpaceTree),
            (self.convert_to_block_group_tree, Conversion::ToBlockGroupTree),
            (self.convert_from_block_group_tree, Conversion::FromBlockGroupTree),
        ];
        wishes.into_iter().find_map(|(is_wanted, conversion)| is_wanted.then_some(conversion))
    }
}

/// Converts the trees for free space and for block groups.
fn convert(args: &TuneArgs, conversion: Conversion) -> Result<(), Failure> {
    let write = WriteArgs::default();
    let mut images = Images::to_write(COMMAND, &write);
    let place = images.place(args.image.as_os_str())?;
    let failed = images.failed(&place.image);
    let (done, is_so) = match conversion {
        Conversion::ToFreeSpaceTree => {
            ("Converted to free space tree feature", "already has a free space tree")
        }
        Conversion::ToBlockGroupTree => {
            ("Converted the filesystem to block group tree feature", "already has a block group tree")
        }
        _ => ("Converted filesystem with block-group-tree to extent tree feature", "has no block group tree"),
    };
    let convert = |fs: &Filesystem| {
        let is_converted = fs.volume().convert(conversion)?;
        if is_converted { Ok(()) } else { Err(Error::invalid(is_so)) }
    };
    let outcome = images.open_at(&place, Purpose::Write).and_then(|fs| convert(fs).map_err(failed));
    images.finish(outcome)?;
    tell(format_args!("{done}"));
    Ok(())
}

/// A random UUID; for reproducible images one that follows from the present UUID.
fn another_uuid(image: &Path) -> Result<Uuid, Error> {
    let env = source_date::env()?;
    if env.is_reproducible() {
        Ok(env.uuid_after(Image::open(image)?.volume().uuid()))
    } else {
        Ok(env.uuid())
    }
}

/// Writes another UUID to all tree blocks.
fn rewrite(args: &TuneArgs) -> Result<(), Failure> {
    let failed = |error: Error| Failure::new(COMMAND, error);
    let change =
        match source_date::env().and_then(|env| Image::change_uuid(&args.image, args.rewrite_to, env)) {
            // No error, as with btrfstune, which writes all blocks anew, unchanged.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                warn(&format!("{}, and nothing is changed", error.without_kind()));
                return Ok(());
            }
            change => change.map_err(failed)?,
        };
    let mut out = Output::new();
    if !args.force && !ask(&mut out).map_err(|error| failed(error.into()))? {
        return Err(failed(Error::invalid("the UUID is unchanged")).advise("use -f to skip the question"));
    }
    let mut say = |words: String| writeln!(out, "{words}").and_then(|()| out.flush());
    let (old, new) = (change.old(), change.new_uuid());
    say(format!("Current fsid: {old}\nNew fsid: {new}")).map_err(|error| failed(error.into()))?;
    interrupt::watch();
    let shown = ShownProgress::new(COMMAND, bar(), args.progress);
    let changed = change.run(&mut |done, of| {
        if done > 0 {
            shown.bar.set_length(of);
            shown.bar.set_position(done);
            shown.line(|| format!("{done} of {of} tree blocks"));
            interrupt::done();
        }
        interrupt::go_on()
    });
    shown.end();
    let lost = changed.map_err(failed)?;
    say("Fsid change finished".to_owned()).map_err(|error| failed(error.into()))?;
    if lost > 0 {
        let what = format!("{lost} tree blocks cannot be read and stay as they are");
        return Err(failed(Error::new(ErrorKind::Unreadable, what)).advise("`creamery check` lists them"));
    }
    Ok(())
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} tree blocks")
        .expect("a template that is tested");
    ProgressBar::new(0).with_style(style)
}

fn ask(out: &mut Output) -> io::Result<bool> {
    warn(
        "the filesystem cannot be opened or mounted until this ends; if interrupted, continue with `creamery tune -u`",
    );
    write!(out, "We are going to change UUID, are you sure? [y/N]: ")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim_start().starts_with(['y', 'Y']))
}

impl TuneNotHere {
    fn refuse(&self) -> Result<(), Failure> {
        const PROGS: &str = "use btrfstune of btrfs-progs on an image that is not mounted";
        let quota = "use `creamery quota enable --simple` and `creamery quota disable`";
        let rows = [
            (self.csum.is_some(), "changing the checksum (--csum)", PROGS),
            (self.enable_simple_quota || self.remove_simple_quota, "changing quotas", quota),
        ];
        match rows.into_iter().find(|(is_wanted, ..)| *is_wanted) {
            Some((_, what, advice)) => {
                let error = Error::unsupported(what);
                Err(Failure::new(COMMAND, error).advise(advice))
            }
            None => Ok(()),
        }
    }
}
