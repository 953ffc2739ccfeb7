//! Closing a filesystem whose device failed reports the loss, by each way of closing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery::{Filesystem, Image, Result};
use creamery_base::{Error, ErrorKind};
use creamery_device::{Access, BlockDevice, FileDevice, Hook, Hooked, Request};

/// A device that takes no more writes after `full` is set, like a file on a full disk of the host.
#[derive(Default)]
struct Filling {
    full: AtomicBool,
}

impl Hook for Filling {
    fn before(&self, request: &Request) -> Result<()> {
        match request {
            Request::Write { .. } if self.full.load(Ordering::Relaxed) => {
                Err(Error::new(ErrorKind::NoSpace, "writing to a full host"))
            }
            _ => Ok(()),
        }
    }
}

fn opened(image: &Path) -> Result<(Arc<Hooked<Filling>>, Filesystem)> {
    let file = Arc::new(FileDevice::open(image, Access::ReadWrite)?);
    let device = Arc::new(Hooked::new(file, Filling::default()));
    let fs = Image::options().write().open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)?;
    Ok((device, fs))
}

#[test]
fn closing_after_an_abort_fails_with_its_reason_and_its_place() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(256 << 20).run()?;
    // The last commit fails, or one before it.
    for synced_before in [false, true] {
        let (device, fs) = opened(&image)?;
        fs.create_dir("/lost")?;
        device.full.store(true, Ordering::Relaxed);
        if synced_before {
            fs.sync().expect_err("the device is full");
            device.full.store(false, Ordering::Relaxed);
            fs.create_dir("/refused").expect_err("nothing can be written any more");
        }
        let told = fs.statistics().aborted;
        assert_eq!(told.is_some(), synced_before);
        let error = fs.close().expect_err("what was made is lost").to_string();
        for words in ["aborted, phase ", "a full host"] {
            assert!(error.contains(words), "{words} is not in: {error}");
        }
        assert!(told.is_none_or(|told| told.reason.contains("a full host") && told.place.contains(".rs:")));
        drop(device);
        let fs = Image::open(&image)?;
        assert_eq!((fs.exists("/lost"), fs.exists("/refused")), (false, false));
        fs.close()?;
    }
    Ok(())
}
