//! Changes the UUID in all tree blocks: after a power cut or a failing request the filesystem is whole, or marked as in between and whole
//! after another try.

use std::sync::Arc;

use creamery_base::{ErrorKind, Generation, Logical, SystemEnv, TreeId, Uuid};
use creamery_device::{AlignedBuffer, BlockDevice};
use creamery_format::{BlockMut, BlockRef, Key, seal};
use creamery_mkfs::Profile;
use creamery_sim::{Class, Fault, Image, Kind, MadeBy, PowerCut, SimDevice, image_with_files, judge};
use creamery_txn::change_fsid;
use creamery_volume::{FsidChange, Mode, Volume};

const NEW: Uuid = Uuid::from_u128(0x5c0a_c001_1111_4222_8333_1234_5678_9abc);
const CHUNK_TREE: [Uuid; 2] = [Uuid::from_u128(2), Uuid::from_u128(3)];
const NODE: u32 = 4096;
const STATES: usize = 150;

/// Two images: with one copy of everything, so a torn block is lost, and with two copies.
fn images() -> [Image; 2] {
    [Profile::Single, Profile::Dup].map(|metadata| {
        let made_by = MadeBy { metadata, node_size: 16384, ..MadeBy::default() };
        image_with_files(&made_by, 400, |number| usize::try_from(number).unwrap() * 7).unwrap().0
    })
}

fn change(device: &Arc<SimDevice>, wanted: Option<Uuid>, chunk_tree: Uuid) -> creamery_base::Result<u64> {
    let device = Arc::<SimDevice>::clone(device);
    change_fsid(FsidChange::new(device, wanted, &SystemEnv)?, chunk_tree, &mut |_, _| Ok(()))
}

/// Device offsets of the copies of the file tree's root.
fn root_leaf(base: &Image) -> Vec<u64> {
    root_of(base, TreeId::FS)
}

/// Device offsets of the copies of a tree's root.
fn root_of(base: &Image, tree: TreeId) -> Vec<u64> {
    let fs = creamery_sim::open(&Arc::new(SimDevice::new(base.clone()))).unwrap();
    let root = fs.engine().tree(tree).unwrap().root_pointer().unwrap().logical;
    let mapping = fs.engine().volume().map(root, 16384).unwrap();
    mapping.mirrors().iter().map(|mirror| mirror[0].at.offset).collect()
}

/// Checks that the state is whole, or in between and whole after the change goes on. Returns whether it was in between.
fn is_in_between(image: &Image, old: Uuid, told: &str) -> bool {
    let device = Arc::new(SimDevice::new(image.clone()));
    let is_in_between = match Volume::open(vec![device.clone()], Mode::ReadOnly) {
        Ok(volume) => {
            assert!([old, NEW].contains(&volume.fsid()), "{told}");
            false
        }
        Err(error) => {
            assert!(error.to_string().contains("CHANGING_FSID"), "{told}: {error}");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let other =
                change(&device, Some(Uuid::from_u128(77)), CHUNK_TREE[1]).expect_err(told).to_string();
            assert!(other.contains(&NEW.to_string()), "{told}: {other}");
            change(&device, None, CHUNK_TREE[1]).expect(told);
            let volume = Volume::open(vec![device.clone()], Mode::ReadOnly).expect(told);
            assert_eq!((volume.fsid(), volume.metadata_uuid()), (NEW, NEW), "{told}");
            true
        }
    };
    judge(&device.image()).expect(told);
    is_in_between
}

fn uuid_of(image: &Image) -> Uuid {
    Volume::open(vec![Arc::new(SimDevice::new(image.clone()))], Mode::ReadOnly).unwrap().fsid()
}

#[test]
fn whatever_a_power_cut_leaves_of_a_change_of_the_uuid_is_whole_or_gone_on_with() {
    for base in images() {
        let old = uuid_of(&base);
        let device = Arc::new(SimDevice::recording(base.clone(), None));
        change(&device, Some(NEW), CHUNK_TREE[0]).unwrap();
        judge(&device.image()).unwrap();
        let mut cut = PowerCut::of(&device, &base, 7);
        let mut in_between = 0;
        for number in 0..STATES {
            let Some(state) = cut.next_state() else { break };
            assert_ne!(state.class, Class::TornSuperblock);
            let told = format!("state {number}: {}", state.story);
            in_between += usize::from(is_in_between(&state.image, old, &told));
        }
        assert!(in_between > STATES / 3 && in_between < STATES, "{in_between} states in between");
    }
}

#[test]
fn whatever_a_failing_request_leaves_of_a_change_of_the_uuid_is_whole_or_gone_on_with() {
    for base in images() {
        let old = uuid_of(&base);
        let device = Arc::new(SimDevice::new(base.clone()));
        let before = [Kind::Read, Kind::Write, Kind::Flush].map(|kind| (kind, device.count(kind)));
        change(&device, Some(NEW), CHUNK_TREE[0]).unwrap();
        for (kind, before) in before {
            let count = device.count(kind) - before;
            let step = usize::try_from(count / 12 + 1).unwrap();
            for nth in (0..count).step_by(step) {
                let failing = Arc::new(SimDevice::new(base.clone()));
                failing.fail(Fault { kind, nth, lasting: true });
                let error = change(&failing, Some(NEW), CHUNK_TREE[0]).expect_err("a request has failed");
                is_in_between(&failing.image(), old, &format!("{kind:?} {nth}: {error}"));
            }
        }
    }
}

#[test]
fn damage_is_found_before_anything_is_written() {
    let [base, _] = images();
    let device = Arc::new(SimDevice::new(base.clone()));
    // No reader uses this tree, so only a check of all blocks notices.
    let at = root_leaf(&base)[0];
    device.rot(at + 9000..at + 9001);
    let rotten = device.image();
    let error = change(&device, Some(NEW), CHUNK_TREE[0]).expect_err("a block is damaged");
    assert_eq!(error.kind(), ErrorKind::Unreadable, "{error}");
    assert_eq!(device.image().hash(), rotten.hash(), "something was written");
}

/// A copy that missed a write is a valid but older block of its address.
#[test]
fn a_stale_copy_is_not_taken_for_the_block() {
    let [_, base] = images();
    let device = Arc::new(SimDevice::new(base.clone()));
    // Its items have no transactions, so nothing else is wrong with the copy.
    let at = root_of(&base, TreeId::CSUM)[0];
    let mut bytes = AlignedBuffer::zeroed(16384);
    device.read_at(at, &mut bytes).unwrap();
    let before = BlockRef::new(&bytes).generation().get() - 1;
    BlockMut::new(&mut bytes).set_generation(Generation::new(before));
    let volume = Volume::open(vec![device.clone()], Mode::ReadOnly).unwrap();
    seal(&mut bytes, volume.checksum_type());
    device.write_at(at, &bytes).unwrap();
    let stale = device.image();
    let error = change(&device, Some(NEW), CHUNK_TREE[0]).expect_err("a copy is stale");
    assert_eq!(error.kind(), ErrorKind::Unreadable, "{error}");
    assert_eq!(device.image().hash(), stale.hash(), "something was written");
}

/// In a change that goes on, a copy that missed a write loses to the copy of the transaction that the extent tree names.
#[test]
fn a_change_that_goes_on_prefers_the_listed_copy_of_a_block_to_a_stale_one() {
    let [_, base] = images();
    // Its items have no transactions, so the stale copy is a valid block of its address.
    let places = root_of(&base, TreeId::CSUM);
    assert_eq!(places.len(), 2, "two copies are wanted");
    for &stale in &places {
        let device = Arc::new(SimDevice::new(base.clone()));
        let mut bytes = AlignedBuffer::zeroed(16384);
        device.read_at(stale, &mut bytes).unwrap();
        let listed = BlockRef::new(&bytes).generation();
        BlockMut::new(&mut bytes).set_generation(Generation::new(listed.get() - 1));
        let volume = Volume::open(vec![device.clone()], Mode::ReadOnly).unwrap();
        seal(&mut bytes, volume.checksum_type());
        FsidChange::new(device.clone(), Some(NEW), &SystemEnv).unwrap().begin().unwrap();
        device.write_at(stale, &bytes).unwrap();
        assert_eq!(change(&device, None, CHUNK_TREE[1]).unwrap(), 0, "a block is lost");
        for &place in &places {
            device.read_at(place, &mut bytes).unwrap();
            let block = BlockRef::new(&bytes);
            assert_eq!((block.generation(), block.fsid()), (listed, NEW), "the copy at {place}");
        }
        judge(&device.image()).unwrap();
    }
}

/// A block that was lost when a change was begun is lost with either UUID, and does not stop the change.
#[test]
fn a_block_that_was_lost_meanwhile_holds_up_no_change() {
    let [base, _] = images();
    let writes = {
        let device = Arc::new(SimDevice::new(base.clone()));
        let before = device.count(Kind::Write);
        change(&device, Some(NEW), CHUNK_TREE[0]).unwrap();
        device.count(Kind::Write) - before
    };
    let device = Arc::new(SimDevice::new(base.clone()));
    device.fail(Fault { kind: Kind::Write, nth: writes / 2, lasting: true });
    change(&device, Some(NEW), CHUNK_TREE[0]).expect_err("a write fails");
    let device = Arc::new(SimDevice::new(device.image()));
    let at = root_leaf(&base)[0];
    device.rot(at + 9000..at + 9001);
    assert_eq!(change(&device, None, CHUNK_TREE[1]).unwrap(), 1);
    let volume = Volume::open(vec![device], Mode::ReadOnly).unwrap();
    assert_eq!(volume.fsid(), NEW);
}

/// With leaves that overlap, a hostile tree would be walked again and again.
#[test]
fn a_leaf_that_is_not_behind_the_one_before_ends_it_before_anything_is_written() {
    let made_by = MadeBy { metadata: Profile::Single, node_size: NODE, ..MadeBy::default() };
    let (base, _) = image_with_files(&made_by, 1500, |_| 100).unwrap();
    let device = Arc::new(SimDevice::new(base.clone()));
    let fs = creamery_sim::open(&Arc::new(SimDevice::new(base))).unwrap();
    let volume = fs.engine().volume();
    let read = |at: Logical| {
        let place = volume.map(at, NODE.into()).unwrap().mirrors()[0][0].at.offset;
        let mut bytes = AlignedBuffer::zeroed(NODE as usize);
        device.read_at(place, &mut bytes).unwrap();
        (place, bytes)
    };
    let root = fs.engine().tree(TreeId::EXTENT).unwrap().root_pointer().unwrap();
    assert_eq!(root.level, 1, "two leaves are wanted");
    let above = read(root.logical).1;
    let [(place, mut bytes), (_, next)] = [0, 1].map(|slot| read(BlockRef::new(&above).child(slot).0));
    // The last item of the first leaf becomes an item of the second.
    let (last, next) = (BlockRef::new(&bytes).count() - 1, BlockRef::new(&next));
    BlockMut::new(&mut bytes).set_item_key(last, &next.key(3));
    BlockMut::new(&mut bytes).data_mut(last).copy_from_slice(next.data(3));
    seal(&mut bytes, volume.checksum_type());
    device.write_at(place, &bytes).unwrap();
    let hostile = device.image();
    let error = change(&device, Some(NEW), CHUNK_TREE[0]).expect_err("leaves overlap");
    assert_eq!(device.image().hash(), hostile.hash(), "something was written");
    assert!(error.to_string().contains("not after the previous leaf"), "{error}");
}

/// A chunk tree with a further device that is missing is refused before any write, regardless of the superblock's count.
#[test]
fn another_device_in_the_chunk_tree_is_refused() {
    let [base, _] = images();
    let device = Arc::new(SimDevice::new(base.clone()));
    let volume = Volume::open(vec![device.clone()], Mode::ReadOnly).unwrap();
    let (logical, level, _) = volume.superblock().chunk_root();
    assert_eq!(level, 0, "a leaf is wanted");
    let mut bytes = AlignedBuffer::zeroed(16384);
    let place = volume.map(logical, 16384).unwrap().mirrors()[0][0].at.offset;
    device.read_at(place, &mut bytes).unwrap();
    let key = BlockRef::new(&bytes).key(0);
    let mut block = BlockMut::new(&mut bytes);
    block.set_item_key(0, &Key { offset: 2, ..key });
    block.data_mut(0)[..8].copy_from_slice(&2_u64.to_le_bytes());
    seal(&mut bytes, volume.checksum_type());
    device.write_at(place, &bytes).unwrap();
    let two = device.image();
    let error = change(&device, Some(NEW), CHUNK_TREE[0]).expect_err("there are two devices");
    assert_eq!(device.image().hash(), two.hash(), "something was written");
    assert!(error.to_string().contains("several devices"), "{error}");
}
