//! Data that is defragmented, or packed another way.

use std::sync::Arc;

use creamery_base::{ErrorKind, TreeId, Wait};
use creamery_txn::ReserveItems;

use super::support::{
    Kind, Random, SECTOR, audit, fixture, items, new_file, new_file_with, opened, seek, set_flags,
};
use crate::FsOptions;
use crate::data::{Recompress, prealloc, write};
use crate::defragment::Defragment;
use crate::inode::{Inode, InodeFlags};
use crate::operation::in_handle;
use crate::seek::SeekTarget;

const SECTORS: u64 = 64;

fn noise(len: u64) -> Vec<u8> {
    let mut random = Random(len);
    (0..len).map(|_| (random.next() >> 32).to_le_bytes()[0]).collect()
}

/// A file of single sectors in reverse order on the volume, behind a hole and before prealloc.
fn fragmented(fixture: &Arc<creamery_txn::Engine>, flags: InodeFlags) -> Arc<Inode> {
    let inode = Arc::new(new_file(fixture, 300, flags));
    let mut item = inode.item(Wait::Yes).expect("it lives");
    for at in (1..=SECTORS).rev() {
        write(&inode.file(), &mut item, at * SECTOR, &[at as u8; SECTOR as usize]).expect("room");
    }
    prealloc(&inode.file(), &mut item, ((SECTORS + 1) * SECTOR, (SECTORS + 3) * SECTOR), 0).expect("room");
    inode
}

#[test]
fn what_is_defragmented_reads_as_before_and_lies_in_one_piece() {
    for (flags, wanted, found) in [
        (InodeFlags::empty(), Defragment::default(), "1+64 a@0, 65+2 ~b@0"),
        // Also in a file that is overwritten in place.
        (
            InodeFlags::NODATACOW | InodeFlags::NODATASUM,
            Defragment {
                compress: Recompress::With("zstd".parse().expect("a method")),
                ..Defragment::default()
            },
            "1+64 a@0, 65+2 ~b@0",
        ),
        (
            InodeFlags::empty(),
            Defragment { offset: SECTOR, len: 2 * SECTOR + 1, ..Defragment::default() },
            "1+3 a@0, 4+1 b@0, 5+1 c@0",
        ),
    ] {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let inode = fragmented(&fixture, flags);
        let before = inode.item(Wait::Yes).expect("it lives");
        let file = opened(Arc::clone(&inode));
        let done = file.defragment(&wanted, &|| false).expect("room");
        let now = items(&inode);
        assert!(now.starts_with(found), "{wanted:?}: {now}");
        assert!(done > 0);
        let again = file.defragment(&wanted, &|| false).expect("room");
        assert_eq!(again, if wanted.compress == Recompress::AsUsual { 0 } else { done });
        let after = inode.item(Wait::Yes).expect("it lives");
        assert_eq!((after.mtime, after.ctime, after.size), (before.mtime, before.ctime, before.size));
        for at in 1..=SECTORS {
            let mut sector = [0; SECTOR as usize];
            file.read_at(at * SECTOR, &mut sector, Wait::Yes).expect("a read");
            assert!(sector.iter().all(|byte| u64::from(*byte) == at), "sector {at}");
        }
        assert_eq!(seek(&inode, &after, 0, SeekTarget::Data).expect("a search"), Some(SECTOR));
        audit(&fixture, &inode, &after);
    }
}

/// Data is packed, and unpacked again.
#[test]
fn what_is_there_is_packed_another_way() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = fragmented(&fixture, InodeFlags::NOCOMPRESS);
    let file = opened(Arc::clone(&inode));
    let nbytes = || inode.item(Wait::Yes).expect("it lives").nbytes;
    let before = nbytes();
    for (how, packed) in [("zstd:9", true), ("lzo", true), ("", false), ("zlib:1", true)] {
        let compress = match how {
            "" => Recompress::Plain,
            how => Recompress::With(how.parse().expect("a method")),
        };
        let wanted = Defragment { compress, ..Defragment::default() };
        assert_eq!(file.defragment(&wanted, &|| false).expect("room"), SECTORS * SECTOR, "{how}");
        let (chunks, counted) = (items(&inode), inode.context().compression().counters().chunks);
        assert_eq!(chunks.contains("z@"), packed, "{how}: {chunks}, {counted} packed");
        assert_eq!(nbytes(), before, "{how}");
        audit(&fixture, &inode, &inode.item(Wait::Yes).expect("it lives"));
    }
}

#[test]
fn what_may_not_be_changed_or_goes_no_further_stays() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = fragmented(&fixture, InodeFlags::empty());
    let file = opened(Arc::clone(&inode));
    let before = items(&inode);
    let all = Defragment::default();
    assert_eq!(file.defragment(&all, &|| true).unwrap_err().kind(), ErrorKind::Interrupted);
    // Pieces that are long enough.
    assert_eq!(file.defragment(&Defragment { threshold: SECTOR, ..all }, &|| false).expect("nothing"), 0);
    assert_eq!(file.defragment(&Defragment { offset: 1 << 60, ..all }, &|| false).expect("nothing"), 0);
    // No room.
    let held: Vec<_> =
        std::iter::from_fn(|| fixture.allocate_data(TreeId::FS, 1 << 20, SECTOR, None).ok()).collect();
    assert_eq!(file.defragment(&all, &|| false).unwrap_err().kind(), ErrorKind::NoSpace);
    // Single sectors are no better than the present extents.
    drop(held.into_iter().filter(|space| space.len() > SECTOR).collect::<Vec<_>>());
    set_flags(&inode, InodeFlags::IMMUTABLE);
    assert_eq!(file.defragment(&all, &|| false).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(items(&inode), before);
}

/// A damaged inode may be shorter than its extents.
#[test]
fn what_lies_behind_the_end_of_the_file_is_left() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let inode = fragmented(&fixture, InodeFlags::empty());
    let mut item = inode.item(Wait::Yes).expect("it lives");
    write(&inode.file(), &mut item, SECTOR, &[3; 32 * SECTOR as usize]).expect("room");
    in_handle(&fixture, ReserveItems::items(1), |handle| {
        inode.update(handle, |item| item.size = 2 * SECTOR).map(drop)
    })
    .expect("room");
    let before = items(&inode);
    for compress in
        [Recompress::AsUsual, Recompress::Plain, Recompress::With("lzo".parse().expect("a method"))]
    {
        for offset in [2 * SECTOR, 16 * SECTOR, 1 << 40] {
            let wanted = Defragment { offset, compress, ..Defragment::default() };
            assert_eq!(opened(Arc::clone(&inode)).defragment(&wanted, &|| false).expect("nothing"), 0);
        }
    }
    assert_eq!(items(&inode), before);
}

/// A piece that is not joined with others is passed over, and the next ones are not.
#[test]
fn behind_a_piece_that_stays_the_others_come_together() {
    const LARGE: u64 = 48;
    for compress in [None, Some("zstd".parse().expect("a method"))] {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let options = FsOptions { compress, delayed_bytes: 0, ..FsOptions::default() };
        let inode = Arc::new(new_file_with(&fixture, 300, InodeFlags::empty(), &options));
        let mut item = inode.item(Wait::Yes).expect("it lives");
        for at in (LARGE..LARGE + SECTORS).rev() {
            write(&inode.file(), &mut item, at * SECTOR, &[at as u8; SECTOR as usize]).expect("room");
        }
        write(&inode.file(), &mut item, 0, &noise(LARGE * SECTOR)).expect("room");
        let before = items(&inode).split(", ").count() as u64;
        assert!(before > SECTORS, "{before} extents");
        opened(Arc::clone(&inode)).defragment(&Defragment::default(), &|| false).expect("room");
        let after = items(&inode).split(", ").count();
        assert!(after <= 8, "{compress:?}: {after} extents: {}", items(&inode));
        audit(&fixture, &inode, &inode.item(Wait::Yes).expect("it lives"));
    }
}
