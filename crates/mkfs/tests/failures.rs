//! What is left when making a filesystem fails: never something that looks whole, and what was there where possible.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, FixedEnv, Timespec};
use creamery_mkfs::{Made, MkfsOptions, NoProgress, RootdirOptions, make_image};

const MIB: u64 = 1 << 20;
const SUPERBLOCKS: [u64; 2] = [64 << 10, 64 << 20];

fn make(image: &Path, options: &MkfsOptions, source: Option<&Path>) -> Result<Made, Error> {
    let env = Arc::new(FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 1));
    let rootdir = source.map(RootdirOptions::new);
    make_image(image, options, rootdir.as_ref(), env, &NoProgress)
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
fn a_source_that_does_not_fit_leaves_no_filesystem_in_an_old_image() {
    let root = tempfile::tempdir().unwrap();
    let (source, image) = (large_source(root.path()), root.path().join("old.img"));
    make(&image, &sized(128), None).unwrap();
    assert!(has_superblock(&image));
    let options = MkfsOptions { force: true, ..MkfsOptions::default() };
    make(&image, &options, Some(&source)).unwrap_err();
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
    let refusals: [(MkfsOptions, Option<&Path>, ErrorKind); 5] = [
        (sized(300), None, ErrorKind::AlreadyExists),
        (sized(300), Some(&source), ErrorKind::AlreadyExists),
        (MkfsOptions { force: true, ..sized(1) }, None, ErrorKind::NoSpace),
        (MkfsOptions { force: true, label, ..sized(128) }, None, ErrorKind::InvalidInput),
        (MkfsOptions { force: true, ..sized(128) }, Some(&missing), ErrorKind::NotFound),
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
