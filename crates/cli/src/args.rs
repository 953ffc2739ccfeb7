//! The command line: only its words and structure. The library gives them their meaning.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use creamery::copy::Reflink;

use crate::commands::dedupe::DedupeArgs;
use crate::commands::du::DuArgs;
use crate::commands::fiemap::FiemapArgs;
use crate::commands::mount::{MountArgs, UmountArgs};
use crate::progress::ProgressArgs;
use crate::size::Size;
use crate::view::{DeviceArgs, LongHelp, RescueArgs, ViewArgs, WriteArgs};

/// Btrfs filesystems in image files and on devices, without root and without the kernel.
///
/// Files inside an image are named IMAGE:/PATH. Without mounting anything, `creamery cp -a ./rootfs disk.img:/`
/// copies a directory into an image, `creamery ls -lR disk.img:/etc` lists one, and `creamery mkfs --rootdir
/// ./rootfs disk.img` makes a new image from a directory.
///
/// An IMAGE is a file or a block device, or a partition of one (`disk.raw@2`): see `creamery help paths`.
#[derive(Parser, Debug)]
#[command(name = "creamery", version = crate::help::VERSION, propagate_version = true, subcommand_required = true)]
#[command(arg_required_else_help = true, disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Mkfs(Box<crate::commands::mkfs::MkfsArgs>),
    Mount(MountArgs),
    Umount(UmountArgs),
    Mounts(crate::commands::mounts::MountsArgs),
    Ls(LsArgs),
    Cat(CatArgs),
    Stat(StatArgs),
    Cp(CpArgs),
    Dedupe(DedupeArgs),
    Mkdir(MkdirArgs),
    Rm(RmArgs),
    Mv(crate::commands::mv::MvArgs),
    Ln(crate::commands::mv::LnArgs),
    Chmod(crate::commands::attributes::ChmodArgs),
    Chown(crate::commands::attributes::ChownArgs),
    Touch(crate::commands::attributes::TouchArgs),
    Truncate(crate::commands::truncate::TruncateArgs),
    Find(crate::commands::find::FindArgs),
    Diff(crate::commands::diff::DiffArgs),
    Report(crate::commands::report::ReportArgs),
    Tar(Box<crate::commands::tar::TarArgs>),
    Fallocate(FallocateArgs),
    Df(DfArgs),
    Stats(crate::commands::stats::StatsArgs),
    Sync(crate::commands::sync::SyncArgs),
    /// Work with the devices of a filesystem.
    #[command(subcommand)]
    Device(crate::commands::device::DeviceCommand),
    /// Work with subvolumes and snapshots.
    #[command(subcommand, alias = "sub")]
    Subvolume(crate::commands::subvolume::SubvolumeCommand),
    /// Count the data of subvolumes.
    #[command(subcommand)]
    Quota(crate::commands::quota::QuotaCommand),
    /// Work with quota groups and their limits.
    #[command(subcommand)]
    Qgroup(crate::commands::quota::QgroupCommand),
    /// Get, set and list properties of files, subvolumes and filesystems.
    #[command(subcommand)]
    Property(crate::commands::property::PropertyCommand),
    /// Work on a filesystem as a whole.
    #[command(subcommand, alias = "fi")]
    Filesystem(FilesystemCommand),
    Tune(crate::commands::tune::TuneArgs),
    Check(crate::commands::check::CheckArgs),
    /// Read everything in use, and repair errors.
    #[command(subcommand)]
    Scrub(crate::commands::scrub::ScrubCommand),
    History(crate::commands::history::HistoryArgs),
    Undelete(crate::commands::undelete::UndeleteArgs),
    /// Repair a filesystem that cannot be opened.
    #[command(subcommand)]
    Rescue(crate::commands::rescue::RescueCommand),
    Restore(crate::commands::restore::RestoreArgs),
    /// Print completions for shells, and write manual pages.
    #[command(subcommand)]
    Generate(crate::commands::generate::GenerateCommand),
    /// Look at the structures on disk.
    #[command(subcommand, name = "inspect-internal", alias = "inspect")]
    Inspect(InspectCommand),
    Help(crate::commands::help::HelpArgs),
}

/// List directories.
///
/// Prints one name a line, sorted by bytes, including names that begin with a dot.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct LsArgs {
    /// The files and directories; IMAGE alone is its root directory.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    pub(crate) places: Vec<OsString>,

    /// Mode, links, owner, group, size and modification time (UTC) of each entry.
    #[arg(short = 'l', long)]
    pub(crate) long: bool,

    /// The directory (.) and the one above it (..) as entries, too.
    #[arg(short = 'a', long, overrides_with = "almost_all")]
    pub(crate) all: bool,

    /// List all entries but . and .. (default).
    #[arg(short = 'A', long, overrides_with = "all")]
    pub(crate) almost_all: bool,

    /// List one entry a line (default).
    #[arg(short = '1')]
    pub(crate) single_column: bool,

    /// With -l, print sizes such as 1.5K.
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,

    /// Subdirectories too.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// The directory itself instead of its content.
    #[arg(short = 'd', long, conflicts_with = "recursive")]
    pub(crate) directory: bool,

    /// One JSON array with every attribute of every entry.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    help: LongHelp,

    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Write files to standard output.
#[derive(Args, Debug)]
pub(crate) struct CatArgs {
    /// The files.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    pub(crate) places: Vec<OsString>,

    /// Continue past damage: lost bytes are zeros, each lost range is printed, and the exit status is 1.
    #[arg(long)]
    pub(crate) ignore_errors: bool,

    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Show all attributes of files.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// The files.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    pub(crate) places: Vec<OsString>,

    /// Follow a symbolic link at the end of the path.
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,

    /// One JSON array.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) view: ViewArgs,
}

/// Copy files into an image, out of it, or between images.
///
/// Each end is a path of the host or IMAGE:/PATH. When the destination is a directory the
/// copies go into it; a source that ends with "/." copies the content of the directory, as
/// with cp(1). Without -a and -p a copy gets the permissions of its source, the time of the
/// copy and, in an image, owner 0:0. As a SOURCE, "-" is standard input, and a pipe is read to
/// its end; as DEST, "-" is standard output, and a pipe or a device is written to.
///
/// Examples:
///   creamery cp -a ./rootfs/. disk.img:/
///   creamery cp -r disk.img:/var/log ./log
///   creamery cp -a old.img:/home new.img:/
///   git log | creamery cp - disk.img:/log
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, override_usage = "creamery cp [OPTIONS] <SOURCE>... <DEST>")]
pub(crate) struct CpArgs {
    /// The sources, then the destination.
    #[arg(value_name = "SOURCE", required = true)]
    pub(crate) places: Vec<OsString>,

    /// Copy directories recursively.
    #[arg(short = 'r', short_alias = 'R', long)]
    pub(crate) recursive: bool,

    /// Recursive, and keep modes, owners, times, xattrs, ACLs, hard links, special files and holes.
    #[arg(short = 'a', long)]
    pub(crate) archive: bool,

    /// Keep modes, owners, times, xattrs and ACLs; not recursive, follows symbolic links.
    #[arg(short = 'p', long)]
    pub(crate) preserve: bool,

    /// Replace also images, and files of the host that you may not write.
    #[arg(short = 'f', long)]
    pub(crate) force: bool,

    /// Whether copies within an image share the data of their sources.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, default_missing_value = "always")]
    #[arg(num_args = 0..=1, require_equals = true)]
    pub(crate) reflink: ReflinkWhen,

    /// Continue past damage: lost parts of files are holes, each is printed, and the exit status is 1.
    #[arg(long)]
    pub(crate) ignore_errors: bool,

    /// Write the losses to FILE, as JSON (`creamery help json`).
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Print each name that is copied.
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) progress: ProgressArgs,

    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// When copies share data.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum ReflinkWhen {
    /// Share data where possible.
    #[default]
    Auto,
    /// Share data, or fail.
    Always,
    Never,
}

impl From<ReflinkWhen> for Reflink {
    fn from(when: ReflinkWhen) -> Self {
        match when {
            ReflinkWhen::Auto => Self::Auto,
            ReflinkWhen::Always => Self::Always,
            ReflinkWhen::Never => Self::Never,
        }
    }
}

/// Create directories.
#[derive(Args, Debug)]
pub(crate) struct MkdirArgs {
    /// The new directories.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    pub(crate) places: Vec<OsString>,

    /// Create parents too; accept existing directories.
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,

    /// Permission bits, octal [default: 755, or by the default ACL of the parent].
    #[arg(short = 'm', long, value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: Option<u32>,

    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// Remove files.
#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    /// The files.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    pub(crate) places: Vec<OsString>,

    /// Remove directories and their content.
    #[arg(short = 'r', short_alias = 'R', long)]
    pub(crate) recursive: bool,

    /// Ignore missing files.
    #[arg(short = 'f', long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// Allocate space for a file, or deallocate it.
///
/// The options are those of fallocate(1). Without -p and -z the holes of the range get space,
/// which reads as zeros. A missing file is created, unless -n is given.
///
/// Examples:
///   creamery fallocate -l 1G disk.img:/swap
///   creamery fallocate -p -o 4096 -l 1M disk.img:/var/log/journal
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct FallocateArgs {
    /// The file.
    #[arg(value_name = "IMAGE:/PATH")]
    pub(crate) place: OsString,

    /// Bytes of the range, such as 512M.
    #[arg(short = 'l', long, value_name = "SIZE")]
    pub(crate) length: Size,

    /// Where it begins.
    #[arg(short = 'o', long, value_name = "SIZE", default_value = "0")]
    pub(crate) offset: Size,

    /// Keep the size of the file; space may lie behind its end.
    #[arg(short = 'n', long)]
    pub(crate) keep_size: bool,

    /// Make the range a hole; the file keeps its size.
    #[arg(short = 'p', long, conflicts_with = "zero_range")]
    pub(crate) punch_hole: bool,

    /// Make the range zeros that have space.
    #[arg(short = 'z', long)]
    pub(crate) zero_range: bool,

    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// Show how full filesystems are.
#[derive(Args, Debug)]
pub(crate) struct DfArgs {
    /// The images, or directories of live mounts, which can be of Linux' own Btrfs.
    #[arg(value_name = "IMAGE|DIR", required = true)]
    pub(crate) places: Vec<OsString>,

    /// Bytes instead of rounded sizes.
    #[arg(long)]
    pub(crate) raw: bool,

    /// One JSON array.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) rescue: RescueArgs,
}

/// Work on a filesystem as a whole.
#[derive(Subcommand, Debug)]
pub(crate) enum FilesystemCommand {
    #[command(alias = "defrag")]
    Defragment(crate::commands::defragment::DefragmentArgs),
    Df(crate::commands::usage::FilesystemDfArgs),
    Du(DuArgs),
    Fiemap(FiemapArgs),
    Label(crate::commands::label::LabelArgs),
    Resize(crate::commands::resize::ResizeArgs),
    Show(crate::commands::show::ShowArgs),
    Trim(TrimArgs),
    Usage(crate::commands::usage::UsageArgs),
}

/// Discard free space of an image or device.
///
/// An image file then takes only as much of the host's disk as is used in it. fstrim(8) does
/// the same on a mount of Linux. To discard space whenever it is freed, mount with
/// -o discard=async.
///
/// Examples:
///   creamery filesystem trim disk.img
///   creamery filesystem trim --minimum 1M /mnt
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct TrimArgs {
    /// An image that is not mounted, or a mount point.
    #[arg(value_name = "IMAGE|DIR")]
    pub(crate) place: PathBuf,

    /// Skip smaller ranges of free space.
    #[arg(short, long, value_name = "SIZE", default_value = "0")]
    pub(crate) minimum: Size,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Write from another superblock copy if the first one is damaged; changes synced after the last commit are lost.
    #[arg(long)]
    pub(crate) usesupercopy: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum InspectCommand {
    DumpSuper(DumpSuperArgs),
    DumpTree(DumpTreeArgs),
    InodeResolve(crate::commands::resolve::InodeResolveArgs),
    LogicalResolve(crate::commands::resolve::LogicalResolveArgs),
    Partitions(crate::commands::partitions::PartitionsArgs),
    Rootid(crate::commands::resolve::RootidArgs),
    SubvolidResolve(crate::commands::resolve::SubvolidResolveArgs),
}

/// Print superblocks.
#[derive(Args, Debug)]
pub(crate) struct DumpSuperArgs {
    /// The images.
    #[arg(value_name = "IMAGE", required = true)]
    pub(crate) images: Vec<PathBuf>,

    /// The chunk array and the backup roots too.
    #[arg(short = 'f', long)]
    pub(crate) full: bool,

    /// All copies.
    #[arg(short = 'a', long)]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) set: DeviceArgs,
}

/// Print trees, as `btrfs inspect-internal dump-tree` prints them.
#[derive(Args, Debug)]
pub(crate) struct DumpTreeArgs {
    /// The image.
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,

    /// Only this tree, by number or name (root, chunk, extent, dev, fs, csum, uuid, free-space, block-group, ...).
    #[arg(short = 't', long, value_name = "TREE")]
    pub(crate) tree: Option<String>,

    /// Only this block, by its logical address.
    #[arg(short = 'b', long, value_name = "BLOCK")]
    pub(crate) block: Vec<u64>,

    #[command(flatten)]
    pub(crate) set: DeviceArgs,
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("expected an octal mode from 0 to 7777".to_owned()),
    }
}
