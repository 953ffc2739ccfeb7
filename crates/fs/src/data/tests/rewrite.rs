//! Data that is put together, or packed another way.

use std::sync::Arc;

use creamery_base::{ErrorKind, Wait};

use super::support::{Kind, SECTOR, audit, fixture, items, new_file, opened, seek, set_flags};
use crate::data::{Recompress, prealloc, write};
use crate::defragment::Defragment;
use crate::inode::{Inode, InodeFlags};
use crate::seek::Want;

const SECTORS: u64 = 64;

/// A file of single sectors that lie the other way round on the volume, behind a hole and before prealloc.
fn fragmented(fixture: &Arc<creamery_txn::Engine>, flags: InodeFlags) -> Arc<Inode> {
    let inode = Arc::new(new_file(fixture, 300, flags));
    let mut item = inode.item(Wait::Yes).expect("it lives");
    for at in (1..=SECTORS).rev() {
        write(&inode, &mut item, at * SECTOR, &[at as u8; SECTOR as usize]).expect("room");
    }
    prealloc(&inode, &mut item, ((SECTORS + 1) * SECTOR, (SECTORS + 3) * SECTOR), 0).expect("room");
    inode
}

#[test]
fn what_is_defragmented_reads_as_before_and_lies_in_one_piece() {
    for (flags, wanted, found) in [
        (InodeFlags::empty(), Defragment::default(), "1+64 a@0, 65+2 ~b@0"),
        // Also what is overwritten in place.
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
        assert_eq!(seek(&inode, &after, 0, Want::Data).expect("a search"), Some(SECTOR));
        audit(&fixture, &inode, &after);
    }
}

/// What is packed, and what is unpacked again.
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
        let (chunks, counted) = (items(&inode), inode.shared().compression.counters().chunks);
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
    let held: Vec<_> = std::iter::from_fn(|| fixture.allocate_data(1 << 20, SECTOR, None).ok()).collect();
    assert_eq!(file.defragment(&all, &|| false).unwrap_err().kind(), ErrorKind::NoSpace);
    // Single sectors are no better than what there is.
    drop(held.into_iter().filter(|space| space.len() > SECTOR).collect::<Vec<_>>());
    set_flags(&inode, InodeFlags::IMMUTABLE);
    assert_eq!(file.defragment(&all, &|| false).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(items(&inode), before);
}
