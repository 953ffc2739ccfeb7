//! Where paths in an image begin, and how a command opens the image.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use creamery::device::DeviceIo;
use creamery::id::Generation;
use creamery::rescue::Rescue;
use creamery::{Error, ImageOptions, NamedSet};

use crate::path_in_image::mount_of;

/// Which subvolume a path begins in, and of which commit.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = crate::help::PATHS)]
pub(crate) struct ViewArgs {
    /// Paths begin in this subvolume [default: the default subvolume].
    #[arg(long, value_name = "PATH", conflicts_with = "subvolid")]
    pub(crate) subvol: Option<PathBuf>,

    /// Paths begin in the subvolume with this number; 5 is the top level.
    #[arg(long, value_name = "ID")]
    pub(crate) subvolid: Option<u64>,

    #[command(flatten)]
    pub(crate) rescue: RescueArgs,
}

/// What is passed over in a damaged image.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = crate::help::RESCUE)]
pub(crate) struct RescueArgs {
    /// If the root tree is damaged, read an earlier commit.
    #[arg(long)]
    usebackuproot: bool,

    /// Read past damage: usebackuproot, ignorebadroots, ignoredatacsums, ignoremetacsums, ignoresuperflags, nologreplay or all; several with
    /// : between.
    #[arg(long = "rescue", value_name = "WORDS", value_parser = words)]
    passed_over: Option<Rescue>,

    /// Read the commit of this generation, one of those that `creamery history IMAGE` lists, in place of the last one.
    #[arg(long = "generation", value_name = "N", conflicts_with = "usebackuproot")]
    shown_generation: Option<u64>,

    #[command(flatten)]
    pub(crate) set: DeviceArgs,
}

/// Which devices a filesystem of several has, and how they are read and written.
#[derive(Args, Debug, Clone, PartialEq, Eq, Default)]
#[command(next_help_heading = crate::help::DEVICES)]
pub(crate) struct DeviceArgs {
    /// Another device of the filesystem (may be repeated) [default: those found beside IMAGE].
    #[arg(long = "device", value_name = "PATH")]
    set_devices: Vec<PathBuf>,

    /// Read without the devices that are missing.
    #[arg(long = "degraded")]
    set_degraded: bool,

    /// Read and write the image past the page cache of the host (O_DIRECT).
    #[arg(long = "direct-io")]
    set_direct: bool,
}

impl DeviceArgs {
    /// The filesystem whose first device is `image`.
    pub(crate) fn of(&self, image: &Path) -> NamedSet {
        let set = NamedSet::new(image).devices(&self.set_devices);
        let set = if self.set_direct { set.direct_io() } else { set };
        if self.set_degraded { set.degraded() } else { set }
    }

    /// Adds the devices to the options of a mount.
    pub(crate) fn add_to(&self, options: &mut creamery_mount::Options) {
        options.devices.extend(self.set_devices.iter().cloned());
        options.degraded |= self.set_degraded;
        if self.set_direct {
            options.io = DeviceIo::Direct;
        }
    }

    /// The options as the user types them.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let word = |device: &PathBuf| {
            let mut word = OsString::from("--device=");
            word.push(device);
            word
        };
        let switches = [(self.set_degraded, "--degraded"), (self.set_direct, "--direct-io")];
        let given = switches.into_iter().filter(|(is_given, _)| *is_given).map(|(_, word)| word.into());
        self.set_devices.iter().map(word).chain(given).collect()
    }

    /// `options` with the named devices and the way of I/O.
    pub(crate) fn options(&self, options: ImageOptions) -> ImageOptions {
        let options = self.io(options);
        let options = if self.set_degraded { options.degraded() } else { options };
        self.set_devices.iter().fold(options, |options, device| options.device(device))
    }

    /// `options` with the way of I/O.
    pub(crate) fn io(&self, options: ImageOptions) -> ImageOptions {
        if self.set_direct { options.direct_io() } else { options }
    }

    /// Whether all options have their defaults: no device is named, none may be missing, I/O goes through the page cache.
    pub(crate) const fn is_plain(&self) -> bool {
        self.set_devices.is_empty() && !self.set_degraded && !self.set_direct
    }
}

fn words(text: &str) -> Result<Rescue, Error> {
    text.parse()
}

impl RescueArgs {
    /// All kinds of damage that the command reads past.
    pub(crate) fn all(&self) -> Rescue {
        let all = self.passed_over.unwrap_or_default();
        Rescue { use_backup_root: all.use_backup_root || self.usebackuproot, ..all }
    }

    /// The generation to read, if it is not the last commit.
    pub(crate) fn generation(&self) -> Option<Generation> {
        self.shown_generation.map(Generation::new)
    }

    /// Whether no damage is passed over, and the last commit is read.
    pub(crate) fn is_plain(&self) -> bool {
        !self.usebackuproot
            && self.passed_over.is_none()
            && self.shown_generation.is_none()
            && self.set.is_plain()
    }

    /// A view with these options and the default subvolume.
    pub(crate) fn view(&self) -> ViewArgs {
        ViewArgs { rescue: self.clone(), ..ViewArgs::default() }
    }
}

/// Options of a command that writes to an image: those of reading it, and one more.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) view: ViewArgs,

    /// Write from another superblock copy if the first one is damaged; changes synced after the last commit are lost.
    #[arg(long, help_heading = crate::help::RESCUE)]
    pub(crate) usesupercopy: bool,
}

/// The options above: the parser's id, and the name as the user types it.
const OPTIONS: [(&str, &str); 9] = [
    ("subvol", "--subvol"),
    ("subvolid", "--subvolid"),
    ("usebackuproot", "--usebackuproot"),
    ("passed_over", "--rescue"),
    ("shown_generation", "--generation"),
    ("usesupercopy", "--usesupercopy"),
    ("set_devices", "--device"),
    ("set_degraded", "--degraded"),
    ("set_direct", "--direct-io"),
];

/// The first of these options on the command line.
static GIVEN: OnceLock<&'static str> = OnceLock::new();

/// Stores in [`GIVEN`] which of these options `matches` have.
pub(crate) fn follow(matches: &ArgMatches) {
    let mut leaf = matches;
    while let Some((_, below)) = leaf.subcommand() {
        leaf = below;
    }
    let is_given = |id: &str| {
        leaf.try_contains_id(id).is_ok() && leaf.value_source(id) == Some(ValueSource::CommandLine)
    };
    if let Some((_, option)) = OPTIONS.iter().find(|(id, _)| is_given(id)) {
        let _ = GIVEN.set(option); // only this function sets it
    }
}

/// Refuses these options if one is given: `path` is on a live mount, which shows the filesystem as it was mounted.
pub(crate) fn refuse_on_mount(path: &Path) -> Result<(), Error> {
    let Some(option) = GIVEN.get() else { return Ok(()) };
    let what = format!("{} is on a live mount, but {option} requires an image", path.display());
    Err(Error::invalid(what).advise("unmount it first, or use a mount option instead"))
}

/// Calls [`refuse_on_mount`] if `path` is on a live mount.
pub(crate) fn refuse_if_on_mount(path: &Path) -> Result<(), Error> {
    mount_of(path).map_or(Ok(()), |_| refuse_on_mount(path))
}

/// Only `--help`, for a command whose `-h` has the meaning that it has in other programs.
#[derive(Args, Debug)]
pub(crate) struct LongHelp {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}
