//! A change of a filesystem's UUID in all its tree blocks.

use std::path::Path;
use std::sync::Arc;

use creamery_base::{Env, Result, Uuid};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_txn::change_fsid;
use creamery_volume::FsidChange;

use crate::image::{Image, refuse_mounted};

/// A change of a filesystem's UUID in all its tree blocks, about to be written; begin with [`Image::change_uuid`].
///
/// The filesystem cannot be opened from the beginning of the change to its end. If a crash or a signal interrupts the change, call
/// it again, or call btrfstune, to complete it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::{Image, Uuid};
/// use creamery::env::SystemEnv;
/// use std::sync::Arc;
/// let change = Image::change_uuid(&image, Some(Uuid::from_u128(1)), Arc::new(SystemEnv))?;
/// assert_eq!(change.run(&mut |_done, _of| Ok(()))?, 0);
/// let fs = Image::open(&image)?;
/// assert_eq!((fs.volume().uuid(), fs.volume().metadata_uuid()), (Uuid::from_u128(1), Uuid::from_u128(1)));
/// # Ok::<(), creamery::Error>(())
/// ```
#[must_use]
pub struct UuidChange {
    change: FsidChange,
    env: Arc<dyn Env>,
}

impl Image {
    /// Prepares a change of the UUID in all tree blocks: to `uuid`, or to one from `env` ([`Env::uuid_after`]). Writes nothing before
    /// [`UuidChange::run`]. An interrupted change continues with its own UUID. `btrfstune -u` and `-U` of btrfs-progs do the same.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use std::sync::Arc;
    /// use creamery::{Image, Uuid};
    /// use creamery::env::SystemEnv;
    /// let change = Image::change_uuid(&image, Some(Uuid::from_u128(1)), Arc::new(SystemEnv))?;
    /// change.run(&mut |_done, _of| Ok(()))?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The image is open elsewhere.
    /// - A filesystem that Linux has mounted has the new UUID, or Linux has mounted this filesystem.
    /// - A change to another UUID was begun.
    /// - The UUID differs from that of the tree blocks ([`SuperblockChange`](crate::volume::SuperblockChange)).
    /// - A log waits for its replay.
    /// - The first superblock is damaged, or has a feature or a state that forbids writing.
    pub fn change_uuid(path: impl AsRef<Path>, uuid: Option<Uuid>, env: Arc<dyn Env>) -> Result<UuidChange> {
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path.as_ref(), Access::ReadWrite)?);
        let change = FsidChange::new(device, uuid, &*env)?;
        // The new UUID: a change that continues has its own, which the caller did not name.
        refuse_mounted(path.as_ref(), Some(change.new_uuid()))?;
        Ok(UuidChange { change, env })
    }
}

impl UuidChange {
    /// The UUID before the change.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use std::sync::Arc;
    /// use creamery::{Image, Uuid};
    /// use creamery::env::SystemEnv;
    /// let change = Image::change_uuid(&image, Some(Uuid::from_u128(1)), Arc::new(SystemEnv))?;
    /// println!("{} becomes {}", change.old(), change.new_uuid());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn old(&self) -> Uuid {
        self.change.old()
    }

    /// The UUID after the change.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use std::sync::Arc;
    /// use creamery::{Image, Uuid};
    /// use creamery::env::SystemEnv;
    /// let change = Image::change_uuid(&image, Some(Uuid::from_u128(1)), Arc::new(SystemEnv))?;
    /// assert_eq!(change.new_uuid(), Uuid::from_u128(1));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn new_uuid(&self) -> Uuid {
        self.change.new_uuid()
    }

    /// Writes the new UUID; it is durable when this returns. Returns the number of tree blocks that could not be read and stay as they are:
    /// 0, unless this continues an interrupted change. `progress` gets the number of finished tree blocks and the total, which is 0 while
    /// they are counted and verified. An error from it ends the change.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use std::sync::Arc;
    /// use creamery::{Image, Uuid};
    /// use creamery::env::SystemEnv;
    /// let change = Image::change_uuid(&image, Some(Uuid::from_u128(1)), Arc::new(SystemEnv))?;
    /// assert_eq!(change.run(&mut |done, of| { println!("{done} of {of}"); Ok(()) })?, 0);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// A copy of a tree block is damaged, which is found before anything is written; device errors; the error of `progress`.
    pub fn run(self, progress: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<u64> {
        let chunk_tree = self.env.uuid_after(self.change.new_uuid());
        change_fsid(self.change, chunk_tree, progress)
    }
}
