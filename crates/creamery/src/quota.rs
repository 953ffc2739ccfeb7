//! Quotas: space that subvolumes use, and its limits.

use std::path::Path;

use creamery_base::Result;

use crate::Filesystem;
use crate::path::{Last, at};

pub use creamery_fs::{QgroupReport, QuotaChange, QuotaReport};

/// The quotas of a filesystem; [`Filesystem::quotas`] returns it. Its methods are the commands of `btrfs quota` and `btrfs qgroup`
/// (btrfs-quota(8), btrfs-qgroup(8)).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use creamery::quota::QuotaChange;
/// fs.quotas().change(&QuotaChange::Enable { simple: true }, "/")?;
/// println!("{:?}", fs.quotas().report()?.groups);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Quotas<'a>(pub(crate) &'a Filesystem);

impl Filesystem {
    /// Returns the quotas, to read and to change them (btrfs-quota(8), btrfs-qgroup(8)).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert!(!fs.quotas().report()?.enabled);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn quotas(&self) -> Quotas<'_> {
        Quotas(self)
    }
}

impl Quotas<'_> {
    /// Changes the quotas of the filesystem. A change without a group applies to the subvolume of `path`. The change is
    /// durable when this returns. A rescan has then only begun; [`rescan_step`](Self::rescan_step) does the work.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::quota::QuotaChange;
    /// fs.quotas().change(&QuotaChange::Enable { simple: false }, "/")?;
    /// while fs.quotas().rescan_step()? {}
    /// fs.subvolumes().create("/home")?;
    /// let limit = QuotaChange::Limit { group: None, most: Some(8 << 20), exclusive: false };
    /// fs.quotas().change(&limit, "/home")?;
    /// assert!(fs.write("/home/file", vec![0; 9 << 20]).is_err());
    /// assert_eq!(fs.quotas().report()?.groups.len(), 2);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When quotas are off, or the group does not exist; when the group exists already, or has members.
    pub fn change(self, change: &QuotaChange, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let here = self.0.resolve(path, Last::Follow)?.subvolume;
        self.0.fs.change_quotas(change, here).map_err(at(path))
    }

    /// Does one step of a rescan (`btrfs quota rescan`); false when the rescan is complete.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::quota::QuotaChange;
    /// fs.quotas().change(&QuotaChange::Enable { simple: false }, "/")?;
    /// while fs.quotas().rescan_step()? {}
    /// assert!(!fs.quotas().report()?.inconsistent);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the filesystem is damaged.
    pub fn rescan_step(self) -> Result<bool> {
        self.0.fs.quota_rescan_step()
    }

    /// Returns the quota groups, and whether quotas are on, as `btrfs qgroup show` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// assert!(fs.quotas().report()?.groups.is_empty());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the filesystem is damaged.
    pub fn report(self) -> Result<QuotaReport> {
        self.0.fs.quota_report()
    }
}
