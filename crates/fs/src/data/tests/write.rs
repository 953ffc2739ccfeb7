//! Unusual writes and truncations.

use creamery_base::{ErrorKind, TreeId, Wait, gate};

use super::support::{Kind, SECTOR, audit, fixture, items, new_file, seek};
use crate::data::{prealloc, read, truncate, write};
use crate::inode::FILE_SIZE_MAX;
use crate::inode::InodeFlags;
use crate::seek::SeekTarget;

#[test]
fn a_write_over_many_items_takes_several_handles_and_leaves_one_item() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(fixture) = fixture(kind) else { return };
        let inode = fixture.named("f0");
        let mut locked = inode.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        let sector = [1; 4096];
        for index in 0..100 {
            write(&inode.file(), item, index * SECTOR, &sector).expect("room");
        }
        assert_eq!(items(&inode).split(", ").count(), 100);
        write(&inode.file(), item, SECTOR + 1, &[2; 97 * 4096]).expect("room");
        assert_eq!(items(&inode), "0+1 a@0, 1+98 b@0, 99+1 c@0");
        audit(&fixture, &inode, item);
        let mut out = vec![0; 100 * 4096];
        read(&inode, item, 0, &mut out, Wait::Yes).expect("a read");
        assert!(out[..4097].iter().all(|byte| *byte == 1));
        assert!(out[4097..98 * 4096 + 1].iter().all(|byte| *byte == 2));
        assert!(out[98 * 4096 + 1..].iter().all(|byte| *byte == 1));
        drop(locked);
        fixture.judge(|_| ());
    }
}

#[test]
fn an_extent_is_at_most_128_mib() {
    for kind in [Kind::DEFAULT, Kind("--csum sha256 --nodesize 4096")] {
        let Some(fixture) = fixture(kind) else { return };
        let inode = fixture.named("f0");
        let mut locked = inode.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        let data = vec![3; 150 << 20];
        assert_eq!(write(&inode.file(), item, 0, &data).expect("room"), data.len());
        assert_eq!(item.nbytes, 150 << 20);
        let now = items(&inode);
        assert!(now.split(", ").all(|item| !item.starts_with("0+38400")), "{now}");
        truncate(&inode.file(), item, 1 << 20).expect("room");
        audit(&fixture, &inode, item);
        drop(locked);
        fixture.judge(|mounted| {
            assert!(std::fs::read(mounted.join("f0")).expect("a read") == data[..1 << 20]);
        });
    }
}

#[test]
fn a_full_filesystem_takes_what_fits_and_can_be_emptied() {
    for kind in [Kind("--nodesize 16384"), Kind("--mixed --nodesize 4096")] {
        let Some(mut fixture) = fixture(kind) else { return };
        let inode = fixture.named("f0");
        let mut locked = inode.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        let data = vec![5; 24 << 20];
        let error = loop {
            let at = item.size;
            match write(&inode.file(), item, at, &data) {
                Ok(len) => assert!(len > 0 && item.size == at + len as u64),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(item.size > 100 << 20, "only {} bytes fit", item.size);
        audit(&fixture, &inode, item);
        let mut size = item.size;
        while size > 0 {
            size = (size / 2).saturating_sub(1);
            truncate(&inode.file(), item, size).expect("shrinking needs no room");
            assert_eq!(item.size, size);
        }
        audit(&fixture, &inode, item);
        drop(locked);
        fixture.reopen();
        fixture.judge(|_| ());
        let inode = fixture.named("f0");
        let mut locked = inode.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        assert_eq!(write(&inode.file(), item, 0, &data).expect("room again"), data.len());
    }
}

/// Data far past the end of a file with more gaps there than one handle fills.
#[test]
fn what_finds_no_space_leaves_the_file_as_long_as_it_was() {
    const GAPS: u64 = 40;
    let Some(fixture) = fixture(Kind::OLD) else { return };
    let inode = new_file(&fixture, 300, InodeFlags::empty());
    let mut item = inode.item(Wait::Yes).expect("it lives");
    for at in 0..GAPS {
        let start = (2 * at + 1) * SECTOR;
        prealloc(&inode.file(), &mut item, (start, start + SECTOR), 0).expect("room");
    }
    let all: Vec<_> =
        std::iter::from_fn(|| fixture.allocate_data(TreeId::FS, 1 << 20, SECTOR, None).ok()).collect();
    let error = write(&inode.file(), &mut item, 2 * GAPS * SECTOR, &[7; SECTOR as usize]).unwrap_err();
    assert_eq!((error.kind(), item.size), (ErrorKind::NoSpace, 0));
    assert_eq!(inode.item(Wait::Yes).expect("it lives").size, 0);
    drop(all);
    write(&inode.file(), &mut item, 2 * GAPS * SECTOR, &[7; SECTOR as usize]).expect("room");
    audit(&fixture, &inode, &item);
}

#[test]
fn without_waiting_holes_and_inline_data_are_read_and_other_data_is_not() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (small, big) = (fixture.named("f0"), fixture.named("f1"));
    // The bigger one has the smaller number.
    let mut big_locked = big.lock_exclusive().expect("it lives");
    let mut small_locked = small.lock_exclusive().expect("it lives");
    let (big_item, small_item) = (big_locked.item_mut(), small_locked.item_mut());
    write(&small.file(), small_item, 0, b"hello").expect("room");
    write(&big.file(), big_item, 1 << 20, b"hello").expect("room");
    let waits = gate::waits_of_this_thread();
    let mut out = [0; 4096];
    assert_eq!(read(&small, small_item, 1, &mut out, Wait::No).expect("cached"), 4);
    assert_eq!(&out[..4], b"ello");
    assert_eq!(read(&big, big_item, 0, &mut out, Wait::No).expect("a hole"), 4096);
    let error = read(&big, big_item, 1 << 20, &mut out, Wait::No).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert_eq!(gate::waits_of_this_thread(), waits);
}

#[test]
fn a_file_can_have_the_largest_size_and_not_more() {
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(fixture) = fixture(kind) else { return };
        let inode = new_file(&fixture, 400, InodeFlags::empty());
        let mut locked = inode.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        truncate(&inode.file(), item, FILE_SIZE_MAX).expect("room");
        write(&inode.file(), item, FILE_SIZE_MAX - 3, b"end").expect("room");
        audit(&fixture, &inode, item);
        let last = FILE_SIZE_MAX / SECTOR * SECTOR;
        assert_eq!(seek(&inode, item, 0, SeekTarget::Data).expect("a search"), Some(last));
        for (at, size) in [(FILE_SIZE_MAX - 2, 3), (FILE_SIZE_MAX, 1), (u64::MAX, 1)] {
            let error = write(&inode.file(), item, at, &b"end"[..size]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        }
        assert_eq!(
            truncate(&inode.file(), item, FILE_SIZE_MAX + 1).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
        truncate(&inode.file(), item, 0).expect("room");
        audit(&fixture, &inode, item);
    }
}
