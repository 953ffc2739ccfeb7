//! `creamery mkfs`.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args};
use creamery::attributes::Timespec;
use creamery::compression::CompressionMethod;
use creamery::env::{Env, FixedEnv, SystemEnv};
use creamery::error::Escaped;
use creamery::mkfs::{
    Features, LinuxVersion, Made, MkfsOptions, RootdirOptions, RootdirPart, RootdirSubvolume, Source,
    make_image,
};
use creamery::progress::Progress;
use creamery::subvolume::TOP_LEVEL;
use creamery::tar::TarRootfs;
use creamery::{Error, Uuid};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::archives;
use crate::failure::Failure;
use crate::images::warn_of_table;
use crate::interrupt;
use crate::json::text_of;
use crate::output::{Output, writing};
use crate::progress::{ProgressArgs, ShownProgress, left};
use crate::size::{Human, Size};
use crate::source_date;

/// Make a new filesystem, empty or filled from a directory or from archives.
///
/// The options are those of mkfs.btrfs for one device, and so are the defaults (of version
/// 6.19: free space tree, block group tree, no holes, DUP metadata on one device). An image
/// file that does not exist is created, as large as -b says or as its content needs.
///
/// Two runs over the same tree make the same bytes when SOURCE_DATE_EPOCH (seconds since
/// 1970) is set and -U is given: access, change and birth times become that time, and newer
/// modification times too. Without a source the root directory is the caller's: with --owner 0:0
/// the bytes do not depend on the caller.
///
/// Examples:
///   creamery mkfs -b 10G -L backup disk.img
///   creamery mkfs --rootdir ./rootfs --shrink rootfs.img
///   creamery mkfs --rootdir ./rootfs --rootdir ./site:/srv/www web.img
///   curl https://example.org/rootfs.tar.zst | creamery mkfs --from-tar - rootfs.img
///   creamery mkfs --from-tar base.tar --from-tar app.tar --oci-whiteouts app.img
///   creamery mkfs -L root disk.raw@2
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(group = ArgGroup::new("source").args(["rootdir", "from_tar"]))]
pub(crate) struct MkfsArgs {
    /// Image file or block device, or a partition of one (disk.raw@2), which keeps its size.
    #[arg(value_name = "IMAGE|DEVICE")]
    target: Option<PathBuf>,

    /// Name of the filesystem, at most 255 bytes.
    #[arg(short = 'L', long, value_name = "LABEL", help_heading = "Identity")]
    label: Option<OsString>,

    /// UUID of the filesystem [default: random].
    #[arg(short = 'U', long, value_name = "UUID", help_heading = "Identity")]
    uuid: Option<creamery::Uuid>,

    /// UUID of the device within the filesystem [default: random].
    #[arg(long, value_name = "UUID", help_heading = "Identity")]
    device_uuid: Option<creamery::Uuid>,

    /// Profile of data: single or dup [default: single].
    #[arg(short = 'd', long, value_name = "PROFILE", help_heading = "Layout")]
    data: Option<creamery::mkfs::Profile>,

    /// Profile of metadata: single or dup [default: dup].
    #[arg(short = 'm', long, value_name = "PROFILE", help_heading = "Layout")]
    metadata: Option<creamery::mkfs::Profile>,

    /// Let data and metadata share block groups, for very small filesystems.
    #[arg(short = 'M', long, help_heading = "Layout")]
    mixed: bool,

    /// Size of tree blocks: 4K, 8K, 16K, 32K or 64K [default: 16K].
    #[arg(short = 'n', long, value_name = "SIZE", help_heading = "Layout")]
    nodesize: Option<Size>,

    /// Size of data blocks: 4K to 64K, not above the node size [default: 4K].
    #[arg(short = 's', long, value_name = "SIZE", help_heading = "Layout")]
    sectorsize: Option<Size>,

    /// Features to turn on, or off with ^, with commas between; "list-all" prints what there is.
    #[arg(short = 'O', long, value_name = "LIST", help_heading = "Layout")]
    features: Vec<String>,

    /// Use only features that this version of Linux, such as 5.15, can write; refuse others. Which -s it can write depends on the
    /// machine's page size, too.
    #[arg(long, value_name = "LINUX-VERSION", help_heading = "Layout")]
    compat: Option<LinuxVersion>,

    /// As -O, by the name that some features had once: quota, squota, free-space-tree and block-group-tree.
    #[arg(short = 'R', long, value_name = "LIST", hide = true)]
    runtime_features: Vec<String>,

    /// Print the features that -O knows, and exit.
    #[arg(long, help_heading = "Layout")]
    list_features: bool,

    /// Checksum of data and metadata: crc32c, xxhash64, sha256 or blake2b.
    #[arg(long, alias = "checksum", value_name = "TYPE", default_value = "crc32c", help_heading = "Layout")]
    csum: creamery::mkfs::ChecksumType,

    /// Size of the filesystem [default, and 0: all of the target, or what its content needs].
    #[arg(short = 'b', long, value_name = "SIZE", help_heading = "Creation")]
    byte_count: Option<Size>,

    /// Fill the filesystem, or its directory TARGET, from DIR; may be repeated, later ones on top.
    #[arg(short = 'r', long, value_name = "DIR[:/TARGET]", help_heading = "Creation")]
    rootdir: Vec<OsString>,

    /// Fill it from an archive, plain or packed with gzip or zstd; - is standard input; may be repeated, later ones on top.
    #[arg(long, value_name = "ARCHIVE", help_heading = "Creation")]
    from_tar: Vec<PathBuf>,

    /// The archives are layers of a container image, the lowest one first: .wh.NAME and .wh..wh..opq delete files.
    #[arg(long, requires = "from_tar", conflicts_with = "rootdir", help_heading = "Creation")]
    oci_whiteouts: bool,

    /// Make a directory of the source a subvolume; TYPE is rw, ro, default or default-ro [default: rw].
    #[arg(short = 'u', long, value_name = "[TYPE:]PATH", requires = "source", help_heading = "Creation")]
    subvol: Vec<OsString>,

    /// Shrink the finished filesystem to the size it needs; -b limits its size until then.
    #[arg(long, requires = "source", help_heading = "Creation")]
    shrink: bool,

    /// Compress the files of the source: zlib (levels 1 to 9), lzo, zstd (levels -15 to 15), or no.
    #[arg(long, value_name = "ALGORITHM[:LEVEL]", requires = "source", help_heading = "Creation")]
    compress: Option<Compression>,

    /// Give every file of the source this owner and group; without a source, the root directory [default: yours].
    #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
    #[arg(help_heading = "Creation")]
    owner: Option<(u32, u32)>,

    /// Do not discard the old content of the target.
    #[arg(short = 'K', long, help_heading = "Creation")]
    nodiscard: bool,

    /// Overwrite another filesystem, a partition table, or a file with content.
    #[arg(short = 'f', long, help_heading = "Creation")]
    force: bool,

    /// Print only errors, and the output of --json.
    #[arg(short = 'q', long, conflicts_with = "progress")]
    quiet: bool,

    #[command(flatten)]
    progress: ProgressArgs,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &MkfsArgs) -> Result<(), Failure> {
    let told = |error| Failure::new("mkfs", error);
    let mut lists = args.features.iter().chain(&args.runtime_features);
    if args.list_features || lists.any(|list| list == "list-all") {
        return list_features().map_err(told);
    }
    let Some(target) = &args.target else {
        return Err(Failure::usage("mkfs", "the argument <IMAGE|DEVICE> is missing"));
    };
    let epoch = source_date::epoch().map_err(told)?;
    let mut options = options(args).map_err(told)?;
    // With a fixed time all random values follow from the UUID.
    let env: Arc<dyn Env> = match epoch {
        Some(epoch) => {
            let uuid = *options.uuid.get_or_insert_with(|| SystemEnv.uuid());
            Arc::new(FixedEnv::reproducible(epoch, seed(uuid)))
        }
        None => Arc::new(SystemEnv),
    };
    let source = source(args, epoch)?;
    let bar = Bar::new(source.is_some() && !args.quiet, args.progress);
    if source.is_some() {
        interrupt::watch();
    }
    let made = make_image(target, &options, source.as_deref(), env, &bar);
    bar.0.end();
    let made = made.map_err(told)?;
    warn_of_table(target);
    let owner = source.is_none().then_some(options.owner);
    if args.quiet && !args.json { Ok(()) } else { print(target, args, &made, owner).map_err(told) }
}

fn options(args: &MkfsArgs) -> Result<MkfsOptions, Error> {
    let mut features = args.compat.map_or_else(Features::default, Features::of_linux);
    for list in &args.features {
        features.change(list)?;
    }
    for list in &args.runtime_features {
        check_runtime(list)?;
        features.change(list)?;
    }
    features.mixed_groups |= args.mixed;
    let size = |what: &str, size: Option<Size>| -> Result<Option<u32>, Error> {
        let convert = |Size(bytes)| {
            u32::try_from(bytes).map_err(|_| Error::invalid(format!("{what} {bytes} is above 64 KiB")))
        };
        size.map(convert).transpose()
    };
    let options = MkfsOptions {
        label: args.label.as_ref().map(|label| label.as_bytes().to_vec()).unwrap_or_default(),
        uuid: args.uuid,
        device_uuid: args.device_uuid,
        data: args.data,
        metadata: args.metadata,
        node_size: size("node size", args.nodesize)?,
        sector_size: size("sector size", args.sectorsize)?,
        checksum: args.csum,
        features,
        compat: args.compat,
        owner: args.owner.unwrap_or_else(|| if has_source(args) { (0, 0) } else { callers() }),
        total_bytes: args.byte_count.map(|Size(bytes)| bytes).filter(|&bytes| bytes > 0),
        keep_content: args.nodiscard,
        force: args.force,
    };
    options.check()?;
    Ok(options)
}

/// Checks that all names in a list are among those that `-R` of mkfs.btrfs ever had.
fn check_runtime(list: &str) -> Result<(), Error> {
    const KNOWN: [&str; 4] = ["quota", "squota", "free-space-tree", "block-group-tree"];
    let mut names = list.split(',').map(|name| name.trim().trim_start_matches('^'));
    match names.find(|name| !name.is_empty() && !KNOWN.contains(name)) {
        Some(name) => Err(Error::invalid(format!("unknown runtime feature '{name}'"))),
        None => Ok(()),
    }
}

fn has_source(args: &MkfsArgs) -> bool {
    !args.rootdir.is_empty() || !args.from_tar.is_empty()
}

/// The source that fills the filesystem.
fn source(args: &MkfsArgs, epoch: Option<Timespec>) -> Result<Option<Box<dyn Source>>, Failure> {
    let subvolumes = args.subvol.iter().map(|text| RootdirSubvolume::parse(text.as_bytes()));
    let subvolumes = subvolumes.collect::<Result<_, _>>().map_err(|error| Failure::new("mkfs", error))?;
    let compress = args.compress.and_then(|Compression(method)| method);
    let parts = args.rootdir.iter().map(|text| RootdirPart::parse(text)).collect::<Result<Vec<_>, _>>();
    let mut parts = parts.map_err(|error| Failure::new("mkfs", error))?.into_iter();
    if let Some(RootdirPart { source, target }) = parts.next() {
        return Ok(Some(Box::new(RootdirOptions {
            target,
            more: parts.collect(),
            owner: args.owner,
            clamp_times: epoch,
            subvolumes,
            shrink: args.shrink,
            compress,
            ..RootdirOptions::new(source)
        })));
    }
    if args.from_tar.is_empty() {
        return Ok(None);
    }
    Ok(Some(Box::new(TarRootfs {
        whiteouts: args.oci_whiteouts,
        owner: args.owner,
        clamp_times: epoch,
        subvolumes,
        shrink: args.shrink,
        compress,
        ..TarRootfs::new(archives::open_all("mkfs", &args.from_tar)?)
    })))
}

fn seed(uuid: Uuid) -> u64 {
    let (high, low) = uuid.as_u64_pair();
    high ^ low.rotate_left(1)
}

/// Owner of the root directory: the caller, so that ordinary users can work in it; for root the default of mkfs.btrfs.
fn callers() -> (u32, u32) {
    match rustix::process::geteuid() {
        root if root.is_root() => (0, 0),
        user => (user.as_raw(), rustix::process::getegid().as_raw()),
    }
}

/// Parses `UID:GID`.
fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let wrong = || "expected UID:GID, both numbers".to_owned();
    let (uid, gid) = text.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str| match text.parse() {
        // This number stands for no user, in Linux and in chown(2).
        Ok(u32::MAX) => Err(format!("{} is not a valid ID", u32::MAX)),
        number => number.map_err(|_| wrong()),
    };
    Ok((number(uid)?, number(gid)?))
}

/// `ALGORITHM[:LEVEL]`, or `None` for `no` and `none`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Compression(Option<CompressionMethod>);

impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if matches!(text, "no" | "none") {
            return Ok(Self(None));
        }
        // mkfs.btrfs takes a colon without a level.
        let method = text.strip_suffix(':').filter(|word| !word.contains(':')).unwrap_or(text);
        let method = CompressionMethod::with_its_level(method);
        method
            .map(|method| Self(Some(method)))
            .map_err(|error| Error::invalid(format!("\"{text}\": {error}")))
    }
}

/// Shows the progress of the copy.
struct Bar(ShownProgress);

impl Bar {
    fn new(is_shown: bool, args: ProgressArgs) -> Self {
        let bar = if is_shown { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.enable_steady_tick(Duration::from_millis(100));
        bar.set_message("reading the source");
        let shown = ShownProgress::new("mkfs", bar, args);
        shown.line(|| "reading the source".to_owned());
        Self(shown)
    }
}

impl Progress for Bar {
    fn start(&self, _entries: u64, bytes: u64) {
        let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {left}{wide_msg}");
        self.0.bar.set_style(style.expect("a fixed template").with_key("left", left));
        self.0.bar.set_length(bytes);
    }

    fn go_on(&self) -> Result<(), Error> {
        interrupt::go_on()
    }

    fn entry(&self, path: &[u8], bytes: u64) {
        let bar = &self.0.bar;
        bar.inc(bytes);
        self.0.line(|| {
            let (done, all) = (Human(bar.position()), bar.length().filter(|bytes| *bytes > 0));
            let of = all.map_or_else(String::new, |bytes| format!(" of {}", Human(bytes)));
            format!("{done}{of}: {}", Escaped(path))
        });
        // Showing a name costs more than making an empty file, so few names of empty files are shown.
        if bytes > 0 || path.len().is_multiple_of(16) {
            bar.set_message(path.escape_ascii().to_string());
        }
    }

    fn finishing(&self) {
        self.0.bar.set_message("writing the last blocks");
    }
}

fn list_features() -> Result<(), Error> {
    let mut out = Output::new();
    let mut print = || -> std::io::Result<()> {
        writeln!(out, "Features for -O; put ^ in front to turn one off:")?;
        for row in Features::known() {
            let state = match (row.default, row.changeable) {
                (true, true) => "on by default",
                (true, false) => "always on",
                (false, true) => "off by default",
                (false, false) => "not supported",
            };
            writeln!(out, "  {:18} {state:15} {}", row.name, row.about)?;
        }
        Ok(())
    };
    print().map_err(writing)?;
    out.finish()
}

#[derive(Serialize)]
struct MadeJson {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_bytes: Option<String>,
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_bytes: Option<String>,
    uuid: String,
    size: u64,
    node_size: u32,
    sector_size: u32,
    checksum: String,
    data: String,
    metadata: String,
    features: Vec<&'static str>,
    /// The owner of the root directory of an empty filesystem.
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<u32>,
}

/// The names of a filesystem's features.
fn names(features: Features) -> Vec<&'static str> {
    let has = |name| match name {
        "no-holes" => features.no_holes,
        "block-group-tree" => features.block_group_tree,
        "mixed-bg" => features.mixed_groups,
        "quota" => features.quota,
        "squota" => features.simple_quota,
        _ => true,
    };
    let known = Features::known().filter(|row| row.default || row.changeable);
    known.map(|row| row.name).filter(|name| has(name)).collect()
}

/// The path of the subvolume that becomes the default one.
fn default_subvolume(args: &MkfsArgs) -> Option<Vec<u8>> {
    let mut subvolumes = args.subvol.iter().filter_map(|text| RootdirSubvolume::parse(text.as_bytes()).ok());
    subvolumes.find(|subvolume| subvolume.kind.is_default()).map(|subvolume| subvolume.path)
}

/// Prints the result. `owner` is that of the root directory of an empty filesystem.
fn print(target: &Path, args: &MkfsArgs, made: &Made, owner: Option<(u32, u32)>) -> Result<(), Error> {
    let (image, image_bytes) = text_of(target.as_os_str().as_bytes());
    let (label, label_bytes) = text_of(&made.label);
    let json = MadeJson {
        image,
        image_bytes,
        label,
        label_bytes,
        uuid: made.uuid.to_string(),
        size: made.total_bytes,
        node_size: made.node_size,
        sector_size: made.sector_size,
        checksum: made.checksum.to_string(),
        data: made.profiles.0.to_string(),
        metadata: made.profiles.1.to_string(),
        features: names(made.features),
        uid: owner.map(|(uid, _)| uid),
        gid: owner.map(|(_, gid)| gid),
    };
    let mut out = Output::new();
    let mut print = || -> std::io::Result<()> {
        if args.json {
            serde_json::to_writer_pretty(&mut out, &json)?;
            return writeln!(out);
        }
        for (name, value) in [
            ("Image", json.image.clone()),
            ("Label", json.label.clone()),
            ("UUID", json.uuid.clone()),
            ("Size", Human(json.size).to_string()),
            ("Node size", json.node_size.to_string()),
            ("Sector size", json.sector_size.to_string()),
            ("Profiles", format!("data {}, metadata {}", json.data, json.metadata)),
            ("Checksum", json.checksum.clone()),
            ("Features", json.features.join(", ")),
        ] {
            writeln!(out, "{name:12} {value}")?;
        }
        if let Some(default) = default_subvolume(args) {
            let shown = Escaped(&default);
            writeln!(
                out,
                "{:12} {shown}, where paths begin; IMAGE:{TOP_LEVEL}/PATH begins at the top level",
                "Default"
            )?;
        }
        match owner {
            None | Some((0, 0)) => Ok(()),
            Some((uid, gid)) => {
                writeln!(
                    out,
                    "{:12} {uid}:{gid}, of the empty root directory (--owner 0:0 makes it root's)",
                    "Owner"
                )
            }
        }
    };
    print().map_err(writing)?;
    out.finish()
}
