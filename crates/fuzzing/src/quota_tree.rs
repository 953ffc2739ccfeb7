//! Quota trees with arbitrary items in valid blocks: each is refused or used, and no code panics either way.

use std::collections::BTreeMap;
use std::sync::Arc;

use creamery::id::{QgroupId, TreeId};
use creamery::inspect::{TreeDump, dump_tree_of};
use creamery::quota::QuotaChange;
use creamery::{Filesystem, Image};
use creamery_base::ObjectId;
use creamery_device::BlockDevice;
use creamery_format::{
    BlockMut, BlockRef, ITEM_LEN, Key, KeyType, RawQgroupInfo, RawQgroupLimit, RawQgroupStatus,
};
use creamery_sim::SimDevice;

use crate::base::base_with_quotas;
use crate::image_fields::Damage;
use crate::input::Input;
use crate::readers::{assert_clean, checked, opened, write_something};

/// More steps than a rescan of so few extents takes.
const STEPS_MAX: usize = 1000;
/// The offset of a superblock's incompatible features; bit 16 means simple quotas.
const INCOMPAT: usize = 188;
/// All flags of a status that have a meaning.
const FLAGS_ALL: u64 = 15;

/// Makes a quota tree of the input, and runs every reader and writer of quota trees on it.
///
/// ```
/// creamery_fuzzing::quota_tree(b"\x01");
/// ```
pub fn quota_tree(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    let mut damage = Damage::new(base_with_quotas());
    fill_block(damage.block(0), how & 1 != 0, &mut input);
    if how & 16 != 0 {
        damage.superblock[INCOMPAT + 2] |= 1;
    }
    let device = Arc::new(SimDevice::new(damage.image(true)));
    read(&device);
    if how & 2 != 0 {
        write_something(&device);
        read(&device);
    }
    let Some(fs) = opened(&device) else { return };
    let _ = work(&fs, how);
    let is_off = fs.quotas().change(&QuotaChange::Disable, "/").is_ok();
    if fs.close().is_ok() && is_off {
        assert_clean(&device);
    }
}

fn dyn_device(device: &Arc<SimDevice>) -> Arc<dyn BlockDevice> {
    Arc::<SimDevice>::clone(device)
}

fn read(device: &Arc<SimDevice>) {
    let before = device.image().hash();
    let mut out = Vec::new();
    let _ = dump_tree_of(dyn_device(device), "image", TreeDump::Tree(TreeId::QUOTA), &mut out);
    let _ = checked(device);
    if let Ok(fs) = Image::options().open_device(dyn_device(device)) {
        let _ = fs.quotas().report();
    }
    assert_eq!(device.image().hash(), before, "a reader has changed the image");
}

/// The commands of users on quotas. Each may be refused.
fn work(fs: &Filesystem, how: u8) -> creamery::Result<()> {
    let group = |level, number| QgroupId::new(level, number).expect("small");
    let change = |change| {
        let _ = fs.quotas().change(&change, "/");
    };
    change(QuotaChange::Enable { simple: how & 4 != 0 });
    let _ = fs.subvolumes().create_in_groups("/first", &[group(1, 0), group(2, 0)]);
    let _ = fs.write("/first/file", crate::base::plain(9000));
    let _ = fs.subvolumes().snapshot("/home", "/then").in_groups(&[group(1, 1)]).run();
    let _ = fs.write("/then/letter", crate::base::plain(4000));
    change(QuotaChange::Create(group(3, 3)));
    change(QuotaChange::Assign { member: group(2, 0), group: group(3, 3) });
    change(QuotaChange::Remove { member: group(1, 0), group: group(2, 0) });
    let _ = fs.sync();
    change(QuotaChange::Limit { group: Some(group(3, 3)), most: Some(1 << 20), exclusive: how & 8 != 0 });
    let _ = fs.write("/first/more", crate::base::plain(70_000));
    change(QuotaChange::Limit { group: Some(group(3, 3)), most: None, exclusive: how & 8 != 0 });
    for path in ["/home/letter", "/before/letter"] {
        let _ = fs.remove_file(path);
    }
    let _ = fs.subvolumes().delete("/before");
    let _ = fs.subvolumes().sync_deleted(|_| Ok(()));
    change(QuotaChange::Destroy(group(1, 1)));
    change(QuotaChange::ClearStale);
    change(QuotaChange::Rescan);
    let mut left = STEPS_MAX;
    while fs.quotas().rescan_step()? {
        left = left.checked_sub(1).expect("a rescan ends");
    }
    fs.sync()?;
    fs.quotas().report().map(drop)
}

/// Puts items into the block of the quota tree, beside the existing ones or in their place.
fn fill_block(bytes: &mut [u8], keep: bool, input: &mut Input<'_>) {
    let block = BlockRef::new(bytes);
    let old = (0..block.count()).map(|slot| (block.key(slot), block.data(slot).to_vec()));
    let mut items: BTreeMap<Key, Vec<u8>> = if keep { old.collect() } else { BTreeMap::new() };
    while !input.is_empty() {
        let (key, data) = item(input);
        items.insert(key, data);
    }
    let mut block = BlockMut::new(bytes);
    let count = block.as_ref().count();
    block.remove_items(0, count);
    for (slot, (key, data)) in items.into_iter().enumerate() {
        if block.as_ref().free_space() < data.len() + ITEM_LEN {
            break;
        }
        block.insert_items(slot, &[(key, data.len())]);
        block.data_mut(slot).copy_from_slice(&data);
    }
}

fn id(input: &mut Input<'_>) -> u64 {
    let small = u64::from(input.byte());
    match small % 4 {
        // Existing subvolumes, and some that may exist.
        0 => [5, 256, 257, 258, 259, 0][(small / 4) as usize % 6],
        1 | 2 => QgroupId::new((small / 4 % 4) as u16, small / 16 % 4).expect("small").get(),
        _ => input.number(8, 256),
    }
}

fn item(input: &mut Input<'_>) -> (Key, Vec<u8>) {
    let kind =
        [KeyType::QGROUP_STATUS, KeyType::QGROUP_INFO, KeyType::QGROUP_LIMIT, KeyType::QGROUP_RELATION];
    let what = input.byte();
    let (kind, len) = match what % 16 {
        0..=2 => (kind[0], [RawQgroupStatus::LEN, RawQgroupStatus::LEN + 8][usize::from(what / 16) % 2]),
        3..=6 => (kind[1], RawQgroupInfo::LEN),
        7..=9 => (kind[2], RawQgroupLimit::LEN),
        10..=14 => (kind[3], 0),
        _ => (KeyType::new(input.byte()), usize::from(input.byte())),
    };
    let (objectid, offset) = match kind {
        KeyType::QGROUP_STATUS => (0, 0),
        KeyType::QGROUP_RELATION => (id(input), id(input)),
        KeyType::QGROUP_INFO | KeyType::QGROUP_LIMIT => (0, id(input)),
        _ => (id(input), id(input)),
    };
    let mut data = Vec::with_capacity(len);
    while data.len() < len {
        let number = match (kind, data.len()) {
            // No code reads the status of another version.
            (KeyType::QGROUP_STATUS, 0) => u64::from(input.byte() < 250),
            (KeyType::QGROUP_STATUS, 16) => u64::from(input.byte()) & FLAGS_ALL | 1,
            _ => input.number(8, 16384),
        };
        data.extend_from_slice(&number.to_le_bytes());
    }
    data.truncate(len);
    (Key::new(ObjectId::new(objectid), kind, offset), data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_tree_that_does_not_lie_is_right() {
        let mut damage = Damage::new(base_with_quotas());
        fill_block(damage.block(0), true, &mut Input::new(&[]));
        let device = Arc::new(SimDevice::new(damage.image(true)));
        assert_clean(&device);
        let fs = opened(&device).expect("it is whole");
        let report = fs.quotas().report().expect("it is whole");
        assert!(report.enabled && !report.inconsistent && report.groups.len() == 6, "{report:#?}");
        work(&fs, 0).expect("room");
        assert!(!fs.quotas().report().expect("it is whole").inconsistent);
        fs.close().expect("room");
        assert_clean(&device);
    }

    #[test]
    fn items_of_all_kinds_are_made() {
        let kinds: Vec<_> = (0..16).map(|what| item(&mut Input::new(&[what, 4, 8])).0.kind).collect();
        let wanted =
            [KeyType::QGROUP_STATUS, KeyType::QGROUP_INFO, KeyType::QGROUP_LIMIT, KeyType::QGROUP_RELATION];
        assert!(wanted.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
    }

    /// A fuzzer's first steps: each pair of items with each continuation, and then anything.
    #[test]
    fn quota_trees_of_all_kinds_are_answered() {
        for how in 0..16 {
            for what in 0..16 {
                quota_tree(&[
                    how,
                    what,
                    4 * how,
                    9,
                    0,
                    5,
                    3,
                    1,
                    4,
                    what,
                    15 - what,
                    17,
                    33,
                    2,
                    49,
                    how,
                    3,
                    7,
                ]);
            }
        }
        let mut random = bytes_of(41);
        for _ in 0..200 {
            let len = 4 + random() as usize % 300;
            quota_tree(&(0..len).map(|_| random()).collect::<Vec<_>>());
        }
    }

    /// Bytes that depend only on the seed.
    fn bytes_of(seed: u64) -> impl FnMut() -> u8 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        }
    }
}
