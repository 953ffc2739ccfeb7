use super::*;
use crate::block::{HEADER_FLAG_WRITTEN, HEADER_LEN, ITEM_LEN};
use crate::block_mut::{BlockMut, NewBlock};
use crate::key::KeyType;
use creamery_base::ObjectId;

const AT: Logical = Logical::new(1 << 20);

fn key(n: u64) -> Key {
    Key::new(ObjectId::new(n), KeyType::ORPHAN_ITEM, 0)
}

fn block(level: u8, edit: impl FnOnce(&mut BlockMut<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let new = NewBlock {
        logical: AT,
        generation: Generation::new(3),
        owner: TreeId::new(257),
        level,
        fsid: Uuid::from_u128(7),
        chunk_tree_uuid: Uuid::nil(),
    };
    let mut block = BlockMut::init(&mut bytes, &new);
    block.mark_written();
    edit(&mut block);
    seal(&mut bytes, ChecksumType::Crc32c);
    bytes
}

fn want(level: u8) -> Expected {
    Expected {
        logical: AT,
        level: Some(level),
        generation: Some(Generation::new(3)),
        owner: Some(TreeId::FS),
        first_key: None,
        fsid: Uuid::from_u128(7),
        checksum: ChecksumType::Crc32c,
    }
}

fn message(bytes: &[u8], want: &Expected) -> String {
    verify_block(bytes, want).expect_err("the block is damaged").to_string()
}

#[test]
fn a_good_leaf_passes_with_every_checksum() {
    let mut bytes = block(0, |leaf| leaf.insert_items(0, &[(key(1), 0), (key(2), 0)]));
    for checksum in ChecksumType::ALL {
        seal(&mut bytes, checksum);
        let want = Expected { checksum, first_key: Some(key(1)), ..want(0) };
        assert_eq!(verify_block(&bytes, &want), Ok(()));
    }
}

#[test]
fn each_field_of_the_header_is_compared() {
    let good = block(0, |leaf| leaf.insert_items(0, &[(key(1), 0)]));
    let mut flipped = good.clone();
    flipped[4095] ^= 1;
    assert!(message(&flipped, &want(0)).contains("checksum mismatch, expected 0x"));
    for (want, reason) in [
        (Expected { fsid: Uuid::nil(), ..want(0) }, "wrong filesystem uuid"),
        (Expected { logical: Logical::new(4096), ..want(0) }, "wrong address, expected 4096, found 1048576"),
        (Expected { level: Some(1), ..want(0) }, "wrong level, expected 1, found 0"),
        (
            Expected { generation: Some(Generation::new(4)), ..want(0) },
            "wrong generation, expected 4, found 3",
        ),
        (Expected { owner: Some(TreeId::EXTENT), ..want(0) }, "wrong owner, expected 2, found 257"),
        (Expected { first_key: Some(key(2)), ..want(0) }, "wrong first key"),
    ] {
        let message = message(&good, &want);
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn all_but_the_checksum_counts_when_that_is_passed_over() {
    let good = block(0, |leaf| leaf.insert_items(0, &[(key(1), 0), (key(2), 0)]));
    let mut summed_wrong = good.clone();
    summed_wrong[0] ^= 1;
    assert!(verify_block(&summed_wrong, &want(0)).is_err());
    assert_eq!(verify_block_but_checksum(&summed_wrong, &want(0)), Ok(()));
    let later = Expected { generation: Some(Generation::new(4)), ..want(0) };
    let said = verify_block_but_checksum(&summed_wrong, &later).unwrap_err().to_string();
    assert!(said.contains("wrong generation"), "{said}");
    let mut disordered = summed_wrong;
    disordered.copy_within(HEADER_LEN..HEADER_LEN + 17, HEADER_LEN + ITEM_LEN);
    let said = verify_block_but_checksum(&disordered, &want(0)).unwrap_err().to_string();
    assert!(said.contains("order"), "{said}");
}

#[test]
fn a_shared_block_of_another_subvolume_passes() {
    let good = block(0, |leaf| leaf.insert_items(0, &[(key(1), 0)]));
    assert_eq!(verify_block(&good, &Expected { owner: Some(TreeId::new(300)), ..want(0) }), Ok(()));
}

#[test]
fn only_a_root_may_be_empty() {
    let empty = block(0, |_| ());
    assert_eq!(verify_block(&empty, &want(0)), Ok(()));
    assert!(message(&empty, &Expected { first_key: Some(key(1)), ..want(0) }).ends_with("block is empty"));
    assert!(message(&block(1, |_| ()), &want(1)).ends_with("block is empty"));
}

#[test]
fn the_message_names_tree_address_slot_key_and_values() {
    let bytes = block(0, |leaf| {
        leaf.insert_items(0, &[(key(256), 10), (key(257), 10)]);
        leaf.bytes_mut()[HEADER_LEN + ITEM_LEN + 21..][..4].copy_from_slice(&5000_u32.to_le_bytes());
    });
    assert_eq!(
        message(&bytes, &want(0)),
        "corrupt leaf: tree=5 logical=1048576 slot=1 key=(257 ORPHAN_ITEM 0), \
         item ends past leaf data, expected [0, 3995], found 8975"
    );
}

#[test]
fn bad_entries_are_found() {
    let order = block(0, |leaf| leaf.insert_items(0, &[(key(2), 0), (key(2), 0)]));
    assert!(message(&order, &want(0)).contains("keys out of order"));
    let gap = block(0, |leaf| {
        leaf.insert_items(0, &[(key(1), 8), (key(2), 8)]);
        leaf.bytes_mut()[HEADER_LEN + ITEM_LEN + 21..][..4].copy_from_slice(&7_u32.to_le_bytes());
    });
    assert!(message(&gap, &want(0)).contains("gap or overlaps"));
    let count = block(0, |leaf| leaf.set_count(5000));
    assert!(message(&count, &want(0)).contains("too many entries, expected [1, "));
    let null = block(1, |node| node.insert_ptr(0, &key(1), Logical::new(0), Generation::new(1)));
    assert!(message(&null, &want(1)).contains("child pointer is null"));
    let odd = block(1, |node| node.insert_ptr(0, &key(1), Logical::new(4097), Generation::new(1)));
    assert!(message(&odd, &want(1)).contains("not aligned, expected a multiple of 4096, found 4097"));
    let level = block(0, |leaf| leaf.bytes_mut()[100] = 8);
    assert!(message(&level, &Expected { level: None, ..want(0) }).contains("level too high"));
}

#[test]
fn a_block_that_was_never_written_is_refused() {
    let bytes = block(0, |leaf| {
        leaf.insert_items(0, &[(key(1), 0)]);
        let flags = leaf.as_ref().flags() & !HEADER_FLAG_WRITTEN;
        leaf.set_flags(flags);
    });
    assert!(message(&bytes, &want(0)).contains("not marked as written"));
}

#[test]
fn a_child_is_not_newer_than_its_node() {
    let node = |generation| {
        let child = Logical::new(2 << 20);
        block(1, |node| node.insert_ptr(0, &key(1), child, Generation::new(generation)))
    };
    assert_eq!(verify_block(&node(3), &want(1)), Ok(()));
    let said = message(&node(4), &want(1));
    assert!(said.contains("slot=0") && said.contains("expected at most 3, found generation 4"), "{said}");
}
