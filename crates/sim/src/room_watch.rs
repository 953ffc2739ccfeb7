//! Room that was kept is there: each run looks whether a run of delayed data found no space (DELALLOC-8).

use std::sync::Arc;

use anyhow::{Result, ensure};
use creamery_fs::Filesystem;

/// Looks whether delayed data, for which room was kept, found no space.
///
/// ```
/// use creamery_sim::{MadeBy, SimDevice, ensure_room_was_kept, fresh_image, open};
/// let device = std::sync::Arc::new(SimDevice::new(fresh_image(&MadeBy::default())?));
/// ensure_room_was_kept(&*open(&device)?)?;
/// # Ok::<(), anyhow::Error>(())
/// ```
///
/// # Errors
/// When some did.
pub fn ensure_room_was_kept(fs: &Filesystem) -> Result<()> {
    let failed = fs.statistics().writeback.no_space;
    ensure!(
        failed == 0,
        "DELALLOC-8: {failed} runs of delayed data found no space, and room was kept for them"
    );
    Ok(())
}

/// Each run looks, at the latest when it drops its watch.
pub(crate) struct RoomWatch(pub(crate) Arc<Filesystem>);

impl Drop for RoomWatch {
    fn drop(&mut self) {
        if !std::thread::panicking()
            && let Err(broken) = ensure_room_was_kept(&self.0)
        {
            panic!("{broken}");
        }
    }
}
