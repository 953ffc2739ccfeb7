//! Snapshots: they have their source's content, and no later changes.

use std::path::Path;
use std::sync::Arc;

use creamery::check::{CheckOptions, NoProgress, check};
use creamery::id::TreeId;
use creamery::{ErrorKind, Filesystem, Image, OpenOptions, Result};
use creamery_device::{Access, FileDevice};
use creamery_fs::{FsOptions, NewInode};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

const FILES: usize = 700;

fn assert_sound(image: &Path) -> Result<()> {
    let report = check([image], &CheckOptions::default(), &NoProgress)?;
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    Ok(())
}

fn fill(fs: &Filesystem, dir: &str, what: &str) -> Result<()> {
    for number in 0..FILES {
        fs.write(format!("{dir}/file-{number}"), format!("{what} {number} ").repeat(number * 3))?;
    }
    Ok(())
}

fn expect(fs: &Filesystem, dir: &str, what: &str) -> Result<()> {
    for number in (0..FILES).step_by(7) {
        let want = format!("{what} {number} ").repeat(number * 3);
        assert_eq!(fs.read_to_string(format!("{dir}/file-{number}"))?, want, "{dir}/file-{number}");
    }
    Ok(())
}

#[test]
fn a_snapshot_has_what_was_there_and_nothing_of_what_came_after() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(512 << 20).run()?;
    let fs = Image::options().write().open(&image)?;
    fs.subvolumes().create("/project")?;
    fs.subvolumes().create("/project/nested")?;
    fill(&fs, "/project", "first")?;
    fs.subvolumes().snapshot("/project", "/before").read_only().run()?;
    fill(&fs, "/project", "second")?;
    fs.subvolumes().snapshot("/project", "/project/inside").run()?;
    fs.subvolumes().snapshot("/before", "/again").run()?;
    fill(&fs, "/again", "third")?;
    fs.subvolumes().snapshot("/", "/all").run()?;
    for number in 0..FILES {
        fs.remove_file(format!("/project/file-{number}"))?;
    }
    for (dir, what) in [("/before", "first"), ("/project/inside", "second"), ("/again", "third")] {
        expect(&fs, dir, what)?;
    }
    assert!(!fs.exists("/project/inside/inside") && !fs.exists("/all/all"));
    for stub in ["/before/nested", "/all/project", "/all/again"] {
        assert_eq!(
            fs.read_dir(stub)?.count(),
            0,
            "{stub} stands for a subvolume that is not in the snapshot"
        );
        assert!(fs.write(format!("{stub}/file"), "").is_err());
    }
    assert!(fs.subvolumes().delete("/all/project").is_err() && fs.remove_dir("/before/nested").is_err());
    fs.remove_dir("/all/project")?;
    assert!(
        !fs.exists("/all/project") && fs.exists("/project"),
        "what stands for a subvolume is a directory like others"
    );
    assert!(fs.write("/before/file-1", "").is_err(), "it is read-only");
    assert!(fs.subvolumes().snapshot("/project", "/before").run().is_err(), "the name is taken");
    assert!(fs.subvolumes().snapshot("/before/nested", "/stub").run().is_err());
    fs.close()?;
    assert_sound(&image)?;
    let fs = Image::open(&image)?;
    for (dir, what) in [("/before", "first"), ("/project/inside", "second"), ("/again", "third")] {
        expect(&fs, dir, what)?;
    }
    Ok(())
}

#[test]
fn what_is_deleted_leaves_what_others_share() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(512 << 20).run()?;
    let fs = Image::options().write().open(&image)?;
    let empty = fs.volume().usage();
    fs.subvolumes().create("/project")?;
    fill(&fs, "/project", "first")?;
    fs.subvolumes().snapshot("/project", "/one").run()?;
    fill(&fs, "/project", "second")?;
    fs.subvolumes().snapshot("/project", "/two").read_only().run()?;
    fs.subvolumes().snapshot("/one", "/three").run()?;
    fill(&fs, "/three", "third")?;
    fs.subvolumes().create("/one/inside")?;
    assert!(fs.subvolumes().delete("/one").is_err(), "there is one in it");
    assert!(fs.subvolumes().delete("/one/file-1").is_err() && fs.subvolumes().delete("/").is_err());
    fs.remove_dir("/one/inside")?;
    fs.subvolumes().delete("/project")?;
    assert!(!fs.exists("/project"));
    fs.subvolumes().sync_deleted(|_| Ok(()))?;
    for (dir, what) in [("/one", "first"), ("/two", "second"), ("/three", "third")] {
        expect(&fs, dir, what)?;
    }
    fs.close()?;
    assert_sound(&image)?;
    let fs = Image::options().write().open(&image)?;
    fs.subvolumes().delete("/one")?;
    // A call that stops early leaves the rest for the next one.
    let ended = fs.subvolumes().sync_deleted(|_| Err(creamery::ErrorKind::Interrupted.into()));
    assert_eq!(ended.map_err(|error| error.kind()), Err(creamery::ErrorKind::Interrupted));
    fs.close()?;
    assert_sound(&image)?;
    let fs = Image::options().write().open(&image)?;
    fs.subvolumes().sync_deleted(|_| Ok(()))?;
    expect(&fs, "/three", "third")?;
    fs.close()?;
    assert_sound(&image)?;
    let fs = Image::options().write().open(&image)?;
    fs.subvolumes().delete("/three")?;
    fs.subvolumes().sync_deleted(|_| Ok(()))?;
    expect(&fs, "/two", "second")?;
    fs.subvolumes().delete("/two")?;
    fs.subvolumes().sync_deleted(|_| Ok(()))?;
    // The metadata of the first content may take more blocks than that of an empty filesystem.
    let left = empty.free.saturating_sub(fs.volume().usage().free);
    assert!(left <= 1 << 20, "{left} bytes are left of all that");
    fs.close()?;
    assert_sound(&image)?;
    Ok(())
}

#[test]
fn what_is_open_in_a_deleted_subvolume_can_be_read() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(256 << 20).run()?;
    let fs = Image::options().write().open(&image)?;
    fs.subvolumes().create("/project")?;
    fill(&fs, "/project", "some")?;
    fs.sync()?;
    let file = fs.open("/project/file-600")?;
    let want = "some 600 ".repeat(1800);
    fs.subvolumes().delete("/project")?;
    let full = fs.volume().usage().free;
    fs.subvolumes().sync_deleted(|_| Ok(()))?;
    let mut found = vec![0; want.len()];
    assert_eq!(file.read_at(&mut found, 0)?, want.len());
    assert!(found == want.as_bytes() && fs.volume().usage().free <= full, "nothing of it is dropped");
    assert!(!fs.exists("/project") && fs.subvolumes().create("/project").is_ok(), "the name is free");
    drop(file);
    fs.subvolumes().sync_deleted(|_| Ok(()))?;
    assert!(fs.volume().usage().free > full + (1 << 20), "all of it is dropped");
    // No inode of the first subvolume is left.
    fs.subvolumes().delete("/project")?;
    fs.subvolumes().sync_deleted(|_| Ok(()))?;
    fs.subvolumes().create("/again")?;
    fs.write("/again/file", "data")?;
    assert_eq!(fs.read_to_string("/again/file")?, "data");
    fs.close()?;
    assert_sound(&image)
}

/// Lookups by inode number, as a mount makes them for a process with an open directory.
#[test]
fn names_in_a_deleted_subvolume_are_refused_to_who_has_a_directory_open() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(256 << 20).run()?;
    let device = FileDevice::open(&image, Access::ReadWrite)?;
    let volume = Volume::open(vec![Arc::new(device)], Mode::ReadWrite)?;
    let fs = creamery_fs::Filesystem::open(Engine::open(volume, Options::default())?, FsOptions::default())?;
    let top = fs.root(TreeId::FS)?;
    let root = fs.create_subvolume(top, b"work", &NewInode::directory(0o755))?;
    let below = fs.create(root, b"below", &NewInode::directory(0o755))?.id;
    for name in [b"one", b"two"] {
        fs.create(below, name, &NewInode::file(0o644))?;
    }
    fs.sync()?;
    let (open, root_open) = (fs.open_file(below)?, fs.open_file(root)?);
    let unlinked = fs.create_open(below, b"gone", &NewInode::file(0o644))?.1;
    fs.unlink(below, b"gone")?;
    fs.delete_subvolume(top, b"work")?;
    drop(unlinked);
    fs.clean_step()?;
    // A new file would have no path, and an uncached one is not found.
    let refused = [
        fs.unlink(below, b"one").err(),
        fs.create(below, b"three", &NewInode::file(0o644)).err(),
        fs.create(root, b"three", &NewInode::file(0o644)).err(),
        fs.create_subvolume(below, b"inner", &NewInode::directory(0o755)).err(),
    ];
    for refused in refused {
        let kind = refused.expect("it is refused").kind();
        assert!(matches!(kind, ErrorKind::NotFound | ErrorKind::Stale), "{kind:?}");
    }
    drop((open, root_open));
    fs.sync()?;
    while fs.clean_step()? == creamery_fs::Cleaning::More {}
    assert!(fs.dead_subvolumes().is_empty());
    fs.shut_down()?;
    assert_sound(&image)
}

/// Snapshots fill a device: the write gets ENOSPC, and never a commit.
#[test]
fn a_device_full_of_snapshots_can_be_emptied() -> Result<()> {
    const PAGE: u64 = 4096;
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(256 << 20).run()?;
    let fs = Image::options().write().open(&image)?;
    fs.subvolumes().create("/project")?;
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let (mut snapshots, mut full) = (0, None);
    'filling: for round in 0..10_000_u64 {
        for _ in 0..300 {
            let name = format!("/project/file-{}", next(8));
            let written = OpenOptions::new()
                .write(true)
                .create(true)
                .open(&fs, &name)
                .and_then(|file| file.write_all_at(&[round as u8; PAGE as usize], next(2000) * PAGE));
            if let Err(error) = written {
                full = Some(error);
                break 'filling;
            }
        }
        let snapshot = fs.subvolumes().snapshot("/project", format!("/snapshot-{round}"));
        let snapshot = if round % 2 == 0 { snapshot.read_only() } else { snapshot };
        if let Err(error) = snapshot.run() {
            full = Some(error);
            break;
        }
        snapshots = round + 1;
    }
    let error = full.expect("it has an end");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "after {snapshots} snapshots: {error}");
    assert!(snapshots > 5, "{snapshots} snapshots");
    for round in 0..snapshots {
        fs.subvolumes().delete(format!("/snapshot-{round}"))?;
        if round % 3 == 0 {
            fs.subvolumes().sync_deleted(|_| Ok(()))?;
        }
    }
    fs.subvolumes().sync_deleted(|_| Ok(()))?;
    fs.write("/project/more", vec![1; 20 << 20])?;
    println!("{snapshots} snapshots");
    fs.close()?;
    assert_sound(&image)
}
