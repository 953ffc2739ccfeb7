//! Finding devices of a filesystem that were not named: for a file in its directory, for a block device among those of the host.
//!
//! Only the superblock of a candidate is read, and only regular files and block devices are opened. At most [`PROBES`] candidates are read:
//! first those whose names are most like that of the first device. If devices are missing, a candidate that has the UUID of the filesystem
//! but no usable superblock is named: it may be the missing one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use creamery_base::{DevId, Error, ErrorKind, Result, Uuid};
use creamery_device::{Access, BlockDevice, DeviceId, FileDevice, ImageName, PartitionTable};
use creamery_format::{MAGIC, RawSuperblock, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, SuperFlags, Superblock};
use zerocopy::FromBytes;

use super::opening::Opening;
use crate::DeviceSet;
use crate::copies::{self, Copy, OpenPurpose};

/// The largest number of devices that are read.
const PROBES: usize = 64;
/// The largest number of entries of a directory whose names are read.
const ENTRIES: usize = 1 << 20;
/// The largest number of files whose partition tables are read.
const TABLES: usize = 16;
/// The largest number of partitions of one device.
const PARTITIONS: u64 = 16;

/// A device that is a member, by its superblock.
pub(super) struct FoundMember {
    pub(super) path: PathBuf,
    pub(super) superblock: Superblock,
    id: DeviceId,
}

impl FoundMember {
    /// Opens the device.
    ///
    /// # Errors
    /// Those of [`FileDevice::open_with`]; [`ErrorKind::Busy`]: another device has its name by now.
    pub(super) fn open(&self, opening: Opening) -> Result<FileDevice> {
        let device = opening.open(&self.path)?;
        if device.id() != self.id {
            let what = format!("{} was replaced while opening it", self.path.display());
            return Err(Error::new(ErrorKind::Busy, what));
        }
        Ok(device)
    }
}

/// The kind of a candidate.
enum Probed {
    Btrfs(FoundMember),
    /// It claims to belong to the filesystem, and cannot be opened.
    Damaged(Error),
    /// The user has no permission to read it.
    Barred,
    Other,
}

/// The devices found beside another one.
#[derive(Default)]
pub(super) struct Beside {
    /// Members, by their superblocks.
    pub(super) members: Vec<FoundMember>,
    /// Seeds that may be members, grouped by filesystem: only the chunk tree says from which seed a filesystem was made.
    pub(super) seeds: Vec<Vec<FoundMember>>,
    /// Devices that may be members but are left out, with the reason, if members are too few.
    pub(super) left_out: Vec<String>,
}

/// Finds the members beside `first` that are not `named`.
///
/// # Errors
/// [`Unsupported`](creamery_base::ErrorKind::Unsupported): two that are found are the same member, with equal generations.
pub(super) fn find(first: &Path, named: &DeviceSet) -> Result<Beside> {
    let known = known(named);
    let Some(leader) = known.iter().max_by_key(|superblock| superblock.generation()) else {
        return Ok(Beside::default());
    };
    // A device may have several names.
    let mut ids: Vec<DeviceId> = named.devices().iter().map(|device| device.id()).collect();
    let (mut found, mut seeds): (Vec<FoundMember>, Vec<FoundMember>) = (Vec::new(), Vec::new());
    let (mut damaged, mut barred) = (None, None);
    let mut candidates = candidates(first).into_iter().filter(|path| may_be_asked(path));
    for path in candidates.by_ref().take(PROBES) {
        let one = match probe(&path, leader.fsid()) {
            Probed::Btrfs(one) => one,
            Probed::Damaged(why) => {
                damaged.get_or_insert_with(|| format!("beside it, {why}"));
                continue;
            }
            Probed::Barred => {
                barred.get_or_insert_with(|| {
                    format!("{} beside it may not be read by this user", path.display())
                });
                continue;
            }
            Probed::Other => continue,
        };
        if ids.contains(&one.id) || known.iter().any(|known| number(known) == number(&one.superblock)) {
            continue;
        }
        ids.push(one.id);
        if one.superblock.fsid() == leader.fsid() {
            // Another device had its number before it, or has it since.
            if !is_another(leader, &one.superblock) {
                found.push(one);
            }
        } else if one.superblock.flags().contains(SuperFlags::SEEDING) {
            seeds.push(one);
        }
    }
    let wanted = usize::try_from(leader.device_count()).unwrap_or(usize::MAX).saturating_sub(known.len());
    let members = choose(found, leader, wanted)?;
    if wanted <= members.len() {
        return Ok(Beside { members, ..Beside::default() });
    }
    let too_many = match candidates.count() {
        0 => None,
        more => Some(format!("{PROBES} candidates beside it were looked at, and {more} were not")),
    };
    let left_out = [damaged, barred, too_many].into_iter().flatten().collect();
    Ok(Beside { members, seeds: by_filesystem(seeds), left_out })
}

/// Whether the filesystem counts more devices than are named. A device without a count is left to later checks.
pub(super) fn are_too_few(named: &DeviceSet) -> bool {
    let counted = known(named).into_iter().map(|superblock| superblock.device_count());
    counted.max().is_some_and(|counted| counted > named.devices().len() as u64)
}

/// Returns the superblocks of the named devices.
fn known(named: &DeviceSet) -> Vec<Superblock> {
    let devices = named.devices().iter();
    devices
        .filter_map(|device| Some(copies::find(&**device, OpenPurpose::Reading).ok()?.superblock))
        .collect()
}

/// Whether a chunk of the chunk tree lies on a device with this number and another UUID.
fn is_another(leader: &Superblock, superblock: &Superblock) -> bool {
    let item = superblock.dev_item();
    let chunks = leader.sys_chunks().filter_map(std::result::Result::ok);
    let mut stripes = chunks.flat_map(|(_, chunk)| chunk.stripes);
    stripes.any(|stripe| stripe.devid.get() == item.dev_id().get() && stripe.dev_uuid != item.uuid)
}

fn number(superblock: &Superblock) -> DevId {
    superblock.dev_item().dev_id()
}

/// Returns those of the found members that fit the `leader`, which was named. Members at the same commit come first, so that a copy of
/// a member that went on does not lead an intact set. Others are taken only if there are fewer than `wanted` such members, the newest of
/// each.
fn choose(found: Vec<FoundMember>, leader: &Superblock, wanted: usize) -> Result<Vec<FoundMember>> {
    let is_at_same = |one: &FoundMember| {
        let superblock = &one.superblock;
        let roots = (superblock.generation(), superblock.root(), superblock.chunk_root());
        roots == (leader.generation(), leader.root(), leader.chunk_root())
    };
    let (same, others): (Vec<FoundMember>, Vec<FoundMember>) = found.into_iter().partition(is_at_same);
    let numbers: Vec<DevId> = same.iter().map(|one| number(&one.superblock)).collect();
    let mut members = newest_of_each(same)?;
    if members.len() >= wanted {
        return Ok(members);
    }
    let others = others.into_iter().filter(|one| !numbers.contains(&number(&one.superblock)));
    members.extend(newest_of_each(others.collect())?);
    Ok(members)
}

/// Groups devices by filesystem. Leaves a filesystem out if two of its devices are the same member, with equal generations.
fn by_filesystem(mut seeds: Vec<FoundMember>) -> Vec<Vec<FoundMember>> {
    let mut all = Vec::new();
    seeds.sort_by_key(|seed| seed.superblock.fsid());
    while let Some(fsid) = seeds.last().map(|seed| seed.superblock.fsid()) {
        let first = seeds.partition_point(|seed| seed.superblock.fsid() < fsid);
        all.extend(newest_of_each(seeds.split_off(first)).ok());
    }
    all
}

/// Returns the newest of the members with each number.
fn newest_of_each(mut found: Vec<FoundMember>) -> Result<Vec<FoundMember>> {
    found.sort_by_key(|one| (number(&one.superblock), std::cmp::Reverse(one.superblock.generation())));
    let mut members: Vec<FoundMember> = Vec::new();
    for next in found {
        match members.last() {
            Some(last) if number(&last.superblock) == number(&next.superblock) => {
                if last.superblock.generation() == next.superblock.generation() {
                    let what = format!(
                        "{} and {} are both device {} of the filesystem, and equally new",
                        last.path.display(),
                        next.path.display(),
                        number(&next.superblock)
                    );
                    return Err(Error::unsupported(what).advise("name one of them with --device"));
                }
            }
            _ => members.push(next),
        }
    }
    Ok(members)
}

/// Returns the kind of a candidate. Like for a named device, a copy of the superblock is enough if the first one is damaged.
fn probe(path: &Path, fsid: Uuid) -> Probed {
    let device = match FileDevice::open(path, Access::ReadOnlyForced) {
        Ok(device) => device,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Probed::Barred,
        Err(_) => return Probed::Other,
    };
    // A leftover copy proves nothing about a device that has another use by now.
    let is_overwritten = matches!(Copy::read(&device, SUPERBLOCK_OFFSETS[0]), Copy::NoMagic { .. });
    match copies::find(&device, OpenPurpose::Reading) {
        Ok(found) if is_overwritten && found.superblock.fsid() == fsid => {
            let what = format!("{}: the first superblock was overwritten", path.display());
            Probed::Damaged(Error::new(ErrorKind::Corrupt, what))
        }
        Ok(_) if is_overwritten => Probed::Other,
        Ok(found) => Probed::Btrfs(FoundMember {
            path: path.to_owned(),
            superblock: found.superblock,
            id: device.id(),
        }),
        Err(error) if claims_to_be_of(&device, fsid) => Probed::Damaged(error),
        Err(_) => Probed::Other,
    }
}

/// Whether any superblock of the device, even a damaged one, has the UUID of the filesystem.
fn claims_to_be_of(device: &dyn BlockDevice, fsid: Uuid) -> bool {
    let claims = |at: u64| {
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        let is_inside = at + SUPERBLOCK_LEN as u64 <= device.len();
        is_inside
            && device.read_at(at, &mut bytes).is_ok()
            && RawSuperblock::ref_from_bytes(&bytes)
                .is_ok_and(|raw| raw.magic == MAGIC && Uuid::from_bytes(raw.fsid) == fsid)
    };
    SUPERBLOCK_OFFSETS.into_iter().any(claims)
}

/// Whether it may be opened at all. It was not named, so a link, which may lead anywhere, is left out.
fn may_be_asked(path: &Path) -> bool {
    let file = ImageName::find(path).map_or_else(|_| path.to_owned(), |name| name.file().to_owned());
    std::fs::symlink_metadata(file).is_ok_and(|meta| is_device(&meta))
}

fn is_device(meta: &std::fs::Metadata) -> bool {
    let kind = meta.file_type();
    kind.is_block_device() || (kind.is_file() && meta.len() > SUPERBLOCK_OFFSETS[0])
}

/// Returns names that may be those of members, the most similar first. For a partition of a file the order is: the partitions of that file,
/// the same partition of other files, those files, and their other partitions.
fn candidates(first: &Path) -> Vec<PathBuf> {
    let name = ImageName::find(first).ok();
    let file = name.as_ref().map_or(first, ImageName::file);
    let like = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut names = match std::fs::metadata(file).is_ok_and(|meta| meta.file_type().is_block_device()) {
        true => block_devices(),
        false => {
            let mut names = files_beside(file);
            // If the name is a link, the members are beside the file that it leads to.
            if std::fs::symlink_metadata(file).is_ok_and(|meta| meta.is_symlink()) {
                names.extend(files_beside(&like));
            }
            names
        }
    };
    let like = like.file_name().unwrap_or_default();
    // Names of one length often differ only by a number.
    let likeness = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        (name.len() == like.len(), equal_bytes(name, like))
    };
    names.sort_by_cached_key(|path| (std::cmp::Reverse(likeness(path)), path.clone()));
    match &name {
        Some(name) if name.is_part() => {
            let same = names.iter().map(|file| name.in_file(file)).collect::<Vec<_>>();
            let others = names.iter().take(TABLES).flat_map(|file| partitions_of(file)).collect::<Vec<_>>();
            partitions_of(file).into_iter().chain(same).chain(names).chain(others).collect()
        }
        _ => names,
    }
}

fn partitions_of(file: &Path) -> Vec<PathBuf> {
    let table =
        FileDevice::open(file, Access::ReadOnlyForced).and_then(|device| PartitionTable::read(&device));
    let Ok(Some(table)) = table else { return Vec::new() };
    let there = (1..=PARTITIONS).filter(|number| table.partition(*number).is_some());
    there.map(|number| ImageName::numbered(file, number)).collect()
}

/// Returns how many bytes both names have in common at their beginnings and ends.
fn equal_bytes(one: &OsStr, other: &OsStr) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let from_start = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let from_end = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    from_start + from_end
}

fn files_beside(file: &Path) -> Vec<PathBuf> {
    let dir = file.parent().unwrap_or(Path::new(""));
    let here = if dir == Path::new("") { Path::new(".") } else { dir };
    let Ok(entries) = std::fs::read_dir(here) else { return Vec::new() };
    entries.take(ENTRIES).filter_map(|entry| Some(dir.join(entry.ok()?.file_name()))).collect()
}

/// Returns the block devices of the host with a Btrfs, each with its superblock: a copy if the first one is damaged. Devices that cannot be
/// read are left out.
///
/// ```
/// for (path, superblock) in creamery_volume::superblocks_of_host() {
///     println!("{}: {}", path.display(), superblock.fsid());
/// }
/// ```
#[must_use]
pub fn superblocks_of_host() -> Vec<(PathBuf, Superblock)> {
    let found = |path: PathBuf| match probe(&path, Uuid::nil()) {
        Probed::Btrfs(FoundMember { superblock, .. }) => Some((path, superblock)),
        _ => None,
    };
    block_devices().into_iter().filter_map(found).collect()
}

/// Returns the block devices of the host that have a size.
fn block_devices() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/sys/class/block") else { return Vec::new() };
    let has_size = |name: &Path| {
        let size = std::fs::read_to_string(Path::new("/sys/class/block").join(name).join("size"));
        size.is_ok_and(|size| size.trim() != "0")
    };
    let names = entries.filter_map(|entry| Some(PathBuf::from(entry.ok()?.file_name())));
    // sysfs replaces a slash in the name of a device by an exclamation mark.
    let path = |name: PathBuf| Path::new("/dev").join(name.to_string_lossy().replace('!', "/"));
    names.filter(|name| has_size(name)).map(path).collect()
}
