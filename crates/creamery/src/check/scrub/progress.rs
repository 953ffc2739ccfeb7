//! Progress of a scrub.

use creamery_base::{DevId, Uuid};

/// Receives the progress of a scrub, from several threads.
///
/// ```
/// use creamery::check::scrub::Progress;
/// struct Print;
/// impl Progress for Print {
///     fn scrubbed(&self, bytes: u64) -> bool {
///         println!("{bytes} bytes");
///         true
///     }
/// }
/// ```
pub trait Progress: Sync {
    /// The scrub of these devices of the filesystem with this UUID has begun: they are open, and no other scrub of them runs.
    fn begins(&self, filesystem: Uuid, devices: &[DevId]) {
        let _ = (filesystem, devices);
    }

    /// `bytes` of data and tree blocks are scrubbed, of all devices together. Returns whether to go on.
    fn scrubbed(&self, bytes: u64) -> bool;

    /// All devices are scrubbed, and the scrub looks for the files of the remaining damage, one finding after the other. Returns whether to
    /// go on with that.
    fn names_on(&self) -> bool {
        true
    }
}

/// Ignores the progress of a scrub, and never cancels it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::check::scrub::{NoProgress, Scrub};
/// Scrub::default().read_only().run(&image, &NoProgress)?;
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn scrubbed(&self, _: u64) -> bool {
        true
    }
}
