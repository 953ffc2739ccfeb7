//! Clones and deduplication of open files: the ranges that may be shared, and their content.

use std::sync::Arc;

use creamery_base::{ErrorKind, Wait};

use super::{MIB, open};
use crate::data::tests::support::*;
use crate::filesystem::Filesystem;
use crate::inode::InodeFlags;
use crate::names::NewInode;
use crate::open_file::OpenFile;
use crate::options::FsOptions;
use crate::remap::Deduped;

fn make(fs: &Filesystem, name: &str) -> Arc<OpenFile> {
    let root = fs.root(fs.default_subvolume()).expect("a root");
    fs.create_open(root, name.as_bytes(), &NewInode::file(0o644)).expect("room").1
}

fn content(file: &OpenFile) -> Vec<u8> {
    let mut bytes = vec![0; file.stat(Wait::Yes).expect("it lives").size as usize];
    assert_eq!(file.read_at(0, &mut bytes, Wait::Yes).expect("data"), bytes.len());
    bytes
}

/// Bytes that repeat nowhere soon.
fn text(len: u64) -> Vec<u8> {
    (0..len).map(|index| (index / 7 % 251) as u8 | 1).collect()
}

#[test]
fn only_what_begins_and_ends_with_sectors_or_files_is_shared() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions::default());
    let (source, target, short) = (make(&fs, "source"), make(&fs, "target"), make(&fs, "short"));
    source.write_at(0, &text(3 * SECTOR + 100)).expect("room");
    target.write_at(0, &text(4 * SECTOR)).expect("room");
    short.write_at(0, &text(10)).expect("room");
    let invalid = Err(ErrorKind::InvalidInput);
    let rows = [
        ((0, 0, 0), invalid, "the source ends within a sector, and the target goes on"),
        ((1, SECTOR, 0), invalid, "from"),
        ((0, SECTOR, 1), invalid, "to"),
        ((0, SECTOR - 1, 0), invalid, "len"),
        ((0, SECTOR + 1, 4 * SECTOR), invalid, "len, behind the end"),
        ((3 * SECTOR, SECTOR, 0), invalid, "beyond the end"),
        ((4 * SECTOR, SECTOR, 0), invalid, "behind the end"),
        ((4 * SECTOR, 0, 0), invalid, "all that is behind the end"),
        ((0, u64::MAX, 0), invalid, "all there is"),
        ((SECTOR, u64::MAX, 0), invalid, "more than there is"),
        ((0, SECTOR, u64::MAX - SECTOR + 1), invalid, "a place without an end"),
        ((0, SECTOR, (1 << 63) - SECTOR), Err(ErrorKind::FileTooLarge), "a place that no file has"),
        ((0, 3 * SECTOR, 0), Ok(()), "whole sectors"),
        ((3 * SECTOR, 100, 3 * SECTOR), invalid, "the tail, over a whole sector"),
        ((3 * SECTOR, 0, 4 * SECTOR), Ok(()), "the tail, behind the end"),
    ];
    for ((from, len, to), said, what) in rows {
        let done = target.clone_range(&source, from, len, to);
        assert_eq!(done.map_err(|error| error.kind()), said, "{what}");
    }
    let same = [((0, SECTOR, 0), invalid), ((0, 2 * SECTOR, SECTOR), invalid), ((0, SECTOR, SECTOR), Ok(()))];
    for ((from, len, to), said) in same {
        assert_eq!(target.clone_range(&target, from, len, to).map_err(|error| error.kind()), said);
    }
    // Cloning the rest of a source that ends at `from` is no error.
    assert!(target.clone_range(&short, 10, 0, 0).is_ok_and(|()| content(&target).len() > 10));
    let nosum = make(&fs, "without checksums");
    nosum.inode().forge(|item| item.flags |= InodeFlags::NODATASUM);
    assert_eq!(nosum.clone_range(&source, 0, 0, 0).map_err(|error| error.kind()), invalid);
    nosum.inode().forge(|item| item.flags = InodeFlags::IMMUTABLE);
    let done = nosum.clone_range(&source, 0, 0, 0);
    assert_eq!(done.map_err(|error| error.kind()), Err(ErrorKind::PermissionDenied));
    fs.shut_down().expect("it closes");
}

#[test]
fn a_copy_shares_as_much_as_can_be_and_leaves_the_rest() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions::default());
    let (source, target) = (make(&fs, "source"), make(&fs, "target"));
    source.write_at(0, &text(3 * SECTOR + 100)).expect("room");
    let unsupported = Err(ErrorKind::Unsupported);
    let rows = [
        ((0, 0, 0), Ok(0)),
        ((5 * SECTOR, SECTOR, 0), Ok(0)),
        ((0, SECTOR + 7, 0), Ok(SECTOR)),
        ((0, 7, 0), unsupported),
        ((1, SECTOR, 0), unsupported),
        ((SECTOR, u64::MAX, SECTOR), Ok(2 * SECTOR + 100)),
        ((0, u64::MAX, SECTOR), Ok(3 * SECTOR + 100)),
        ((0, u64::MAX, 0), Ok(3 * SECTOR)),
        ((3 * SECTOR, SECTOR, 0), unsupported),
    ];
    for ((from, len, to), said) in rows {
        let shared = target.share_range(&source, from, len, to);
        assert_eq!(shared.map_err(|error| error.kind()), said, "{from} {len} {to}");
    }
    assert_eq!(target.share_range(&target, 0, SECTOR, 0).map_err(|error| error.kind()), unsupported);
    fs.shut_down().expect("it closes");
}

#[test]
fn a_clone_has_what_was_written_last_and_later_writes_of_neither_show_in_the_other() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions::default());
    let (source, target) = (make(&fs, "source"), make(&fs, "target"));
    let mut expected = text(MIB);
    source.write_at(0, &expected).expect("room");
    source.sync().expect("room");
    source.write_at(5000, b"last").expect("room");
    target.write_at(0, &[9; 100_000]).expect("room");
    expected[5000..5004].copy_from_slice(b"last");
    target.clone_range(&source, 0, 0, 0).expect("room");
    assert!(content(&target) == expected);
    let before = source.stat(Wait::Yes).expect("it lives").allocated;
    assert_eq!(target.stat(Wait::Yes).expect("it lives").allocated, before);
    source.write_at(20_000, b"the source's").expect("room");
    assert!(content(&target) == expected);
    target.write_at(30_000, b"the target's").expect("room");
    expected[20_000..20_012].copy_from_slice(b"the source's");
    assert!(content(&source) == expected);
    // Preallocated space is shared too, and neither file then writes to it in place.
    let (aside, other) = (make(&fs, "aside"), make(&fs, "other"));
    aside.fallocate(crate::Fallocate::Allocate { keep_size: false }, 0, 16 * SECTOR).expect("room");
    other.clone_range(&aside, 0, 0, 0).expect("room");
    aside.write_at(0, &[1; SECTOR as usize]).expect("room");
    aside.sync().expect("room");
    other.write_at(2 * SECTOR, &[2; SECTOR as usize]).expect("room");
    other.sync().expect("room");
    assert!(content(&other)[..2 * SECTOR as usize].iter().all(|byte| *byte == 0));
    assert!(content(&aside)[SECTOR as usize..].iter().all(|byte| *byte == 0));
    let small = make(&fs, "small");
    small.write_at(0, b"inline").expect("room");
    target.clone_range(&small, 0, 0, 2 * MIB).expect("room");
    assert!(content(&target).ends_with(b"\0inline"));
    fs.shut_down().expect("it closes");
}

#[test]
fn what_differs_is_not_shared_and_what_is_equal_reads_as_before() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions::default());
    let (one, other) = (make(&fs, "one"), make(&fs, "other"));
    let bytes = text(3 * MIB + 100);
    for file in [&one, &other] {
        file.write_at(0, &bytes).expect("room");
    }
    other.write_at(2 * MIB, b"!").expect("room");
    other.sync().expect("room");
    let used = |fs: &Filesystem| {
        fs.sync().expect("room");
        fixture.space().data_used
    };
    let (before, times) = (used(&fs), other.stat(Wait::Yes).expect("it lives").times);
    let len = bytes.len() as u64;
    assert_eq!(other.dedupe_range(&one, 0, len, 0).expect("readable"), Deduped::Differ);
    assert_eq!(used(&fs), before);
    assert_eq!(other.dedupe_range(&one, 0, 2 * MIB, 0).expect("readable"), Deduped::Shared(2 * MIB));
    assert_eq!(other.dedupe_range(&one, 0, 2 * MIB, 0).expect("readable"), Deduped::Already(2 * MIB));
    let tail = 3 * MIB - SECTOR;
    let shared = other.dedupe_range(&one, tail, len - tail, tail).expect("readable");
    assert_eq!(shared, Deduped::Shared(SECTOR + 100), "with the tail");
    assert_eq!(other.stat(Wait::Yes).expect("it lives").times, times);
    let mut expected = bytes.clone();
    expected[2 * MIB as usize] = b'!';
    assert!(content(&one) == bytes && content(&other) == expected);
    let beyond = other.dedupe_range(&one, 0, len + 1, 0);
    assert_eq!(beyond.map_err(|error| error.kind()), Err(ErrorKind::InvalidInput));
    fs.shut_down().expect("it closes");
}
