//! Subvolumes have 64-bit numbers.

use std::path::Path;
use std::sync::Arc;

use creamery::check::{CheckOptions, NoProgress, check};
use creamery::id::TreeId;
use creamery::{Image, Result};
use creamery_base::ObjectId;
use creamery_device::{Access, FileDevice};
use creamery_format::{Key, KeyType};
use creamery_fs::{Filesystem, FsOptions, NewInode};
use creamery_txn::{Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

/// Makes subvolumes with these numbers, ascending, each named by its number. A new subvolume gets the number behind the
/// highest one in use; so an item stands there meanwhile.
fn make(image: &Path, ids: &[u64]) -> Result<()> {
    let device = FileDevice::open(image, Access::ReadWrite)?;
    let volume = Volume::open(vec![Arc::new(device)], Mode::ReadWrite)?;
    let fs = Filesystem::open(Engine::open(volume, Options::default())?, FsOptions::default())?;
    let roots = fs.engine().tree(TreeId::ROOT)?;
    for id in ids {
        let before = Key::new(ObjectId::new(id - 1), KeyType::new(100), 0);
        let handle = fs.engine().start(ReserveItems::items(1))?;
        roots.insert(&handle, &before, &[])?;
        handle.end();
        let name = id.to_string();
        let made = fs.create_subvolume(fs.root(TreeId::FS)?, name.as_bytes(), &NewInode::directory(0o755))?;
        assert_eq!(made.subvolume, TreeId::new(*id));
        let handle = fs.engine().start(ReserveItems::freeing(1))?;
        assert!(roots.remove(&handle, &before)?);
        handle.end();
    }
    fs.sync()?;
    fs.engine().volume().close()
}

#[test]
fn subvolumes_with_large_numbers_are_found_by_them() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(256 << 20).run()?;
    let ids = [65_535, 65_536, 70_000, 1 << 32, (1 << 48) - 1];
    make(&image, &ids)?;
    for id in ids {
        let fs = Image::options().write().subvolume_id(TreeId::new(id)).open(&image)?;
        fs.write("/file", id.to_string())?;
        fs.create_dir("/below")?;
        fs.close()?;
    }
    let fs = Image::open(&image)?;
    for id in ids {
        assert_eq!(fs.read_to_string(format!("/{id}/file"))?, id.to_string());
        let inside = Image::options().subvolume_id(TreeId::new(id)).open(&image)?;
        assert_eq!(inside.read_to_string("/file")?, id.to_string());
        assert!(inside.metadata("/below")?.is_dir() && !inside.exists("/70000"));
    }
    let report = check([&image], &CheckOptions::default(), &NoProgress)?;
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    for id in [70_001, 70_000 & 0xffff, 1 << 33] {
        let refused = Image::options().subvolume_id(TreeId::new(id)).open(&image);
        assert!(refused.is_err(), "{id} was never made");
    }
    Ok(())
}
