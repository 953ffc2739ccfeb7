//! Read-ahead of a scrub, in the extent tree and in the checksum tree.

use std::sync::Arc;

use creamery::check::scrub::{NoProgress, Scrub};
use creamery::device::{BlockDevice, MemoryDevice};
use creamery::{Image, Result};

/// More files than a tree with one level of nodes above the leaves can hold, and not side by side.
const FILES: u32 = 8000;

/// A filesystem with large trees.
fn filesystem() -> Result<Arc<dyn BlockDevice>> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(512 << 20));
    Image::make_on(Arc::clone(&device)).run()?;
    let fs = Image::options().write().open_devices([Arc::clone(&device)])?;
    for number in 0..FILES {
        fs.write(format!("/{number}"), vec![number as u8; 20_000])?;
    }
    fs.close()?;
    Ok(device)
}

#[test]
fn leaves_of_both_trees_are_read_ahead_and_come_to() -> Result<()> {
    let device = filesystem()?;
    let scrub = Scrub::default().read_only();
    let report = scrub.run_on([Arc::clone(&device)], &NoProgress)?;
    assert_eq!(report.counts().errors(), 0);
    for (tree, ahead) in ["extents", "checksums"].iter().zip(report.read_ahead) {
        assert!(ahead.issued > 3, "{tree}: {ahead:?}");
        assert!(ahead.hit * 10 >= ahead.issued * 8, "{tree}: {ahead:?}");
    }
    let without = scrub.without_read_ahead().run_on([device], &NoProgress)?;
    assert_eq!(without.read_ahead.map(|ahead| ahead.issued), [0, 0]);
    assert_eq!(without.counts(), report.counts());
    Ok(())
}
