//! Walks over small forests in memory, sound ones and damaged ones.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use creamery_base::{Generation, Uuid};
use creamery_format::{BlockMut, ExtentFlags, FILE_EXTENT_REGULAR, NewBlock, RawRootItem};
use creamery_tree::{CommittedBlock, RootPointer};
use zerocopy::IntoBytes;

use super::*;
use crate::extent_tree::ExtentItem;

const NODE_SIZE: usize = 65536;
const GENERATION: Generation = Generation::new(9);
const SECTOR: u64 = 4096;
const DATA: Logical = Logical::new(1 << 30);
const LEN: u64 = 16 * SECTOR;
const ROOT_TREE: Logical = Logical::new(1 << 20);
const EXTENT_TREE: Logical = Logical::new(2 << 20);
const FILE: ObjectId = ObjectId::new(300);

/// Blocks by address. A walk puts the trees and references into the root tree and the extent tree first.
#[derive(Default)]
struct WalkForest {
    blocks: BTreeMap<Logical, Vec<u8>>,
    roots: BTreeMap<TreeId, RawRootItem>,
    /// Kind of the extent, and its references.
    extents: BTreeMap<Logical, (ExtentFlags, Vec<Backref>)>,
}

struct Source {
    blocks: BTreeMap<Logical, Arc<[u8]>>,
    reads: Cell<usize>,
}

impl BlockSource for &Source {
    fn read(&self, at: Logical, level: u8) -> Result<CommittedBlock> {
        self.reads.set(self.reads.get() + 1);
        let found = self.blocks.get(&at).filter(|bytes| BlockRef::new(bytes).level() == level);
        found
            .map(|bytes| Arc::clone(bytes).into())
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("no block of level {level} at {at}")))
    }
}

fn block(at: Logical, owner: TreeId, level: u8, fill: impl FnOnce(&mut BlockMut<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; NODE_SIZE];
    let nil = Uuid::nil();
    let new = NewBlock { logical: at, generation: GENERATION, owner, level, fsid: nil, chunk_tree_uuid: nil };
    fill(&mut BlockMut::init(&mut bytes, &new));
    bytes
}

fn leaf(at: Logical, owner: TreeId, items: &[(Key, Vec<u8>)]) -> Vec<u8> {
    block(at, owner, 0, |leaf| {
        for (slot, (key, data)) in items.iter().enumerate() {
            leaf.insert_items(slot, &[(*key, data.len())]);
            leaf.data_mut(slot).copy_from_slice(data);
        }
    })
}

/// A file extent item that shows `DATA` from `extent_offset` on.
fn item(ino: ObjectId, offset: u64, extent_offset: u64, len: u64) -> (Key, Vec<u8>) {
    let raw = creamery_format::RawFileExtent {
        kind: FILE_EXTENT_REGULAR,
        disk_bytenr: DATA.get().into(),
        disk_num_bytes: LEN.into(),
        ram_bytes: LEN.into(),
        offset: extent_offset.into(),
        num_bytes: len.into(),
        ..Default::default()
    };
    (Key::new(ino, KeyType::EXTENT_DATA, offset), raw.as_bytes().to_vec())
}

impl WalkForest {
    fn add(&mut self, at: u64, bytes: Vec<u8>, backrefs: &[Backref]) -> Logical {
        let at = Logical::new(at << 24);
        self.extents.insert(at, (ExtentFlags::TREE_BLOCK, backrefs.to_vec()));
        self.blocks.insert(at, bytes);
        at
    }

    fn leaf(&mut self, at: u64, owner: TreeId, items: &[(Key, Vec<u8>)], backrefs: &[Backref]) -> Logical {
        self.add(at, leaf(Logical::new(at << 24), owner, items), backrefs)
    }

    fn node(&mut self, at: u64, owner: TreeId, children: &[Logical], backrefs: &[Backref]) -> Logical {
        let level = children.first().map_or(0, |child| BlockRef::new(&self.blocks[child]).level()) + 1;
        let bytes = block(Logical::new(at << 24), owner, level, |node| {
            for (slot, child) in children.iter().enumerate() {
                let first = BlockRef::new(&self.blocks[child]).first_key().expect("an item");
                node.insert_ptr(slot, &first, *child, GENERATION);
            }
        });
        self.add(at, bytes, backrefs)
    }

    fn tree(&mut self, id: TreeId, root: Logical) -> &mut RawRootItem {
        let level = BlockRef::new(&self.blocks[&root]).level();
        let generation = GENERATION.get().into();
        let item = RawRootItem {
            bytenr: root.get().into(),
            level,
            generation,
            generation_v2: generation,
            refs: 1.into(),
            ..Default::default()
        };
        self.roots.entry(id).or_insert(item)
    }

    fn data(&mut self, backrefs: &[Backref]) {
        self.extents.insert(DATA, (ExtentFlags::DATA, backrefs.to_vec()));
    }

    fn source(mut self) -> Source {
        let mut items = Vec::new();
        for (at, (flags, backrefs)) in &self.extents {
            let key = if flags.contains(ExtentFlags::DATA) {
                Key::new(ObjectId::new(at.get()), KeyType::EXTENT_ITEM, LEN)
            } else {
                Key::new(ObjectId::new(at.get()), KeyType::METADATA_ITEM, 0)
            };
            let mut item = ExtentItem::new(GENERATION, *flags);
            for backref in backrefs {
                item.insert_inline(*backref, 1, NODE_SIZE);
            }
            item.refs = item.inline_count();
            items.push((key, item.to_bytes()));
        }
        self.blocks.insert(EXTENT_TREE, leaf(EXTENT_TREE, TreeId::EXTENT, &items));
        self.tree(TreeId::EXTENT, EXTENT_TREE);
        let root = |(id, item): (&TreeId, &RawRootItem)| {
            (Key::new(id.objectid(), KeyType::ROOT_ITEM, 0), item.as_bytes().to_vec())
        };
        let roots: Vec<_> = self.roots.iter().map(root).collect();
        self.blocks.insert(ROOT_TREE, leaf(ROOT_TREE, TreeId::ROOT, &roots));
        let blocks = self.blocks.into_iter().map(|(at, bytes)| (at, bytes.into())).collect();
        Source { blocks, reads: Cell::new(0) }
    }
}

fn trees(source: &Source) -> Trees<&Source> {
    let root = RootPointer { logical: ROOT_TREE, generation: GENERATION, level: 0 };
    Trees::new(source, root).expect("an extent tree")
}

fn tree_block(root: TreeId) -> Backref {
    Backref::TreeBlock { root }
}

fn by_file(root: TreeId, offset: u64) -> Backref {
    Backref::of_file(InodeId::new(root, FILE), offset)
}

fn by_parent(parent: u64) -> Backref {
    Backref::SharedBlock { parent: Logical::new(parent << 24) }
}

/// Subvolume, inode and offset.
type User = (u64, u64, u64);

/// All users, and the answer that stops at the second user.
fn users(forest: WalkForest) -> (Result<Vec<User>>, Result<Few>) {
    let source = forest.source();
    let found = Walk::for_all(trees(&source)).users(DATA + SECTOR);
    let told = |user: &ExtentUser| (user.id.subvolume.get(), user.id.ino.get(), user.offset);
    let all = found.map(|found| found.users.iter().map(told).collect());
    (all, Walk::for_few(trees(&source)).few(DATA))
}

fn assert_damage(forest: WalkForest, words: &str) {
    let (all, few) = users(forest);
    for error in [all.expect_err("damage"), few.expect_err("damage")] {
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(words), "{error}");
    }
}

const SNAPSHOT: TreeId = TreeId::new(256);
const SECOND: TreeId = TreeId::new(257);

#[test]
fn the_file_of_one_reference_is_found_in_its_tree() {
    let mut forest = WalkForest::default();
    // Two pieces with something else between them, and the same data elsewhere in the file, to which no reference leads.
    let items = [
        item(FILE, 8 * SECTOR, 0, SECTOR),
        item(FILE, 10 * SECTOR, 2 * SECTOR, SECTOR),
        item(FILE, 1 << 40, 0, LEN),
        item(ObjectId::new(301), 0, 0, LEN),
    ];
    let root = forest.leaf(1, TreeId::FS, &items, &[tree_block(TreeId::FS)]);
    forest.tree(TreeId::FS, root);
    forest.data(&[by_file(TreeId::FS, 8 * SECTOR)]);
    let (all, few) = users(forest);
    assert_eq!(all.expect("sound"), [(5, 300, 8 * SECTOR), (5, 300, 10 * SECTOR)]);
    assert_eq!(few.expect("sound"), Few::One(InodeId::new(TreeId::FS, FILE), 8 * SECTOR));
}

#[test]
fn an_extent_may_begin_before_the_file_that_shows_its_tail() {
    let mut forest = WalkForest::default();
    let root = forest.leaf(1, TreeId::FS, &[item(FILE, 0, 4 * SECTOR, SECTOR)], &[tree_block(TreeId::FS)]);
    forest.tree(TreeId::FS, root);
    forest.data(&[by_file(TreeId::FS, (4 * SECTOR).wrapping_neg())]);
    assert_eq!(users(forest).0.expect("sound"), [(5, 300, 0)]);
}

/// A leaf with the file, a node above it, and two trees that share the node.
fn shared() -> WalkForest {
    let mut forest = WalkForest::default();
    let low = forest.leaf(1, TreeId::FS, &[item(FILE, 0, 0, LEN)], &[tree_block(TreeId::FS)]);
    let node = forest.node(2, TreeId::FS, &[low], &[tree_block(TreeId::FS), tree_block(SNAPSHOT)]);
    let root = forest.node(3, TreeId::FS, &[node], &[tree_block(TreeId::FS)]);
    let copy = forest.node(4, SNAPSHOT, &[node], &[tree_block(SNAPSHOT)]);
    forest.tree(TreeId::FS, root);
    forest.tree(SNAPSHOT, copy);
    forest.data(&[by_file(TreeId::FS, 0)]);
    forest
}

#[test]
fn a_reference_from_a_leaf_counts_for_all_trees_above_it() {
    let (all, few) = users(shared());
    assert_eq!(all.expect("sound"), [(5, 300, 0), (256, 300, 0)]);
    assert_eq!(few.expect("sound"), Few::Several);
}

#[test]
fn references_by_parent_lead_to_the_same_trees() {
    let mut forest = shared();
    let by_leaf = Backref::SharedData { parent: Logical::new(1 << 24) };
    forest.data(&[by_leaf]);
    for (at, backrefs) in [(1, &[by_parent(2)][..]), (2, &[by_parent(3), by_parent(4)])] {
        forest.extents.get_mut(&Logical::new(at << 24)).expect("a block").1 = backrefs.to_vec();
    }
    let (all, few) = users(forest);
    assert_eq!(all.expect("sound"), [(5, 300, 0), (256, 300, 0)]);
    assert_eq!(few.expect("sound"), Few::Several);
}

#[test]
fn ways_lead_through_deleted_trees_and_end_elsewhere() {
    let mut forest = shared();
    forest.tree(TreeId::FS, Logical::new(3 << 24)).refs = 0.into();
    let (all, few) = users(forest);
    assert_eq!(all.expect("sound"), [(256, 300, 0)], "the leaf is found in the deleted tree");
    assert_eq!(few.expect("sound"), Few::Several, "the deleted tree keeps the space");
}

#[test]
fn a_tree_of_relocation_shares_what_it_keeps() {
    let mut forest = shared();
    // Linux names the root of such a tree as its own parent.
    forest.extents.get_mut(&Logical::new(3 << 24)).expect("a root").1 = vec![by_parent(3)];
    let (all, few) = users(forest);
    assert_eq!(all.expect("sound"), [(256, 300, 0)], "relocation uses nothing");
    assert_eq!(few.expect("sound"), Few::Several);
}

#[test]
fn what_a_deleted_tree_has_dropped_is_not_looked_at() {
    let mut forest = shared();
    let low = [item(FILE, 0, 0, SECTOR)];
    let gone = forest.leaf(5, SECOND, &low, &[]);
    let left =
        forest.leaf(6, SECOND, &[item(FILE, SECTOR, SECTOR, SECTOR)], &[tree_block(SECOND), by_parent(8)]);
    let dying = forest.node(7, SECOND, &[gone, left], &[tree_block(SECOND)]);
    let user = forest.node(8, SNAPSHOT, &[left], &[tree_block(TreeId::new(258))]);
    forest.tree(TreeId::new(258), user);
    let item = forest.tree(SECOND, dying);
    item.refs = 0.into();
    (item.drop_progress, item.drop_level) = (Key::new(FILE, KeyType::EXTENT_DATA, SECTOR).into(), 1);
    forest.blocks.remove(&gone);
    forest.extents.remove(&gone);
    forest.data(&[by_file(SECOND, 0)]);
    let (all, few) = users(forest);
    assert_eq!(all.expect("what is dropped is not read"), [(258, 300, SECTOR)]);
    assert_eq!(few.expect("sound"), Few::Several, "by the subvolume and by the deleted tree");
}

#[test]
fn data_that_nobody_shows_any_more_has_no_users() {
    let mut forest = shared();
    forest.data(&[by_file(SECOND, 0), by_file(TreeId::FS, 64 * SECTOR)]);
    let (all, few) = users(forest);
    assert_eq!((all.expect("sound"), few.expect("sound")), (Vec::new(), Few::Nobody));
    let source = shared().source();
    let nothing = Walk::for_all(trees(&source)).users(DATA + LEN).expect_err("behind it");
    assert_eq!(nothing.kind(), ErrorKind::NotFound);
    assert_eq!(Walk::for_few(trees(&source)).few(DATA + SECTOR).expect("sound"), Few::Nobody);
}

#[test]
fn a_block_that_says_to_be_above_itself_is_damage() {
    // The root of a tree that Linux relocates names itself as parent, and is skipped.
    let mut forest = shared();
    forest.extents.get_mut(&Logical::new(3 << 24)).expect("a block").1 = vec![by_parent(3)];
    assert_eq!(users(forest).0.expect("passed over"), [(256, 300, 0)]);
    // In a circle with another one.
    let mut forest = shared();
    forest.extents.get_mut(&Logical::new(2 << 24)).expect("a block").1 = vec![by_parent(1)];
    assert_damage(forest, "level");
}

#[test]
fn a_parent_that_does_not_point_to_its_child_is_damage() {
    let mut forest = shared();
    let other = forest.leaf(5, SECOND, &[item(ObjectId::new(999), 0, 0, SECTOR)], &[]);
    forest.node(6, SECOND, &[other], &[]);
    forest.extents.get_mut(&Logical::new(1 << 24)).expect("a block").1 = vec![by_parent(6)];
    assert_damage(forest, "does not point to it");
}

#[test]
fn references_of_the_wrong_kind_are_damage() {
    let mut forest = shared();
    forest.data(&[tree_block(TreeId::FS)]);
    assert_damage(forest, "data is referred to as a tree block");
    let mut forest = shared();
    forest.extents.get_mut(&Logical::new(1 << 24)).expect("a block").1 = vec![by_file(TreeId::FS, 0)];
    assert_damage(forest, "a tree block is referred to as data");
    let mut forest = shared();
    forest.data(&[Backref::SharedData { parent: Logical::new(2 << 24) }]);
    assert_damage(forest, "level");
}

#[test]
fn the_highest_block_has_no_parent() {
    let mut forest = WalkForest::default();
    let mut at = forest.leaf(1, TreeId::FS, &[item(FILE, 0, 0, LEN)], &[by_parent(2)]);
    for height in 2..=8 {
        at = forest.node(height, TreeId::FS, &[at], &[by_parent(height + 1)]);
    }
    forest.tree(TreeId::FS, Logical::new(1 << 24));
    forest.data(&[Backref::SharedData { parent: Logical::new(1 << 24) }]);
    assert_damage(forest, "a block of level 7 has a parent");
}

/// `width` blocks of each level, each of which points to all of the level below: the ways upwards are many, the blocks few.
fn lattice(width: u64, snapshots: u64) -> WalkForest {
    let mut forest = WalkForest::default();
    let at = |level: u64, number: u64| 1 + level * width + number;
    let above =
        |level: u64| -> Vec<Backref> { (0..width).map(|number| by_parent(at(level + 1, number))).collect() };
    let mut below = Vec::new();
    for number in 0..width {
        let ino = ObjectId::new(300 + number);
        below.push(forest.leaf(at(0, number), TreeId::FS, &[item(ino, 0, 0, LEN)], &above(0)));
    }
    for level in 1..=5 {
        let backrefs = if level < 5 {
            above(level)
        } else {
            (0..snapshots).map(|number| by_parent(1000 + number)).collect()
        };
        below =
            (0..width).map(|number| forest.node(at(level, number), TreeId::FS, &below, &backrefs)).collect();
    }
    for number in 0..snapshots {
        let id = TreeId::new(1000 + number);
        let root = forest.node(1000 + number, id, &below, &[tree_block(id)]);
        forest.tree(id, root);
    }
    forest.data(
        &(0..width)
            .map(|number| Backref::SharedData { parent: Logical::new(at(0, number) << 24) })
            .collect::<Vec<_>>(),
    );
    forest
}

#[test]
fn ways_that_meet_are_walked_once() {
    let source = lattice(8, 20).source();
    let mut walk = Walk::for_all(trees(&source));
    assert_eq!(walk.users(DATA).expect("sound").users.len(), 8 * 20);
    assert!(source.reads.get() <= 8 * 6 + 20 + 2, "{} reads", source.reads.get());
}

#[test]
fn the_second_user_ends_the_search() {
    let source = lattice(4, 100).source();
    let mut walk = Walk::for_few(trees(&source));
    assert_eq!(walk.few(DATA).expect("sound"), Few::Several);
    // The way up, the two trees that the first block has, and the tables.
    assert!(source.reads.get() <= 6 + 2 + 2, "{} reads", source.reads.get());
}

#[test]
fn bytes_that_are_no_references_do_not_harm() {
    let mut state = 7_u64;
    let mut random = move |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let (mut failed, mut fine) = (0, 0);
    for _ in 0..600 {
        let mut forest = shared();
        let some = |random: &mut dyn FnMut(u64) -> u64| match random(4) {
            0 => by_parent(random(6)),
            1 => tree_block([TreeId::FS, SNAPSHOT, SECOND, TreeId::TREE_RELOC][random(4) as usize]),
            2 => by_file(TreeId::FS, random(3) << 12),
            _ => Backref::SharedData { parent: Logical::new(random(6) << 24) },
        };
        for _ in 0..1 + random(3) {
            let at = [DATA, Logical::new(1 << 24), Logical::new(2 << 24), Logical::new(3 << 24)];
            let at = at[random(4) as usize];
            let more = some(&mut random);
            forest.extents.get_mut(&at).expect("it is there").1.push(more);
        }
        let (all, few) = users(forest);
        match (all, few) {
            (Ok(all), Ok(few)) => {
                fine += 1;
                assert_eq!(all.is_empty(), few == Few::Nobody);
            }
            (all, few) => {
                failed += 1;
                let errors = [all.err(), few.err()].into_iter().flatten();
                assert!(errors.into_iter().all(|error| error.kind() == ErrorKind::Corrupt));
            }
        }
    }
    assert!(failed > 50 && fine > 50, "{failed} failed, {fine} fine");
}
