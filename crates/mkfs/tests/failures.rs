//! The state after making a filesystem fails: it never looks like a whole filesystem, and the former content stays where possible.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, FixedEnv, Timespec};
use creamery_mkfs::{Made, MkfsOptions, NoProgress, RootdirOptions, Source, make_image};

const MIB: u64 = 1 << 20;
const SUPERBLOCKS: [u64; 2] = [64 << 10, 64 << 20];

fn make(image: &Path, options: &MkfsOptions, source: Option<&Path>) -> Result<Made, Error> {
    let env = Arc::new(FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 1));
    let rootdir = source.map(RootdirOptions::new);
    let source = rootdir.as_ref().map(|rootdir| rootdir as &dyn Source);
    make_image(image, options, source, env, &NoProgress)
}

fn sized(mib: u64) -> MkfsOptions {
    MkfsOptions { total_bytes: Some(mib * MIB), ..MkfsOptions::default() }
}

fn has_superblock(image: &Path) -> bool {
    let file = File::open(image).unwrap();
    SUPERBLOCKS.iter().any(|at| {
        let mut magic = [0; 8];
        file.read_exact_at(&mut magic, at + 64).is_ok() && magic == *b"_BHRfS_M"
    })
}

/// A source whose data does not fit into 128 MiB.
fn large_source(root: &Path) -> std::path::PathBuf {
    let source = root.join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("a"), b"small").unwrap();
    std::fs::write(source.join("large"), vec![1; 200 << 20]).unwrap();
    source
}

#[test]
fn a_source_that_does_not_fit_leaves_no_new_file() {
    let root = tempfile::tempdir().unwrap();
    let (source, image) = (large_source(root.path()), root.path().join("new.img"));
    let error = make(&image, &sized(128), Some(&source)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    for word in ["new.img", "large", "134217728"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(!image.exists());
}

#[test]
fn a_source_that_is_found_to_be_too_large_on_the_way_leaves_no_filesystem_in_an_old_image() {
    let root = tempfile::tempdir().unwrap();
    let (source, image) = (root.path().join("source"), root.path().join("old.img"));
    std::fs::create_dir(&source).unwrap();
    // As much as the size of the filesystem, part of which is metadata.
    std::fs::write(source.join("large"), vec![1; 127 << 20]).unwrap();
    make(&image, &sized(128), None).unwrap();
    assert!(has_superblock(&image));
    let options = MkfsOptions { force: true, ..MkfsOptions::default() };
    let error = make(&image, &options, Some(&source)).unwrap_err().to_string();
    assert!(error.contains("old.img: no filesystem is left there") && error.contains("large"), "{error}");
    assert!(!has_superblock(&image));
    assert_eq!(image.metadata().unwrap().len(), 128 * MIB);
}

#[test]
fn a_refusal_leaves_every_byte_and_the_length_as_they_were() {
    let root = tempfile::tempdir().unwrap();
    let (source, image) = (large_source(root.path()), root.path().join("old.img"));
    make(&image, &sized(128), None).unwrap();
    let before = std::fs::read(&image).unwrap();
    let label = vec![b'l'; 300];
    let missing = root.path().join("missing");
    let refusals: [(MkfsOptions, Option<&Path>, ErrorKind); 7] = [
        (sized(300), None, ErrorKind::AlreadyExists),
        (sized(300), Some(&source), ErrorKind::AlreadyExists),
        (MkfsOptions { force: true, ..sized(1) }, None, ErrorKind::NoSpace),
        (MkfsOptions { force: true, label, ..sized(128) }, None, ErrorKind::InvalidInput),
        (MkfsOptions { force: true, ..sized(128) }, Some(&missing), ErrorKind::NotFound),
        (MkfsOptions { force: true, ..sized(128) }, Some(&source), ErrorKind::NoSpace),
        (MkfsOptions { force: true, ..MkfsOptions::default() }, Some(&source), ErrorKind::NoSpace),
    ];
    for (options, source, kind) in refusals {
        assert_eq!(make(&image, &options, source).unwrap_err().kind(), kind);
        assert!(std::fs::read(&image).unwrap() == before);
    }
}

#[test]
fn an_image_in_its_own_source_is_refused() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("file"), b"content").unwrap();
    let image = root.path().join("self.img");
    let error = make(&image, &sized(128), Some(root.path())).unwrap_err();
    assert!(error.to_string().contains("self.img"), "{error}");
    assert!(!image.exists());
}

#[test]
fn a_subvolume_that_is_no_directory_of_the_source_is_named() {
    let root = tempfile::tempdir().unwrap();
    let source = root.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), b"content").unwrap();
    let image = root.path().join("new.img");
    for name in ["file", "none"] {
        let rootdir =
            RootdirOptions { subvolumes: vec![name.parse().unwrap()], ..RootdirOptions::new(&source) };
        let env = Arc::new(FixedEnv::new(Timespec::default(), 1));
        let error = make_image(&image, &sized(128), Some(&rootdir), env, &NoProgress).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert!(!image.exists());
    }
}

#[test]
fn a_new_image_of_nothing_needs_a_size() {
    let root = tempfile::tempdir().unwrap();
    let image = root.path().join("new.img");
    assert_eq!(make(&image, &MkfsOptions::default(), None).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(!image.exists());
}

/// The names in a directory.
fn names(dir: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn a_new_image_has_its_name_when_it_is_whole() {
    struct Looking<'a>(&'a Path);
    impl creamery_mkfs::Progress for Looking<'_> {
        fn entry(&self, _path: &[u8], _bytes: u64) {
            assert_eq!(names(self.0), ["source"], "something half made is to be seen");
        }

        fn finishing(&self) {
            assert_eq!(names(self.0), ["source"], "something half made is to be seen");
        }
    }
    let root = tempfile::tempdir().unwrap();
    let source = root.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), b"content").unwrap();
    let image = root.path().join("new.img");
    let env = Arc::new(FixedEnv::new(Timespec::default(), 1));
    let rootdir = RootdirOptions::new(&source);
    make_image(&image, &sized(128), Some(&rootdir), env, &Looking(root.path())).unwrap();
    assert_eq!(names(root.path()), ["new.img", "source"]);
    assert!(has_superblock(&image));
}

#[test]
fn a_link_that_leads_nowhere_is_no_new_image() {
    let root = tempfile::tempdir().unwrap();
    let link = root.path().join("link");
    std::os::unix::fs::symlink("none.img", &link).unwrap();
    assert_eq!(make(&link, &sized(128), None).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(names(root.path()), ["link"]);
}

#[test]
fn what_a_file_holds_is_overwritten_by_force_only() {
    let root = tempfile::tempdir().unwrap();
    let image = root.path().join("file");
    let rows: [(&str, u64, &[u8]); 9] = [
        ("a tar archive", 257, b"ustar\0"),
        ("a qcow2 image", 0, b"QFI\xfb"),
        ("a ZFS pool's device", (128 << 10) + 5 * 1024, b"\x0c\xb1\xba\0\0\0\0\0"),
        ("a bcache device", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
        ("a zip archive", 0, b"PK\x03\x04"),
        ("an SQLite database", 0, b"SQLite format 3\0"),
        ("unknown data from byte 0 on", 0, b"a letter to a friend"),
        ("unknown data from byte 700000 on", 700_000, b"x"),
        ("unknown data from byte 1048575 on", MIB - 1, b"x"),
    ];
    for (what, at, bytes) in rows {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&image).unwrap();
        file.set_len(128 * MIB).unwrap();
        file.write_all_at(bytes, at).unwrap();
        let error = make(&image, &MkfsOptions::default(), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{what}");
        assert!(error.to_string().contains(what), "{what}: {error}");
        let mut there = vec![0; bytes.len()];
        file.read_exact_at(&mut there, at).unwrap();
        assert_eq!(there, bytes, "{what}");
        drop(file);
        make(&image, &MkfsOptions { force: true, ..MkfsOptions::default() }, None).unwrap();
        assert!(has_superblock(&image));
    }
    File::create(&image).unwrap().set_len(128 * MIB).unwrap();
    make(&image, &MkfsOptions::default(), None).unwrap();
}

#[test]
fn an_old_image_in_its_own_source_keeps_every_byte() {
    let root = tempfile::tempdir().unwrap();
    let source = root.path().join("source");
    std::fs::create_dir_all(source.join("below")).unwrap();
    std::fs::write(source.join("file"), "a file").unwrap();
    let (image, outside) = (source.join("below/old.img"), root.path().join("outside.img"));
    make(&image, &sized(128), None).unwrap();
    std::fs::hard_link(&image, &outside).unwrap();
    std::os::unix::fs::symlink(&image, root.path().join("link.img")).unwrap();
    let before = std::fs::read(&image).unwrap();
    for name in ["source/below/old.img", "link.img", "outside.img"] {
        let options = MkfsOptions { force: true, ..MkfsOptions::default() };
        let error = make(&root.path().join(name), &options, Some(&source)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("below/old.img"), "{error}");
        assert!(std::fs::read(&image).unwrap() == before, "{name}: the image was changed");
    }
}
