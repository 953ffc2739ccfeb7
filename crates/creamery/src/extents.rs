//! Extents of files: their addresses, the files that share them, and their checksums.

use std::ops::ControlFlow;

use creamery_base::{Generation, Result, TreeId};

use crate::Filesystem;

pub use creamery_codec::{VerityDigest, VerityHash};
pub use creamery_fs::{
    Deduped, Defragment, ExtentPart, Fallocate, Fiemap, FiemapBatch, FiemapExtent, FiemapFlags,
    FiemapRequest, FileUsage, NewExtent, Overwrite, OverwriteCount, Overwrites, Recompress, VerityInfo,
};

pub use crate::dedupe::DedupeReport;
pub use crate::disk_usage::DiskUsage;
pub use crate::resolve::DataUser;

/// The extents of a filesystem; [`Filesystem::extents`] returns it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// fs.write("/file", vec![7; 1 << 20])?;
/// let usage = fs.extents().disk_usage("/", |_, _| ())?;
/// assert_eq!(usage.total, 1 << 20);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Extents<'a>(pub(crate) &'a Filesystem);

impl Filesystem {
    /// Returns the extents of the filesystem, to find their files and addresses.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert_eq!(fs.extents().disk_usage("/", |_, _| ())?.total, 0);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn extents(&self) -> Extents<'_> {
        Extents(self)
    }
}

impl Extents<'_> {
    /// Reports the extents of a subvolume's files that transaction `since` or a later one made, until `each` breaks, as
    /// `btrfs subvolume find-new` does. Returns the last transaction that changed the subvolume, for the next call. Makes earlier
    /// writes durable first.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use std::ops::ControlFlow;
    /// fs.write("/old", "milk")?;
    /// let id = fs.subvolumes().opened();
    /// let marker = fs.extents().find_new(id, creamery::id::Generation::new(0), |_| ControlFlow::Continue(()))?;
    /// fs.write("/new", "cream")?;
    /// let mut new = Vec::new();
    /// fs.extents().find_new(id, marker.next(), |extent| {
    ///     new.push(extent.path);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(new, [b"new"]);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such subvolume, or the filesystem is damaged.
    pub fn find_new(
        self,
        id: TreeId,
        since: Generation,
        mut each: impl FnMut(NewExtent) -> ControlFlow<()>,
    ) -> Result<Generation> {
        self.0.fs.find_new(id, since, &mut each)
    }
}
