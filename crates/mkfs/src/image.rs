//! Makes an image: the target, the empty filesystem, its content, and the superblocks last.
//!
//! # The target after a failure
//! - A new file gets its name only when it is complete: an error or a signal leaves no file.
//! - An existing target is unchanged if the failure comes before the first write (options, sizes, a source that cannot be opened, another
//!   filesystem on the target). Before a filesystem is overwritten, the whole source is looked through: a damaged archive and files that do
//!   not fit are refused.
//! - After the first write the target has no superblock until the end ([`HeldSuperblocks`](crate::held)): it never looks like a complete
//!   filesystem. If a filesystem was overwritten, the error says so (`ReplacedFilesystem`).

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::ErrorKind as Io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use creamery_base::{Env, Error, ErrorKind, Result};
use creamery_device::{Access, BlockDevice, FileDevice, ImageName, NewFile, Taken, file_of};
use creamery_fs::{Compress, Filesystem, FsOptions};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

use crate::held::HeldSuperblocks;
use crate::layout::{Layout, minimum};
use crate::make::{check, refuse_foreign, write};
use crate::shrink::shrink;
use crate::signature::{find_signature, first_content};
use crate::source::{Content, Measure, Source};
use crate::{Made, MkfsOptions, Progress};

/// Memory for clean and for dirty tree blocks while a filesystem is filled.
const CLEAN_BYTES: u64 = 32 << 20;
const DIRTY_BYTES: u64 = 64 << 20;
/// Offsets are signed on the host.
const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// Permission bits of a new image, less those of the umask.
const NEW_FILE_MODE: u32 = 0o666;
/// Maximum number of guesses of an image's size, each twice the last.
const GUESSES_MAX: u32 = 8;
/// Inodes kept after their last use: the writer comes back to directories only.
const INODES: usize = 4096;

/// Makes a filesystem at `path`, an image file, a block device or a partition of either ([`ImageName`]), and fills it from `source`, for
/// example a directory ([`RootdirOptions`](crate::RootdirOptions)).
///
/// A file that does not exist (or is empty) gets [`MkfsOptions::total_bytes`]. Without that, the size is a guess from a first walk over the
/// source, with room to spare, doubled as long as it proves too low. The file is sparse, so spare room costs nothing. A file that has bytes
/// keeps its size, unless a source is to fill it: then it grows to the size asked for. [`Source::shrink`] begins with the same guess and
/// cuts the filesystem to the end of its last chunk in the end.
///
/// ```
/// use creamery_base::SystemEnv;
/// use creamery_mkfs::{make_image, MkfsOptions, NoProgress, RootdirOptions};
/// use std::sync::Arc;
/// let dir = tempfile::tempdir()?;
/// std::fs::create_dir(dir.path().join("rootfs"))?;
/// std::fs::write(dir.path().join("rootfs/hello"), "world")?;
/// let rootdir = RootdirOptions::new(dir.path().join("rootfs"));
/// let image = dir.path().join("disk.img");
/// let made = make_image(&image, &MkfsOptions::default(), Some(&rootdir), Arc::new(SystemEnv), &NoProgress)?;
/// assert_eq!(image.metadata()?.len(), made.total_bytes);
/// # Ok::<(), creamery_base::Error>(())
/// ```
///
/// # Errors
/// Those of [`make_filesystem`](crate::make_filesystem), and errors of reading the source and writing the target. The module's head
/// describes the target after a failure.
pub fn make_image(
    path: &Path,
    options: &MkfsOptions,
    source: Option<&dyn Source>,
    env: Arc<dyn Env>,
    progress: &dyn Progress,
) -> Result<Made> {
    let mut options = options.clone();
    options.check()?;
    if let Some(source) = source {
        source.check()?;
        source.compress().map_or(Ok(()), |method| options.check_compression(method.kind()))?;
    }
    let mut target = Target::look(path)?;
    // A file too small for any filesystem does not determine the size: it counts as empty, and grows.
    if source.is_some()
        && options.total_bytes.is_none()
        && target.len().is_some_and(|len| len < minimum(&options))
    {
        target = Target::Empty;
    }
    if let Some(source) = source {
        source.check_target(path, matches!(target, Target::Absent))?;
    }
    let shrink = source.is_some_and(Source::shrink);
    let asked = options.total_bytes;
    let guess = shrink || (asked.is_none() && matches!(target, Target::Absent | Target::Empty));
    let replaced = ReplacedFilesystem::look(path, &target, &options)?;
    let content = if guess || replaced.is_some() {
        source.map(|source| measure(&options, source, progress)).transpose()?
    } else {
        None
    };
    if let (Some(replaced), Some(source), Some(content)) = (&replaced, source, content) {
        check_room(asked.unwrap_or(replaced.len), &options, source, content).map_err(named(path))?;
    }
    if guess {
        let need = guess_size(path, &options, content)?;
        let room = asked.or(target.len());
        options.total_bytes = Some(room.map_or(need, |room| room.min(need)));
    }
    if let Some(total) = options.total_bytes {
        Layout::plan(total, &options).map_err(named(path))?;
    }
    let open = target.open(path, &options, source.is_some())?;
    let room = asked.or(target.len()).unwrap_or(if open.is_file { u64::MAX } else { open.device.len() });
    if guess {
        options.total_bytes = options.total_bytes.map(|total| total.min(room));
    }
    for _ in 0..GUESSES_MAX {
        let made = build(&open, Some(path), &options, source, Arc::clone(&env), progress);
        let total = options.total_bytes.unwrap_or(room);
        match made {
            Err(error) if guess && total < room && is_full(&error) => {
                options.total_bytes = Some(total.saturating_mul(2).min(room));
                open.make_room(&options)?;
            }
            Err(error) if replaced.is_some() && open.is_overwritten.get() => {
                return Err(overwritten(path, error));
            }
            made => {
                let made = made.map_err(named(path))?;
                open.keep().map_err(named(path))?;
                return Ok(made);
            }
        }
    }
    Err(Error::new(ErrorKind::NoSpace, "guessing the size of the filesystem")).map_err(named(path))
}

/// A filesystem that `force` overwrites.
struct ReplacedFilesystem {
    /// Bytes of the device.
    len: u64,
}

impl ReplacedFilesystem {
    /// Looks for a filesystem at the target.
    fn look(path: &Path, target: &Target, options: &MkfsOptions) -> Result<Option<Self>> {
        if !options.force || matches!(target, Target::Absent | Target::Empty) {
            return Ok(None);
        }
        let device = FileDevice::open(path, Access::ReadOnly)?;
        Ok(find_signature(&device)?.map(|_| Self { len: device.len() }))
    }
}

/// An error after which the former filesystem is lost.
fn overwritten(path: &Path, error: Error) -> Error {
    error.context(format!("{}: no filesystem is left there, for the old one was overwritten", path.display()))
}

/// Refuses a source whose data alone exceeds a filesystem of `room` bytes.
fn check_room(room: u64, options: &MkfsOptions, source: &dyn Source, content: Content) -> Result<()> {
    let least = content.least.saturating_mul(options.data_profile().copies());
    if source.compress().is_some() || least <= room {
        return Ok(());
    }
    let what = format!("the source needs {least} bytes, found {room}; nothing was changed");
    Err(Error::new(ErrorKind::NoSpace, what))
}

/// Makes a filesystem on an open device, as large as the device unless [`MkfsOptions::total_bytes`] is smaller.
///
/// ```
/// use std::sync::Arc;
/// use creamery_base::SystemEnv;
/// use creamery_device::MemoryDevice;
/// use creamery_mkfs::{make_on, MkfsOptions, NoProgress};
/// let device = Arc::new(MemoryDevice::new(256 << 20));
/// let made = make_on(device, &MkfsOptions::default(), None, Arc::new(SystemEnv), &NoProgress)?;
/// assert_eq!(made.total_bytes, 256 << 20);
/// # Ok::<(), creamery_base::Error>(())
/// ```
///
/// # Errors
/// Those of [`make_image`].
pub fn make_on(
    device: Arc<dyn BlockDevice>,
    options: &MkfsOptions,
    source: Option<&dyn Source>,
    env: Arc<dyn Env>,
    progress: &dyn Progress,
) -> Result<Made> {
    options.check()?;
    source.map_or(Ok(()), Source::check)?;
    let open = Opened::new(device, false, None);
    build(&open, None, options, source, env, progress)
}

/// Adds up the content of the source.
fn measure(options: &MkfsOptions, source: &dyn Source, progress: &dyn Progress) -> Result<Content> {
    let geometry = options.geometry()?;
    let content = source.measure(Measure::new(geometry.sector_size, options.checksum.size()))?;
    progress.start(content.entries, content.data);
    Ok(content)
}

/// The guessed size for the content.
fn guess_size(path: &Path, options: &MkfsOptions, content: Option<Content>) -> Result<u64> {
    let Some(content) = content else {
        let context = format!("{}: a new image of an empty filesystem needs a size", path.display());
        return Err(Error::invalid(context));
    };
    let (data, metadata) = (options.data_profile().copies(), options.metadata_profile().copies());
    let node_size = options.geometry()?.node_size;
    Ok(content.filesystem_size(node_size, data, metadata).max(minimum(options)))
}

/// Whether the new filesystem is full, and not that of the host.
fn is_full(error: &Error) -> bool {
    error.kind() == ErrorKind::NoSpace && std::error::Error::source(error).is_none()
}

/// Prefixes an error with the target's path if it lacks it.
fn named(path: &Path) -> impl FnOnce(Error) -> Error + use<> {
    let shown = path.display().to_string();
    move |error| if error.to_string().contains(&shown) { error } else { error.context(shown) }
}

/// Writes the filesystem. `path` is the image's; the copy skips the image if it lies in its own source.
fn build(
    open: &Opened,
    path: Option<&Path>,
    options: &MkfsOptions,
    source: Option<&dyn Source>,
    env: Arc<dyn Env>,
    progress: &dyn Progress,
) -> Result<Made> {
    let plan = check(&*open.device, options, &*env)?;
    open.is_overwritten.set(true);
    let Some(source) = source else { return write(&*open.device, options, &plan) };
    let image = path.and_then(|path| ImageName::metadata(path).ok()).map(|meta| file_of(&meta));
    let held = Arc::new(HeldSuperblocks::new(Arc::clone(&open.device)));
    let mut made = write(&*held, options, &plan)?;
    {
        let device: Arc<dyn BlockDevice> = Arc::<HeldSuperblocks>::clone(&held);
        let volume = Volume::open(vec![device], Mode::ReadWrite)?;
        let engine_options =
            Options { cache_bytes: CLEAN_BYTES, dirty_bytes: DIRTY_BYTES, env, ..Options::default() };
        let engine = Engine::open(volume, engine_options)?;
        // Compression is explicitly asked for here, so it is tried on every file.
        let compress = source.compress().map(|method| Compress { method, force: true });
        let fs =
            Filesystem::open(engine, FsOptions { inodes_cached: INODES, compress, ..FsOptions::default() })?;
        source.fill(&fs, image, progress).map_err(no_space(options))?;
        progress.finishing();
        fs.sync().map_err(no_space(options))?;
        if source.shrink() {
            made.total_bytes = shrink(&fs, &held)?;
        }
    }
    held.publish()?;
    if source.shrink() && open.is_file {
        open.device.resize(made.total_bytes)?;
        open.device.flush()?;
    }
    Ok(made)
}

/// Adds the size to the error of a full filesystem.
fn no_space(options: &MkfsOptions) -> impl FnOnce(Error) -> Error + use<> {
    let total = options.total_bytes;
    move |error| match (error.kind(), total) {
        // On a full host a larger filesystem would not help.
        (ErrorKind::NoSpace, Some(total)) if error.host().is_none() => {
            error.context(format!("the source does not fit into {total} bytes"))
        }
        _ => error,
    }
}

/// The target before the filesystem is made.
enum Target {
    Absent,
    /// A regular file that is empty or too small.
    Empty,
    File(u64),
    /// A block device, or a partition: its length is fixed.
    Device,
}

impl Target {
    fn look(path: &Path) -> Result<Self> {
        if ImageName::find(path)?.is_part() {
            return Ok(Self::Device);
        }
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_file() && meta.len() == 0 => Ok(Self::Empty),
            Ok(meta) if meta.is_file() => Ok(Self::File(meta.len())),
            Ok(meta) if meta.is_dir() => {
                Err(Error::new(ErrorKind::IsADirectory, format!("making a filesystem at {}", path.display())))
            }
            // If it is no block device, opening it gives the error.
            Ok(_) => Ok(Self::Device),
            Err(error) if error.kind() == Io::NotFound => match std::fs::symlink_metadata(path) {
                Ok(_) => {
                    let context = format!("{} is a dangling symbolic link", path.display());
                    Err(Error::new(ErrorKind::NotFound, context))
                }
                Err(_) => Ok(Self::Absent),
            },
            Err(error) => Err(Error::from(error).context(path.display())),
        }
    }

    /// The size of an existing file, bytes.
    const fn len(&self) -> Option<u64> {
        match self {
            Self::File(len) => Some(*len),
            Self::Absent | Self::Empty | Self::Device => None,
        }
    }

    /// Opens the target. `grows`: a file grows to the size asked for.
    fn open<'p>(&self, path: &'p Path, options: &MkfsOptions, grows: bool) -> Result<Opened<'p>> {
        if let (Self::Absent, Some(len)) = (self, whole_sectors(options).map_err(named(path))?) {
            let creating = |error: std::io::Error| Error::from(error).context(path.display());
            let name = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/"));
            let name = name.ok_or_else(|| Error::from(ErrorKind::IsADirectory)).map_err(named(path))?;
            let new = NewFile::beside(path, NEW_FILE_MODE).map_err(creating)?;
            let file = new.file().try_clone().map_err(creating)?;
            let device = FileDevice::on_new(file, path, len)?;
            return Ok(Opened::new(Arc::new(device), true, Some((new, name))));
        }
        let device = FileDevice::open(path, Access::ReadWrite)?;
        refuse_foreign(&device, options)?;
        let is_file = !device.is_block_device() && !device.is_part();
        if !device.is_block_device() && !options.force {
            refuse_content(&device)?;
        }
        if let (Some(len), Some(wanted), false) = (self.len(), options.total_bytes, grows)
            && len < wanted
        {
            let what = format!("{} has {len} bytes, expected {wanted} for the filesystem", path.display());
            return Err(Error::invalid(what));
        }
        let open = Opened::new(Arc::new(device), is_file, None);
        open.make_room(options)?;
        Ok(open)
    }
}

/// The size asked for, in whole sectors.
fn whole_sectors(options: &MkfsOptions) -> Result<Option<u64>> {
    let sector = u64::from(options.geometry()?.sector_size);
    match options.total_bytes {
        Some(total) if total > FILE_SIZE_MAX => {
            Err(Error::invalid(format!("size {total}, expected at most {FILE_SIZE_MAX} bytes")))
        }
        total => Ok(total.map(|total| total / sector * sector)),
    }
}

/// Refuses a file with unknown content: only a file of zeros is meant to become an image.
fn refuse_content(device: &FileDevice) -> Result<()> {
    let Some(at) = first_content(device)? else { return Ok(()) };
    let context = format!("{} holds unknown data from byte {at} on", device.describe());
    Err(Error::new(ErrorKind::AlreadyExists, context))
}

/// The open target.
struct Opened<'p> {
    device: Arc<dyn BlockDevice>,
    is_file: bool,
    /// A new file, and its future name.
    new: Option<(NewFile, &'p OsStr)>,
    /// Whether the former content is overwritten.
    is_overwritten: Cell<bool>,
}

impl<'p> Opened<'p> {
    fn new(device: Arc<dyn BlockDevice>, is_file: bool, new: Option<(NewFile, &'p OsStr)>) -> Self {
        Self { device, is_file, new, is_overwritten: Cell::new(false) }
    }

    /// Makes a file as long as the filesystem.
    fn make_room(&self, options: &MkfsOptions) -> Result<()> {
        match whole_sectors(options)? {
            Some(wanted) if self.is_file && self.device.len() < wanted => self.device.resize(wanted),
            _ => Ok(()),
        }
    }

    /// Gives a new file its name.
    fn keep(self) -> Result<()> {
        Ok(self.new.map_or(Ok(()), |(file, name)| file.publish(name, Taken::Keep))?)
    }
}
