//! Tests: a cancel in the middle of a large file leaves no part of that file, and keeps all earlier files.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use creamery_base::{Error, ErrorKind, Result};

use crate::copy::CopyOptions;
use crate::progress::Progress;
use crate::tar::TarMember;
use crate::{Filesystem, Image};

const LARGE: usize = 24 << 20;

/// Cancels at a call within the file after `small`.
#[derive(Default)]
struct EndsWithinFile {
    has_small: Mutex<Cell<u32>>,
}

impl Progress for EndsWithinFile {
    fn entry(&self, path: &[u8], _: u64) {
        if path.ends_with(b"a-small") {
            self.has_small.lock().unwrap().set(1);
        }
    }

    fn go_on(&self) -> Result<()> {
        let asked = self.has_small.lock().unwrap();
        // Calls before the file, and within it.
        match asked.get() {
            0 => return Ok(()),
            1..4 => asked.set(asked.get() + 1),
            _ => return Err(ErrorKind::Interrupted.into()),
        }
        Ok(())
    }
}

fn content() -> Vec<u8> {
    (0..LARGE).map(|at| u8::try_from(at * 7 / 4096 % 251).unwrap() | 1).collect()
}

struct InterruptScene {
    dir: tempfile::TempDir,
    fs: Filesystem,
}

impl InterruptScene {
    /// An image with a small file and a large one in `/tree`, and the same on the host.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        Image::make(&image).size(256 << 20).run().unwrap();
        let fs = Image::options().write().open(&image).unwrap();
        fs.create_dir("/tree").unwrap();
        std::fs::create_dir(dir.path().join("tree")).unwrap();
        for (name, bytes) in [("a-small", b"whole".to_vec()), ("b-large", content())] {
            fs.write(format!("/tree/{name}"), &bytes).unwrap();
            std::fs::write(dir.path().join("tree").join(name), &bytes).unwrap();
        }
        Self { dir, fs }
    }

    fn expect_end(&self, outcome: Result<()>) {
        assert_eq!(outcome.map_err(|error| error.kind()), Err(ErrorKind::Interrupted));
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let entries = self.fs.read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

#[test]
fn a_copy_out_leaves_no_half_file() {
    let scene = InterruptScene::new();
    let options = CopyOptions { archive: true, ..CopyOptions::default() };
    let to = scene.dir.path().join("out");
    scene.expect_end(
        scene.fs.copy_out("/tree", &to).options(options).progress(&EndsWithinFile::default()).run(),
    );
    let names: Vec<_> = std::fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a-small"]);
}

#[test]
fn a_copy_between_places_leaves_no_half_file_and_what_had_the_name() {
    let scene = InterruptScene::new();
    let reflink = crate::copy::Reflink::Never;
    let options = CopyOptions { archive: true, reflink, ..CopyOptions::default() };
    scene.fs.create_dir("/to").unwrap();
    scene.expect_end(
        scene
            .fs
            .copy_between("/tree", &scene.fs, "/to")
            .options(options)
            .progress(&EndsWithinFile::default())
            .run(),
    );
    assert_eq!(scene.names("/to/tree"), ["a-small"]);
    scene.fs.write("/to/tree/b-large", "old").unwrap();
    scene.expect_end(
        scene
            .fs
            .copy_between("/tree", &scene.fs, "/to")
            .options(options)
            .progress(&EndsWithinFile::default())
            .run(),
    );
    assert_eq!(scene.fs.read("/to/tree/b-large").unwrap(), b"old");
    assert_eq!(scene.names("/to/tree").len(), 2);
}

#[test]
fn an_archive_has_its_name_when_it_is_whole_and_what_is_unpacked_is_whole() {
    let scene = InterruptScene::new();
    let to = scene.dir.path().join("tree.tar");
    let members = [TarMember::new("/tree", "tree")];
    let write = |progress: &dyn Progress| {
        scene.fs.write_tar(&members).note(&|note| panic!("{note}")).progress(progress).to_file(&to)
    };
    scene.expect_end(write(&EndsWithinFile::default()));
    assert!(!to.exists());
    std::fs::write(&to, "old").unwrap();
    scene.expect_end(write(&EndsWithinFile::default()));
    assert_eq!(std::fs::read(&to).unwrap(), b"old");
    write(&crate::progress::NoProgress).unwrap();
    scene.fs.create_dir("/to").unwrap();
    let archive = std::fs::File::open(&to).unwrap();
    let failed = |_: &[u8], error: &Error| panic!("{error}");
    scene.expect_end(
        scene.fs.read_tar("/to").failed(&failed).progress(&EndsWithinFile::default()).from(archive),
    );
    assert_eq!(scene.names("/to/tree"), ["a-small"]);
}

#[test]
fn a_copy_in_leaves_no_half_file() {
    let scene = InterruptScene::new();
    let options = CopyOptions { archive: true, ..CopyOptions::default() };
    scene.fs.create_dir("/to").unwrap();
    let from = scene.dir.path().join("tree");
    scene.expect_end(
        scene.fs.copy_in(from, "/to").options(options).progress(&EndsWithinFile::default()).run(),
    );
    let names = scene.names("/to/tree");
    assert!(names.iter().all(|name| name == "a-small"), "{names:?}");
}

/// Cancels at the call with this number.
struct EndsAt(AtomicU32);

impl Progress for EndsAt {
    fn go_on(&self) -> Result<()> {
        match self.0.fetch_sub(1, Ordering::Relaxed) {
            0..=1 => Err(Error::new(ErrorKind::Interrupted, "enough")),
            _ => Ok(()),
        }
    }
}

#[test]
fn one_large_file_is_defragmented_or_compared_in_part() {
    let scene = InterruptScene::new();
    let wanted = crate::extents::Defragment {
        compress: crate::extents::Recompress::With(
            "zstd".parse::<crate::compression::Compress>().unwrap().method,
        ),
        ..Default::default()
    };
    scene.fs.write("/large", vec![7; 80 << 20]).unwrap();
    scene.fs.sync().unwrap();
    let file = crate::OpenOptions::new().write(true).open(&scene.fs, "/large").unwrap();
    let ends = EndsAt(AtomicU32::new(2));
    let ended = file.defragment(&wanted, &ends).unwrap_err();
    assert!(ended.to_string().contains("enough"), "{ended}");
    let kept = file
        .fiemap(&crate::extents::FiemapRequest::default())
        .filter(|extent| !extent.as_ref().unwrap().flags.contains(crate::extents::FiemapFlags::ENCODED));
    assert!(kept.count() > 0, "all of it was packed");
    assert!(file.defragment(&wanted, &crate::progress::NoProgress).unwrap() > 0);
    assert_eq!(scene.fs.read("/large").unwrap(), vec![7; 80 << 20]);

    scene.fs.write("/tree/c-large", content()).unwrap();
    scene.fs.sync().unwrap();
    // First a call for each name of both files, and then calls within them.
    for asked in [7, 30] {
        let ended = scene.fs.extents().dedupe(["/tree"], &EndsAt(AtomicU32::new(asked))).unwrap_err();
        assert!(ended.to_string().contains("enough"), "{ended}");
    }
    let report = scene.fs.extents().dedupe(["/tree"], &crate::progress::NoProgress).unwrap();
    assert_eq!(report.equal_files, 1);
}
