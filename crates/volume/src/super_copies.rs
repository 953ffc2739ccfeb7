//! The copies of the superblock on one device, for mending them.
//!
//! The newest intact copy of the first intact copy's filesystem counts. Copies that are equal to it in filesystem and generation are good.
//! All others are bad, including those of an earlier commit. A crash while copies are mended leaves the same states as one between any two
//! writes of superblocks: the first one is written before the others.

use std::sync::Arc;

use creamery_base::{DevId, Error, ErrorKind, Generation, Logical, Result};
use creamery_device::BlockDevice;
use creamery_format::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock};

use crate::copies::{self, Copy, OpenPurpose};
use crate::open::{OpenCandidates, judge};
use crate::{DeviceSet, Mode, Rescue, Volume};

/// The good and the bad copies of a device's superblock.
///
/// ```
/// use creamery_device::MemoryDevice;
/// use creamery_volume::SuperCopies;
/// let nothing = MemoryDevice::new(1 << 20);
/// assert!(SuperCopies::read(&nothing).is_err());
/// ```
pub struct SuperCopies {
    all: Arc<Vec<(u64, Copy)>>,
    /// The source for rewriting the bad ones.
    newest: Superblock,
    good: Vec<u64>,
    bad: Vec<u64>,
}

impl SuperCopies {
    /// Reads all copies that fit on the device.
    ///
    /// # Errors
    /// None of them is intact; the device has the signature of another format.
    pub fn read(device: &dyn BlockDevice) -> Result<Self> {
        let copies: Vec<(u64, Copy)> =
            offsets(device.len()).map(|offset| (offset, Copy::read(device, offset))).collect();
        let Some((_, newest)) = copies::newest(&copies) else {
            let what = format!("{}: no superblock copy is intact", device.describe());
            return Err(Error::new(ErrorKind::Corrupt, what));
        };
        copies::refuse_another(device)?;
        let newest = newest.clone();
        Ok(Self::by(newest, Arc::new(copies)))
    }

    /// Returns these copies judged by each older generation of this filesystem, the latest first, as if newer ones did not exist. For
    /// callers that find that the newest leads nowhere.
    #[must_use]
    pub fn older(&self) -> Vec<Self> {
        let whole = self.all.iter().filter_map(|(offset, copy)| match copy {
            Copy::Whole(found) if copies::is_inside(*offset, &self.newest) => Some(&**found),
            _ => None,
        });
        let is_older = |found: &&Superblock| {
            found.fsid() == self.newest.fsid() && found.generation() < self.newest.generation()
        };
        let mut older: Vec<&Superblock> = whole.filter(is_older).collect();
        older.sort_by_key(|found| std::cmp::Reverse(found.generation()));
        older.dedup_by_key(|found| found.generation());
        older.into_iter().map(|found| Self::by(found.clone(), Arc::clone(&self.all))).collect()
    }

    /// Returns the generation of the copy that counts.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.newest.generation()
    }

    fn by(newest: Superblock, all: Arc<Vec<(u64, Copy)>>) -> Self {
        let is_good = |copy: &Copy| match copy {
            Copy::Whole(found) => found.fsid() == newest.fsid() && found.generation() == newest.generation(),
            _ => false,
        };
        // Copies beyond the filesystem's end do not belong to it.
        let own = all.iter().filter(|(offset, _)| fits(*offset, newest.dev_item().total_bytes.get()));
        let (good, bad): (Vec<_>, Vec<_>) = own.partition(|(_, copy)| is_good(copy));
        let at = |copies: Vec<&(u64, Copy)>| copies.into_iter().map(|(offset, _)| *offset).collect();
        let (good, bad) = (at(good), at(bad));
        Self { all, newest, good, bad }
    }

    /// Returns the places of the intact copies of the last commit, bytes of the device.
    #[must_use]
    pub fn good(&self) -> &[u64] {
        &self.good
    }

    /// Returns the places of the bad copies.
    #[must_use]
    pub fn bad(&self) -> &[u64] {
        &self.bad
    }

    /// Returns the device's id in the filesystem.
    #[must_use]
    pub fn dev_id(&self) -> DevId {
        self.newest.dev_item().dev_id()
    }

    /// Returns the number of devices in the superblock.
    #[must_use]
    pub fn device_count(&self) -> u64 {
        self.newest.device_count()
    }

    /// Opens the filesystem of a good copy, for reading: a caller should not write a copy that leads nowhere. The first of the devices is
    /// the one with these copies.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn volume(&self, devices: impl Into<DeviceSet>) -> Result<Volume> {
        let devices = devices.into();
        let all = OpenCandidates::led_by(&devices, self.newest.clone())?;
        let rescue = Rescue { ignore_super_flags: true, ..Rescue::default() };
        Volume::open_found(all, Mode::ReadOnly, rescue)
    }

    /// Rewrites the bad copies from a good one.
    ///
    /// # Errors
    /// One of the bad copies is intact and of another filesystem; device errors. The good copies stay unchanged.
    pub fn recover(&self, device: &dyn BlockDevice) -> Result<()> {
        for &offset in &self.bad {
            let Copy::Whole(other) = Copy::read(device, offset) else { continue };
            // An interrupted change of the UUID leaves the old one in a copy; tree blocks keep theirs.
            if other.metadata_uuid() != self.newest.metadata_uuid() {
                let (name, own, other) = (device.describe(), self.newest.fsid(), other.fsid());
                let what = format!(
                    "{name}: the superblock at {offset} belongs to filesystem {other}, the first intact one to {own}"
                );
                return Err(Error::new(ErrorKind::AlreadyExists, what));
            }
        }
        write(device, &self.newest, &self.bad)
    }
}

/// Discards the log of fsyncs after the last commit, in every copy of the superblock. Returns the address and the level of its root;
/// `None` if there was no log.
///
/// ```no_run
/// # fn example(device: &dyn creamery_device::BlockDevice) -> creamery_base::Result<()> {
/// if let Some((root, _)) = creamery_volume::zero_log(device)? {
///     println!("the log at {root} is forgotten");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The first superblock is damaged, or has a state or a feature that forbids writing; device errors.
pub fn zero_log(device: &dyn BlockDevice) -> Result<Option<(Logical, u8)>> {
    let mut superblock = copies::find(device, OpenPurpose::Writing)?.superblock;
    let name = device.describe();
    judge(&superblock, Mode::ReadWrite, Rescue::default()).map_err(|error| error.context(&name))?;
    if superblock.device_count() != 1 {
        let what = format!("{name}: writing to a filesystem of {} devices", superblock.device_count());
        return Err(Error::unsupported(what));
    }
    let log = superblock.log_root();
    superblock.set_log_root(Logical::new(0), 0);
    superblock.raw_mut().log_root_transid = 0.into();
    let len = superblock.dev_item().total_bytes.get().min(device.len());
    write(device, &superblock, &offsets(len).collect::<Vec<_>>())?;
    Ok(log)
}

pub(crate) fn offsets(len: u64) -> impl Iterator<Item = u64> {
    SUPERBLOCK_OFFSETS.into_iter().filter(move |offset| fits(*offset, len))
}

const fn fits(offset: u64, len: u64) -> bool {
    offset + SUPERBLOCK_LEN as u64 <= len
}

/// Writes the copies at `offsets`. Each is durable before the next one is written. An error behind the first of them says that the
/// superblock is written, and names the copy that is not.
pub(crate) fn write(device: &dyn BlockDevice, superblock: &Superblock, offsets: &[u64]) -> Result<()> {
    for (number, &offset) in offsets.iter().enumerate() {
        let done = device.write_at(offset, &superblock.to_bytes(offset)).and_then(|()| device.flush());
        done.map_err(|error| match number {
            0 => error,
            _ => error.context(format!("the superblock is written, but not its copy at {offset}")),
        })?;
    }
    Ok(())
}
