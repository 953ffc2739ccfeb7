use super::*;
use crate::block::ITEM_LEN;
use crate::key::KeyType;
use crate::leaf_mut::Keep;
use creamery_base::ObjectId;

fn key(n: u64) -> Key {
    Key::new(ObjectId::new(n), KeyType::INODE_ITEM, 0)
}

fn new(level: u8) -> NewBlock {
    NewBlock {
        logical: Logical::new(1 << 20),
        generation: Generation::new(3),
        owner: TreeId::FS,
        level,
        fsid: Uuid::nil(),
        chunk_tree_uuid: Uuid::nil(),
    }
}

/// A small generator with a fixed seed.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

fn model_of(leaf: BlockRef<'_>) -> Vec<(Key, Vec<u8>)> {
    (0..leaf.count()).map(|slot| (leaf.key(slot), leaf.data(slot).to_vec())).collect()
}

/// Builds a leaf from scratch; equal bytes prove that no trace of history is left.
fn built(model: &[(Key, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let mut leaf = BlockMut::init(&mut bytes, &new(0));
    let lens: Vec<(Key, usize)> = model.iter().map(|(key, data)| (*key, data.len())).collect();
    leaf.insert_items(0, &lens);
    for (slot, (_, data)) in model.iter().enumerate() {
        leaf.data_mut(slot).copy_from_slice(data);
    }
    bytes
}

/// Builds a leaf with the same items, the last first, so that no data is in its place.
fn built_loose(model: &[(Key, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let mut leaf = BlockMut::init(&mut bytes, &new(0));
    for (key, data) in model.iter().rev() {
        leaf.insert_items(0, &[(*key, data.len())]);
        leaf.data_mut(0).copy_from_slice(data);
    }
    assert!(leaf.as_ref().is_loose());
    bytes
}

/// Returns the block with its data in order, without the marks of a written block.
fn in_order(leaf: BlockRef<'_>) -> Vec<u8> {
    let mut bytes = leaf.bytes().to_vec();
    BlockMut::new(&mut bytes).begin_again();
    bytes
}

/// Inserts up to three items filled with `byte`, many of them empty, if there is room.
fn insert_some(
    rng: &mut Lcg,
    leaf: &mut BlockMut<'_>,
    model: &mut Vec<(Key, Vec<u8>)>,
    slot: usize,
    byte: u8,
) {
    let n = rng.below(4);
    let items: Vec<(Key, usize)> =
        (0..n).map(|_| (key(rng.below(99) as u64), rng.below(2) * rng.below(120))).collect();
    let need: usize = items.iter().map(|(_, len)| len + ITEM_LEN).sum();
    if leaf.as_ref().free_space() < need {
        return;
    }
    leaf.insert_items(slot, &items);
    for (i, (key, len)) in items.iter().enumerate() {
        assert!(leaf.as_ref().data(slot + i).iter().all(|&b| b == 0), "new data is zero");
        leaf.data_mut(slot + i).fill(byte);
        model.insert(slot + i, (*key, vec![byte; *len]));
    }
}

#[test]
fn any_sequence_of_leaf_edits_equals_the_model_and_leaves_no_trace() {
    let mut rng = Lcg(1);
    let mut bytes = vec![0xaa; 4096];
    let mut leaf = BlockMut::init(&mut bytes, &new(0));
    let mut model: Vec<(Key, Vec<u8>)> = Vec::new();
    let other: Vec<(Key, Vec<u8>)> = (0..9).map(|n| (key(n), vec![n as u8; n as usize * 3])).collect();
    let others = [built(&other), built_loose(&other)];
    let (mut loose, mut written) = (0, 0);
    for step in 0..8000 {
        let slot = rng.below(model.len() + 1);
        match rng.below(7) {
            0 => insert_some(&mut rng, &mut leaf, &mut model, slot, step as u8),
            1 => {
                let n = rng.below(model.len() - slot + 1).min(3);
                leaf.remove_items(slot, n);
                model.drain(slot..slot + n);
            }
            2 if slot < model.len() => {
                let bytes = rng.below(60);
                if leaf.as_ref().free_space() < bytes {
                    continue;
                }
                leaf.grow_item(slot, bytes);
                let len = model[slot].1.len();
                model[slot].1.resize(len + bytes, 0);
            }
            3 if slot < model.len() => {
                let new_len = rng.below(model[slot].1.len() + 1);
                let keep = if rng.below(2) == 0 { Keep::Front } else { Keep::Back };
                leaf.shrink_item(slot, new_len, keep);
                let data = &mut model[slot].1;
                match keep {
                    Keep::Front => data.truncate(new_len),
                    Keep::Back => drop(data.drain(..data.len() - new_len)),
                }
            }
            4 => {
                let src = BlockRef::new(&others[rng.below(2)]);
                let from = rng.below(src.count());
                let n = rng.below(src.count() - from + 1);
                let need: usize = (from..from + n).map(|i| src.item_size(i) + ITEM_LEN).sum();
                if leaf.as_ref().free_space() < need {
                    continue;
                }
                leaf.copy_items_from(slot, src, from, n);
                for i in 0..n {
                    model.insert(slot + i, (src.key(from + i), src.data(from + i).to_vec()));
                }
            }
            5 if slot < model.len() => {
                let key = key(rng.below(99) as u64);
                leaf.set_item_key(slot, &key);
                model[slot].0 = key;
            }
            6 if rng.below(20) == 0 => {
                leaf.mark_written();
                assert!(!leaf.as_ref().is_loose(), "LOOSE-2");
            }
            6 if rng.below(5) == 0 => leaf.begin_again(),
            _ => {}
        }
        assert_eq!(model_of(leaf.as_ref()), model, "step {step}");
        let built = built(&model);
        assert_eq!(leaf.as_ref().free_space(), BlockRef::new(&built).free_space(), "step {step}");
        assert!(in_order(leaf.as_ref()) == built, "step {step}: a trace of history is left");
        loose += usize::from(leaf.as_ref().is_loose());
        written += usize::from(leaf.as_ref().is_written());
    }
    assert!(loose > 1000 && written > 1000, "of 8000 leaves {loose} are loose and {written} written");
}

#[test]
fn items_come_in_any_order_and_are_written_in_theirs() {
    let model: Vec<_> = (0..60).map(|n: u8| (key(u64::from(n)), vec![n; usize::from(n % 7)])).collect();
    let (built, mut loose) = (built(&model), built_loose(&model));
    assert_eq!(model_of(BlockRef::new(&loose)), model);
    assert!(loose != built);
    let mut leaf = BlockMut::new(&mut loose);
    leaf.mark_written();
    leaf.begin_again();
    assert!(loose == built);
}

#[test]
fn node_edits_keep_order_and_zero_the_rest() {
    let mut bytes = vec![0xaa; 4096];
    let mut node = BlockMut::init(&mut bytes, &new(1));
    for n in [5, 1, 9, 3, 7] {
        let slot = node.as_ref().search(&key(n), 0).unwrap_err();
        node.insert_ptr(slot, &key(n), Logical::new(n * 4096), Generation::new(n));
    }
    let keys =
        |node: &BlockMut<'_>| (0..node.as_ref().count()).map(|s| node.as_ref().key(s)).collect::<Vec<_>>();
    assert_eq!(keys(&node), [1, 3, 5, 7, 9].map(key));
    assert_eq!(node.as_ref().child(3), (Logical::new(7 * 4096), Generation::new(7)));
    assert_eq!(node.as_ref().child_slot(&key(8)), 3);
    assert_eq!(node.as_ref().child_slot(&key(0)), 0);
    node.remove_ptrs(1, 2);
    node.set_key(1, &key(6));
    node.set_child(1, Logical::new(4096), Generation::new(2));
    assert_eq!(keys(&node), [1, 6, 9].map(key));
    assert_eq!(node.as_ref().child(1), (Logical::new(4096), Generation::new(2)));
    assert!(node.as_ref().bytes()[HEADER_LEN + 3 * KEY_PTR_LEN..].iter().all(|&b| b == 0));

    let mut second = vec![0; 4096];
    let mut second = BlockMut::init(&mut second, &new(1));
    second.insert_ptr(0, &key(100), Logical::new(4096), Generation::new(1));
    second.copy_ptrs_from(0, node.as_ref(), 1, 2);
    assert_eq!(keys(&second), [6, 9, 100].map(key));
}

#[test]
fn search_finds_every_key_and_every_gap_from_any_low() {
    let mut bytes = vec![0; 4096];
    let mut leaf = BlockMut::init(&mut bytes, &new(0));
    let items: Vec<(Key, usize)> = (0..50).map(|n| (key(n * 2), 1)).collect();
    leaf.insert_items(0, &items);
    for n in 0..50 {
        for low in 0..=n {
            assert_eq!(leaf.as_ref().search(&key(n as u64 * 2), low), Ok(n));
            assert_eq!(leaf.as_ref().search(&key(n as u64 * 2 + 1), low), Err(n + 1));
        }
    }
    let odd = Key::new(ObjectId::new(4), KeyType::INODE_REF, 0);
    assert_eq!(leaf.as_ref().search(&odd, 0), Err(3));
    assert_eq!(leaf.as_ref().search(&Key { offset: 1, ..key(4) }, 0), Err(3));
}

#[test]
fn search_does_not_rely_on_how_keys_lie() {
    let object = |number: u64| number / 3;
    let even: fn(u64) -> u64 = |number| number << 24;
    let crowded_in_front: fn(u64) -> u64 = |number| (number + 1).pow(6);
    let crowded_behind: fn(u64) -> u64 = |number| u64::MAX - (200 - number).pow(8);
    for offset in [even, crowded_in_front, crowded_behind] {
        for one_object in [true, false] {
            let of = |number| {
                let objectid = ObjectId::new(if one_object { 300 } else { offset(object(number)) });
                Key::new(objectid, KeyType::DIR_ITEM, offset(number) | 1)
            };
            let mut bytes = vec![0; 16384];
            let mut leaf = BlockMut::init(&mut bytes, &new(0));
            let items: Vec<(Key, usize)> = (0..200).map(|number| (of(number), 1)).collect();
            leaf.insert_items(0, &items);
            for number in 0..200 {
                let slot = usize::try_from(number).expect("small");
                let gap = Key { offset: of(number).offset - 1, ..of(number) };
                for low in [0, slot.min(1), slot / 2, slot] {
                    let mut probes = 0;
                    assert_eq!(leaf.as_ref().search_probing(&of(number), low, |_| probes += 1), Ok(slot));
                    assert!(probes <= 20, "{probes} looks for one of 200");
                    assert_eq!(leaf.as_ref().search(&gap, low), Err(slot));
                }
                // The key behind the block is only a hint, whatever its value.
                for next in [None, Some(of(200)), Some(of(100)), Some(of(0)), Some(Key::MIN), Some(Key::MAX)]
                {
                    assert_eq!(leaf.as_ref().search_before(&of(number), next.as_ref()), Ok(slot));
                    assert_eq!(leaf.as_ref().search_before(&gap, next.as_ref()), Err(slot));
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "free")]
fn inserting_more_than_fits_is_a_bug() {
    let mut bytes = vec![0; 4096];
    BlockMut::init(&mut bytes, &new(0)).insert_items(0, &[(key(1), 4000)]);
}
