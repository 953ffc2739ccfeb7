//! Starting from another place: another copy of the superblock than the one that counts, or another root of the root tree than its own.
//! For reading only, for users that know better than the filesystem where the rest of it is.

use creamery_base::{Error, ErrorKind, Logical, Result, TreeId, Wait};
use creamery_format::{BlockRef, Expected, SUPERBLOCK_OFFSETS};

use crate::copies::Copy;
use crate::open::OpenCandidates;
use crate::{DeviceSet, Mode, Rescue, Volume};

impl Volume {
    /// Opens a filesystem for reading by one copy of the first device's superblock, 0 to 2, whatever the other copies contain.
    /// For other devices the copy that counts on them is used.
    ///
    /// # Errors
    /// There is no such copy, it lies beyond the end of the device, or it is damaged; those of [`open`](Self::open).
    pub fn open_by_super_copy(devices: impl Into<DeviceSet>, copy: usize, rescue: Rescue) -> Result<Self> {
        let devices = devices.into();
        let Some(device) = devices.devices().first() else {
            return Err(Error::invalid("no device given"));
        };
        let name = device.describe();
        let Some(&offset) = SUPERBLOCK_OFFSETS.get(copy) else {
            let last = SUPERBLOCK_OFFSETS.len() - 1;
            let what = format!("{name}: no superblock copy {copy}, expected 0 to {last}");
            return Err(Error::invalid(what));
        };
        let refuse = |kind, why: String| {
            Err(Error::new(kind, format!("{name}: superblock copy {copy} at {offset} {why}")))
        };
        let superblock = match Copy::read(&**device, offset) {
            Copy::Whole(superblock) => *superblock,
            Copy::NoMagic { .. } => return refuse(ErrorKind::Corrupt, "is missing".into()),
            Copy::Damaged(why) => return refuse(ErrorKind::Corrupt, format!("is damaged: {why}")),
            Copy::Unreadable(error) => return refuse(error.kind(), format!("cannot be read: {error}")),
        };
        Self::open_found(OpenCandidates::led_by(&devices, superblock)?, Mode::ReadOnly, rescue)
    }

    /// Opens the same devices with the block at `root` as root of the root tree: the volume then shows the commit that wrote it. The
    /// block's chunk must be mapped in this volume. In the returned volume only the system chunks are mapped, which hold the chunk tree.
    ///
    /// # Errors
    /// The block cannot be read, or does not belong to the root tree.
    ///
    /// # Panics
    /// If this volume is open for writing: blocks of an earlier commit may be in use again.
    pub fn by_root_tree(&self, root: Logical) -> Result<Self> {
        assert!(self.mode() == Mode::ReadOnly, "who goes by another root only reads");
        let mut superblock = self.superblock();
        let sector = superblock.sector_size();
        if !root.get().is_multiple_of(sector.into()) {
            let what = format!("invalid tree block address {root}: expected a multiple of {sector}");
            return Err(Error::invalid(what));
        }
        let bytes = self.read_tree_block(root, &Expected::anything(root, &superblock), Wait::Yes)?;
        let block = BlockRef::new(&bytes);
        if block.owner() != TreeId::ROOT {
            let what = format!("the block at {root} belongs to tree {}, expected tree 1", block.owner());
            return Err(Error::invalid(what));
        }
        let raw = superblock.raw_mut();
        (raw.root, raw.root_level, raw.generation) =
            (root.get().into(), block.level(), block.generation().get().into());
        (raw.log_root, raw.log_root_transid, raw.log_root_level) = (0.into(), 0.into(), 0);
        self.going_by(superblock, None)
    }
}
