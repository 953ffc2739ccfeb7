//! Places to begin reading.

use creamery_base::{Error, Logical, Result};
use creamery_volume::{DeviceSet, Rescue, Volume};

use crate::inspect::push_chunks;

/// The superblock and the root tree that reading a damaged filesystem begins with; [`find_roots`](super::find_roots) lists blocks to try.
///
/// ```no_run
/// use creamery::{Image, rescue::Start};
/// use creamery::id::Logical;
/// # fn example() -> creamery::Result<()> {
/// let start = Start { root_tree: Some(Logical::new(30965760)), ..Start::default() };
/// let fs = Image::options().start(start).open("disk.img")?;
/// let note = fs.read("/note")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Start {
    /// The copy of the superblock, 0 to 2, that is used.
    pub super_copy: Option<usize>,
    /// The block that is used as root of the root tree: the filesystem shows the commit that wrote it.
    pub root_tree: Option<Logical>,
}

impl Start {
    /// Errors: reading begins elsewhere than the last commit, so blocks may be in use again.
    pub(crate) fn check_writing(self) -> Result<()> {
        if self == Self::default() {
            return Ok(());
        }
        Err(Error::invalid("an older superblock or root tree can only be read"))
    }

    /// A volume on `devices` that begins here, for reading.
    pub(crate) fn volume(self, devices: DeviceSet, rescue: Rescue) -> Result<Volume> {
        let volume = match self.super_copy {
            Some(copy) => Volume::open_by_super_copy(devices, copy, rescue)?,
            None => Volume::open_for_rescue(devices, rescue)?,
        };
        let Some(root) = self.root_tree else { return Ok(volume) };
        // A chunk that cannot be mapped only hides its own content.
        let unread = push_chunks(&volume, &volume.superblock(), &mut Vec::new());
        volume.by_root_tree(root).map_err(|error| match unread {
            Some(unread) => error.context(format!("not all of the chunk tree could be read ({unread})")),
            None => error,
        })
    }
}
