//! Tests of the reported destinations against the writes that follow.

use std::sync::Arc;

use creamery_base::{Logical, TreeId};

use super::*;
use crate::compression::Compress;
use crate::data::extents_of;
use crate::data::tests::support::*;
use crate::fallocate::Fallocate;
use crate::filesystem::Filesystem;
use crate::names::NewInode;
use crate::options::FsOptions;

const IN_PLACE: InodeFlags = InodeFlags::NODATACOW.union(InodeFlags::NODATASUM);

fn opened_on(fixture: &Fixture, options: FsOptions) -> Arc<Filesystem> {
    Filesystem::open(Arc::clone(fixture), options).expect("it opens")
}

fn make(fs: &Filesystem, name: &str, flags: InodeFlags) -> Arc<OpenFile> {
    let root = fs.root(TreeId::FS).expect("a root");
    let (_, file) = fs.create_open(root, name.as_bytes(), &NewInode::file(0o644)).expect("room");
    set_flags(file.inode(), flags);
    file
}

fn write(file: &OpenFile, at: u64, sectors: u64) {
    let data = vec![7; (sectors * SECTOR) as usize];
    assert_eq!(file.write_at(at * SECTOR, &data).expect("room"), data.len());
    file.inode().flush().expect("room");
}

/// The report, as text: `name extents+bytes`, the bytes in sectors where they are whole ones.
fn told(file: &OpenFile) -> String {
    let overwrites = file.overwrites().expect("a readable tree");
    let one = |(overwrite, count): (Overwrite, OverwriteCount)| {
        let bytes = match count.bytes % SECTOR {
            0 => format!("{}s", count.bytes / SECTOR),
            _ => format!("{}", count.bytes),
        };
        format!("{} {}+{bytes}", overwrite.name(), count.extents)
    };
    overwrites.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The address of each sector that has a place.
fn places(file: &OpenFile) -> BTreeMap<u64, Logical> {
    let extents = extents_of(file.inode()).expect("a readable tree");
    let of = |(start, extent): (u64, creamery_format::file_extent::Extent)| {
        let at = extent.disk_bytenr + extent.offset;
        (0..extent.num_bytes).step_by(SECTOR as usize).map(move |part| (start + part, at + part))
    };
    extents.into_iter().flat_map(of).collect()
}

/// Writes over all of the file; exactly the sectors reported to stay in place do.
fn assert_true(file: &OpenFile) {
    let before = places(file);
    let overwrites = file.overwrites().expect("a readable tree");
    let stay = overwrites.iter().filter(|(overwrite, _)| overwrite.is_in_place());
    let stay: u64 = stay.map(|(_, count)| count.bytes.div_ceil(SECTOR)).sum();
    let size = file.inode().file().size();
    assert_eq!(file.write_at(0, &vec![9; size as usize]).expect("room"), size as usize);
    file.inode().flush().expect("room");
    let after = places(file);
    let stayed = before.iter().filter(|(at, place)| after.get(at) == Some(place)).count();
    assert_eq!(stayed as u64, stay, "{overwrites:?}");
}

#[test]
fn an_item_is_told_as_a_write_over_it_finds_it() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(fixture) = fixture(kind) else { return };
        let fs = opened_on(&fixture, FsOptions::default());
        let file = make(&fs, "file", IN_PLACE);
        assert_eq!(told(&file), "", "of an empty file");
        assert!(file.overwrites().expect("a readable tree").are_in_place());
        write(&file, 0, 4);
        assert_eq!(told(&file), "in_place 1+4s");
        write(&file, 6, 2);
        file.fallocate(Fallocate::Allocate { keep_size: false }, 10 * SECTOR, 2 * SECTOR).expect("room");
        assert_eq!(told(&file), "in_place 2+6s, prealloc 1+2s, hole 2+4s");
        // Of an extent of which a clone has any part, all is shared.
        let clone = make(&fs, "clone", IN_PLACE);
        clone.clone_range(&file, 6 * SECTOR, SECTOR, 0).expect("room");
        assert_eq!(told(&file), "in_place 1+4s, prealloc 1+2s, shared 1+2s, hole 2+4s");
        assert_eq!(told(&clone), "shared 1+1s");
        assert_true(&file);
        assert!(file.overwrites().expect("a readable tree").are_in_place(), "once written");
        fs.shut_down().expect("it closes");
    }
}

#[test]
fn files_with_checksums_inline_and_compressed_ones_go_to_new_space() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let compress = "zstd".parse::<Compress>().map(Some).expect("a method");
    let fs = opened_on(&fixture, FsOptions { compress, ..FsOptions::default() });
    let summed = make(&fs, "summed", InodeFlags::NOCOMPRESS);
    write(&summed, 0, 4);
    summed.fallocate(Fallocate::Allocate { keep_size: false }, 4 * SECTOR, 4 * SECTOR).expect("room");
    assert_eq!(told(&summed), "prealloc 1+4s, copy_on_write 1+4s");
    assert_true(&summed);
    assert_eq!(told(&summed), "copy_on_write 2+8s");
    // The flag came by other means.
    set_flags(summed.inode(), IN_PLACE);
    assert_eq!(told(&summed), "checksums 2+8s");
    let small = make(&fs, "small", IN_PLACE);
    small.write_at(0, &[7; 100]).expect("room");
    assert_eq!(told(&small), "inline 1+100", "what is delayed is written back first");
    let packed = make(&fs, "packed", InodeFlags::empty());
    write(&packed, 0, 32);
    assert_eq!(told(&packed), "compressed 1+32s");
    assert_true(&packed);
    fs.shut_down().expect("it closes");
}

#[test]
fn a_snapshot_has_what_was_there_until_it_is_written_once() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = opened_on(&fixture, FsOptions::default());
    let root = fs.root(TreeId::FS).expect("a root");
    let file = make(&fs, "file", IN_PLACE);
    write(&file, 0, 3);
    assert_eq!(file.write_at(3 * SECTOR, &[7; 100]).expect("room"), 100);
    file.inode().flush().expect("room");
    assert_eq!(told(&file), "in_place 2+12388");
    let before = fs.create_snapshot(TreeId::FS, root, b"before", true).expect("room");
    assert_eq!(told(&file), "shared 2+12388");
    let kept = fs.lookup(before, b"file", Wait::Yes).expect("it is there");
    let kept = fs.open_file(kept).expect("a file in a read-only subvolume");
    assert_eq!(told(&kept), "read_only 2+12388");
    assert_true(&file);
    assert_eq!(told(&file), "in_place 1+12388");
    set_flags(file.inode(), InodeFlags::IMMUTABLE);
    assert_eq!(told(&file), "read_only 1+12388");
    drop(kept);
    fs.shut_down().expect("it closes");
}

#[test]
fn who_opened_for_reading_is_told_the_same() {
    let Some(mut fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = opened_on(&fixture, FsOptions::default());
    let file = make(&fs, "file", IN_PLACE);
    write(&file, 0, 4);
    let clone = make(&fs, "clone", IN_PLACE);
    clone.clone_range(&file, 0, 2 * SECTOR, 0).expect("room");
    write(&file, 6, 1);
    let wanted = told(&file);
    assert_eq!(wanted, "in_place 1+1s, shared 1+4s, hole 1+2s");
    drop((file, clone));
    fs.shut_down().expect("it closes");
    drop(fs);
    fixture.reopen_for_reading();
    let fs = opened_on(&fixture, FsOptions::default());
    let root = fs.root(TreeId::FS).expect("a root");
    let file = fs.open_file(fs.lookup(root, b"file", Wait::Yes).expect("it is there")).expect("a file");
    assert_eq!(told(&file), wanted);
}

#[test]
fn what_is_no_file_is_refused() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = opened_on(&fixture, FsOptions::default());
    let root = fs.root(TreeId::FS).expect("a root");
    let refused = fs.open_file(root).expect("it opens").overwrites();
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::IsADirectory));
    fs.shut_down().expect("it closes");
}
