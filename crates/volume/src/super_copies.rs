//! The copies of the superblock on one device, for who mends them.
//!
//! Of the copies that are whole the newest of the first one's filesystem counts, and as many as are equal to it in filesystem and generation are good; all others
//! are bad, those of an earlier commit, too. What a crash leaves is what a crash leaves between any two writes of superblocks: the
//! first one is written before the others.

use std::sync::Arc;

use creamery_base::{DevId, Error, ErrorKind, Generation, Logical, Result};
use creamery_device::BlockDevice;
use creamery_format::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock};

use crate::copies::{self, Copy, Found, Want};
use crate::open::{find_all, judge};
use crate::{DeviceSet, Mode, Rescue, Volume};

/// Which copies of a device's superblock are good, and which are not.
///
/// ```
/// use creamery_device::MemoryDevice;
/// use creamery_volume::SuperCopies;
/// let nothing = MemoryDevice::new(1 << 20);
/// assert!(SuperCopies::read(&nothing).is_err());
/// ```
pub struct SuperCopies {
    all: Arc<Vec<(u64, Copy)>>,
    /// The one that the bad ones are written from.
    newest: Superblock,
    good: Vec<u64>,
    bad: Vec<u64>,
}

impl SuperCopies {
    /// Reads all that fit on the device.
    ///
    /// # Errors
    /// None of them is whole; there is something else on the device, by its mark.
    pub fn read(device: &dyn BlockDevice) -> Result<Self> {
        let copies: Vec<(u64, Copy)> =
            offsets(device.len()).map(|offset| (offset, Copy::read(device, offset))).collect();
        let Some((_, newest)) = copies::newest(&copies) else {
            let what = format!("{}: no copy of a superblock is whole", device.describe());
            return Err(Error::new(ErrorKind::Corrupt, what));
        };
        copies::refuse_another(device)?;
        let newest = newest.clone();
        Ok(Self::by(newest, Arc::new(copies)))
    }

    /// These copies with an older one of this filesystem as the newest, for each of them: the next older one first. For callers that find the
    /// newest to lead nowhere.
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

    /// The generation of the one that counts.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.newest.generation()
    }

    fn by(newest: Superblock, all: Arc<Vec<(u64, Copy)>>) -> Self {
        let is_good = |copy: &Copy| match copy {
            Copy::Whole(found) => found.fsid() == newest.fsid() && found.generation() == newest.generation(),
            _ => false,
        };
        // What lies beyond the filesystem's end is no concern of it.
        let own = all.iter().filter(|(offset, _)| fits(*offset, newest.dev_item().total_bytes.get()));
        let (good, bad): (Vec<_>, Vec<_>) = own.partition(|(_, copy)| is_good(copy));
        let at = |copies: Vec<&(u64, Copy)>| copies.into_iter().map(|(offset, _)| *offset).collect();
        let (good, bad) = (at(good), at(bad));
        Self { all, newest, good, bad }
    }

    /// Where those lie that are whole and of the last commit, bytes of the device.
    #[must_use]
    pub fn good(&self) -> &[u64] {
        &self.good
    }

    /// Where the others should.
    #[must_use]
    pub fn bad(&self) -> &[u64] {
        &self.bad
    }

    /// Which device of the filesystem it is.
    #[must_use]
    pub fn dev_id(&self) -> DevId {
        self.newest.dev_item().dev_id()
    }

    /// How many devices the filesystem has, as it says.
    #[must_use]
    pub fn device_count(&self) -> u64 {
        self.newest.device_count()
    }

    /// The filesystem that a good one leads to, for reading: nobody should write one that leads nowhere. The first of the devices is the one
    /// with these copies.
    ///
    /// # Errors
    /// As opening it.
    pub fn volume(&self, devices: impl Into<DeviceSet>) -> Result<Volume> {
        let devices = devices.into();
        let Some((device, others)) = devices.devices().split_first() else {
            return Err(Error::invalid("no device given"));
        };
        let found = Found { superblock: self.newest.clone(), notes: Vec::new() };
        let others = find_all(&others.iter().cloned().collect(), Want::Reading)?;
        let all = others.and_first((Arc::clone(device), found)).degraded(devices.is_degraded());
        let rescue = Rescue { ignore_super_flags: true, ..Rescue::default() };
        Volume::open_found(all, Mode::ReadOnly, rescue)
    }

    /// Writes the bad ones anew, from a good one.
    ///
    /// # Errors
    /// One of the bad ones is whole and of another filesystem; device errors. The good ones are as they were.
    pub fn recover(&self, device: &dyn BlockDevice) -> Result<()> {
        for &offset in &self.bad {
            let Copy::Whole(other) = Copy::read(device, offset) else { continue };
            // A change of the UUID that was cut off leaves the old one in a copy; tree blocks keep theirs.
            if other.metadata_uuid() != self.newest.metadata_uuid() {
                let (name, own, other) = (device.describe(), self.newest.fsid(), other.fsid());
                let what = format!(
                    "{name}: the superblock at {offset} is of filesystem {other}, and the first whole one of {own}"
                );
                return Err(Error::new(ErrorKind::AlreadyExists, what));
            }
        }
        write(device, &self.newest, &self.bad)
    }
}

/// Forgets the log of what was synced after the last commit, in every copy of the superblock. Gives where its root was, and the
/// level of that; none when there was no log.
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
/// The first superblock is damaged, or of a state or a feature that forbids writing; device errors.
pub fn zero_log(device: &dyn BlockDevice) -> Result<Option<(Logical, u8)>> {
    let mut superblock = copies::find(device, Want::Writing)?.superblock;
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

/// The first one, if it is among them, is durable before another one is touched. An error says which one is not, and what that means.
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
