//! Who shares what, and since when.

use std::sync::Arc;

use super::{all, text_of, write};
use crate::data::tests::support::*;
use crate::fallocate::Fallocate;
use crate::filesystem::Filesystem;
use crate::names::NewInode;
use crate::open_file::OpenFile;
use crate::options::FsOptions;

fn make(fs: &Filesystem, name: &str) -> Arc<OpenFile> {
    let root = fs.root(fs.default_subvolume()).expect("a root");
    fs.create_open(root, name.as_bytes(), &NewInode::file(0o644)).expect("room").1
}

fn opened_on(fixture: &Fixture) -> Arc<Filesystem> {
    Filesystem::open(Arc::clone(fixture), FsOptions::default()).expect("it opens")
}

#[test]
fn clones_are_shared_until_one_of_them_is_written() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = opened_on(&fixture);
    let (one, other) = (make(&fs, "one"), make(&fs, "other"));
    write(&one, 0, 10);
    one.fallocate(Fallocate::Allocate { keep_size: false }, 20 * SECTOR, 4 * SECTOR).expect("room");
    assert_eq!(text_of(&all(&one)), "0+10; 20+4 last,unwritten");
    other.clone_range(&one, 2 * SECTOR, 3 * SECTOR, 0).expect("room");
    other.clone_range(&one, 20 * SECTOR, 2 * SECTOR, 7 * SECTOR).expect("room");
    // Of an extent of which another file shows any part all is shared.
    assert_eq!(text_of(&all(&one)), "0+10 shared; 20+4 last,unwritten,shared");
    assert_eq!(text_of(&all(&other)), "0+3 shared; 7+2 last,unwritten,shared");
    assert_eq!(all(&other)[0].physical, all(&one)[0].physical + 2 * SECTOR);
    write(&other, 0, 3);
    let delayed = text_of(&all(&other));
    assert_eq!(delayed, "0+3 shared; 7+2 last,unwritten,shared", "the old ones, until they are replaced");
    other.inode().flush().expect("room");
    assert_eq!(text_of(&all(&other)), "0+3; 7+2 last,unwritten,shared");
    assert_eq!(text_of(&all(&one)), "0+10; 20+4 last,unwritten,shared");
    let root = fs.root(fs.default_subvolume()).expect("a root");
    fs.unlink(root, b"other").expect("it is there");
    fs.close(other);
    assert_eq!(text_of(&all(&one)), "0+10; 20+4 last,unwritten");
    one.clone_range(&one, 0, SECTOR, 30 * SECTOR).expect("room");
    assert_eq!(text_of(&all(&one)), "0+10 shared; 20+4 unwritten; 30+1 last,shared", "with itself");
    fs.shut_down().expect("it closes");
}

#[test]
fn snapshots_share_all_until_one_side_is_written_or_goes() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = opened_on(&fixture);
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let work = fs.create_subvolume(root, b"work", &NewInode::directory(0o755)).expect("room");
    let (_, file) = fs.create_open(work, b"file", &NewInode::file(0o644)).expect("room");
    write(&file, 0, 10);
    let before = fs.create_snapshot(work.subvolume, root, b"before", true).expect("room");
    assert_eq!(text_of(&all(&file)), "0+10 last,shared");
    let kept = fs.lookup(before, b"file", creamery_base::Wait::Yes).expect("it is there");
    let kept = fs.open_file(kept).expect("a file in a read-only subvolume");
    assert_eq!(all(&kept), all(&file));
    write(&file, 3, 1);
    write(&file, 12, 1);
    assert_eq!(text_of(&all(&file)), "0+10 shared; 12+1 last,unknown_loc,delalloc");
    file.inode().flush().expect("room");
    assert_eq!(text_of(&all(&file)), "0+3 shared; 3+1; 4+6 shared; 12+1 last");
    assert_eq!(text_of(&all(&kept)), "0+10 last,shared");
    drop(kept);
    fs.delete_subvolume(root, b"before").expect("it is there");
    // A deleted snapshot shares what it has not dropped yet.
    fs.settle().expect("room");
    while !fs.dead_subvolumes().is_empty() {
        fs.clean_step().expect("room");
    }
    fs.settle().expect("room");
    assert_eq!(text_of(&all(&file)), "0+3; 3+1; 4+6; 12+1 last");
    fs.shut_down().expect("it closes");
}
