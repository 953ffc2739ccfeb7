//! Scratch folders in memory when there is room, and gone afterwards.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

const ROOM_WANTED: u64 = 3 << 30;

/// Where scratch folders go: `CREAMERY_TEST_DIR`, else `/dev/shm` when it has 3 GiB free, else the folder for temporary files.
#[must_use]
pub fn scratch_root() -> PathBuf {
    if let Some(dir) = std::env::var_os("CREAMERY_TEST_DIR") {
        return PathBuf::from(dir);
    }
    let memory = Path::new("/dev/shm");
    match free_bytes(memory) {
        Ok(room) if room >= ROOM_WANTED => memory.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// Room for data in the filesystem that `path` is in, bytes.
///
/// ```
/// creamery_testkit::free_bytes("/".as_ref()).unwrap();
/// ```
///
/// # Errors
/// When the path cannot be found.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let room = rustix::fs::statvfs(path).with_context(|| path.display().to_string())?;
    Ok(room.f_bavail.saturating_mul(room.f_frsize))
}

/// A folder of one's own that is removed when dropped (unless `CREAMERY_TEST_KEEP` is set).
///
/// ```
/// let scratch = creamery_testkit::Scratch::new("example").unwrap();
/// std::fs::write(scratch.path().join("file"), b"content").unwrap();
/// ```
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a fresh folder whose name contains `name`.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let tidy: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = scratch_root().join(format!("creamery-{}-{count}-{tidy}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self { path })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new folder in it.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(path)
    }

    /// The path of a file in it, which need not exist.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Unmounts, by force, whatever is still mounted below; a hanging FUSE server is cut off by this.
    pub fn unmount_all(&self) {
        unmount_below(&self.path);
    }
}

/// Unmounts, by force and the innermost first, whatever is mounted at `dir` and below.
pub fn unmount_below(dir: &Path) {
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mounts") else { return };
    let points = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
    for point in points.filter(|point| Path::new(point).starts_with(dir)) {
        // Without a type's own helper, which would wait for the server instead of cutting it off.
        for flag in ["-f", "-l"] {
            let _ = crate::Run::new("umount").args(["-i", flag]).arg(point).output();
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::env::var_os("CREAMERY_TEST_KEEP").is_none() {
            self.unmount_all();
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
