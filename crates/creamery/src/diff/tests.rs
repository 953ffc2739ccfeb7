//! Comparisons of trees that this library makes itself.

use std::path::Path;

use super::*;
use crate::attributes::{FileTimes, Timespec};
use crate::extents::Fallocate;
use crate::mkfs::RootdirOptions;
use crate::progress::NoProgress;
use crate::{Image, OpenOptions, Permissions};

/// An image with directories `/old` and `/new` that have the same times.
struct DiffScene {
    _dir: tempfile::TempDir,
    fs: Filesystem,
}

impl DiffScene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        Image::make(&image).size(256 << 20).run().unwrap();
        let fs = Image::options().write().open(&image).unwrap();
        fs.create_dir("/old").unwrap();
        fs.create_dir("/new").unwrap();
        Self { _dir: dir, fs }
    }

    /// Gives everything below `path` the same time.
    fn settle(&self, path: &str) {
        let paths: Vec<_> =
            self.fs.walk(path).unwrap().map(|entry| entry.unwrap().path().to_owned()).collect();
        let then = Timespec { sec: 1, nsec: 0 };
        paths.iter().for_each(|path| {
            self.fs.set_times(path, FileTimes::new().set_accessed(then).set_modified(then)).unwrap()
        });
    }

    fn lines(&self) -> Vec<String> {
        self.settle("/old");
        self.settle("/new");
        lines(&self.fs, "/old", &self.fs, "/new")
    }
}

/// Formats each difference like the command.
fn lines(old: &Filesystem, path: &str, new: &Filesystem, other: &str) -> Vec<String> {
    let differences = old.diff(path, new, other, &NoProgress).unwrap();
    differences.map(|item| line(&item.expect("all can be read"))).collect()
}

fn line(difference: &Difference) -> String {
    let kinds: Vec<_> = difference.kinds.iter().map(|kind| kind.name()).collect();
    format!("{}{} {}", difference.change.letter(), kinds.join(","), difference.path.display())
}

#[test]
fn paths_come_in_the_order_of_their_bytes() {
    let scene = DiffScene::new();
    for path in ["a/x", "a-b/x", "a-b-c/x", "a.b/a.b/x", "a/x.y/z", "a0", "Z", "a-"] {
        let path = Path::new("/new").join(path);
        scene.fs.create_dir_all(path.parent().unwrap()).unwrap();
        scene.fs.write(path, "").unwrap();
    }
    scene.fs.create_dir_all("/old/a-b").unwrap();
    let lines = scene.lines();
    let mut sorted = lines.clone();
    sorted.sort();
    assert_eq!(lines, sorted);
    let all =
        "A Z,A a,A a-,A a-b-c,A a-b-c/x,A a-b/x,A a.b,A a.b/a.b,A a.b/a.b/x,A a/x,A a/x.y,A a/x.y/z,A a0";
    assert_eq!(lines, all.split(',').collect::<Vec<_>>());
}

#[test]
fn each_kind_of_difference_has_its_name() {
    let DiffScene { fs, _dir } = &DiffScene::new();
    let kinds = ["content", "length", "mode", "owner", "time", "xattr", "same", "type"];
    for path in kinds.iter().flat_map(|name| [format!("/old/{name}"), format!("/new/{name}")]) {
        fs.write(path, "text").unwrap();
    }
    fs.symlink("here", "/old/link").unwrap();
    fs.symlink("there", "/new/link").unwrap();
    fs.write("/new/content", "next").unwrap();
    fs.write("/new/length", "text, and more").unwrap();
    fs.remove_file("/new/type").unwrap();
    fs.create_dir_all("/new/type/below").unwrap();
    let then = Timespec { sec: 1, nsec: 0 };
    let paths: Vec<_> = fs.walk("/").unwrap().map(|entry| entry.unwrap().path().to_owned()).collect();
    paths
        .iter()
        .for_each(|path| fs.set_times(path, FileTimes::new().set_accessed(then).set_modified(then)).unwrap());
    fs.set_permissions("/new/mode", Permissions::from_mode(0o4711)).unwrap();
    fs.chown("/new/owner", Some(7), None).unwrap();
    fs.set_times("/new/time", FileTimes::new().set_accessed(then).set_modified(Timespec { sec: 1, nsec: 1 }))
        .unwrap();
    // An access time does not count as a difference.
    fs.set_times("/new/same", FileTimes::new().set_accessed(Timespec { sec: 9, nsec: 0 }).set_modified(then))
        .unwrap();
    fs.set_xattr("/new/xattr", "user.colour", "green").unwrap();
    let expected = [
        "Mcontent content",
        "Mcontent length",
        "Mcontent link",
        "Mmode mode",
        "Mowner owner",
        "Mtime time",
        "Mtype type",
        "A type/below",
        "Mxattr xattr",
    ];
    assert_eq!(lines(fs, "/old", fs, "/new"), expected);
}

#[test]
fn holes_zeros_and_preallocated_space_are_equal_content() {
    let scene = DiffScene::new();
    let len = 3 << 20;
    let make = |path: &str| OpenOptions::new().write(true).create(true).open(&scene.fs, path).unwrap();
    for name in ["hole", "prealloc", "zeros"] {
        make(&format!("/old/{name}")).set_len(len).unwrap();
    }
    make("/new/hole").set_len(len).unwrap();
    make("/new/prealloc").fallocate(Fallocate::Allocate { keep_size: false }, 0, len).unwrap();
    make("/new/zeros").write_all_at(&vec![0; 3 << 20], 0).unwrap();
    assert_eq!(scene.lines(), [""; 0]);
    make("/new/hole").write_all_at(b"x", len - 1).unwrap();
    make("/old/prealloc").write_all_at(b"x", 0).unwrap();
    assert_eq!(scene.lines(), ["Mcontent hole", "Mcontent prealloc"]);
}

#[test]
fn a_snapshot_is_compared_without_reading_data() {
    let DiffScene { fs, _dir } = &DiffScene::new();
    fs.subvolumes().create("/work").unwrap();
    let bytes: Vec<u8> = (0..8_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs.write("/work/large", &bytes).unwrap();
    fs.sync().unwrap();
    fs.subvolumes().snapshot("/work", "/before").read_only().run().unwrap();
    fs.sync().unwrap();
    let read = || fs.statistics().volume.data_read_bytes;
    let before = read();
    assert_eq!(lines(fs, "/before", fs, "/work"), [""; 0]);
    assert_eq!(read(), before);
    // Only a part that was rewritten with the same bytes is read.
    let file = OpenOptions::new().write(true).open(fs, "/work/large").unwrap();
    file.write_all_at(&bytes[1 << 20..][..65536], 1 << 20).unwrap();
    file.sync_all().unwrap();
    fs.sync().unwrap();
    assert_eq!(lines(fs, "/before", fs, "/work"), ["Mtime large"]);
    assert!((1..=2 * 65536).contains(&(read() - before)), "{} bytes were read", read() - before);
    // Delayed data has no extent yet.
    file.write_all_at(b"other", 5 << 20).unwrap();
    assert_eq!(lines(fs, "/before", fs, "/work"), ["Mcontent,time large"]);
}

#[test]
fn a_subvolume_of_one_side_is_one_line() {
    let DiffScene { fs, _dir } = &DiffScene::new();
    fs.subvolumes().create("/work").unwrap();
    fs.subvolumes().create("/work/both").unwrap();
    fs.write("/work/both/file", "x").unwrap();
    fs.write("/work/both.txt", "x").unwrap();
    fs.subvolumes().snapshot("/work", "/before").run().unwrap();
    // The snapshot has an empty directory in the subvolume's place.
    assert_eq!(lines(fs, "/work", fs, "/before"), ["D both/"]);
    assert_eq!(lines(fs, "/before", fs, "/work"), ["A both/"]);
    fs.subvolumes().snapshot("/before", "/later").run().unwrap();
    assert_eq!(lines(fs, "/before", fs, "/later"), [""; 0]);
    // Both sides have a subvolume.
    fs.subvolumes().snapshot("/work/both", "/old/s").run().unwrap();
    fs.subvolumes().snapshot("/work/both", "/new/s").run().unwrap();
    fs.write("/new/s/more", "x").unwrap();
    let found = lines(fs, "/old", fs, "/new");
    assert!(found.contains(&"A s/more".to_owned()) && !found.contains(&"A s/".to_owned()), "{found:?}");
    // One side has a directory.
    fs.remove_file("/new/s/more").unwrap();
    fs.create_dir("/old/t").unwrap();
    fs.write("/old/t/file", "y").unwrap();
    fs.subvolumes().snapshot("/work/both", "/new/t").run().unwrap();
    let found = lines(fs, "/old", fs, "/new");
    assert_eq!(found[found.len() - 2..], ["Mtype t", "Mcontent,time t/file"]);
}

#[test]
fn one_and_the_same_is_equal_and_not_looked_at() {
    let DiffScene { fs, _dir } = &DiffScene::new();
    fs.create_dir_all("/old/below").unwrap();
    fs.hard_link("/old/none", "/new/none").unwrap_err();
    fs.write("/old/file", "x").unwrap();
    fs.hard_link("/old/file", "/new/file").unwrap();
    assert_eq!(lines(fs, "/", fs, "/"), [""; 0]);
    assert_eq!(lines(fs, "/old", fs, "/new")[1..], ["D below"]);
}

#[test]
fn places_may_be_files_of_other_names() {
    let DiffScene { fs, _dir } = &DiffScene::new();
    fs.write("/old/file", "x").unwrap();
    fs.write("/new/other", "y").unwrap();
    fs.symlink("new/other", "/link").unwrap();
    assert_eq!(lines(fs, "/old/file", fs, "/link"), ["Mcontent,time file"]);
    assert_eq!(lines(fs, "/old/file", fs, "/new"), ["Mtype .", "A other"]);
    assert_eq!(lines(fs, "/new", fs, "/old/file"), ["Mtype .", "D other"]);
    let missing = fs.diff("/old", fs, "/nothing", &NoProgress).expect_err("there is no such path");
    assert_eq!(missing.side, Some(DiffSide::New));
}

#[test]
fn two_images_with_one_content_are_equal() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("sub")).unwrap();
    std::fs::write(source.join("sub/text"), "text\n".repeat(100_000)).unwrap();
    std::fs::write(source.join("small"), "x").unwrap();
    let open = |name: &str, compress: Option<&str>| {
        let image = dir.path().join(name);
        let compress = compress.map(|method| method.parse().unwrap());
        let rootdir = RootdirOptions { compress, ..RootdirOptions::new(&source) };
        Image::make(&image).rootdir_with(rootdir).run().unwrap();
        Image::open(&image).unwrap()
    };
    let plain = open("plain.img", None);
    let packed = open("packed.img", Some("zstd"));
    assert_eq!(lines(&plain, "/", &packed, "/"), [""; 0]);
    std::fs::write(source.join("small"), "y").unwrap();
    let other = open("other.img", None);
    let found = lines(&packed, "/", &other, "/");
    assert!(matches!(&found[..], [only] if only.starts_with("Mcontent")), "{found:?}");
}

#[test]
fn whoever_watches_can_end_it() {
    struct EndsAtOnce;
    impl Progress for EndsAtOnce {
        fn go_on(&self) -> Result<()> {
            Err(creamery_base::ErrorKind::Interrupted.into())
        }
    }
    let DiffScene { fs, _dir } = &DiffScene::new();
    fs.write("/old/file", "x").unwrap();
    let mut diff = fs.diff("/old", fs, "/new", &EndsAtOnce).unwrap();
    let ended = diff.find_map(Result::err).expect("an end");
    assert_eq!((ended.side, ended.error.kind()), (None, creamery_base::ErrorKind::Interrupted));
    assert!(diff.next().is_none());
}
