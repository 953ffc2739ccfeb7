//! Changes of what only the superblock says: features that may be used from now on, whether the filesystem is a seed, and its UUID.
//!
//! Nothing else on the device says any of it, so no transaction is needed: the superblock of the last commit is written again, in all
//! its copies, with the same generation. The first copy is the one that counts, and it is durable before another one is touched:
//! whatever cuts it off leaves all of the change or none of it. Tree blocks have the UUID that the filesystem was made with, which
//! stays in the superblock beside the new one (`METADATA_UUID`).

use creamery_base::{Error, ErrorKind, Result, Uuid};
use creamery_device::BlockDevice;
use creamery_format::{Incompat, SuperFlags, Superblock};

use crate::copies::{self, Want};
use crate::open::judge;
use crate::super_copies::{offsets, write};
use crate::{Mode, Rescue};

/// What is to be changed. Nothing to begin with.
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
    /// A file may have more names in a directory than fit one item (`EXTENDED_IREF`).
    #[must_use]
    pub fn extref(self) -> Self {
        Self { features: self.features | Incompat::EXTENDED_IREF, ..self }
    }

    /// Tree blocks take less in the extent tree (`SKINNY_METADATA`): those that are written from now on.
    #[must_use]
    pub fn skinny_metadata(self) -> Self {
        Self { features: self.features | Incompat::SKINNY_METADATA, ..self }
    }

    /// Holes of files have no items (`NO_HOLES`): those that are made from now on.
    #[must_use]
    pub fn no_holes(self) -> Self {
        Self { features: self.features | Incompat::NO_HOLES, ..self }
    }

    /// Whether it is a seed: one that is only read, and that other filesystems are made from.
    #[must_use]
    pub fn seeding(self, is_seed: bool) -> Self {
        Self { seeding: Some(is_seed), ..self }
    }

    /// Another UUID of the filesystem. Tree blocks keep the one that they have.
    #[must_use]
    pub fn uuid(self, uuid: Uuid) -> Self {
        Self { uuid: Some(uuid), ..self }
    }

    /// The UUID that it is to have, if another one.
    #[must_use]
    pub fn new_uuid(&self) -> Option<Uuid> {
        self.uuid
    }

    /// Changes it; false when everything was so already, and then nothing is written.
    ///
    /// # Errors
    /// The first superblock is damaged, or of a feature or a state that forbids writing, a log to replay among them; a seed that is to
    /// have another UUID, or a filesystem that has one that is to become a seed or none; a UUID of zeros, or that it has; device errors.
    pub fn apply(&self, device: &dyn BlockDevice) -> Result<bool> {
        let last = copies::find(device, Want::Writing)?.superblock;
        let next = judge_change(&last).and_then(|()| self.of(&last));
        let next = next.map_err(|error| error.context(device.describe()))?;
        if next.to_bytes(0) == last.to_bytes(0) {
            return Ok(false);
        }
        let len = next.dev_item().total_bytes.get().min(device.len());
        write(device, &next, &offsets(len).collect::<Vec<_>>())?;
        Ok(true)
    }

    /// What the superblock is to be.
    fn of(&self, last: &Superblock) -> Result<Superblock> {
        let mut next = last.clone();
        let flags = match self.seeding {
            _ if last.incompat().contains(Incompat::METADATA_UUID) && self.seeding.is_some() => {
                let what = "making a seed, or none, of a filesystem whose UUID was changed";
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
            return Err(Error::invalid("a UUID of zeros is none"));
        }
        // As btrfstune, to which one that is in use is in use by whomever.
        if uuid == last.fsid() {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("it has the UUID {uuid} already")));
        }
        if flags.contains(SuperFlags::SEEDING) {
            return Err(Error::unsupported("another UUID of a seed"));
        }
        // Where it is that of the tree blocks, there is only one again.
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

/// As for writing, but a seed may be changed, and a log may not wait: it is replayed by what the superblock said when it was written.
pub(crate) fn judge_change(last: &Superblock) -> Result<()> {
    let mut judged = last.clone();
    judged.raw_mut().flags = (last.flags() - SuperFlags::SEEDING).bits().into();
    judge(&judged, Mode::ReadWrite, Rescue::default())?;
    if last.device_count() != 1 {
        let what = format!("writing to a filesystem of {} devices", last.device_count());
        return Err(Error::unsupported(what));
    }
    if last.log_root().is_some() {
        let what = "a log waits, with what was synced after the last commit; change something before, with `creamery touch IMAGE:/`";
        return Err(Error::unsupported(what));
    }
    Ok(())
}
