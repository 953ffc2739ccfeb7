//! Builds the blocks of a whole tree from its sorted items, bottom up. Used once in a filesystem's life, for trees that no reader sees yet;
//! every later change goes through transactions.

use creamery_base::{Generation, Logical, TreeId, Uuid};
use creamery_codec::ChecksumType;
use creamery_format::{BlockMut, ITEM_LEN, Key, NewBlock, leaf_data_max, node_ptr_max, seal};

/// The key and data of a future item.
pub(crate) type Item = (Key, Vec<u8>);

/// The common header fields of all blocks of the new filesystem.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) node_size: usize,
    pub(crate) generation: Generation,
    pub(crate) fsid: Uuid,
    pub(crate) chunk_tree_uuid: Uuid,
    pub(crate) checksum: ChecksumType,
}

/// A finished block.
pub(crate) struct Block {
    pub(crate) logical: Logical,
    pub(crate) owner: TreeId,
    pub(crate) level: u8,
    pub(crate) bytes: Vec<u8>,
}

/// The number of items in each leaf, from the sizes of their data: as many as fit. An empty tree has an empty leaf.
fn fill_leaves(sizes: impl Iterator<Item = usize>, node_size: usize) -> Vec<usize> {
    let room = leaf_data_max(node_size);
    let mut leaves = vec![0];
    let mut used = 0;
    for size in sizes {
        let size = size + ITEM_LEN;
        assert!(size <= room); // mkfs writes no item near the size of a leaf
        if used + size > room {
            leaves.push(0);
            used = 0;
        }
        used += size;
        *leaves.last_mut().expect("there is always a leaf") += 1;
    }
    leaves
}

/// The number of blocks on each level of the tree for items of these sizes, from the leaves up.
pub(crate) fn shape(sizes: impl Iterator<Item = usize>, node_size: usize) -> Vec<usize> {
    let mut levels = vec![fill_leaves(sizes, node_size).len()];
    while let Some(&last) = levels.last()
        && last > 1
    {
        levels.push(last.div_ceil(node_ptr_max(node_size)));
    }
    levels
}

/// Makes the blocks of tree `owner`, taking addresses from `addresses` leaf by leaf, then level by level. The root
/// is the last block.
///
/// # Panics
/// When the items are not in ascending order of their keys, or `addresses` ends early: bugs.
pub(crate) fn build(
    owner: TreeId,
    items: &[Item],
    addresses: &mut impl Iterator<Item = Logical>,
    stamp: &Stamp,
) -> Vec<Block> {
    assert!(items.is_sorted_by(|a, b| a.0 < b.0));
    let mut blocks = Vec::new();
    let mut rest = items;
    for count in fill_leaves(items.iter().map(|(_, data)| data.len()), stamp.node_size) {
        let (leaf, after) = rest.split_at(count);
        rest = after;
        let logical = addresses.next().expect("an address was planned for every block");
        blocks.push(new_block(owner, 0, logical, stamp, |block| put_items(block, leaf)));
    }
    let mut level = 0;
    let mut below: Vec<(Key, Logical)> =
        blocks.iter().map(|block| (first_key(block), block.logical)).collect();
    while below.len() > 1 {
        level += 1;
        let mut above = Vec::new();
        for children in below.chunks(node_ptr_max(stamp.node_size)) {
            let logical = addresses.next().expect("an address was planned for every block");
            let node = new_block(owner, level, logical, stamp, |block| {
                for (slot, (key, child)) in children.iter().enumerate() {
                    block.insert_ptr(slot, key, *child, stamp.generation);
                }
            });
            above.push((children[0].0, logical));
            blocks.push(node);
        }
        below = above;
    }
    blocks
}

fn first_key(block: &Block) -> Key {
    creamery_format::BlockRef::new(&block.bytes).first_key().unwrap_or(Key::MIN)
}

fn put_items(block: &mut BlockMut<'_>, items: &[Item]) {
    let heads: Vec<_> = items.iter().map(|(key, data)| (*key, data.len())).collect();
    block.insert_items(0, &heads);
    for (slot, (_, data)) in items.iter().enumerate() {
        block.data_mut(slot).copy_from_slice(data);
    }
}

fn new_block(
    owner: TreeId,
    level: u8,
    logical: Logical,
    stamp: &Stamp,
    fill: impl FnOnce(&mut BlockMut<'_>),
) -> Block {
    let mut bytes = vec![0; stamp.node_size];
    let mut block = BlockMut::init(
        &mut bytes,
        &NewBlock {
            logical,
            generation: stamp.generation,
            owner,
            level,
            fsid: stamp.fsid,
            chunk_tree_uuid: stamp.chunk_tree_uuid,
        },
    );
    fill(&mut block);
    block.mark_written();
    seal(&mut bytes, stamp.checksum);
    Block { logical, owner, level, bytes }
}

#[cfg(test)]
mod tests {
    use creamery_base::ObjectId;
    use creamery_format::{BlockRef, Expected, KeyType, verify_block};

    use super::*;

    const STAMP: Stamp = Stamp {
        node_size: 4096,
        generation: Generation::new(1),
        fsid: Uuid::nil(),
        chunk_tree_uuid: Uuid::nil(),
        checksum: ChecksumType::Crc32c,
    };

    fn items(count: u64, size: usize) -> Vec<Item> {
        (0..count)
            .map(|n| (Key::new(ObjectId::new(n), KeyType::STRING_ITEM, 0), vec![n.to_le_bytes()[0]; size]))
            .collect()
    }

    fn addresses() -> impl Iterator<Item = Logical> {
        (0..).map(|n| Logical::new((1 << 20) + n * 4096))
    }

    #[test]
    fn an_empty_tree_is_an_empty_leaf() {
        let blocks = build(TreeId::CSUM, &[], &mut addresses(), &STAMP);
        assert_eq!(blocks.len(), 1);
        assert_eq!(BlockRef::new(&blocks[0].bytes).count(), 0);
    }

    #[test]
    fn the_planned_number_of_blocks_is_made_and_the_root_reaches_every_item() {
        for (count, size) in [(0, 0), (1, 439), (8, 439), (9, 439), (500, 100), (5000, 160)] {
            let items = items(count, size);
            let planned: usize = shape(items.iter().map(|item| item.1.len()), 4096).iter().sum();
            let blocks = build(TreeId::FS, &items, &mut addresses(), &STAMP);
            assert_eq!(blocks.len(), planned);
            let mut found = 0;
            let mut todo = vec![blocks.last().unwrap().logical];
            while let Some(at) = todo.pop() {
                let block = blocks.iter().find(|block| block.logical == at).unwrap();
                let want = Expected {
                    logical: at,
                    level: Some(block.level),
                    generation: Some(STAMP.generation),
                    owner: Some(TreeId::FS),
                    first_key: None,
                    fsid: STAMP.fsid,
                    checksum: STAMP.checksum,
                };
                verify_block(&block.bytes, &want).unwrap();
                let view = BlockRef::new(&block.bytes);
                if view.is_leaf() {
                    found += view.count();
                } else {
                    todo.extend((0..view.count()).map(|slot| view.child(slot).0));
                }
            }
            assert_eq!(found, items.len());
        }
    }
}
