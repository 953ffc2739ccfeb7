//! Quotas: what subvolumes have, and limits of that.

use std::path::Path;

use creamery_base::Result;

use crate::Filesystem;
use crate::path::{Last, at};

pub use creamery_fs::{QgroupReport, QuotaChange, QuotaReport};

/// Quotas.
impl Filesystem {
    /// Changes the quotas of the filesystem. `path` lies in the subvolume that is meant where a change names no group. Durable when
    /// it returns; a rescan has begun then, and takes [`Filesystem::quota_rescan_step`].
    ///
    /// # Errors
    /// When there are no quotas, or no such group; when it is there already, or has members.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use creamery::quota::QuotaChange;
    /// let fs = creamery::Image::options().write(true).open(&image)?;
    /// fs.change_quotas(&QuotaChange::Enable { simple: false }, "/")?;
    /// while fs.quota_rescan_step()? {}
    /// fs.create_subvolume("/home")?;
    /// fs.change_quotas(&QuotaChange::Limit { group: None, most: Some(8 << 20), exclusive: false }, "/home")?;
    /// assert!(fs.write("/home/file", vec![0; 9 << 20]).is_err());
    /// assert_eq!(fs.quota_report()?.groups.len(), 2);
    /// # fs.close()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn change_quotas(&self, change: &QuotaChange, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let here = self.resolve(path, Last::Follow)?.subvolume;
        self.fs.change_quotas(change, here).map_err(at(path))
    }

    /// Counts some more of what a rescan has not counted; false, when that is all.
    ///
    /// # Errors
    /// When the filesystem is damaged.
    pub fn quota_rescan_step(&self) -> Result<bool> {
        self.fs.quota_rescan_step()
    }

    /// The quota groups, and whether there are any.
    ///
    /// # Errors
    /// When the filesystem is damaged.
    pub fn quota_report(&self) -> Result<QuotaReport> {
        self.fs.quota_report()
    }
}
