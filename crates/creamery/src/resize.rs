//! Making a filesystem larger.

use creamery_base::{DevId, Result};

use crate::Filesystem;
use crate::fs::{NewSize, Resized};

impl Filesystem {
    /// Has the filesystem take more of a device: of an image file, which is made longer where it is too short; of a partition or a
    /// block device, as far as that goes. Durable when it returns, with every change so far. A crash in the middle may leave a file
    /// longer than the filesystem in it, which is no harm.
    ///
    /// # Errors
    /// When there is no such device or it is shorter than that; when the filesystem would have less of it, which is not there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use creamery::Image;
    /// use creamery::id::DevId;
    /// use creamery::volume::NewSize;
    /// let fs = Image::options().write(true).open(&image)?;
    /// let resized = fs.resize(DevId::new(1), NewSize::More(256 << 20))?;
    /// assert_eq!((resized.from, resized.to), (256 << 20, 512 << 20));
    /// assert_eq!(fs.usage().total, 512 << 20);
    /// fs.close()?;
    /// assert_eq!(std::fs::metadata(&image)?.len(), 512 << 20);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn resize(&self, device: DevId, size: NewSize) -> Result<Resized> {
        self.fs.resize(device, size)
    }
}
