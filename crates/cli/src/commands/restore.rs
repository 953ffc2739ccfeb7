//! `creamery restore`.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use creamery::error::Escaped;
use creamery::id::{Logical, TreeId};
use creamery::progress::{Lost, Progress, Skipped};
use creamery::rescue::Rescue;
use creamery::rescue::{PathPattern, RestoreOptions, Start, tree_roots};
use creamery::{Error, ErrorKind, Image};

use crate::descriptors;
use crate::failure::Failure;
use crate::images::{in_image, warn_of, with_way_in};
use crate::interrupt;
use crate::losses::{Losses, Site};
use crate::names::NamePrinter;
use crate::output::{Output, writing};
use crate::progress::ProgressArgs;
use crate::view::RescueArgs;

const COMMAND: &str = "restore";

/// Copy files from a damaged image into a directory of the host.
///
/// The options are those of `btrfs restore`. It begins at the top level, and restores regular
/// files and directories, those of other subvolumes too. Existing files stay. Trees that
/// reading does not need may be damaged (--rescue ibadroots), and so may the state in the
/// superblock. Data with a wrong checksum is restored only with --rescue idatacsums.
///
/// Examples:
///   creamery restore -D disk.img ./out
///   creamery restore -i -mxS disk.img ./out
///   creamery rescue find-root disk.img; creamery restore -t 30965760 disk.img ./out
///   creamery restore --path-regex '^/(|home(|/ada(|/.*)))$' disk.img ./out
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    override_usage = "creamery restore [OPTIONS] <IMAGE> <DIR>\n       \
    creamery restore [OPTIONS] -l <IMAGE>"
)]
pub(crate) struct RestoreArgs {
    /// The image or device, or a partition of one (disk.raw@2).
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The target, an existing directory.
    #[arg(value_name = "DIR", required_unless_present = "list_roots")]
    dir: Option<PathBuf>,

    /// Snapshots, too.
    #[arg(short, long)]
    snapshots: bool,

    /// Extended attributes.
    #[arg(short, long)]
    xattr: bool,

    /// Owners, modes and times.
    #[arg(short, long)]
    metadata: bool,

    /// Symbolic links.
    #[arg(short = 'S', long, visible_alias = "symlink")]
    symlinks: bool,

    /// Continue past damage: lost parts of files are holes, each is printed, and the exit status is 1.
    #[arg(short, long)]
    ignore_errors: bool,

    /// Write the losses to FILE, as JSON (`creamery help json`).
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Replace existing files.
    #[arg(short, long)]
    overwrite: bool,

    /// Begin at the root tree whose root is the block at this address.
    #[arg(short = 't', value_name = "BYTENR")]
    tree: Option<u64>,

    /// Use this copy of the superblock: 0, 1 or 2.
    #[arg(short = 'u', long = "super", value_name = "MIRROR", value_parser = clap::value_parser!(u8).range(0..=2))]
    super_copy: Option<u8>,

    /// Only what is in the subvolume with this number.
    #[arg(short, long, value_name = "ROOTID", default_value_t = 5, hide_default_value = true)]
    root: u64,

    /// Print the trees in the root tree, and restore nothing.
    #[arg(short, long)]
    list_roots: bool,

    /// Only print the names of the files that would be restored.
    #[arg(short = 'D', long)]
    dry_run: bool,

    /// Only paths that match, as in '^/(|home(|/ada(|/.*)))$': parent directories have to match, too.
    #[arg(long, value_name = "REGEX")]
    path_regex: Option<String>,

    /// With --path-regex, ignore case.
    #[arg(short = 'c')]
    ignore_case: bool,

    /// Print each name.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,

    /// Not supported: btrfs-progs has it.
    #[arg(short = 'f', hide = true, value_name = "BYTENR")]
    filesystem: Option<u64>,

    /// Not supported: btrfs-progs has it.
    #[arg(short = 'd', hide = true)]
    find_dir: bool,

    #[command(flatten)]
    progress: ProgressArgs,

    #[command(flatten)]
    rescue: RescueArgs,
}

pub(crate) fn run(args: &RestoreArgs) -> Result<(), Failure> {
    if args.filesystem.is_some() {
        return Err(not_here("-f: subvolume roots come from the root tree; use -t for another root tree"));
    }
    if args.find_dir {
        return Err(not_here("-d: a subvolume is read from its first directory on"));
    }
    let start =
        Start { super_copy: args.super_copy.map(usize::from), root_tree: args.tree.map(Logical::new) };
    // `restore` is for damaged filesystems, and reading files needs neither the bad roots nor the flags.
    let usual = Rescue { ignore_bad_roots: true, ignore_super_flags: true, ..Rescue::default() };
    let rescue = args.rescue.all().and(usual);
    match &args.dir {
        Some(dir) if !args.list_roots => restore(args, dir, start, rescue),
        _ if args.rescue.generation().is_some() => {
            let what = "-l cannot be used with --generation; use -t for another root tree";
            Err(failed(Error::invalid(what)))
        }
        _ => list_roots(args, start, rescue),
    }
}

fn not_here(why: &str) -> Failure {
    Failure::new(COMMAND, Error::unsupported(why)).advise("use `btrfs restore` of btrfs-progs")
}

fn failed(error: Error) -> Failure {
    Failure::new(COMMAND, error)
}

/// The failure to open the image. If the user names a copy of the superblock, no other copy is tried, so the result is never from another
/// copy.
fn not_open(args: &RestoreArgs, start: Start, error: Error) -> Failure {
    match start.super_copy {
        _ if error.advice().is_some() => failed(error),
        Some(_) => failed(error).advise("omit -u for the newest intact copy, or name another"),
        None if start.root_tree.is_none() => failed(with_way_in(&args.rescue.set.of(&args.image), error)),
        None => failed(error).advise("name another root tree: `creamery rescue find-root` lists them"),
    }
}

fn list_roots(args: &RestoreArgs, start: Start, rescue: Rescue) -> Result<(), Failure> {
    let image = &args.image;
    let found =
        tree_roots(args.rescue.set.of(image), start, rescue).map_err(|error| not_open(args, start, error))?;
    let mut out = Output::new();
    let mut print = || found.roots.iter().try_for_each(|root| writeln!(out, " {root}"));
    print().map_err(writing).and_then(|()| out.finish()).map_err(failed)?;
    found.unread.map_or(Ok(()), |error| {
        let what = format!("{}: the root tree is only partly readable ({error})", image.display());
        Err(failed(Error::new(ErrorKind::Unreadable, what))
            .advise("`creamery rescue find-root` lists older root trees for -t"))
    })
}

fn restore(args: &RestoreArgs, dir: &Path, start: Start, rescue: Rescue) -> Result<(), Failure> {
    let pattern = args.path_regex.as_ref().map(|text| match args.ignore_case {
        true => PathPattern::ignoring_case(text),
        false => PathPattern::new(text),
    });
    let options = RestoreOptions {
        snapshots: args.snapshots,
        metadata: args.metadata,
        xattrs: args.xattr,
        symlinks: args.symlinks,
        overwrite: args.overwrite,
        ignore_errors: args.ignore_errors,
        dry_run: args.dry_run,
        pattern: pattern.transpose().map_err(failed)?,
    };
    let open = Image::options().rescue(rescue).start(start).subvolume_id(TreeId::new(args.root));
    let open = args.rescue.set.options(open);
    let open = match args.rescue.generation() {
        Some(generation) => open.generation(generation),
        None => open,
    };
    let losses = Losses::new(COMMAND).reported(args.report.as_deref(), None)?;
    let fs = match open.open(&args.image) {
        Ok(fs) => fs,
        Err(error) => return losses.end(Err(not_open(args, start, error))),
    };
    fs.volume().notes().iter().for_each(|note| warn_of(&args.image, note));
    let image = args.image.display().to_string();
    let names = args.dry_run || args.verbose > 0;
    let counted = NamePrinter::new(COMMAND, false, args.progress);
    let told = RestorePrinter {
        image: &image,
        dir,
        names,
        counted: if names { counted.unseen() } else { counted },
        verbose: args.verbose > 0,
        was_taken: AtomicBool::new(false),
        losses,
        unprinted: OnceLock::new(),
    };
    if args.dry_run {
        told.say("This is a dry-run, no files are going to be restored");
    }
    interrupt::watch();
    descriptors::allow_all();
    let restored = options.restore(&fs, dir, &told).map_err(|error| {
        let is_damage = error.kind().is_damage() && error.host().is_none();
        let failure = failed(in_image(&image, error));
        if is_damage && !args.ignore_errors { failure.advise("use -i for the intact parts") } else { failure }
    });
    let RestorePrinter { mut losses, unprinted, counted, .. } = told;
    losses.read_from(&args.image, &fs);
    let counted = counted.finish();
    let printed = match unprinted.into_inner() {
        // A closed pipe (`| head`) is no error.
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed(writing(error))),
        _ => Ok(()),
    };
    losses.end(restored.and(printed).and(counted))
}

/// Prints the restored files as they come, in the words of btrfs-progs. The lines are for people, so names are escaped in a pipe, too.
struct RestorePrinter<'a> {
    image: &'a str,
    dir: &'a Path,
    names: bool,
    counted: NamePrinter,
    verbose: bool,
    /// Whether an existing file was left as it is; the advice about that is printed once.
    was_taken: AtomicBool,
    losses: Losses,
    /// The error that stopped the printing. Restoring goes on without it.
    unprinted: OnceLock<io::Error>,
}

impl RestorePrinter<'_> {
    fn say(&self, line: &str) {
        if self.unprinted.get().is_none()
            && let Err(error) = writeln!(anstream::stdout(), "{line}")
        {
            // Only the first error counts.
            let _ = self.unprinted.set(error);
        }
    }

    /// The path on the host to which the image's `path` is restored.
    fn restored(&self, path: &[u8]) -> String {
        let below = path.strip_prefix(b"/").unwrap_or(path);
        let path = self.dir.join(OsStr::from_bytes(below));
        Escaped(path.as_os_str().as_bytes()).to_string()
    }
}

impl Progress for RestorePrinter<'_> {
    fn in_place(&self, path: &[u8]) {
        self.counted.in_place(path);
    }

    fn go_on(&self) -> Result<(), Error> {
        self.counted.go_on()
    }

    fn entry(&self, path: &[u8], bytes: u64) {
        self.losses.came(bytes);
        self.counted.entry(path, bytes);
        if self.names && path != b"/" {
            self.say(&format!("Restoring {}", self.restored(path)));
        }
    }

    fn skipped(&self, path: &[u8], why: Skipped) {
        let name = || Escaped(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)).to_string();
        match why {
            Skipped::Taken => {
                let is_first = !self.was_taken.swap(true, Ordering::Relaxed);
                if is_first || self.verbose {
                    self.say(&format!("Skipping existing file {}", self.restored(path)));
                }
                if is_first {
                    self.say("If you wish to overwrite use -o");
                }
            }
            Skipped::Snapshot => self.say(&format!("Skipping snapshot {}", name())),
            Skipped::Special if self.verbose => self.say(&format!("Skipping special file {}", name())),
            _ => {}
        }
    }

    fn lost(&self, path: &[u8], what: Lost, error: &Error) {
        self.losses.tell(&Site::in_image(self.image, path), what, error);
    }

    fn xattr_left_out(&self, path: &[u8], name: &[u8], error: &Error) {
        self.losses.tell_xattr(&Site::in_image(self.image, path), name, error);
    }
}
