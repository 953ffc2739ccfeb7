//! Having a filesystem tell of its space in other trees.

use creamery_base::Result;

use crate::Filesystem;
use crate::volume::Conversion;

impl Filesystem {
    /// Converts the filesystem, in one transaction: a crash leaves the one or the other. Durable when it returns, with every change so
    /// far. False when it is as that would make it.
    ///
    /// # Errors
    /// When it would have a block group tree without a free space tree or with holes listed, which Linux does not mount; when there is no
    /// space for the tree.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use creamery::Image;
    /// use creamery::volume::Conversion;
    /// let fs = Image::options().write(true).open(&image)?;
    /// assert!(fs.convert(Conversion::FromBlockGroupTree)?);
    /// assert!(fs.convert(Conversion::ToBlockGroupTree)?);
    /// assert!(!fs.convert(Conversion::ToFreeSpaceTree)?, "it has one");
    /// # fs.close()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn convert(&self, conversion: Conversion) -> Result<bool> {
        self.fs.sync()?;
        self.fs.engine().convert(conversion)
    }
}
