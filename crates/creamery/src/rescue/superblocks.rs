//! Superblocks, and what only they lead to.

use std::path::Path;
use std::sync::Arc;

use creamery_base::{DevId, Error, Logical, Result};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_volume::SuperCopies;

use crate::Image;
use crate::inspect::push_chunks;

/// Forgets the log of what was synced after the last commit, which is lost then: for a log that cannot be replayed. Gives where its root
/// was and the level of that, none when there was no log.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// assert_eq!(creamery::rescue::zero_log(&image)?, None);
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// Somebody else has it open; the first superblock is damaged; a state that forbids writing; device errors.
pub fn zero_log(image: impl AsRef<Path>) -> Result<Option<(Logical, u8)>> {
    let device = FileDevice::open(image.as_ref(), Access::ReadWrite)?;
    creamery_volume::zero_log(&device)
}

/// Gives back the space of free space caches of the old kind.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// creamery::rescue::clear_space_cache(&image)?;
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// As opening for writing.
pub fn clear_space_cache(image: impl AsRef<Path>) -> Result<()> {
    // Opening for writing removes them, in memory.
    let fs = Image::options().write(true).open(image)?;
    fs.fs.begin_changes()?;
    fs.close()
}

/// The copies of an image's superblock, to write those anew that are damaged, missing or old.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let copies = creamery::rescue::SuperRecovery::open(&image)?;
/// assert_eq!((copies.good(), copies.bad()), (&[65536, 67108864][..], &[][..]));
/// # Ok::<(), creamery::Error>(())
/// ```
#[non_exhaustive]
pub struct SuperRecovery {
    device: Arc<dyn BlockDevice>,
    copies: SuperCopies,
}

impl SuperRecovery {
    /// Looks at all of them. The image is ours alone from here on.
    ///
    /// # Errors
    /// Somebody else has it open; no copy is whole; something else is there, too.
    pub fn open(image: impl AsRef<Path>) -> Result<Self> {
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(image.as_ref(), Access::ReadWrite)?);
        let copies = SuperCopies::read(&*device)?;
        Ok(Self { device, copies })
    }

    /// Where those lie that are whole and of the last commit, bytes of the device.
    #[must_use]
    pub fn good(&self) -> &[u64] {
        self.copies.good()
    }

    /// Where the others should.
    #[must_use]
    pub fn bad(&self) -> &[u64] {
        self.copies.bad()
    }

    /// Which device of the filesystem it is.
    #[must_use]
    pub fn dev_id(&self) -> DevId {
        self.copies.dev_id()
    }

    /// Writes the bad ones anew. What was synced after the last commit is lost when the first one was bad.
    ///
    /// # Errors
    /// The chunk tree that the good ones lead to cannot be read, so that this may be no filesystem any more; a bad one is that of another
    /// filesystem; device errors.
    pub fn recover(self) -> Result<()> {
        let name = self.device.describe();
        let nowhere = |error: Error| {
            error.context(format!("{name}: no superblock is written, for those that are whole lead nowhere"))
        };
        let volume = self.copies.volume(Arc::clone(&self.device)).map_err(&nowhere)?;
        let unread = push_chunks(&volume, &volume.superblock(), &mut Vec::new());
        unread.map_or(Ok(()), |error| Err(nowhere(error)))?;
        self.copies.recover(&*self.device)
    }
}
