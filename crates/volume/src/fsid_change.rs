//! The superblock during a change of the filesystem UUID in every tree block.
//!
//! The caller rewrites tree blocks in place (this room reads no tree), so for a while some blocks have the old UUID
//! and some the new one. The superblock records that in btrfstune's way, so that either program can finish an interrupted change:
//!
//! ```text
//! before   fsid = old                  device's fsid = old
//! during   fsid = new, CHANGING_FSID   device's fsid = old
//! behind   fsid = new                  device's fsid = new
//! ```
//! The middle state cannot be opened, not even for reading: neither UUID is that of all blocks. It is durable in every copy before the
//! first block is changed, and all blocks are durable before a copy leaves this state. So if a copy does not record a change, its
//! filesystem's blocks are all old, or all new.

use std::sync::Arc;

use creamery_base::{Env, Error, ErrorKind, Result, Uuid};
use creamery_device::BlockDevice;
use creamery_format::{Incompat, SuperFlags, Superblock};

use crate::copies::{self, FoundSuperblock, OpenPurpose};
use crate::super_copies::{offsets, write};
use crate::superblock_change::judge_change;
use crate::{Mode, Rescue, Volume};

/// A change of the UUID of all tree blocks, begun already or about to begin.
///
/// ```
/// use creamery_base::SystemEnv;
/// use creamery_device::MemoryDevice;
/// use creamery_volume::FsidChange;
/// use std::sync::Arc;
/// let nothing = Arc::new(MemoryDevice::new(1 << 20));
/// assert!(FsidChange::new(nothing, None, &SystemEnv).is_err());
/// ```
pub struct FsidChange {
    device: Arc<dyn BlockDevice>,
    /// The superblock after the change.
    behind: Superblock,
    old: Uuid,
    is_begun: bool,
}

impl FsidChange {
    /// Reads the superblock and writes nothing. The new UUID is `wanted`, or `env` makes one; a change that
    /// was begun goes on with its own.
    ///
    /// # Errors
    /// It has that UUID already; the UUID is zero; another change was begun; the filesystem's UUID was changed separately from that of its
    /// tree blocks; the first superblock is damaged, or has a feature or a state that forbids writing, including a log to replay.
    pub fn new(device: Arc<dyn BlockDevice>, wanted: Option<Uuid>, env: &dyn Env) -> Result<Self> {
        let last = copies::find(&*device, OpenPurpose::Writing)?.superblock;
        let name = device.describe();
        let is_begun = last.flags().contains(SuperFlags::CHANGING_FSID);
        let new =
            new_uuid(&last, wanted, env.uuid_after(last.fsid())).map_err(|error| error.context(&name))?;
        let old = Uuid::from_bytes(last.dev_item().fsid);
        let mut behind = last;
        let flags = behind.flags() - SuperFlags::CHANGING_FSID;
        let raw = behind.raw_mut();
        (raw.flags, raw.fsid, raw.dev_item.fsid) = (flags.bits().into(), new.into_bytes(), new.into_bytes());
        judge_change(&behind).map_err(|error| error.context(&name))?;
        Ok(Self { device, behind, old, is_begun })
    }

    /// Returns the UUID of blocks that are not written yet.
    #[must_use]
    pub const fn old(&self) -> Uuid {
        self.old
    }

    /// Returns the new UUID of all blocks.
    #[must_use]
    pub fn new_uuid(&self) -> Uuid {
        self.behind.fsid()
    }

    /// Whether the change was begun earlier and goes on.
    #[must_use]
    pub const fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Returns the filesystem, for reading blocks with either UUID, one after another.
    ///
    /// # Errors
    /// Those of [`Volume::open`].
    pub fn volume(&self) -> Result<Volume> {
        let found = FoundSuperblock { superblock: self.behind.clone(), notes: Vec::new() };
        Volume::open_found((Arc::clone(&self.device), found).into(), Mode::ReadOnly, Rescue::default())
    }

    /// Makes the middle state durable in every copy of the superblock: blocks have one UUID or the other.
    ///
    /// # Errors
    /// Device errors.
    pub fn begin(&self) -> Result<()> {
        let mut during = self.behind.clone();
        let flags = during.flags() | SuperFlags::CHANGING_FSID;
        let raw = during.raw_mut();
        (raw.flags, raw.dev_item.fsid) = (flags.bits().into(), self.old.into_bytes());
        self.write(&during)
    }

    /// Makes all blocks durable, which have the new UUID now, and then writes the superblock of the finished change.
    ///
    /// # Errors
    /// Device errors.
    pub fn finish(self) -> Result<()> {
        self.device.flush()?;
        self.write(&self.behind)
    }

    fn write(&self, superblock: &Superblock) -> Result<()> {
        let len = superblock.dev_item().total_bytes.get().min(self.device.len());
        write(&*self.device, superblock, &offsets(len).collect::<Vec<_>>())
    }
}

fn new_uuid(last: &Superblock, wanted: Option<Uuid>, random: Uuid) -> Result<Uuid> {
    if last.incompat().contains(Incompat::METADATA_UUID) {
        let what =
            "its UUID differs from that of its tree blocks (METADATA_UUID): first change it back to theirs";
        return Err(Error::unsupported(format!("{what}, {}", last.metadata_uuid())));
    }
    if last.flags().contains(SuperFlags::CHANGING_FSID) {
        let begun = last.fsid();
        return match wanted.is_some_and(|wanted| wanted != begun) {
            true => {
                Err(Error::unsupported(format!("finish the interrupted change of the UUID to {begun} first")))
            }
            false => Ok(begun),
        };
    }
    match wanted.unwrap_or(random) {
        wanted if wanted.is_nil() => Err(Error::invalid("the UUID is zero")),
        wanted if wanted == last.fsid() => {
            Err(Error::new(ErrorKind::AlreadyExists, format!("it has the UUID {wanted}")))
        }
        wanted => Ok(wanted),
    }
}
