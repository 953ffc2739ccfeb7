//! Changes that concern only the superblock: features that may be used from now on, whether the filesystem is a seed, and its UUID.
//!
//! No other block on the device records any of it, so no transaction is needed: the superblock of the last commit is written again, in all
//! its copies, with the same generation. The first copy is the one that counts, and it is durable before another one is written:
//! an interruption leaves all of the change or none of it. Tree blocks have the UUID that the filesystem was made with, which
//! stays in the superblock beside the new one (`METADATA_UUID`).

use creamery_base::{Error, ErrorKind, Result, Uuid};
use creamery_device::BlockDevice;
use creamery_format::{Incompat, SuperFlags, Superblock};

use crate::copies::{self, OpenPurpose};
use crate::open::judge;
use crate::super_copies::{offsets, write};
use crate::{Mode, Rescue};

/// A set of changes. Empty by default.
///
/// ```
/// use creamery_device::MemoryDevice;
/// use creamery_volume::SuperblockChange;
/// let nothing = MemoryDevice::new(1 << 20);
/// assert!(SuperblockChange::default().extref().apply(&nothing).is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuperblockChange {
    features: Incompat,
    seeding: Option<bool>,
    uuid: Option<Uuid>,
}

impl Default for SuperblockChange {
    fn default() -> Self {
        Self { features: Incompat::empty(), seeding: None, uuid: None }
    }
}

impl SuperblockChange {
    /// Allows a file more names in a directory than fit one item (`EXTENDED_IREF`).
    #[must_use]
    pub fn extref(self) -> Self {
        Self { features: self.features | Incompat::EXTENDED_IREF, ..self }
    }

    /// Makes tree blocks take less space in the extent tree (`SKINNY_METADATA`): those that are written from now on.
    #[must_use]
    pub fn skinny_metadata(self) -> Self {
        Self { features: self.features | Incompat::SKINNY_METADATA, ..self }
    }

    /// Stores holes of files without items (`NO_HOLES`): those that are made from now on.
    #[must_use]
    pub fn no_holes(self) -> Self {
        Self { features: self.features | Incompat::NO_HOLES, ..self }
    }

    /// Makes it a seed, which is only read, and from which other filesystems are made; or no seed any more.
    #[must_use]
    pub fn seeding(self, is_seed: bool) -> Self {
        Self { seeding: Some(is_seed), ..self }
    }

    /// Gives the filesystem another UUID. Tree blocks keep theirs.
    #[must_use]
    pub fn uuid(self, uuid: Uuid) -> Self {
        Self { uuid: Some(uuid), ..self }
    }

    /// Returns the new UUID, if it is to change.
    #[must_use]
    pub fn new_uuid(&self) -> Option<Uuid> {
        self.uuid
    }

    /// Writes the changes. Returns false if all of them are there already; then nothing is written.
    ///
    /// # Errors
    /// The first superblock is damaged, or has a feature or a state that forbids writing, including a log to replay; the UUID of a seed
    /// would change, or the seed state of a filesystem with a changed UUID; a UUID of zeros, or the present one; device errors.
    pub fn apply(&self, device: &dyn BlockDevice) -> Result<bool> {
        let last = copies::find(device, OpenPurpose::Writing)?.superblock;
        let next = judge_change(&last).and_then(|()| self.of(&last));
        let next = next.map_err(|error| error.context(device.describe()))?;
        if next.to_bytes(0) == last.to_bytes(0) {
            return Ok(false);
        }
        let len = next.dev_item().total_bytes.get().min(device.len());
        write(device, &next, &offsets(len).collect::<Vec<_>>())?;
        Ok(true)
    }

    /// Returns the new superblock.
    fn of(&self, last: &Superblock) -> Result<Superblock> {
        let mut next = last.clone();
        let flags = match self.seeding {
            _ if last.incompat().contains(Incompat::METADATA_UUID) && self.seeding.is_some() => {
                let what = "changing the seed flag of a filesystem with a changed UUID";
                return Err(Error::unsupported(what));
            }
            Some(true) => last.flags() | SuperFlags::SEEDING,
            Some(false) => last.flags() - SuperFlags::SEEDING,
            None => last.flags(),
        };
        next.raw_mut().flags = flags.bits().into();
        next.raw_mut().incompat_flags = (last.incompat() | self.features).bits().into();
        let Some(uuid) = self.uuid else { return Ok(next) };
        if uuid.is_nil() {
            return Err(Error::invalid("the UUID is zero"));
        }
        // Like btrfstune, which refuses any UUID in use, also the present one.
        if uuid == last.fsid() {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("it has the UUID {uuid}")));
        }
        if flags.contains(SuperFlags::SEEDING) {
            return Err(Error::unsupported("changing the UUID of a seed"));
        }
        // If it is the UUID of the tree blocks again, there is only one.
        let of_blocks = last.metadata_uuid();
        let incompat = next.incompat();
        let (incompat, beside) = match uuid == of_blocks {
            true => (incompat - Incompat::METADATA_UUID, Uuid::nil()),
            false => (incompat | Incompat::METADATA_UUID, of_blocks),
        };
        let raw = next.raw_mut();
        (raw.fsid, raw.metadata_uuid) = (uuid.into_bytes(), beside.into_bytes());
        raw.incompat_flags = incompat.bits().into();
        Ok(next)
    }
}

/// Judges a superblock like for writing, but allows a seed, and no log: a log is replayed with the superblock of its time.
pub(crate) fn judge_change(last: &Superblock) -> Result<()> {
    let mut judged = last.clone();
    judged.raw_mut().flags = (last.flags() - SuperFlags::SEEDING).bits().into();
    judge(&judged, Mode::ReadWrite, Rescue::default())?;
    if last.device_count() != 1 {
        let what = format!("writing to a filesystem of {} devices", last.device_count());
        return Err(Error::unsupported(what));
    }
    if last.log_root().is_some() {
        let what = "the log is not replayed; replay it with `creamery touch IMAGE:/`";
        return Err(Error::unsupported(what));
    }
    Ok(())
}
