//! Sharing between files while it changes: the last change counts, and deleted files do not.

use creamery::env::Tuning;
use creamery::extents::{DiskUsage, ExtentPart};
use creamery::id::TreeId;
use creamery::{Filesystem, Image, Result};

const KIB: u64 = 1024;
/// The address of the first data in a filesystem of mkfs.
const FIRST_DATA: u64 = 13_631_488;

fn usage(fs: &Filesystem, path: &str) -> Result<(u64, u64, u64)> {
    let DiskUsage { total, exclusive, set_shared, .. } = fs.extents().disk_usage(path, |_, _| ())?;
    Ok((total / KIB, exclusive / KIB, set_shared / KIB))
}

fn new_image(dir: &tempfile::TempDir) -> Result<Filesystem> {
    let image = dir.path().join("disk.img");
    Image::make(&image).size(512 << 20).run()?;
    // Deleted files are only dropped on request.
    let mut tuning = Tuning::default();
    tuning.background_threads = Some(0);
    Image::options().write().tuning(tuning).open(&image)
}

fn fill(fs: &Filesystem, dir: &str, count: usize) -> Result<()> {
    (0..count).try_for_each(|number| fs.write(format!("{dir}/file-{number}"), vec![number as u8; 4096]))
}

#[test]
fn what_was_done_last_counts_without_a_sync() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let fs = new_image(&dir)?;
    fs.subvolumes().create("/project")?;
    fill(&fs, "/project", 500)?;
    assert_eq!(usage(&fs, "/project")?, (2000, 2000, 0));
    fs.subvolumes().snapshot("/project", "/before").read_only().run()?;
    assert_eq!(usage(&fs, "/project")?, (2000, 0, 2000));
    assert_eq!(usage(&fs, "/")?, (4000, 0, 2000), "each piece once");
    for number in 0..100 {
        fs.write(format!("/project/file-{number}"), vec![1; 8192])?;
    }
    assert_eq!(usage(&fs, "/project")?, (2400, 800, 1600));
    assert_eq!(usage(&fs, "/before")?, (2000, 400, 1600));
    assert_eq!(usage(&fs, "/project/file-3")?, (8, 8, 0));
    fs.hard_link("/project/file-3", "/project/again")?;
    assert_eq!(usage(&fs, "/project")?, (2400, 800, 1600), "a file of two names");
    fs.close()
}

#[test]
fn a_deleted_subvolume_leads_to_users_and_shares_until_it_is_dropped() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let fs = new_image(&dir)?;
    fs.subvolumes().create("/project")?;
    // So many files that there are nodes between root and leaves, to which only the tree of the first one refers.
    fill(&fs, "/project", 6000)?;
    fs.subvolumes().snapshot("/project", "/one").run()?;
    fs.subvolumes().snapshot("/project", "/two").read_only().run()?;
    assert_eq!(usage(&fs, "/one")?, (24_000, 0, 24_000));
    fs.subvolumes().delete("/project")?;
    assert_eq!(usage(&fs, "/one")?, (24_000, 0, 24_000), "two have it still");
    let users = fs.extents().users(creamery::id::Logical::new(FIRST_DATA), ExtentPart::Whole)?;
    let subvolumes: Vec<TreeId> = users.iter().map(|user| user.subvolume).collect();
    assert_eq!(subvolumes, [TreeId::new(257), TreeId::new(258)]);
    assert_eq!(
        fs.subvolumes().inode_paths(users[0].subvolume, users[0].ino)?,
        [std::path::Path::new("file-0")]
    );
    fs.subvolumes().delete("/two")?;
    fs.subvolumes().sync_deleted(|_| Ok(()))?;
    assert_eq!(usage(&fs, "/one")?, (24_000, 24_000, 0), "all that was deleted is gone");
    fs.close()
}
