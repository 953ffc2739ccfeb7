//! Packed data on the device and in the tree.

use std::sync::Arc;

use creamery_base::{TreeId, Wait};
use creamery_codec::{CompressionMethod, CompressionType};
use creamery_format::Compression;
use creamery_format::file_extent::Extent;
use creamery_txn::ReserveItems;

use super::support::{Fixture, Kind, Random, SECTOR, audit, fixture, items, new_file_with, opened};
use crate::data::extent_map::{ExtentKind, ExtentMaps};
use crate::data::{FileContent, PackedAhead, read, write};
use crate::inode::{Inode, InodeFlags};
use crate::operation::in_handle;
use crate::{Compress, Filesystem, FsOptions, NewInode};

const KINDS: [CompressionType; 3] = CompressionType::ALL;
const CHUNK: u64 = 128 << 10;

fn compress(kind: CompressionType, force: bool) -> Option<Compress> {
    Some(Compress { method: CompressionMethod::new(kind), force })
}

/// Text of so many bytes that differs in each line.
fn text(len: u64) -> Vec<u8> {
    let lines = (0_u64..).flat_map(|number| format!("line {number} of what is to be packed\n").into_bytes());
    lines.take(usize::try_from(len).expect("small")).collect()
}

fn noise(len: u64) -> Vec<u8> {
    let mut random = Random(len + 1);
    (0..len).map(|_| (random.next() >> 32).to_le_bytes()[0]).collect()
}

fn file(fixture: &Fixture, compress: Option<Compress>, flags: InodeFlags) -> Inode {
    let options = FsOptions { compress, delayed_bytes: 0, ..FsOptions::default() };
    new_file_with(fixture, 300, flags, &options)
}

/// Writes bytes at the beginning of a file, and reads them back.
fn put(fixture: &Fixture, inode: &Inode, bytes: &[u8]) {
    let mut locked = inode.lock_exclusive().expect("it lives");
    assert_eq!(write(&inode.file(), locked.item_mut(), 0, bytes).expect("room"), bytes.len());
    let mut found = vec![0; bytes.len()];
    assert_eq!(read(inode, locked.item_mut(), 0, &mut found, Wait::Yes).expect("readable"), bytes.len());
    assert!(found == bytes, "something else comes back");
    audit(fixture, inode, locked.item_mut());
}

/// The extents that a file shows: the length of each in the file, and the extent itself if it is packed.
fn extents(inode: &Inode) -> Vec<(u64, Option<Extent>)> {
    let size = inode.item(Wait::Yes).expect("it lives").size;
    let range = (0, size.next_multiple_of(SECTOR));
    let mut maps =
        ExtentMaps::new(inode.tree(), inode.id.ino, range, SECTOR, Wait::Yes).expect("a readable tree");
    let mut found = Vec::new();
    while let Some(map) = maps.next().expect("readable") {
        found.push((
            map.end - map.start,
            match map.kind {
                ExtentKind::Compressed(extent) => Some(extent),
                _ => None,
            },
        ));
    }
    found
}

#[test]
fn what_is_packed_is_read_back_and_its_padding_is_zero() {
    for kind in KINDS {
        for len in [3 * SECTOR, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + SECTOR + 7] {
            let Some(fixture) = fixture(Kind::DEFAULT) else { return };
            let inode = file(&fixture, compress(kind, false), InodeFlags::empty());
            put(&fixture, &inode, &text(len));
            let extents = extents(&inode);
            let chunks: Vec<u64> = (0..len).step_by(131_072).map(|at| (len - at).min(CHUNK)).collect();
            assert_eq!(extents.len(), chunks.len(), "{kind} {len}");
            for ((shown, extent), chunk) in extents.iter().zip(chunks) {
                assert_eq!(*shown, chunk.next_multiple_of(SECTOR), "{kind} {len}");
                let Some(extent) = extent else {
                    assert!(chunk <= SECTOR, "{chunk} bytes of text get shorter");
                    continue;
                };
                assert_eq!((extent.offset, extent.num_bytes, extent.ram_bytes), (0, *shown, *shown));
                assert!(extent.compression != Compression::None && extent.disk_num_bytes < *shown);
                let mut packed = vec![0xff; usize::try_from(extent.disk_num_bytes).expect("small")];
                let csums = creamery_txn::DataCsums::Present;
                fixture.data().read(extent.disk_bytenr, &mut packed, csums, Wait::Yes).expect("readable");
                assert_eq!(packed.last(), Some(&0), "what is behind is zero");
            }
            fixture.commit().expect("a commit");
            let wanted = [("zstd", 1 << 4), ("lzo", 1 << 3), ("zlib", 0)];
            let bit = wanted.iter().find(|(name, _)| *name == kind.to_string()).expect("one of three").1;
            assert_eq!(fixture.incompat().bits() & 0x18, bit, "who reads {kind} is told");
        }
    }
}

#[test]
fn what_does_not_get_shorter_is_stored_as_it_is() {
    for kind in KINDS {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        // It is tried in any case, and is one extent all the same.
        let inode = file(&fixture, compress(kind, true), InodeFlags::empty());
        put(&fixture, &inode, &noise(3 * CHUNK));
        assert_eq!(extents(&inode), [(3 * CHUNK, None)], "{kind}");
        assert!(!inode.item(Wait::Yes).expect("it lives").flags.contains(InodeFlags::NOCOMPRESS));
        let counters = inode.context().compression().counters();
        assert_eq!((counters.chunks, counters.refused, counters.unlikely), (0, 3, 0));
    }
}

#[test]
fn what_does_not_look_as_if_is_not_tried_and_what_was_in_vain_is_remembered() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = file(&fixture, compress(CompressionType::Zstd, false), InodeFlags::empty());
    put(&fixture, &inode, &noise(CHUNK));
    assert_eq!(inode.context().compression().counters().unlikely, 1);
    assert!(!inode.item(Wait::Yes).expect("it lives").flags.contains(InodeFlags::NOCOMPRESS));
    // Half of two sectors gets shorter, which saves none.
    let half = [text(SECTOR), noise(SECTOR - 64), vec![0; 64]].concat();
    put(&fixture, &inode, &half);
    assert_eq!(inode.context().compression().counters().refused, 1);
    assert!(inode.item(Wait::Yes).expect("it lives").flags.contains(InodeFlags::NOCOMPRESS));
    put(&fixture, &inode, &text(CHUNK));
    assert_eq!(inode.context().compression().counters().chunks, 0);
}

#[test]
fn files_without_checksums_are_never_packed() {
    for flags in [InodeFlags::NODATASUM, InodeFlags::NODATASUM | InodeFlags::NODATACOW] {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let inode = file(&fixture, compress(CompressionType::Lzo, true), flags);
        put(&fixture, &inode, &text(CHUNK));
        assert_eq!(extents(&inode), [(CHUNK, None)]);
    }
}

#[test]
fn small_files_are_packed_into_the_tree() {
    for kind in KINDS {
        for len in [1, 100, 2000, 2049, SECTOR - 1, SECTOR, SECTOR + 1] {
            let Some(fixture) = fixture(Kind::DEFAULT) else { return };
            let options = FsOptions { compress: compress(kind, false), ..FsOptions::default() };
            let inode = Arc::new(new_file_with(&fixture, 300, InodeFlags::empty(), &options));
            let opened = opened(Arc::clone(&inode));
            opened.write_at(0, &text(len)).expect("room");
            opened.sync().expect("room");
            let mut found = vec![0; usize::try_from(len + 9).expect("small")];
            let got = opened.read_at(0, &mut found, Wait::Yes).expect("readable");
            assert!(found[..got] == text(len), "{kind} {len}");
            assert_eq!(extents(&inode).len(), 1);
            let packed = inode.context().compression().counters().chunks;
            assert_eq!(packed, u64::from(len > 1), "{kind} {len}");
            // One that is longer than a sector is packed into an extent.
            let is_inline = extents(&inode)[0].1.is_none();
            assert_eq!(is_inline, len <= SECTOR, "{kind} {len}");
            audit(&fixture, &inode, &inode.item(Wait::Yes).expect("it lives"));
        }
    }
}

/// Room in many small pieces is no room for packed data. Packing asks for it only once, because each answer costs commits.
#[test]
fn without_room_in_one_piece_data_is_stored_as_it_is() {
    const PIECES: usize = 400;
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let take = |len| fixture.allocate_data(TreeId::FS, len, SECTOR, None);
    let mut held: Vec<_> = (0..PIECES).map(|_| take(SECTOR).expect("room")).collect();
    held.sort_by_key(creamery_txn::DataExtent::start);
    let rest: Vec<_> = std::iter::from_fn(|| take(1 << 20).ok()).collect();
    let mut odd = false;
    held.retain(|_| {
        odd = !odd;
        odd
    });
    let inode = file(&fixture, compress(CompressionType::Zstd, false), InodeFlags::empty());
    let before = fixture.counters().commits;
    // Letters at random: three quarters are left of them.
    put(&fixture, &inode, &noise(4 * CHUNK).iter().map(|byte| b'0' + byte % 64).collect::<Vec<_>>());
    let commits = fixture.counters().commits - before;
    assert!(commits <= 4, "{commits} commits");
    let extents = extents(&inode);
    assert!(extents.len() > 100 && extents.iter().all(|(_, packed)| packed.is_none()), "{extents:?}");
    assert_eq!(inode.context().compression().counters().chunks, 0, "nothing is stored packed");
    drop((held, rest));
}

/// The first sector of a larger file is no small file.
#[test]
fn what_is_not_alone_in_its_file_is_not_packed_into_the_tree() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let options = FsOptions { compress: compress(CompressionType::Zstd, false), ..FsOptions::default() };
    let inode = Arc::new(new_file_with(&fixture, 300, InodeFlags::empty(), &options));
    let opened = opened(Arc::clone(&inode));
    opened.write_at(0, &text(SECTOR)).expect("room");
    opened.write_at(1 << 20, &text(SECTOR)).expect("room");
    opened.sync().expect("room");
    assert_eq!(inode.context().compression().counters().chunks, 0);
    audit(&fixture, &inode, &inode.item(Wait::Yes).expect("it lives"));
}

/// A file's compression property cannot be read: then the default applies, and the data is written.
#[test]
fn a_damaged_property_keeps_no_data_from_being_written() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = file(&fixture, None, InodeFlags::COMPRESS);
    let key = crate::keys::xattr(inode.id.ino, b"btrfs.compression");
    in_handle(&fixture, ReserveItems::items(1), |handle| inode.tree().upsert(handle, &key, &[0xff; 40]))
        .expect("an item");
    let property = crate::inode::xattr::get_known(&inode, b"btrfs.compression", Wait::Yes);
    assert!(property.is_err(), "{property:?}");
    put(&fixture, &inode, &text(CHUNK));
    let [(_, Some(extent))] = extents(&inode)[..] else { panic!("one extent, packed") };
    assert_eq!(extent.compression, Compression::Zlib);
}

/// Files that are made with their content, packed ahead and not.
#[test]
fn what_is_packed_ahead_becomes_what_it_would_anyway() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    for kind in KINDS {
        let options = FsOptions { compress: compress(kind, false), ..FsOptions::default() };
        let fs = Filesystem::open(Arc::clone(&fixture.engine), options).expect("it opens");
        let root = fs.root(fs.default_subvolume()).expect("a root");
        let make = |name: String, bytes: &[u8], packed: Option<&PackedAhead>| {
            let content = FileContent { size: bytes.len() as u64, stretches: &[(0, bytes)], packed };
            let made = fs.create_file_with(root, name.as_bytes(), &NewInode::file(0o600), &content);
            let file = fs.open_file(made.expect("room").id).expect("it lives");
            let mut found = vec![0; bytes.len()];
            assert_eq!(file.read_at(0, &mut found, Wait::Yes).expect("readable"), bytes.len());
            assert!(found == bytes, "{name} reads as something else");
            let packed: Vec<_> = extents(file.inode())
                .into_iter()
                .map(|(len, extent)| (len, extent.map(|extent| (extent.disk_num_bytes, extent.ram_bytes))))
                .collect();
            (packed, items(file.inode()), file.inode().item(Wait::Yes).expect("it lives").nbytes)
        };
        for len in [1, 100, 2047, 2048, 2049, SECTOR - 1, SECTOR, SECTOR + 1, CHUNK - 1, CHUNK, CHUNK + 1] {
            for (bytes, name) in [(text(len), "text"), (noise(len), "noise")] {
                let ahead = fs.pack_ahead(&bytes);
                assert_eq!(ahead.is_some(), len <= CHUNK);
                let plain = make(format!("{kind} {name} {len}"), &bytes, None);
                assert_eq!(
                    make(format!("{kind} {name} {len} ahead"), &bytes, ahead.as_ref()),
                    plain,
                    "{len}"
                );
                // Data packed for another file is not taken.
                let other = bytes.iter().map(|byte| byte ^ 1).collect::<Vec<_>>();
                make(format!("{kind} {name} {len} of another"), &other, ahead.as_ref());
            }
        }
    }
}
