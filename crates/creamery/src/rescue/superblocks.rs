//! Repairs of superblocks, and of the data that only they lead to.

use std::path::Path;
use std::sync::Arc;

use creamery_base::{DevId, Error, ErrorKind, Logical, Result};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_volume::{DeviceSet, NamedSet, SuperCopies};

use super::openable::{check_first, check_openable, check_whole};
use crate::Image;

/// Discards the log, for one that cannot be replayed: changes that were synced after the last commit are lost. Returns the address and the
/// level of its root, `None` when there was no log.
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
/// The image is open elsewhere; the first superblock is damaged or leads nowhere; a state that forbids writing; device errors.
pub fn zero_log(image: impl AsRef<Path>) -> Result<Option<(Logical, u8)>> {
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(image.as_ref(), Access::ReadWrite)?);
    check_first(&device)?;
    creamery_volume::zero_log(&*device)
}

/// Frees the space of v1 free space caches.
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
/// Those of opening for writing.
pub fn clear_space_cache(image: impl AsRef<Path>) -> Result<()> {
    // Opening for writing removes the caches, in memory.
    let fs = Image::options().write().open(image)?;
    fs.fs.begin_changes()?;
    fs.close()
}

/// The copies of an image's superblock, to rewrite those that are damaged, missing or old.
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
    /// The reason why no valid copy is written.
    nowhere: Option<Error>,
}

impl SuperRecovery {
    /// Reads all copies on the device that is named first. That device is locked from here on; other devices of the filesystem are only
    /// read. If some copies are bad, the newest valid one counts if the trees that it leads to can be opened, else the newest older one
    /// whose trees can all be read: the blocks of an older commit may be in use again. One of several devices does not go back to an older
    /// copy, because the others have the last commit.
    ///
    /// # Errors
    /// The image is open elsewhere; no copy is valid; the device has the signature of another format.
    pub fn open(image: impl Into<NamedSet>) -> Result<Self> {
        let image = image.into().degraded();
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(image.first(), Access::ReadWrite)?);
        let newest = SuperCopies::read(&*device)?;
        if newest.device_count() == 1 || newest.bad().is_empty() {
            return Self::judge(device);
        }
        let leads = |devices: DeviceSet| newest.volume(devices).and_then(check_openable);
        let nowhere = image.open_on(Arc::clone(&device), Access::ReadOnly, leads).err();
        Ok(Self { device, copies: newest, nowhere })
    }

    /// Judges all copies on the only device of a filesystem.
    fn judge(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let newest = SuperCopies::read(&*device)?;
        if newest.bad().is_empty() {
            return Ok(Self { device, copies: newest, nowhere: None });
        }
        let Err(nowhere) = newest.volume(Arc::clone(&device)).and_then(check_openable) else {
            return Ok(Self { device, copies: newest, nowhere: None });
        };
        if !matches!(nowhere.kind(), ErrorKind::Corrupt | ErrorKind::Unreadable) {
            // A device that fails now, or an unknown feature, is no reason to go back.
            return Ok(Self { device, copies: newest, nowhere: Some(nowhere) });
        }
        let is_whole = |older: &SuperCopies| {
            older.volume(Arc::clone(&device)).and_then(|volume| check_whole(&volume)).is_ok()
        };
        Ok(match newest.older().into_iter().find(is_whole) {
            Some(older) => Self { device, copies: older, nowhere: None },
            None => Self { device, copies: newest, nowhere: Some(nowhere) },
        })
    }

    /// Offsets of the valid copies of the last commit, bytes of the device.
    #[must_use]
    pub fn good(&self) -> &[u64] {
        self.copies.good()
    }

    /// Offsets of the other copies, bytes of the device.
    #[must_use]
    pub fn bad(&self) -> &[u64] {
        self.copies.bad()
    }

    /// The number of the device in the filesystem.
    #[must_use]
    pub fn dev_id(&self) -> DevId {
        self.copies.dev_id()
    }

    /// Rewrites the bad copies. Changes that were synced after the last commit are lost if the first copy was bad.
    ///
    /// # Errors
    /// The trees of the good copies cannot be opened, so that this may no longer be a filesystem, and no older copy leads to a whole
    /// one; a bad copy belongs to another filesystem; device errors.
    pub fn recover(self) -> Result<()> {
        if let Some(error) = self.nowhere {
            let name = self.device.describe();
            let what = format!("{name}: no superblock is written: no intact one has usable trees");
            return Err(error.context(what));
        }
        self.copies.recover(&*self.device)
    }
}

#[cfg(test)]
mod tests {
    use creamery_device::{Hook, Hooked, Request};

    use super::*;
    use crate::inspect::push_chunks;

    const FIRST: u64 = 64 << 10;
    const SECOND: u64 = 64 << 20;

    /// Fails reads that begin at one of these offsets.
    struct FailingReads(Vec<u64>);

    impl Hook for FailingReads {
        fn before(&self, request: &Request) -> Result<()> {
            match request {
                Request::Read { offset, .. } if self.0.contains(offset) => {
                    Err(Error::new(ErrorKind::Io, "the cable is loose"))
                }
                _ => Ok(()),
            }
        }
    }

    fn device(image: &Path) -> Arc<dyn BlockDevice> {
        Arc::new(FileDevice::open(image, Access::ReadWrite).unwrap())
    }

    /// A filesystem whose second superblock is the one of the commit before, and the addresses of the newer root tree.
    fn with_an_older_copy(dir: &Path) -> (Arc<dyn BlockDevice>, Vec<u64>) {
        let image = dir.join("disk.img");
        Image::make(&image).size(256 << 20).run().unwrap();
        let mut older = vec![0; 4096];
        device(&image).read_at(SECOND, &mut older).unwrap();
        let fs = Image::options().write().open(&image).unwrap();
        fs.write("/file", "some").unwrap();
        fs.close().unwrap();
        let device = device(&image);
        device.write_at(SECOND, &older).unwrap();
        let volume = SuperCopies::read(&*device).unwrap().volume(Arc::clone(&device)).unwrap();
        assert!(push_chunks(&volume, &volume.superblock(), &mut Vec::new()).is_none());
        let copies = volume.map(volume.superblock().root().0, u64::from(volume.node_size())).unwrap();
        let root = copies.mirrors().iter().map(|copy| copy[0].at.offset).collect();
        (device, root)
    }

    #[test]
    fn a_newer_superblock_whose_root_tree_is_damaged_gives_way_to_an_older_one() {
        let dir = tempfile::tempdir().unwrap();
        let (device, root) = with_an_older_copy(dir.path());
        root.iter().for_each(|at| device.write_at(at + 2000, &[0xa5; 64]).unwrap());
        let copies = SuperRecovery::judge(device).unwrap();
        assert_eq!((copies.good(), copies.bad()), (&[SECOND][..], &[FIRST][..]));
        assert!(copies.nowhere.is_none());
    }

    #[test]
    fn a_newer_superblock_whose_root_tree_the_device_fails_to_read_gives_way_to_none() {
        let dir = tempfile::tempdir().unwrap();
        let (device, root) = with_an_older_copy(dir.path());
        let copies = SuperRecovery::judge(Arc::new(Hooked::new(device, FailingReads(root)))).unwrap();
        assert_eq!((copies.good(), copies.bad()), (&[FIRST][..], &[SECOND][..]));
        assert_eq!(copies.recover().unwrap_err().kind(), ErrorKind::Io);
    }
}
