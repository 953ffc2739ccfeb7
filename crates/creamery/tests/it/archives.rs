//! Archives with changed bytes: no change causes a panic or a file outside of the destination, and the remaining members can be read.

use std::cell::RefCell;

use creamery::check::{CheckOptions, check};
use creamery::tar::{TarArchive, TarMember};
use creamery::{Filesystem, Image, OpenOptions};

/// A filesystem with a tree at `/tree` of everything that archives support, and an empty directory `/in`.
fn filesystem(dir: &std::path::Path) -> Filesystem {
    let image = dir.join("disk.img");
    Image::make(&image).size(256 << 20).run().expect("it is made");
    let fs = Image::options().write().open(&image).expect("it opens");
    fs.create_dir_all("/tree/below").expect("directories");
    fs.create_dir("/in").expect("a directory");
    fs.write("/tree/file", vec![7; 5000]).expect("a file");
    fs.set_xattr("/tree/file", "user.note", "one\ntwo").expect("an attribute");
    fs.hard_link("/tree/file", "/tree/below/again").expect("a link");
    fs.symlink("../file", "/tree/below/link").expect("a symbolic link");
    let sparse = OpenOptions::new().write(true).create(true).open(&fs, "/tree/sparse").expect("a file");
    sparse.write_all_at(&[1; 4096], 1 << 20).expect("data");
    sparse.set_len(2 << 20).expect("a hole");
    fs.write(format!("/tree/{}", "n".repeat(200)), "a long name").expect("a file");
    fs
}

fn archive(fs: &Filesystem) -> Vec<u8> {
    let mut bytes = Vec::new();
    let member = TarMember::new("/tree", ".");
    fs.write_tar(&[member]).to(&mut bytes).expect("it is written");
    bytes
}

/// Gives each header its correct checksum.
fn seal(bytes: &mut [u8]) {
    for block in bytes.as_chunks_mut::<512>().0 {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
}

#[test]
fn a_member_that_cannot_be_made_ends_the_work_unless_somebody_is_told_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    Image::make(&image).size(128 << 20).run().unwrap();
    let fs = Image::options().write().open(&image).unwrap();
    fs.write("/one", "text").unwrap();
    fs.write("/two", "text").unwrap();
    let members = [TarMember::new("/one", "new-one"), TarMember::new("/two", "new-two")];
    let mut archive = Vec::new();
    fs.write_tar(&members).to(&mut archive).unwrap();
    fs.subvolumes().snapshot("/", "/read-only").read_only().run().unwrap();
    let refused = fs.read_tar("/read-only").from(&archive[..]).unwrap_err();
    assert_eq!(refused.kind(), creamery::ErrorKind::ReadOnly);
    let count = std::cell::Cell::new(0);
    fs.read_tar("/read-only").failed(&|_, _| count.set(count.get() + 1)).from(&archive[..]).unwrap();
    assert_eq!(count.get(), 2);
}

#[test]
fn what_was_written_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let fs = filesystem(dir.path());
    let failures = RefCell::new(Vec::new());
    let failed = |name: &[u8], error: &creamery::Error| {
        failures.borrow_mut().push(format!("{}: {error}", name.escape_ascii()));
    };
    fs.read_tar("/in").failed(&failed).from(&archive(&fs)[..]).expect("it is read");
    assert_eq!(failures.into_inner(), Vec::<String>::new());
    assert_eq!(fs.read("/in/below/again").expect("a file"), vec![7; 5000]);
    assert_eq!(fs.metadata("/in/file").expect("a file").nlink(), 2);
    assert_eq!(fs.xattr("/in/file", "user.note").expect("an attribute"), b"one\ntwo");
    let sparse = fs.metadata("/in/sparse").expect("a file");
    assert_eq!((sparse.len(), sparse.allocated()), (2 << 20, 4096));
    assert_eq!(fs.metadata("/in").expect("it").mtime(), fs.metadata("/tree").expect("it").mtime());
}

#[test]
fn changed_archives_never_panic_and_stay_inside() {
    let dir = tempfile::tempdir().expect("a directory");
    let fs = filesystem(dir.path());
    let whole = archive(&fs);
    let outside = |fs: &Filesystem| -> Vec<_> {
        let entries = fs.read_dir("/").expect("the root").map(|entry| entry.expect("an entry"));
        entries.map(|entry| entry.file_name().to_owned()).collect()
    };
    let before = (outside(&fs), fs.walk("/tree").expect("a tree").count());
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).expect("it fits") % below
    };
    for _ in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            bytes[at] = match next(3) {
                0 => b"0123456789=\n/.xLgKS\0"[next(19)],
                1 => bytes[at] ^ 1 << next(8),
                _ => u8::try_from(next(256)).expect("a byte"),
            };
        }
        if next(4) == 0 {
            bytes.truncate(next(whole.len()));
        }
        seal(&mut bytes);
        // Either result is fine.
        let _ = fs.read_tar("/in").failed(&|_, _| ()).from(&bytes[..]);
        assert_eq!((outside(&fs), fs.walk("/tree").expect("a tree").count()), before);
    }
    assert_eq!(archive(&fs), whole, "nothing has changed what it was made from");
    for entry in fs.walk("/in").expect("what is inside") {
        let entry = entry.expect("an entry");
        entry.metadata().expect("it is whole");
    }
    fs.close().expect("it closes");
    let report = check([dir.path().join("disk.img")], &CheckOptions::default(), &creamery::check::NoProgress);
    let report = report.expect("it can be checked");
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// A layer's member `there`, which cannot be made, beside a directory that is made.
fn layer_with(change: impl FnOnce(&mut tar::Header), link: Option<&str>) -> TarArchive {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o755);
    header.set_size(0);
    header.set_entry_type(tar::EntryType::Directory);
    builder.append_data(&mut header.clone(), "made", std::io::empty()).expect("a member");
    change(&mut header);
    match link {
        None => builder.append_data(&mut header, "there", std::io::empty()),
        Some(link) => builder.append_link(&mut header, "there", link),
    }
    .expect("a member");
    TarArchive::in_memory(builder.into_inner().expect("an archive"), "layer".as_ref())
}

#[test]
fn what_cannot_be_made_takes_nothing_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let fs = filesystem(dir.path());
    fs.write("/in/there", "as it was").expect("a file");
    let long = "l/".repeat(2500);
    let layers = [
        // A directory with an invalid owner.
        layer_with(|header| header.set_uid(u32::MAX.into()), None),
        // A link that is too long, and one with an empty target.
        layer_with(|header| header.set_entry_type(tar::EntryType::Symlink), Some(&long)),
        layer_with(|header| header.set_entry_type(tar::EntryType::Link), Some("nowhere")),
        layer_with(
            |header| {
                header.set_entry_type(tar::EntryType::Char);
                header.set_device_major(4096).expect("a number");
                header.set_device_minor(1).expect("a number");
            },
            None,
        ),
    ];
    for layer in layers {
        let failures = RefCell::new(Vec::new());
        let failed = |name: &[u8], error: &creamery::Error| {
            failures.borrow_mut().push(format!("{}: {error}", name.escape_ascii()));
        };
        fs.read_tar("/in").failed(&failed).layer(&layer).expect("the others are made");
        let failures = failures.into_inner();
        assert!(matches!(&failures[..], [one] if one.starts_with("there: ")), "{failures:?}");
        assert_eq!(fs.read("/in/there").expect("a file"), b"as it was", "{failures:?}");
        fs.remove_dir("/in/made").expect("it is made");
    }
}
