//! Verifying a filesystem: nothing is written, and each finding has a permanent number.

use std::path::Path;
use std::sync::Arc;

use creamery_base::Result;
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_volume::{Mode, Volume};

pub use creamery_check::{
    CheckOptions, Counts, Finding, NoProgress, Place, Problem, Progress, Report, Severity, exit_status,
};

/// Checks the filesystem on these devices (or in these image files), all of it.
///
/// ```
/// use creamery::check::{CheckOptions, NoProgress, check};
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let report = check([&image], &CheckOptions::default(), &NoProgress)?;
/// assert!(report.is_clean(), "{:#?}", report.findings);
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// What is there cannot be opened, or has a feature that cannot be checked. Damage found is no error.
pub fn check<P: AsRef<Path>>(
    devices: impl IntoIterator<Item = P>,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Report> {
    let mut opened: Vec<Arc<dyn BlockDevice>> = Vec::new();
    for path in devices {
        opened.push(Arc::new(FileDevice::open(path, Access::ReadOnly)?));
    }
    creamery_check::check(&Volume::open(opened, Mode::ReadOnly)?, options, progress)
}
