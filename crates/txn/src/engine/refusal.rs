//! Reasons not to write a filesystem, beyond those in the superblock: states that this version cannot continue, and states that Linux
//! does not mount. Reading stays possible. A writer's demands on a leaf are checked when it is read (`creamery_volume`, VOL-7).

use creamery_base::{ObjectId, Result, TreeId, Wait};
use creamery_format::{CompatRo, Incompat, Key, KeyType, RawDevReplace, SuperFlags, Superblock};
use creamery_tree::Tree;
use creamery_volume::Volume;
use zerocopy::FromBytes;

use crate::chunk_allocator::DeviceSpace;
use crate::roots::find_root_item;

/// Replacement states in which a device is being replaced (started, suspended).
const REPLACE_ACTIVE: [u64; 2] = [1, 4];
/// The last generation that is continued: after it there are enough numbers left for any number of transactions.
const GENERATION_MAX: u64 = u64::MAX - (1 << 48);

/// The reason that this filesystem must not be written, if there is one.
pub(super) fn refusal_to_write(
    volume: &Volume,
    superblock: &Superblock,
    root_tree: &Tree,
    dev_tree: &Tree,
    devices: &[DeviceSpace],
) -> Result<Option<String>> {
    let generation = superblock.generation();
    if generation.get() > GENERATION_MAX {
        return Ok(Some(format!(
            "generation out of range, expected [0, {GENERATION_MAX}], found {generation}"
        )));
    }
    let found = superblock.raw().stripesize.get();
    if !found.is_power_of_two() {
        let what = format!("invalid stripe size in its superblock, expected a power of two, found {found}");
        return Ok(Some(what));
    }
    let unknown = superblock.raw().flags.get() & !SuperFlags::KNOWN.bits();
    if unknown != 0 {
        return Ok(Some(format!("unknown flags 0x{unknown:x} in its superblock")));
    }
    let want = devices.iter().fold(0_u64, |sum, device| sum.saturating_add(device.report().total_bytes));
    let found = superblock.total_bytes();
    if found < want {
        let what = format!(
            "wrong total bytes in its superblock, expected {want} by the chunk tree, found {found}; \
             `btrfs rescue fix-device-size` repairs it"
        );
        return Ok(Some(what));
    }
    if let Some(reason) = missing_tree(root_tree)? {
        return Ok(Some(reason));
    }
    if let Some(chunk) = volume.chunks().iter().find(|chunk| !chunk.is_spread_as_promised()) {
        let (at, flags) = (chunk.start, chunk.flags);
        return Ok(Some(format!("chunk {at} is {flags} and has two of its stripes on one device")));
    }
    let (listed, valid) = (CompatRo::FREE_SPACE_TREE, CompatRo::FREE_SPACE_TREE_VALID);
    if superblock.compat_ro().contains(listed) && !superblock.compat_ro().contains(valid) {
        return Ok(Some("its free space tree is not valid (mount it once with space_cache=v2)".to_owned()));
    }
    let has_group_tree = superblock.compat_ro().contains(CompatRo::BLOCK_GROUP_TREE);
    if has_group_tree
        && !(superblock.compat_ro().contains(listed) && superblock.incompat().contains(Incompat::NO_HOLES))
    {
        return Ok(Some(
            "it has a block group tree, and no free space tree or holes that are listed, which Linux refuses"
                .to_owned(),
        ));
    }
    let balance = Key::new(ObjectId::BALANCE, KeyType::TEMPORARY_ITEM, 0);
    if root_tree.get(&balance, Wait::Yes, |_| ())?.is_some() {
        return Ok(Some("a balance is in progress".to_owned()));
    }
    let replace = Key::new(ObjectId::new(0), KeyType::DEV_REPLACE, 0);
    let active = dev_tree.get(&replace, Wait::Yes, |data| {
        RawDevReplace::ref_from_bytes(data)
            .map_or(true, |item| REPLACE_ACTIVE.contains(&item.replace_state.get()))
    })?;
    if active == Some(true) {
        return Ok(Some("a device replacement is in progress".to_owned()));
    }
    Ok(None)
}

/// The reason not to write when metadata is skinny against the superblock, which the item of the root tree's root shows. Linux reads no such tree.
pub(super) fn contradicted_skinny(superblock: &Superblock, extent_tree: &Tree) -> Result<Option<String>> {
    if superblock.incompat().contains(Incompat::SKINNY_METADATA) {
        return Ok(None);
    }
    let (root, level) = superblock.root();
    let skinny = Key::new(ObjectId::new(root.get()), KeyType::METADATA_ITEM, level.into());
    let found = extent_tree.get(&skinny, Wait::Yes, |_| ())?;
    Ok(found.map(|()| "its metadata is skinny, and its superblock says that it is not".to_owned()))
}

/// Names a missing tree that Linux needs to mount, though Creamery could do without it.
fn missing_tree(root_tree: &Tree) -> Result<Option<String>> {
    for id in [TreeId::FS, TreeId::DATA_RELOC] {
        match find_root_item(root_tree, id)? {
            None => return Ok(Some(format!("tree {id} has no root item, which Linux refuses"))),
            Some((_, item)) if item.refs.get() == 0 => {
                return Ok(Some(format!("the root item of tree {id} has no reference, which Linux refuses")));
            }
            Some(_) => {}
        }
    }
    Ok(None)
}
