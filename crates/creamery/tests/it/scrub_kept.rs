//! The stored status of a scrub at any moment at which it may be killed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery::check::scrub::{Progress, Scrub};
use creamery::device::{BlockDevice, MemoryDevice};
use creamery::{Image, Result};

/// Counts statuses without the superblock that was repaired first.
struct Kept {
    dir: PathBuf,
    asked: AtomicU64,
    missed: AtomicU64,
}

impl Kept {
    fn status(&self) -> String {
        let files = std::fs::read_dir(&self.dir).unwrap().map(|file| file.unwrap());
        let is_status =
            |file: &std::fs::DirEntry| file.file_name().to_string_lossy().starts_with("scrub.status.");
        let mut files: Vec<_> = files.filter(is_status).collect();
        std::fs::read_to_string(files.pop().unwrap().path()).unwrap()
    }
}

impl Progress for Kept {
    fn scrubbed(&self, _: u64) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let tells = self.status().contains("|corrected_errors:1|");
        self.missed.fetch_add(u64::from(!tells), Ordering::Relaxed);
        true
    }
}

#[test]
fn what_was_mended_is_in_the_status_before_the_next_step() -> Result<()> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(256 << 20));
    Image::make_on(Arc::clone(&device)).run()?;
    device.write_at(64 << 20, &[0; 4096])?;
    let dir = tempfile::tempdir()?;
    let kept = Kept { dir: dir.path().to_owned(), asked: AtomicU64::new(0), missed: AtomicU64::new(0) };
    let report = Scrub::default().kept_in(dir.path()).run_on([device], &kept)?;
    assert_eq!(report.counts().corrected_errors, 1);
    assert!(kept.asked.into_inner() > 1);
    assert_eq!(kept.missed.into_inner(), 0);
    Ok(())
}
