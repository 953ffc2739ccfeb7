//! Other users of a file or a block device, and the error that names them.
//!
//! Three sorts of users are looked for:
//! - other Creamery processes, by a BSD lock on the open file (it stays with the open file across a fork, and
//!   udev leaves a block device with such a lock alone); `/proc/locks` and `/proc/PID/fd` show its owner. A writer of
//!   a part of a file only shares that lock, and locks its range (`range_lock`); `/proc/PID/fdinfo` shows the owner of a range;
//! - the kernel on a block device (mount, device mapper, swap), by an exclusive open;
//! - the kernel on a file, through a loop device that has it as backing file. A writer of a loop device locks the file behind it
//!   like a writer of that file, and looks for other loop devices with the same bytes.
//!
//! A process takes the lock first and looks for users afterwards, so that two Creamery processes cannot miss each other.
//! Against the kernel there is no such order: a user may set up a loop device on a file that is open here.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use creamery_base::gate::{self, Reason};
use creamery_base::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, flock};

use crate::Access;
use crate::lock_table::lock_table;
use crate::loop_device::LoopDevice;
use crate::patience::patiently;
use crate::range_lock::{self, Lock, Locked, WHOLE};
use crate::served::{Served, is_server, served, unescape};

/// The extent of a file or device that an opener wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    Whole,
    /// A range of a file. The caller calls [`claim_range`] for it next.
    Part,
}

/// A user of a file or a device.
pub(crate) enum User {
    Process {
        pid: u32,
        name: String,
    },
    /// A Creamery server.
    Server {
        pid: u32,
        name: String,
        mount: Served,
    },
    Mount {
        device: String,
        at: String,
    },
    Btrfs {
        uuid: String,
    },
    Swap,
    Loop {
        device: String,
        mounted_at: Option<String>,
    },
    Holder {
        device: String,
    },
    /// An exclusive open failed and none of the above was found.
    Kernel,
    /// A process that is not visible here holds a lock, or a process held one that has ended since.
    Unknown,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name } => write!(f, "process {pid} ({name}) has it open"),
            Self::Server { pid, name, mount: Served { image, at, .. } } => {
                write!(f, "process {pid} ({name}) has {image} mounted at {at}")
            }
            Self::Mount { device, at } => write!(f, "the kernel has {device} mounted at {at}"),
            Self::Btrfs { uuid } => write!(f, "the kernel has it mounted as a device of the Btrfs {uuid}"),
            Self::Swap => f.write_str("the kernel swaps to it"),
            Self::Loop { device, mounted_at: None } => {
                write!(
                    f,
                    "the kernel has it as backing file of {device}; detach that with losetup -d {device}"
                )
            }
            Self::Loop { device, mounted_at: Some(at) } => {
                write!(f, "the kernel has it as backing file of {device}, which is mounted at {at}")
            }
            Self::Holder { device } => write!(f, "the kernel's block device {device} is built on it"),
            Self::Kernel => f.write_str("the kernel or another process has it open exclusively"),
            Self::Unknown => f.write_str("it is locked by an invisible or just ended process; try again"),
        }
    }
}

fn refuse(path: &Path, user: &User) -> Error {
    let mount = match user {
        User::Process { pid, .. } if is_server(*pid) => served(path, *pid),
        _ => None,
    };
    let user = match (user, mount) {
        (User::Process { pid, name }, Some(mount)) => &User::Server { pid: *pid, name: name.clone(), mount },
        _ => user,
    };
    Error::new(ErrorKind::Busy, format!("{}: {user}", path.display()))
}

/// Returns the kernel as the user of a block device, as far as this process can see it.
fn kernel_user(path: &Path) -> Option<User> {
    kernel_user_of_block(fs::metadata(path).ok()?.rdev())
}

/// Returns the process that has it locked.
fn process_user(path: &Path) -> Option<User> {
    lock_owner(&fs::metadata(path).ok()?)
}

/// Locks the open `file` for `access` and makes sure that the kernel does not use it. Returns the file behind a loop device, if that
/// is locked, too.
pub(crate) fn claim(file: &File, path: &Path, access: Access, extent: Extent) -> Result<Option<File>> {
    let operation = match (access, extent) {
        (Access::ReadOnlyForced, _) => return Ok(None),
        (Access::ReadWrite, Extent::Whole) => FlockOperation::NonBlockingLockExclusive,
        (Access::ReadWrite, Extent::Part) | (Access::ReadOnly, _) => FlockOperation::NonBlockingLockShared,
    };
    lock(file, path, operation)?;
    if (access, extent) == (Access::ReadOnly, Extent::Whole) {
        claim_range(file, path, access, &WHOLE)?;
    }
    let asking = |error: std::io::Error| Error::from(error).context(format!("looking at {}", path.display()));
    let metadata = file.metadata().map_err(asking)?;
    if !metadata.file_type().is_block_device() {
        return match loop_device_on(&metadata) {
            Some(user) => Err(refuse(path, &user)),
            None => Ok(None),
        };
    }
    // A writer's exclusive open has proved that the kernel does not use it; a reader only tries one.
    if access == Access::ReadOnly {
        try_exclusively(path)?;
    }
    // A loop device is no better protected than its backing file.
    let Some(ours) = LoopDevice::at(&sys_of(metadata.rdev())) else { return Ok(None) };
    let behind = match access {
        Access::ReadWrite => claim_behind(&ours),
        _ => {
            let metadata = ours.open_file(false).and_then(|file| file.metadata().ok());
            let user = metadata.and_then(|metadata| lock_owner(&metadata));
            user.map_or(Ok(None), |user| Err(refuse(&ours.path, &user)))
        }
    };
    let told = || format!("the backing file of the loop device {} is in use", path.display());
    behind.map_err(|error| error.context(told()))
}

/// Fails if another process, this one, or the kernel (by a loop device) has the regular file `file` open as an image.
///
/// ```
/// let file = tempfile::tempfile()?;
/// creamery_device::check_unused(&file, "a new file".as_ref())?;
/// # Ok::<(), creamery_base::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Busy`], with the user; `path` is the name of the file in the message. The host's errors.
pub fn check_unused(file: &File, path: &Path) -> Result<()> {
    hold_unused(file, path)?;
    let unlocked = flock(file, FlockOperation::Unlock);
    unlocked.map_err(|error| Error::from(std::io::Error::from(error)))
}

/// Takes `file` if it passes [`check_unused`]: no process can open it as an image while it is open. If it is a loop device, this returns
/// the file behind it, which the caller must keep open as long.
///
/// ```
/// let file = tempfile::NamedTempFile::new()?;
/// let other = file.reopen()?;
/// creamery_device::hold_unused(file.as_file(), "a file".as_ref())?;
/// assert!(creamery_device::check_unused(&other, "a file".as_ref()).is_err());
/// # Ok::<(), creamery_base::Error>(())
/// ```
///
/// # Errors
/// Those of [`check_unused`].
pub fn hold_unused(file: &File, path: &Path) -> Result<Option<File>> {
    patiently(|| claim(file, path, Access::ReadWrite, Extent::Whole))
}

/// Fails if a visible user has the regular file with these attributes open as an image. Needs no open file. A process that the
/// calling user may not inspect is visible by its lock alone.
///
/// ```
/// let file = tempfile::NamedTempFile::new()?;
/// let meta = file.path().metadata()?;
/// creamery_device::refuse_seen_use(&meta, file.path())?;
/// creamery_device::hold_unused(file.as_file(), file.path())?;
/// assert!(creamery_device::refuse_seen_use(&meta, file.path()).is_err());
/// # Ok::<(), creamery_base::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Busy`], with the user; `path` is the name of the file in the message.
pub fn refuse_seen_use(file: &fs::Metadata, path: &Path) -> Result<()> {
    let is_locked = || is_locked(file).then_some(User::Unknown);
    match lock_owner(file).or_else(|| loop_device_on(file)).or_else(is_locked) {
        Some(user) => Err(refuse(path, &user)),
        None => Ok(()),
    }
}

/// The deepest stack of loop devices on one another.
const LOOPS_MAX: usize = 8;

/// Returns device and inode number of the file behind the loop device `node`, or behind the loop device of which `node` is a partition. If that file is a loop
/// device itself, the file behind it follows, and so on. Empty for every other node.
///
/// ```
/// # let file = tempfile::NamedTempFile::new()?;
/// assert!(creamery_device::backing_files(&file.path().metadata()?).is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn backing_files(node: &fs::Metadata) -> Vec<(u64, u64)> {
    let mut files = Vec::new();
    let mut node = Some(node.clone());
    while let Some(at) = node.filter(|at| at.file_type().is_block_device() && files.len() < LOOPS_MAX) {
        let Some(behind) = LoopDevice::at(&sys_of(at.rdev())) else { break };
        files.extend(behind.file());
        node = fs::metadata(&behind.path).ok().filter(|file| behind.is_on(file));
    }
    files
}

/// Returns device and inode number of the file that holds an image: `image` itself, or the file behind it if it is a loop device.
///
/// ```
/// # use std::os::unix::fs::MetadataExt;
/// # let file = tempfile::NamedTempFile::new()?;
/// let meta = file.path().metadata()?;
/// assert_eq!(creamery_device::file_of(&meta), (meta.dev(), meta.ino()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn file_of(image: &fs::Metadata) -> (u64, u64) {
    backing_files(image).pop().unwrap_or_else(|| (image.dev(), image.ino()))
}

/// Locks the backing file of a loop device that is ours for writing, like a writer of that file does.
fn claim_behind(ours: &LoopDevice) -> Result<Option<File>> {
    let is_whole = ours.bytes == WHOLE;
    // If it cannot be opened, for example because it has no name any more, nobody else can open it either.
    let file = ours.open_file(!is_whole);
    if let Some(file) = &file {
        if is_whole {
            lock(file, &ours.path, FlockOperation::NonBlockingLockExclusive)?;
        } else {
            lock(file, &ours.path, FlockOperation::NonBlockingLockShared)?;
            claim_range(file, &ours.path, Access::ReadWrite, &ours.bytes)?;
        }
    }
    for other in LoopDevice::all().filter(|other| other.overlaps(ours)) {
        let node = other.node();
        if node.exists() {
            try_exclusively(&node)?;
        }
    }
    Ok(file)
}

/// Opens the block device at `path` exclusively, which also keeps mounts and swap away.
/// Errors: in use by another process or the kernel; `opening` makes the others.
pub(crate) fn open_exclusively(
    path: &Path,
    access: Access,
    opening: impl Fn(std::io::Error) -> Error,
) -> Result<File> {
    // Some uses are short: two readers that try at the same time see each other, and losetup(8) opens a device that another process has
    // just attached, and sees that it is not free. A use with a visible user lasts.
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(10);
    for attempt in 0.. {
        match OpenOptions::new()
            .read(true)
            .write(access == Access::ReadWrite)
            .custom_flags(libc::O_EXCL)
            .open(path)
        {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            opened => return opened.map_err(opening),
        }
        // A reader has its own lock by now, and readers do not keep each other away.
        let seen = kernel_user(path).or_else(|| process_user(path).filter(|_| access == Access::ReadWrite));
        match seen {
            None if attempt < TRIES => gate::passing(Reason::Device, || std::thread::sleep(PAUSE)),
            user => {
                let user = user.or_else(|| process_user(path)).unwrap_or(User::Kernel);
                return Err(refuse(path, &user));
            }
        }
    }
    unreachable!("the loop returns")
}

/// Checks whether the kernel or a process has the block device open exclusively.
fn try_exclusively(path: &Path) -> Result<()> {
    let opening = |error: std::io::Error| Error::from(error).context(format!("opening {}", path.display()));
    open_exclusively(path, Access::ReadOnly, opening).map(drop)
}

/// Locks a range of a file that was claimed.
pub(crate) fn claim_range(file: &File, path: &Path, access: Access, range: &Range<u64>) -> Result<()> {
    let wanted = match access {
        Access::ReadOnlyForced => return Ok(()),
        Access::ReadOnly => Lock::Read,
        Access::ReadWrite => Lock::Write,
    };
    for attempt in 0.. {
        match range_lock::lock(file, range, wanted) {
            Locked::Yes => return Ok(()),
            Locked::Taken => {}
            Locked::Failed(error) => return without_locks(error, path),
        }
        let owner = file.metadata().ok().and_then(|metadata| range_owner(&metadata, range, wanted));
        if owner.is_some() || attempt >= ENDING_TRIES {
            return Err(refuse(path, &owner.unwrap_or(User::Unknown)));
        }
        gate::passing(Reason::Device, || std::thread::sleep(LOCK_PAUSE));
    }
    unreachable!("the loop returns")
}

/// Decides whether a failed lock call is an error, or the filesystem has no locks.
fn without_locks(error: std::io::Error, path: &Path) -> Result<()> {
    match error.raw_os_error() {
        // Some network filesystems have no locks, so no user can be detected. Others need a descriptor that is open for the access of
        // the lock, and fail with EBADF otherwise.
        Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS | libc::EBADF) => Ok(()),
        _ => Err(Error::from(error).context(format!("locking {}", path.display()))),
    }
}

/// Further tries of a lock without a visible owner: a process that is ending closes its files a moment before it drops its locks.
const ENDING_TRIES: u32 = 6;
/// The pause between two tries of a lock.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Returns the weaker lock to try after `operation` failed with `errno`. NFS and CIFS take an exclusive lock only on a descriptor that is open for
/// writing; a shared lock still conflicts with every writer.
fn weaker(operation: FlockOperation, errno: rustix::io::Errno) -> Option<FlockOperation> {
    let is_refused =
        (operation, errno) == (FlockOperation::NonBlockingLockExclusive, rustix::io::Errno::BADF);
    is_refused.then_some(FlockOperation::NonBlockingLockShared)
}

fn lock(file: &File, path: &Path, mut operation: FlockOperation) -> Result<()> {
    // udev takes a shared lock while it looks at a block device that was just closed or attached.
    const UDEV_TRIES: u32 = 40;
    for attempt in 0.. {
        match flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => match weaker(operation, error) {
                Some(weaker) => {
                    operation = weaker;
                    continue;
                }
                None => return without_locks(error.into(), path),
            },
        }
        let owner = file.metadata().ok().and_then(|metadata| lock_owner(&metadata)).unwrap_or(User::Unknown);
        let tries = match &owner {
            User::Process { name, .. } if name.contains("udev") => UDEV_TRIES,
            User::Unknown => ENDING_TRIES,
            _ => 0,
        };
        if attempt >= tries {
            return Err(refuse(path, &owner));
        }
        gate::passing(Reason::Device, || std::thread::sleep(LOCK_PAUSE));
    }
    unreachable!("the loop returns")
}

/// Returns the process with a lock on a part of `range` that conflicts with `wanted`.
fn range_owner(metadata: &fs::Metadata, range: &Range<u64>, wanted: Lock) -> Option<User> {
    let holder = process_ids().find(|&pid| {
        descriptors_of(pid, metadata).any(|descriptor| range_lock::holds(pid, &descriptor, range, wanted))
    });
    holder.map(process)
}

/// Returns the process that holds a BSD lock on the file, if there is one.
pub(crate) fn lock_owner(metadata: &fs::Metadata) -> Option<User> {
    // 12: FLOCK  ADVISORY  WRITE 4711 00:1c:30408 0 EOF
    let locks = lock_table().ok()?;
    let mut locked = false;
    for line in locks.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().filter(|&field| field != "->").collect();
        let [_, "FLOCK", _, _, pid, place, ..] = fields[..] else { continue };
        // The device number is not compared: the one shown there is not always the one that stat shows.
        if place.rsplit(':').next() != Some(&metadata.ino().to_string()) {
            continue;
        }
        let Ok(pid) = pid.parse::<u32>() else { continue };
        if process_has_open(pid, metadata) {
            return Some(process(pid));
        }
        locked = true;
    }
    if !locked {
        return None;
    }
    // The locking process has passed the open file to a child and ended. This process has it open too, only to ask.
    let mut others = process_ids().filter(|&pid| pid != std::process::id());
    others.find(|&pid| process_has_open(pid, metadata)).map(process)
}

/// Whether a file has a BSD lock of any process. Not visible on filesystems that give each subvolume a device number.
fn is_locked(file: &fs::Metadata) -> bool {
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let locks = lock_table().unwrap_or_default();
    locks.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        fields.any(|field| field == "FLOCK") && fields.any(|field| field == place)
    })
}

fn process(pid: u32) -> User {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut name = name.trim_end().to_owned();
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    // The name alone would not tell the user about a scrub in the background, which has no terminal.
    if name == "creamery" && words.split(|byte| *byte == 0).nth(1) == Some(b"scrub") {
        name.push_str(" scrub");
    }
    User::Process { pid, name }
}

fn process_ids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub(crate) fn process_has_open(pid: u32, wanted: &fs::Metadata) -> bool {
    descriptors_of(pid, wanted).next().is_some()
}

/// Returns the descriptors by which a process has the file open.
fn descriptors_of(pid: u32, wanted: &fs::Metadata) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries
        .filter(move |entry| fs::metadata(entry.path()).is_ok_and(|open| same_file(&open, wanted)))
        .filter_map(|entry| entry.file_name().into_string().ok())
}

fn same_file(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Returns the kernel's name of a block device, for example `loop0`.
fn block_name(rdev: u64) -> String {
    let link = fs::read_link(sys_of(rdev)).unwrap_or_default();
    link.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn sys_of(rdev: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", libc::major(rdev), libc::minor(rdev)))
}

/// Whether a block device is write-protected.
pub(crate) fn takes_no_writes(rdev: u64) -> bool {
    fs::read_to_string(sys_of(rdev).join("ro")).is_ok_and(|word| word.trim() == "1")
}

fn kernel_user_of_block(rdev: u64) -> Option<User> {
    let name = block_name(rdev);
    // A mounted partition keeps its whole disk busy as well.
    let entries = fs::read_dir(sys_of(rdev)).into_iter().flatten().flatten();
    let partitions = entries.filter(|entry| entry.path().join("partition").exists());
    let names = std::iter::once(name.clone())
        .chain(partitions.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    for device in names.collect::<Vec<_>>() {
        if let Some(at) = mount_point(&device) {
            return Some(User::Mount { device: format!("/dev/{device}"), at });
        }
    }
    if let Some(uuid) = btrfs_with_device(&name) {
        return Some(User::Btrfs { uuid });
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().skip(1).any(|line| line.split_ascii_whitespace().next() == Some(&format!("/dev/{name}")))
    {
        return Some(User::Swap);
    }
    let holder = fs::read_dir(sys_of(rdev).join("holders")).ok()?.flatten().next()?;
    Some(User::Holder { device: holder.file_name().to_string_lossy().into_owned() })
}

/// Returns the mount point of the block device with this kernel name, if this process can see it.
fn mount_point(name: &str) -> Option<String> {
    let numbers = fs::read_to_string(format!("/sys/class/block/{name}/dev")).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        // 36 25 7:0 / /mnt rw - ext4 /dev/loop0 rw; Btrfs shows a number of its own, so the source counts too.
        let (mount, filesystem) = line.split_once(" - ")?;
        let mount: Vec<&str> = mount.split(' ').collect();
        let source = filesystem.split(' ').nth(1)?;
        let matches = mount.get(2) == Some(&numbers.trim_end()) || is_block(source, numbers.trim_end());
        matches.then(|| unescape(mount.get(4).unwrap_or(&"?")))
    })
}

/// Whether the mount source is a device node with these numbers. Other sources may be any names, also of
/// servers that do not answer, and are not touched.
fn is_block(source: &str, numbers: &str) -> bool {
    source.starts_with("/dev/")
        && fs::metadata(unescape(source)).is_ok_and(|metadata| {
            let rdev = metadata.rdev();
            metadata.file_type().is_block_device()
                && format!("{}:{}", libc::major(rdev), libc::minor(rdev)) == numbers
        })
}

/// Returns the UUID of the mounted Btrfs that has this device, from the kernel's list, which includes Btrfs with several devices.
fn btrfs_with_device(name: &str) -> Option<String> {
    let entries = fs::read_dir("/sys/fs/btrfs").ok()?.flatten();
    entries
        .filter(|entry| entry.path().join("devices").join(name).exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .next()
}

/// Returns the loop device that has the file as backing file, if there is one.
fn loop_device_on(file: &fs::Metadata) -> Option<User> {
    let on = LoopDevice::all().find(|device| device.is_on(file))?;
    Some(User::Loop { mounted_at: mount_point(&on.name), device: on.node().display().to_string() })
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_filesystem_without_locks_is_no_error_and_other_answers_are() {
        let answers = [
            (Errno::NOLCK, true),
            (Errno::OPNOTSUPP, true),
            (Errno::NOSYS, true),
            (Errno::BADF, true),
            (Errno::IO, false),
            (Errno::ACCESS, false),
            (Errno::INTR, false),
        ];
        for (errno, is_fine) in answers {
            assert_eq!(without_locks(errno.into(), Path::new("disk.img")).is_ok(), is_fine, "{errno}");
        }
    }

    #[test]
    fn a_shared_lock_is_asked_for_where_an_exclusive_one_needs_a_writable_descriptor() {
        let (exclusive, shared) =
            (FlockOperation::NonBlockingLockExclusive, FlockOperation::NonBlockingLockShared);
        assert_eq!(weaker(exclusive, Errno::BADF), Some(shared));
        assert_eq!(weaker(exclusive, Errno::NOLCK), None);
        assert_eq!(weaker(shared, Errno::BADF), None);
    }
}
