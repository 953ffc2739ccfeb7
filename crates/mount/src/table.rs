//! Rows of the mount table, `/proc/self/mountinfo`, that belong to mounts of Creamery.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{
    Access, BlockDevice, DeviceId, FileDevice, ImageName, connections_of, is_free, server_of,
};
use creamery_fuse::{HeldMount, PinnedPoint};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::io::Errno;

use crate::control::{Channel, is_of_a_dead_server};

/// The type of our mounts in the mount table, unless the mounter has chosen another (`subtype=`).
const KIND: &[u8] = b"fuse.creamery";
/// Prefix of the type of every FUSE mount.
const FUSE: &[u8] = b"fuse";
/// Time that a server may take to answer.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The kernel's list of the FUSE connections of all namespaces, by the minor number of their devices.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// A mount of ours, from its row in the mount table.
#[derive(Clone)]
pub(crate) struct MountedImage {
    /// The number of the mount, unique as long as this one exists.
    pub(crate) id: u64,
    /// Resolved mount point.
    pub(crate) point: PathBuf,
    /// The image file or block device, unless the mounter has set another name (`fsname=`).
    pub(crate) image: PathBuf,
    /// The user number of the mounter.
    pub(crate) mounter: u32,
    /// Whether the filesystem is read-only, and not only this mount of it.
    pub(crate) is_read_only: bool,
    /// Whether only a directory or a file of the filesystem is mounted there (`mount --bind`).
    pub(crate) is_part: bool,
    /// The type in the mount table.
    kind: Vec<u8>,
    /// The device number of the filesystem, "major:minor", the same for all its mounts. Another filesystem can get it when the last of them
    /// is gone.
    device: String,
    /// The inode of the directory that represents the connection to the server in sysfs, unique among connections; `None` if
    /// these directories are not visible.
    connection: Option<u64>,
}

impl MountedImage {
    /// Whether it is still mounted somewhere: at another place (a bind mount), or in another namespace, which only
    /// the connection shows.
    pub(crate) fn lives_on(&self) -> Result<bool> {
        if self.connection.is_some() {
            return Ok(connection_of(&self.device) == self.connection);
        }
        Ok(self.is_in(&table()?))
    }

    /// Whether the path of its mount point leads to it: no other mount lies over that, or over a directory on the way. Does not ask the
    /// server. True if the caller may not look.
    pub(crate) fn is_reached(&self) -> bool {
        self.is_of_a_directory().is_some()
    }

    /// Whether it is a mount of a directory, and not of a file (`mount --bind`), if known; `None` if its path does not [lead to it](Self::is_reached).
    pub(crate) fn is_of_a_directory(&self) -> Option<bool> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        match statx(CWD, &self.point, flags, StatxFlags::TYPE) {
            Ok(found) => {
                let is_it = self.device == format!("{}:{}", found.stx_dev_major, found.stx_dev_minor);
                is_it.then(|| FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory)
            }
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(_) => Some(true),
        }
    }

    /// The error that another mount hides this one.
    pub(crate) fn hidden(&self) -> Error {
        let (image, point) = (self.image.display(), self.point.display());
        Error::new(ErrorKind::NotFound, format!("{image}: another mount hides its mount at {point}"))
            .advise("unmount that first")
    }

    /// Another reachable mount of the same filesystem. Prefers one of a directory: only through one can the server be asked.
    pub(crate) fn another(&self) -> Result<Option<Self>> {
        let table = table()?;
        let others = rows(&table).filter(|row| row.device == self.device && row.id != self.id);
        let mut of_a_file = None;
        for other in others.map(Self::from) {
            match other.is_of_a_directory() {
                Some(true) => return Ok(Some(other)),
                Some(false) => of_a_file = Some(other),
                None => {}
            }
        }
        Ok(of_a_file)
    }

    /// The device number of the filesystem, "major:minor".
    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// Whether a table contains it, as far as rows show: a new filesystem may have its device number, but no other one has its image before
    /// its server has ended.
    fn is_in(&self, table: &[u8]) -> bool {
        let source = self.image.as_os_str().as_bytes();
        rows(table).any(|row| row.device == self.device && row.kind == self.kind && row.source == source)
    }
}

/// The inode of the directory of a connection, which exists until the last unmount of its filesystem.
fn connection_of(device: &str) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let (_, minor) = device.split_once(':')?;
    std::fs::metadata(Path::new(CONNECTIONS).join(minor)).ok().map(|meta| meta.ino())
}

/// The mounts of the filesystem `device` that a thread sees: their numbers, and whether they are read-only. Empty if its table cannot
/// be read.
pub(crate) fn mounts_seen_by(whose: &str, device: &str) -> Vec<(u64, bool)> {
    let table = std::fs::read(format!("/proc/{whose}/mountinfo")).unwrap_or_default();
    let ours = rows(&table).filter(|row| row.device == device);
    ours.map(|row| (row.id, row.flags.iter().any(|flag| flag == "ro"))).collect()
}

/// The device number of the mount at `point`; `None` if it is not visible.
pub(crate) fn device_at(point: &Path) -> Option<String> {
    let table = table().ok()?;
    rows(&table).filter(|row| row.point == point.as_os_str().as_bytes()).last().map(|row| row.device)
}

/// Whether a mount of `image` is visible: then its server lives.
pub(crate) fn is_mounted(image: &Path) -> bool {
    mount_of(image).is_ok_and(|mount| mount.is_some())
}

/// The latest visible mount of `image`; one that another mount hides only if there is no other.
pub(crate) fn mount_of(image: &Path) -> Result<Option<MountedImage>> {
    let mut mounts = ours_of(image)?;
    let reached = mounts.iter().rposition(MountedImage::is_reached);
    Ok(reached.map(|at| mounts.remove(at)).or_else(|| mounts.pop()))
}

/// All visible mounts of `image`, the latest last, under any name of the image.
///
/// The table has the names with which images were mounted, and an image may have another name by now: servers know their images. But a server
/// may hang, and asking it keeps its mount in use for a moment. So if only one mount has that name, it is not asked if its server is the process that
/// has locked the image; and of several the mount of that process comes first. The lock alone proves nothing: a server may have inherited it from the process that started
/// it.
pub(crate) fn ours_of(image: &Path) -> Result<Vec<MountedImage>> {
    let wanted = std::path::absolute(image).unwrap_or_else(|_| image.to_owned());
    let table = table()?;
    let source = wanted.as_os_str().as_bytes();
    let identity = identity_of(image);
    let is_same = |row: &Row| {
        let other = Path::new(OsStr::from_bytes(&row.source));
        let is_named_so = row.kind.starts_with(FUSE) && row.source == source;
        is_named_so || row.kind == KIND && identity.is_some() && identity_of(other) == identity
    };
    let (same, others): (Vec<Row>, Vec<Row>) =
        rows(&table).filter(|row| row.kind.starts_with(FUSE)).partition(is_same);
    let known = |rows: Vec<Row>| rows.into_iter().map(MountedImage::from).collect::<Vec<_>>();
    let (Some(identity), Ok(name)) = (identity, ImageName::find(image)) else { return Ok(known(same)) };
    let others: Vec<Row> = others.into_iter().filter(|row| row.kind == KIND).collect();
    if others.is_empty() && same.is_empty() {
        return Ok(Vec::new());
    }
    let server = name.file().metadata().ok().filter(|_| !name.is_part()).and_then(|meta| server_of(&meta));
    let connections = server.map(connections_of).unwrap_or_default();
    let is_of_server = |row: &Row| connections.iter().any(|number| row.device == format!("0:{number}"));
    if let [row] = &same[..]
        && server.is_some()
        && (is_of_server(row) || connections.is_empty() && others.is_empty())
    {
        return Ok(known(same));
    }
    // A server locks its image while it lives.
    let is_free = is_free(name.file());
    let (sure, likely) = told_apart(known(same), identity, is_free);
    if !sure.is_empty() || is_free {
        return Ok(if sure.is_empty() { likely } else { sure });
    }
    let (of_server, others): (Vec<Row>, Vec<Row>) = others.into_iter().partition(is_of_server);
    for rows in [of_server, others] {
        let (renamed, _) = told_apart(known(rows), identity, is_free);
        if !renamed.is_empty() {
            return Ok(renamed);
        }
    }
    Ok(likely)
}

/// Separates the mounts of the image `wanted`, as their servers say, from those whose servers do not answer.
fn told_apart(
    mounts: Vec<MountedImage>,
    wanted: DeviceId,
    is_free: bool,
) -> (Vec<MountedImage>, Vec<MountedImage>) {
    let told = images_told(&mounts);
    let (mut sure, mut likely) = (Vec::new(), Vec::new());
    for (mounted, told) in mounts.into_iter().zip(told) {
        match told {
            ImagesAnswer::Images(images) if images.contains(&wanted.numbers()) => sure.push(mounted),
            ImagesAnswer::Dead => likely.push(mounted),
            ImagesAnswer::Nothing if !is_free => likely.push(mounted),
            ImagesAnswer::Images(_) | ImagesAnswer::Nothing => {}
        }
    }
    (sure, likely)
}

/// The answer of a server about its images.
enum ImagesAnswer {
    Images(Vec<[u64; 3]>),
    /// The server hangs, rejects this user, or has another version; or another mount hides this one.
    Nothing,
    /// The server has died.
    Dead,
}

/// Asks the servers of several mounts at the same time.
fn images_told(mounts: &[MountedImage]) -> Vec<ImagesAnswer> {
    let asked: Vec<_> = mounts
        .iter()
        .map(|mounted| {
            let (answer, answers) = mpsc::channel();
            let mounted = mounted.clone();
            // A thread that waits for a hanging server ends with the server, or with the process.
            std::thread::spawn(move || {
                let _ = answer.send(image_told(&mounted)); // the receiver may have given up
            });
            answers
        })
        .collect();
    let begun = Instant::now();
    let wait = |answers: mpsc::Receiver<ImagesAnswer>| {
        answers.recv_timeout(ANSWER_MAX.saturating_sub(begun.elapsed())).unwrap_or(ImagesAnswer::Nothing)
    };
    asked.into_iter().map(wait).collect()
}

fn image_told(mounted: &MountedImage) -> ImagesAnswer {
    if !mounted.is_reached() {
        return ImagesAnswer::Nothing;
    }
    match Channel::open(mounted).and_then(|channel| channel.statistics()) {
        Ok(statistics) if statistics.images.is_empty() => ImagesAnswer::Nothing,
        Ok(statistics) => ImagesAnswer::Images(statistics.images),
        Err(error) if is_of_a_dead_server(&error) => ImagesAnswer::Dead,
        Err(_) => ImagesAnswer::Nothing,
    }
}

/// All visible mounts of ours, and whether each is read-only, by its filesystem or by the mount.
pub(crate) fn ours() -> Result<Vec<(MountedImage, bool)>> {
    let table = table()?;
    let ours = rows(&table).filter(|row| row.kind == KIND);
    let with_flag = |row: Row| (row.flags.iter().any(|flag| flag == "ro"), MountedImage::from(row));
    Ok(ours.map(with_flag).map(|(is_read_only, mounted)| (mounted, is_read_only)).collect())
}

/// The identity of an image, independent of its name. `None` if it does not exist, or is an unreadable part of a disk.
fn identity_of(image: &Path) -> Option<DeviceId> {
    let name = ImageName::find(image).ok()?;
    if name.is_part() {
        return FileDevice::open(image, Access::ReadOnlyForced).ok().map(|part| part.id());
    }
    std::fs::metadata(name.file()).ok().as_ref().and_then(DeviceId::of_whole)
}

/// The mount of ours at `dir`. Errors: nothing is mounted there; another filesystem is.
pub(crate) fn mounted_at(dir: &Path) -> Result<MountedImage> {
    let point = resolve(dir);
    let table = table()?;
    let row = rows(&table)
        .filter(|row| row.point == point.as_os_str().as_bytes())
        .last()
        .ok_or_else(|| Error::invalid(format!("{}: nothing is mounted there", dir.display())))?;
    let (is_ours, may_be_ours) = (row.kind == KIND, row.kind.starts_with(FUSE));
    let kind = row.kind.escape_ascii().to_string();
    let mounted = MountedImage::from(row);
    if is_ours || may_be_ours && Channel::open(&mounted).is_ok_and(|channel| channel.statistics().is_ok()) {
        return Ok(mounted);
    }
    Err(Error::invalid(format!("{}: expected a mount of an image, found {kind}", dir.display())))
}

/// The mount of ours at `dir`, held: the row of the table and later operations concern this mount.
/// Errors: those of [`mounted_at`]; another mount took its place meanwhile.
pub(crate) fn held_at(dir: &Path) -> Result<(MountedImage, PinnedPoint, HeldMount)> {
    // From here on the server, which may be another user's, cannot redirect to another mount.
    let point = PinnedPoint::open(&mounted_at(dir)?.point)?;
    let held = point.hold()?;
    // The earlier row may belong to a mount that is gone, whose number this one has now.
    let mounted = mounted_at(dir)?;
    if mounted.id == held.number().id {
        return Ok((mounted, point, held));
    }
    Err(Error::new(ErrorKind::NotFound, format!("{}: another mount took its place", dir.display())))
}

/// The mounts below the mount with the number `id`, and below those: mount point, type and source, in words. `None` without any.
pub(crate) fn shown_below(id: u64) -> Result<Option<String>> {
    /// Mounts that are named; further ones are counted.
    const NAMED: usize = 4;
    let table = table()?;
    let below = below(&table, id);
    let show = |row: &Row| {
        let [point, kind, source] =
            [&row.point, &row.kind, &row.source].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        format!("{point} ({kind} {source})")
    };
    let mut shown: Vec<String> = below.iter().take(NAMED).map(show).collect();
    if below.len() > NAMED {
        shown.push(format!("{} more", below.len() - NAMED));
    }
    Ok((!shown.is_empty()).then(|| shown.join(", ")))
}

/// The rows of the mounts below the mount with the number `id`. Paths do not show that: a mount hidden by this one has such a path, too.
fn below(table: &[u8], id: u64) -> Vec<Row> {
    let mut rest: Vec<Row> = rows(table).filter(|row| row.id != id).collect();
    let (mut found, mut parents) = (Vec::new(), HashSet::from([id]));
    loop {
        let (below, others): (Vec<Row>, Vec<Row>) =
            rest.into_iter().partition(|row| parents.contains(&row.parent));
        if below.is_empty() {
            return found;
        }
        parents.extend(below.iter().map(|row| row.id));
        found.extend(below);
        rest = others;
    }
}

/// Whether the filesystem with this device number is a mounted image of ours: true, or false if the type in the table does
/// not say so; `None` if it is not a FUSE mount.
pub(crate) fn is_ours(device: u64) -> Result<Option<bool>> {
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let table = table()?;
    let row = rows(&table).find(|row| row.device == device && row.kind.starts_with(FUSE));
    Ok(row.map(|row| row.kind == KIND))
}

/// Whether anything is mounted on the directory `dir`, or on the target of a link.
pub(crate) fn is_point(dir: &Path) -> Result<bool> {
    let point = resolve(dir);
    Ok(rows(&table()?).any(|row| row.point == point.as_os_str().as_bytes()))
}

/// The mount points of Linux' own Btrfs, the latest first. For a filesystem with several devices the table names only one. Those that
/// name `device` come before the others; the flag says whether a mount does.
pub(crate) fn points_of_linux(device: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let device = device.canonicalize().map_err(|error| Error::from(error).context(device.display()))?;
    let table = table()?;
    let (named, others): (Vec<Row>, Vec<Row>) = rows(&table)
        .filter(|row| row.kind == b"btrfs")
        .partition(|row| row.source == device.as_os_str().as_bytes());
    let point = |row: Row| PathBuf::from(OsStr::from_bytes(&row.point));
    let named = named.into_iter().rev().map(|row| (point(row), true));
    Ok(named.chain(others.into_iter().rev().map(|row| (point(row), false))).collect())
}

/// Device and inode of the mounts below the directory `dir`, without one at it.
pub(crate) fn points_below(dir: &Path) -> Result<HashSet<(u64, u64)>> {
    use std::os::unix::fs::MetadataExt;
    let dir = resolve(dir);
    let table = table()?;
    let points = rows(&table).map(|row| PathBuf::from(OsStr::from_bytes(&row.point)));
    let below = points.filter(|point| point.starts_with(&dir) && *point != dir);
    let found = below.filter_map(|point| std::fs::symlink_metadata(point).ok());
    Ok(found.map(|meta| (meta.dev(), meta.ino())).collect())
}

/// The mount point at or above `path`, and the directory of its filesystem that is mounted there.
pub(crate) fn point_of(path: &Path) -> Result<Option<(PathBuf, PathBuf)>> {
    let path = path.canonicalize().map_err(|error| Error::from(error).context(path.display()))?;
    let place = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let table = table()?;
    let above = rows(&table).map(|row| (place(&row.point), place(&row.root)));
    // Of several mounts at one point the last one is on top.
    Ok(above.filter(|(point, _)| path.starts_with(point)).max_by_key(|(point, _)| point.components().count()))
}

/// The flags of the FUSE mount at `point`; `None` if it is not visible.
pub(crate) fn flags_at(point: &Path) -> Option<Vec<String>> {
    let table = table().ok()?;
    let row = rows(&table).filter(|row| row.point == point.as_os_str().as_bytes()).last()?;
    row.kind.starts_with(FUSE).then_some(row.flags)
}

/// Whether there is a FUSE mount at `point`, also if this user may not look into it.
#[must_use]
pub fn is_fuse_mount(point: &Path) -> bool {
    std::path::absolute(point).is_ok_and(|point| flags_at(&point).is_some())
}

fn table() -> Result<Vec<u8>> {
    std::fs::read("/proc/self/mountinfo")
        .map_err(|error| Error::from(error).context("reading the mount table"))
}

/// Links in a row that are followed, as on Linux.
const LINKS_MAX: usize = 40;

/// The absolute path, in the form of the mount table. Does not look at the directory itself, whose server may be dead. A link to it is
/// followed; its parent directory shows whether it is a link.
fn resolve(dir: &Path) -> PathBuf {
    let named = resolve_folder(dir);
    let mut place = named.clone();
    for _ in 0..LINKS_MAX {
        let Ok(to) = std::fs::read_link(&place) else { return place };
        place = resolve_folder(&place.parent().unwrap_or(Path::new("/")).join(to));
    }
    named
}

/// The absolute path, with links followed, except in its last component.
fn resolve_folder(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (absolute.parent().and_then(|parent| parent.canonicalize().ok()), absolute.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

/// The fields of a row that this module needs.
#[derive(Clone, Debug)]
struct Row {
    /// The number of the mount.
    id: u64,
    /// The number of the parent mount.
    parent: u64,
    device: String,
    /// The directory of the filesystem that is mounted.
    root: Vec<u8>,
    point: Vec<u8>,
    kind: Vec<u8>,
    source: Vec<u8>,
    mounter: u32,
    /// Whether the filesystem is read-only.
    is_read_only: bool,
    /// Flags of the mount and of the filesystem.
    flags: Vec<String>,
}

impl From<Row> for MountedImage {
    fn from(row: Row) -> Self {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        Self {
            id: row.id,
            is_part: row.root != b"/",
            point: path(&row.point),
            image: path(&row.source),
            mounter: row.mounter,
            is_read_only: row.is_read_only,
            connection: connection_of(&row.device),
            kind: row.kind,
            device: row.device,
        }
    }
}

/// Parses rows: id, parent, device, root, point, options, optional fields, "-", type, source, super options. The last row of
/// a point is the mount on top.
fn rows(table: &[u8]) -> impl Iterator<Item = Row> {
    table.split(|&byte| byte == b'\n').filter_map(|row| {
        let mut fields = row.split(|&byte| byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (id, parent) = (number()?, number()?);
        let device = String::from_utf8_lossy(fields.next()?).into_owned();
        let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
        let of_mount = fields.next()?;
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, source) = (unescape(rest.next()?), unescape(rest.next()?));
        let of_filesystem = rest.next().unwrap_or_default();
        let mounter = user_id(of_filesystem).unwrap_or(0);
        let is_read_only = of_filesystem.split(|&byte| byte == b',').any(|word| word == b"ro");
        let words = [of_mount, of_filesystem].into_iter().flat_map(|list| list.split(|&byte| byte == b','));
        let flags = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        Some(Row { id, parent, device, root, point, kind, source, mounter, is_read_only, flags })
    })
}

/// The user number of the mounter, from the kernel's FUSE options.
fn user_id(options: &[u8]) -> Option<u32> {
    let words = std::str::from_utf8(options).ok()?.split(',');
    words.into_iter().find_map(|word| word.strip_prefix("user_id=")?.parse().ok())
}

/// Decodes the three octal digits that the table writes for special characters.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| byte == b'\\') {
            Some(code) => {
                out.push(code);
                rest = &after[3..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stands_for_the_directory_that_it_leads_to() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().canonicalize().expect("is there");
        std::fs::create_dir(path.join("mnt")).expect("is made");
        for (link, to) in [("near", "mnt"), ("far", "near")] {
            std::os::unix::fs::symlink(to, path.join(link)).expect("is made");
        }
        std::os::unix::fs::symlink("round", path.join("round")).expect("is made");
        for name in ["mnt", "near", "far", "near/", "./far/."] {
            assert_eq!(resolve(&path.join(name)), path.join("mnt"), "{name}");
        }
        assert_eq!(resolve(&path.join("round")), path.join("round"));
        assert_eq!(resolve(&path.join("none")), path.join("none"));
    }

    #[test]
    fn the_last_row_of_a_place_counts_and_odd_names_are_read() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda rw\n\
            30 22 0:40 / /mnt/a\\040b rw shared:1 master:2 - fuse.creamery /tmp/x\\134y rw,user_id=1000,group_id=0\n\
            31 30 0:41 / /mnt/c rw - tmpfs none rw\n";
        let row = |point: &[u8]| rows(table).filter(|row| row.point == point).last();
        let ours = row(b"/mnt/a b").expect("is there");
        assert_eq!((&ours.kind[..], &ours.source[..], &ours.device[..]), (KIND, &b"/tmp/x\\y"[..], "0:40"));
        assert_eq!(ours.flags, ["rw", "rw", "user_id=1000", "group_id=0"]);
        assert_eq!((ours.mounter, row(b"/").expect("is there").mounter), (1000, 0));
        assert_eq!(row(b"/").expect("is there").kind, b"ext4");
        assert!(row(b"/mnt").is_none());
        assert_eq!(rows(b"\n \n- -").count(), 0);
    }

    #[test]
    fn a_mount_lies_below_the_one_that_it_is_mounted_on() {
        let table = b"22 1 8:1 / / rw - ext4 /dev/sda rw\n\
            34 33 0:44 / /m/sub/deep rw - tmpfs none rw\n\
            31 22 0:41 / /m/hidden rw - tmpfs none rw\n\
            30 22 0:40 / /m rw - fuse.creamery /a.img rw\n\
            33 30 0:43 / /m/sub rw - fuse.creamery /b.img rw\n\
            35 30 0:45 / /elsewhere rw - tmpfs none rw\n\
            36 22 0:46 / /m2 rw - tmpfs none rw\n";
        let numbers = |id| below(table, id).iter().map(|row| row.id).collect::<Vec<_>>();
        assert_eq!(numbers(30), [33, 35, 34]);
        assert_eq!(numbers(33), [34]);
        assert!(numbers(36).is_empty() && numbers(99).is_empty());
    }

    #[test]
    fn a_mount_with_the_device_number_of_another_is_another() {
        let row = |text: &str| rows(text.as_bytes()).next().expect("a row");
        let mine = "30 22 0:40 / /mnt rw - fuse.creamery /tmp/disk.img rw,user_id=0\n";
        let mounted = MountedImage { connection: None, ..MountedImage::from(row(mine)) };
        let bound = "31 22 0:40 /dir /srv ro - fuse.creamery /tmp/disk.img rw,user_id=0\n";
        assert!(mounted.is_in(mine.as_bytes()) && mounted.is_in(bound.as_bytes()));
        for next in
            ["30 22 0:40 / /mnt rw - tmpfs none rw", "30 22 0:40 / /mnt rw - fuse.creamery /tmp/other.img rw"]
        {
            assert!(!mounted.is_in(next.as_bytes()), "{next}");
        }
    }
}
