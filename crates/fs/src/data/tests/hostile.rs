//! Item bytes that no sane program wrote.

use creamery_base::{ErrorKind, Generation, Logical, ObjectId, Wait};
use creamery_format::file_extent::{Extent, FileExtentItem, encode_inline};
use creamery_txn::ReserveItems;

use super::support::{Kind, Random, SECTOR, fixture, new_file, put, seek};
use crate::data::extent_map::ExtentItems;
use crate::data::nocow::{FrontTarget, NocowWalk};
use crate::data::{read, write};
use crate::inode::InodeFlags;
use crate::keys::extent_data;
use crate::operation::in_handle;
use crate::seek::SeekTarget;

fn regular() -> [u8; 53] {
    Extent::whole(Generation::new(9), Logical::new(1 << 20), 2 * SECTOR).encode()
}

fn with(at: usize, value: u64) -> Vec<u8> {
    let mut bytes = regular().to_vec();
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    bytes
}

#[test]
fn every_broken_rule_is_found() {
    let mut rows: Vec<(&str, u64, Vec<u8>)> = vec![
        ("empty item", 0, vec![]),
        ("short item", 0, regular()[..20].to_vec()),
        ("cut item", 0, regular()[..52].to_vec()),
        ("long item", 0, [&regular()[..], &[0]].concat()),
        ("ragged key", 7, regular().to_vec()),
        ("no bytes", 0, with(45, 0)),
        ("ragged num_bytes", 0, with(45, 4097)),
        ("file range wraps", u64::MAX - 4095, with(45, 8192)),
        ("ragged disk_bytenr", 0, with(21, 4097)),
        ("disk range wraps", 0, with(21, u64::MAX - 4095)),
        ("no disk bytes", 0, with(29, 0)),
        ("ragged offset", 0, with(37, 1)),
        ("shows too much", 0, with(37, 4096)),
        ("offset wraps", 0, with(37, u64::MAX - 4095)),
        ("inline not at 0", 4096, encode_inline(Generation::new(1), b"abc")),
    ];
    let mut inline = encode_inline(Generation::new(1), b"abc");
    inline[8] = 4;
    rows.push(("inline length differs", 0, inline.clone()));
    inline[16] = 1;
    inline[8..16].fill(0x70);
    rows.push(("inline unpacks to too much", 0, inline));
    let mut packed = with(29, 256 << 10);
    packed[16] = 1;
    rows.push(("packed into too much", 0, packed));
    let mut packed = with(37, u64::MAX - 4095);
    packed[16] = 1;
    rows.push(("offset of a packed one wraps", 0, packed));
    let mut packed = regular().to_vec();
    (packed[16], packed[20]) = (3, 2);
    rows.push(("compressed prealloc", 0, packed));
    let mut unknown = regular().to_vec();
    unknown[20] = 3;
    rows.push(("unknown type", 0, unknown));
    for (what, offset, bytes) in rows {
        let key = extent_data(ObjectId::new(257), offset);
        let error = FileExtentItem::check(&key, &bytes, SECTOR).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
    }
    for at in [16, 17] {
        let mut bytes = regular();
        bytes[at] = 9;
        let error = FileExtentItem::check(&extent_data(ObjectId::new(257), 0), &bytes, SECTOR).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn random_item_bytes_never_panic_nor_are_taken_for_more_than_they_are() {
    let Some(engine) = fixture(Kind::DEFAULT) else { return };
    let mut random = Random(1);
    for round in 0..3000 {
        let inode = new_file(&engine, 1000 + round, InodeFlags::empty());
        let mut locked = inode.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        item.size = 64 * SECTOR;
        for at in 0..3 {
            let mut bytes = regular().to_vec();
            for _ in 0..=random.below(4) {
                // Mostly numbers that look almost right.
                let field = [0, 8, 16, 20, 21, 29, 37, 45][usize::try_from(random.below(8)).expect("small")];
                if field == 16 || field == 20 {
                    bytes[field] = random.below(5) as u8;
                } else {
                    let value = match random.below(4) {
                        0 => random.next(),
                        1 => random.below(200) * SECTOR,
                        2 => u64::MAX - random.below(9000),
                        _ => 0,
                    };
                    bytes[field..field + 8].copy_from_slice(&value.to_le_bytes());
                }
            }
            bytes.truncate(random.below(60) as usize + 20);
            put(&engine, &inode, at * random.below(5) * 2048, &bytes);
        }
        let mut out = vec![0; 70_000];
        for offset in [0, 100, 8192, 200_000] {
            let _ = read(&inode, item, offset, &mut out, Wait::Yes);
            let data = seek(&inode, item, offset, SeekTarget::Data);
            assert!(data.is_err() || data.is_ok_and(|found| found.is_none_or(|at| at >= offset)));
            let _ = seek(&inode, item, offset, SeekTarget::Hole);
        }
    }
}

/// The extent tree, not the item, decides to which file an extent belongs.
#[test]
fn prealloc_that_claims_what_is_not_its_own_is_not_written_in_place() {
    let Some(engine) = fixture(Kind::DEFAULT) else { return };
    let victim = new_file(&engine, 300, InodeFlags::NODATASUM);
    write(&victim.file(), victim.lock_exclusive().expect("it lives").item_mut(), 0, &[7; SECTOR as usize])
        .expect("room");
    let mut found = ExtentItems::new(victim.tree(), victim.id.ino, (0, SECTOR), SECTOR, Wait::Yes)
        .expect("a readable tree");
    let Some(FileExtentItem::Regular(data)) = found.next().expect("a readable tree").map(|item| item.extent)
    else {
        panic!("it has an extent")
    };
    drop(found);
    let tree_block = victim.tree().root_pointer().expect("a root").logical;
    let thief = new_file(&engine, 301, InodeFlags::NODATASUM | InodeFlags::PREALLOC);
    let item = thief.item(Wait::Yes).expect("it lives");
    for committed in [false, true] {
        for start in [data.disk_bytenr, tree_block, Logical::new(1 << 40)] {
            let claim = Extent::whole(Generation::new(u64::MAX), start, SECTOR);
            put(&engine, &thief, 0, &claim.encode_prealloc());
            let found = NocowWalk::new(&thief, &item, (0, SECTOR)).piece(0, Wait::Yes);
            assert!(!matches!(found, Ok(FrontTarget::InPlace(_))), "{start}, committed: {committed}");
        }
        let nothing = thief.tree();
        in_handle(&engine, ReserveItems::items(1), |handle| {
            nothing.remove(handle, &extent_data(thief.id.ino, 0))
        })
        .expect("room");
        engine.commit().expect("a commit");
    }
}
