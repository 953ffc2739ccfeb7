//! The functions of `std::fs` besides opening, reading and writing, and edge cases: paths without a target, damage, read-only filesystems.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use creamery::attributes::FileTimes;
use creamery::{Error, ErrorKind, Filesystem, Image, OpenOptions, Permissions};
use tempfile::TempDir;

/// A name and data that occur once in an image.
const NAME: &str = "a-name-that-is-nowhere-else";
const DATA: &[u8] = b"data that is nowhere else";

fn fixture() -> (TempDir, PathBuf, Filesystem) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    Image::make(&image).size(128 << 20).run().unwrap();
    let fs = Image::options().write().open(&image).unwrap();
    (dir, image, fs)
}

fn kind<T>(outcome: Result<T, Error>) -> ErrorKind {
    outcome.err().expect("it is refused").kind()
}

/// Changes a byte at each place with these bytes.
fn damage(image: &Path, bytes: &[u8]) {
    let whole = std::fs::read(image).unwrap();
    let file = std::fs::File::options().write(true).open(image).unwrap();
    let places = whole.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
    let mut count = 0;
    for (at, _) in places {
        file.write_all_at(b"!", at as u64).unwrap();
        count += 1;
    }
    assert!(count > 0, "the image has it somewhere");
}

#[test]
fn a_path_exists_does_not_or_cannot_be_looked_at() {
    let (_dir, image, fs) = fixture();
    fs.write("/file", "text").unwrap();
    fs.symlink("file", "/link").unwrap();
    fs.symlink("nowhere", "/dangling").unwrap();
    fs.symlink("loop", "/loop").unwrap();
    assert!(fs.try_exists("/file").unwrap() && fs.try_exists("link").unwrap() && fs.try_exists("/").unwrap());
    assert!(!fs.try_exists("/dangling").unwrap() && !fs.try_exists("/missing/below").unwrap());
    assert_eq!(kind(fs.try_exists("/file/below")), ErrorKind::NotADirectory);
    assert_eq!(kind(fs.try_exists("/loop")), ErrorKind::TooManySymlinks);
    fs.create_dir("/dir").unwrap();
    // More than a tree block, so that the damaged part is not the root directory.
    (0..300).for_each(|number| fs.write(format!("/dir/{number}"), [7; 1000]).unwrap());
    fs.write(Path::new("/dir").join(NAME), "").unwrap();
    fs.close().unwrap();
    damage(&image, NAME.as_bytes());
    let fs = Image::open(&image).unwrap();
    let path = Path::new("/dir").join(NAME);
    assert!(fs.try_exists("/file").unwrap());
    assert!(kind(fs.try_exists(&path)).is_damage());
    assert!(!fs.exists(&path), "where that cannot be told it says no");
    assert!(kind(fs.canonicalize(&path)).is_damage());
}

#[test]
fn a_canonical_path_has_no_links_and_no_dots() {
    let (_dir, _image, fs) = fixture();
    fs.create_dir_all("/usr/lib/deep").unwrap();
    fs.write("/usr/lib/file", "text").unwrap();
    fs.symlink("usr/lib", "/lib").unwrap();
    fs.symlink("/lib/../lib/file", "/usr/lib/deep/up").unwrap();
    fs.symlink("nowhere", "/dangling").unwrap();
    fs.symlink("loop", "/loop").unwrap();
    for (path, canonical) in [
        ("/", "/"),
        ("../..", "/"),
        ("lib/./deep/..//file", "/usr/lib/file"),
        ("/lib/deep/up", "/usr/lib/file"),
        ("/lib/", "/usr/lib"),
        ("<FS_TREE>/lib", "<FS_TREE>/usr/lib"),
        ("<FS_TREE>", "<FS_TREE>/"),
    ] {
        assert_eq!(fs.canonicalize(path).unwrap(), Path::new(canonical), "{path}");
        let same = |path: &Path| fs.metadata(path).unwrap();
        assert_eq!(same(Path::new(path)), same(Path::new(canonical)), "{path}");
    }
    assert_eq!(kind(fs.canonicalize("/dangling")), ErrorKind::NotFound);
    assert_eq!(kind(fs.canonicalize("/loop")), ErrorKind::TooManySymlinks);
    assert_eq!(kind(fs.canonicalize("/usr/lib/file/")), ErrorKind::NotADirectory);
}

#[test]
fn what_is_read_whole_is_all_there_or_refused() {
    let (_dir, image, fs) = fixture();
    let file = OpenOptions::new().read(true).write(true).create(true).open(&fs, "/file").unwrap();
    let data = DATA.repeat(1000);
    file.write_all_at(&data, 1 << 20).unwrap();
    let mut out = vec![7; 6];
    file.read_exact_at(&mut out, (1 << 20) - 3).unwrap();
    assert_eq!(out, b"\0\0\0dat", "a hole is zeros");
    let end = (1 << 20) + data.len() as u64;
    file.read_exact_at(&mut [], end + 1).unwrap();
    let short = file.read_exact_at(&mut out, end - 5).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(io::Error::from(short).kind(), io::ErrorKind::UnexpectedEof);
    let write_only = OpenOptions::new().write(true).open(&fs, "/file").unwrap();
    assert_eq!(kind(write_only.read_exact_at(&mut out, 0)), ErrorKind::PermissionDenied);
    fs.close().unwrap();
    damage(&image, DATA);
    let fs = Image::open(&image).unwrap();
    let file = fs.open("/file").unwrap();
    assert!(kind(file.read_exact_at(&mut out, 1 << 20)).is_damage());
}

#[test]
fn an_open_file_has_its_attributes_set_unless_its_filesystem_is_only_read_or_closed() {
    let (_dir, image, fs) = fixture();
    let file = fs.create("/file").unwrap();
    let time = UNIX_EPOCH + Duration::new(1_700_000_000, 5);
    let before = file.metadata().unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
    file.set_permissions(Permissions::from_mode(0o4711)).unwrap();
    file.write_all_at(DATA, 0).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
    file.sync_data().unwrap();
    let after = file.metadata().unwrap();
    assert_eq!((after.modified(), after.atime()), (time, before.atime()), "what is not given stays");
    fs.close().unwrap();
    assert!(file.set_permissions(Permissions::from_mode(0)).is_err());
    assert!(file.set_times(FileTimes::new().set_accessed(time)).is_err());
    assert!(file.sync_data().is_err());
    let fs = Image::open(&image).unwrap();
    assert_eq!(fs.metadata("/file").unwrap().modified(), time);
    let file = fs.open("/file").unwrap();
    assert_eq!(kind(file.set_permissions(Permissions::from_mode(0))), ErrorKind::ReadOnly);
    assert_eq!(kind(file.set_times(FileTimes::new().set_accessed(time))), ErrorKind::ReadOnly);
    assert_eq!(kind(fs.set_times("/missing", FileTimes::new())), ErrorKind::NotFound);
}
