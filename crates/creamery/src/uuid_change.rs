//! Another UUID of a filesystem, in all its tree blocks.

use std::path::Path;
use std::sync::Arc;

use creamery_base::{Env, Result, Uuid};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_txn::change_fsid;
use creamery_volume::FsidChange;

use crate::image::{Image, refuse_mounted};

/// Another UUID for a filesystem, in all its tree blocks, about to be written; begin with [`Image::change_uuid`].
///
/// It is for nobody to open from when it begins to when it is done. What ends it in the middle - a crash, a signal - is gone on with by
/// calling it again, or by btrfstune.
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
    /// Looks whether a filesystem can be given another UUID in all its tree blocks: `uuid`, or one that `env` makes ([`Env::uuid_after`]). Nothing is
    /// written before [`UuidChange::run`]. A change that was ended in the middle goes on with its own. `btrfstune -u` and `-U` of btrfs-progs do that.
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
    /// When somebody has it open; when a filesystem that Linux has mounted has that UUID, or the filesystem itself; when another one was
    /// begun; when the UUID was changed apart from that of the tree blocks ([`SuperblockChange`](crate::volume::SuperblockChange)); when a log
    /// waits; when the first superblock is damaged, or of a feature or a state that forbids writing.
    pub fn change_uuid(path: impl AsRef<Path>, uuid: Option<Uuid>, env: Arc<dyn Env>) -> Result<UuidChange> {
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path.as_ref(), Access::ReadWrite)?);
        let change = FsidChange::new(device, uuid, &*env)?;
        // The one that it is to have: of one that goes on nobody has named it here.
        refuse_mounted(path.as_ref(), Some(change.new_uuid()))?;
        Ok(UuidChange { change, env })
    }
}

impl UuidChange {
    /// The UUID that the filesystem had.
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

    /// The UUID that the filesystem is to have.
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

    /// Writes it; durable when it returns. Gives how many tree blocks could not be read and stay as they are: none, unless it goes on with
    /// what was begun. `progress` is told how many tree blocks are done, and how many there are, or 0 while they are
    /// counted and looked at; an error of its ends all.
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
    /// A copy of a tree block is damaged, which is found before anything was written; device errors; what `progress` gives.
    pub fn run(self, progress: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<u64> {
        let chunk_tree = self.env.uuid_after(self.change.new_uuid());
        change_fsid(self.change, chunk_tree, progress)
    }
}
