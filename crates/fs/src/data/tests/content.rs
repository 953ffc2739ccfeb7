//! Whole new files.

use std::sync::Arc;

use creamery_base::{ErrorKind, Wait};
use creamery_txn::ReserveItems;

use super::support::{Kind, audit, fixture, items, new_file};
use crate::data::{FileContent, NewContent, Stretch, read, write};
use crate::inode::InodeFlags;
use crate::keys::extent_data;
use crate::operation::in_handle;
use crate::{Filesystem, FsOptions, NewInode, NewKind};

fn bytes(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ salt | 1).collect()
}

#[test]
fn a_new_file_has_the_items_that_its_content_needs() {
    let small = bytes(100, 1);
    let big = bytes(10_000, 2);
    // Size, stretches, items with NO_HOLES, items without.
    let rows: &[(u64, &[Stretch<'_>], &str, &str)] = &[
        (0, &[], "", ""),
        (100, &[(0, &small)], "0+1 inline 100", "0+1 inline 100"),
        (300, &[(200, &small)], "0+1 inline 300", "0+1 inline 300"),
        (2049, &[(1949, &small)], "0+1 a@0", "0+1 a@0"),
        (10_000, &[(0, &big)], "0+3 a@0", "0+3 a@0"),
        (50_000, &[], "", "0+13 hole"),
        (50_000, &[(8192, &big)], "2+3 a@0", "0+2 hole, 2+3 a@0, 5+8 hole"),
        (
            50_000,
            &[(5000, &small), (8000, &small), (40_000, &big)],
            "1+1 a@0, 9+4 b@0",
            "0+1 hole, 1+1 a@0, 2+7 hole, 9+4 b@0",
        ),
        (50_000, &[(0, &big), (10_000, &small), (10_100, &big)], "0+5 a@0", "0+5 a@0, 5+8 hole"),
    ];
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(engine) = fixture(kind) else { return };
        for (index, (size, stretches, with, without)) in rows.iter().enumerate() {
            let inode = new_file(&engine, 300 + index as u64, InodeFlags::empty());
            let mut locked = inode.lock_exclusive().expect("it lives");
            let item = locked.item_mut();
            let content =
                NewContent::write(inode.context(), inode.tree(), item.flags, None, (*size, stretches))
                    .expect("content");
            in_handle(&engine, ReserveItems::items(1 + content.units(&engine)), |handle| {
                let mut next = item.clone();
                content.count(&mut next);
                let items = content.items(handle, inode.id.ino);
                let items: Vec<_> = items.iter().map(|(key, bytes)| (*key, &bytes[..])).collect();
                inode.tree().insert_batch(handle, &items)?;
                content.hand_over(handle, inode.id)?;
                *item = inode.update(handle, |item| *item = next)?;
                Ok(())
            })
            .expect("a new file");
            assert_eq!(item.size, *size);
            assert_eq!(items(&inode), if kind == Kind::DEFAULT { *with } else { *without }, "row {index}");
            audit(&engine, &inode, item);
            let mut want = vec![0; usize::try_from(*size).expect("small")];
            for (at, bytes) in *stretches {
                let at = usize::try_from(*at).expect("small");
                want[at..at + bytes.len()].copy_from_slice(bytes);
            }
            let mut out = vec![0xaa; want.len()];
            read(&inode, item, 0, &mut out, Wait::Yes).expect("a read");
            assert!(out == want, "row {index}");
        }
    }
}

#[test]
fn a_symbolic_link_is_stored_as_an_inline_extent_of_its_target() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = Filesystem::open(Arc::clone(&fixture.engine), FsOptions::default()).expect("a filesystem");
    let root = fs.root(fs.default_subvolume()).expect("a root directory");
    let new = NewInode { kind: NewKind::Symlink(b"some/where"), ..NewInode::file(0o777) };
    let id = fs.create(root, b"link", &new).expect("room").id;
    let generation = fixture.engine.generation().get();
    let tree = fixture.engine.tree(id.subvolume).expect("the top level");
    let stored = tree.get(&extent_data(id.ino, 0), Wait::Yes, <[u8]>::to_vec).expect("a readable tree");
    let head = [&generation.to_le_bytes()[..], &10_u64.to_le_bytes(), &[0; 5]].concat();
    assert_eq!(stored.expect("an extent"), [&head[..], b"some/where"].concat());
}

#[test]
fn small_appends_grow_an_inline_file_into_a_regular_one() {
    let Some(engine) = fixture(Kind::DEFAULT) else { return };
    let inode = new_file(&engine, 400, InodeFlags::empty());
    let mut locked = inode.lock_exclusive().expect("it lives");
    let item = locked.item_mut();
    let all = bytes(6000, 3);
    let mut seen = Vec::new();
    for part in all.chunks(500) {
        let at = item.size;
        write(&inode.file(), item, at, part).expect("a write");
        audit(&engine, &inode, item);
        let now = items(&inode);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    assert_eq!(
        seen,
        [
            "0+1 inline 500",
            "0+1 inline 1000",
            "0+1 inline 1500",
            "0+1 inline 2000",
            "0+1 a@0",
            "0+2 a@0",
            "0+1 a@0, 1+1 b@0"
        ]
    );
    let mut out = vec![0; 7000];
    assert_eq!(read(&inode, item, 0, &mut out, Wait::Yes).expect("a read"), 6000);
    assert!(out[..6000] == all);
}

#[test]
fn files_made_with_their_content_are_what_the_kernel_sees() {
    for kind in [Kind::DEFAULT, Kind::OLD, Kind("--csum blake2 --nodesize 8192")] {
        let Some(fixture) = fixture(kind) else { return };
        let fs = Filesystem::open(Arc::clone(&fixture.engine), FsOptions::default()).expect("a filesystem");
        let root = fs.root(fs.default_subvolume()).expect("a root directory");
        let all = bytes(3 << 20, 5);
        let sizes = [0, 1, 2048, 2049, 4095, 4096, 4097, 65_536, 65_537, 200_000, 3 << 20];
        for size in sizes {
            let stretches: &[Stretch<'_>] = &[(0, &all[..size])];
            let content = FileContent { size: size as u64, stretches, packed: None };
            let name = format!("whole{size}");
            let made = fs.create_file_with(root, name.as_bytes(), &NewInode::file(0o640), &content);
            assert_eq!(made.expect("room").size, size as u64);
        }
        let sparse = FileContent {
            size: 1 << 20,
            stretches: &[(70_000, &all[..9000]), (500_000, &all[..1])],
            packed: None,
        };
        fs.create_file_with(root, b"sparse", &NewInode::file(0o640), &sparse).expect("room");
        let taken = fs.create_file_with(root, b"sparse", &NewInode::file(0o640), &sparse).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        for wrong in [&[(5, &all[..9])][..], &[(0, &all[..9]), (5, &all[..1])], &[(u64::MAX, &all[..9])]] {
            let content = FileContent { size: 10, stretches: wrong, packed: None };
            let error = fs.create_file_with(root, b"wrong", &NewInode::file(0o640), &content).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        fixture.judge(|mounted| {
            for size in sizes {
                let read = std::fs::read(mounted.join(format!("whole{size}"))).expect("a read");
                assert!(read == all[..size], "{size}");
            }
            let read = std::fs::read(mounted.join("sparse")).expect("a read");
            let mut want = vec![0; 1 << 20];
            want[70_000..79_000].copy_from_slice(&all[..9000]);
            want[500_000] = all[0];
            assert!(read == want);
        });
    }
}
