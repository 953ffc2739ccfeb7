//! Damaged members: superblocks, chunks and device items of sets of several devices are changed and sealed again, some members rot, one may be
//! missing; then every reader of sets reads the set.

use std::sync::Arc;

use creamery::rescue::Rescue;
use creamery::{Image as Opened, ImageOptions};
use creamery_check::{CheckOptions, NoProgress, check};
use creamery_codec::ChecksumType;
use creamery_device::BlockDevice;
use creamery_format::{BlockMut, BlockRef, KeyType, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, seal};
use creamery_sim::{Image, PAGE, SimDevice};
use creamery_volume::{DeviceSet, Mode, Volume};

use crate::image_fields::{is_built_well, overwrite};
use crate::input::Input;
use crate::readers::look;
use crate::set_base::{SetBase, SetBlock, devices, set_base};

const CHANGES_MAX: usize = 12;
/// Offsets in a superblock: its own address, its device's item, and its chunks.
const ADDRESS: usize = 48;
const DEVICE_ITEM: (usize, usize) = (201, 98);
const CHUNKS: (usize, usize) = (811, 400);
const COUNT: usize = 136;
/// Bytes of the checksum, which comes first.
const SUM_LEN: usize = 32;
const ROT_MAX: usize = 64;

/// Changes members of a set as the input says, and reads it.
///
/// ```
/// creamery_fuzzing::member_sets(b"\x00");
/// ```
pub fn member_sets(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    let base = set_base(usize::from(how & 1));
    let mut members = base.members.clone();
    for _ in 0..CHANGES_MAX {
        if input.is_empty() {
            break;
        }
        change(base, &mut members, &mut input);
    }
    // One member is missing, or comes last; half of the sets are complete.
    let away = usize::from(how >> 1 & 7);
    match how & 16 == 0 {
        true if away < members.len() => drop(members.remove(away)),
        _ => {
            let first = away % members.len();
            members.rotate_left(first);
        }
    }
    read_set(&devices(&members), how & 32 != 0);
}

fn change(base: &SetBase, members: &mut [Image], input: &mut Input<'_>) {
    match input.byte() % 8 {
        0 => superblocks(members, input, (SUM_LEN, SUPERBLOCK_LEN - SUM_LEN)),
        1 => superblocks(members, input, DEVICE_ITEM),
        2 => superblocks(members, input, CHUNKS),
        3 => superblocks(members, input, (COUNT, 8)),
        4 | 5 => {
            let block = &base.blocks[usize::from(input.byte()) % base.chunk_blocks];
            item_of_chunk_tree(block, members, input);
        }
        6 => {
            let block = &base.blocks[usize::from(input.byte()) % base.blocks.len()];
            any_item(block, members, input);
        }
        _ => rot(base, members, input),
    }
}

/// Changes a field of the superblocks of one member, or of all, within `(from, len)`.
fn superblocks(members: &mut [Image], input: &mut Input<'_>, (from, len): (usize, usize)) {
    let which = usize::from(input.byte()) % (members.len() + 1);
    let at = from + input.below(len);
    let rest = input.clone();
    for (_, image) in members.iter_mut().enumerate().filter(|(number, _)| which == 0 || *number + 1 == which)
    {
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        image.read(SUPERBLOCK_OFFSETS[0], &mut bytes);
        *input = rest.clone();
        overwrite(&mut bytes, at, input);
        let end = image.len() - SUPERBLOCK_LEN as u64;
        for place in SUPERBLOCK_OFFSETS.into_iter().filter(|place| *place <= end) {
            bytes[ADDRESS..ADDRESS + 8].copy_from_slice(&place.to_le_bytes());
            seal(&mut bytes, ChecksumType::Crc32c);
            image.write(place, &bytes);
        }
    }
}

/// The current content of a block, as changes add up.
fn read_block(block: &SetBlock, members: &[Image]) -> Vec<u8> {
    let mut bytes = block.bytes.clone();
    let (member, offset) = block.copies[0];
    members[member].read(offset, &mut bytes);
    bytes
}

/// Seals a block and writes it to all of its copies, or to the first one only.
fn write_block(block: &SetBlock, mut bytes: Vec<u8>, members: &mut [Image], all: bool) {
    seal(&mut bytes, ChecksumType::Crc32c);
    for &(member, offset) in block.copies.iter().take(if all { usize::MAX } else { 1 }) {
        members[member].write(offset, &bytes);
    }
}

fn item_of_chunk_tree(block: &SetBlock, members: &mut [Image], input: &mut Input<'_>) {
    let mut bytes = read_block(block, members);
    if !is_built_well(&bytes) {
        return;
    }
    let view = BlockRef::new(&bytes);
    let wanted = if input.byte() & 3 == 0 { KeyType::DEV_ITEM } else { KeyType::CHUNK_ITEM };
    let slots: Vec<usize> = match view.is_leaf() {
        true => (0..view.count()).filter(|&slot| view.key(slot).kind == wanted).collect(),
        false => Vec::new(),
    };
    if slots.is_empty() {
        return;
    }
    let slot = slots[usize::from(input.byte()) % slots.len()];
    let at = input.below(view.item_size(slot).max(1));
    overwrite(BlockMut::new(&mut bytes).data_mut(slot), at, input);
    write_block(block, bytes, members, input.byte() & 3 != 0);
}

fn any_item(block: &SetBlock, members: &mut [Image], input: &mut Input<'_>) {
    let mut bytes = read_block(block, members);
    let at = SUM_LEN + input.below(bytes.len() - SUM_LEN);
    overwrite(&mut bytes, at, input);
    write_block(block, bytes, members, input.byte() & 3 != 0);
}

/// Writes bytes over a page of a member, as bit rot does.
fn rot(base: &SetBase, members: &mut [Image], input: &mut Input<'_>) {
    let (member, page) = base.pages[input.below(base.pages.len())];
    let at = u64::from(input.half()) % (PAGE - ROT_MAX) as u64;
    let len = usize::from(input.byte()) % ROT_MAX;
    members[member].write(page + at, input.take(len));
}

fn set_of(devices: &[Arc<SimDevice>], degraded: bool) -> DeviceSet {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
    devices.collect::<DeviceSet>().degraded(degraded)
}

/// Checks and walks a set, and checks that nothing changes. Errors are valid answers.
fn read_set(devices: &[Arc<SimDevice>], degraded: bool) {
    let before: Vec<u64> = devices.iter().map(|device| device.image().hash()).collect();
    let options = CheckOptions {
        check_data_csum: true,
        check_parity: true,
        threads: 1,
        memory_limit: 16 << 20,
        findings_limit: 100,
    };
    if let Ok(volume) = Volume::open(set_of(devices, degraded), Mode::ReadOnly) {
        let _ = check(&volume, &options, &NoProgress);
    }
    let open = |options: ImageOptions| {
        let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
        options.open_devices(devices)
    };
    let plain = || if degraded { Opened::options().degraded() } else { Opened::options() };
    if let Ok(fs) = open(plain()).or_else(|_| open(Opened::options().rescue(Rescue::ALL))) {
        look(&fs);
    }
    let after: Vec<u64> = devices.iter().map(|device| device.image().hash()).collect();
    assert_eq!(before, after, "a reader has changed a member");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_as_linux_made_them_are_whole_and_bear_a_missing_member() {
        for number in 0..2 {
            let base = set_base(number);
            for away in 0..=base.members.len() {
                let mut members = base.members.clone();
                let is_whole = away == members.len();
                if !is_whole {
                    members.remove(away);
                }
                let all = devices(&members);
                let devices = all.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
                let options = if is_whole { Opened::options() } else { Opened::options().degraded() };
                let fs = options.open_devices(devices).expect("the profile bears it");
                assert_eq!(fs.read("/level0/level1/level2/inline").expect("a file"), b"inline\n");
                assert_eq!(fs.read("/large").expect("a file").len(), 300_000);
                if is_whole {
                    let volume = Volume::open(set_of(&all, false), Mode::ReadOnly).expect("whole");
                    let options = CheckOptions { check_parity: true, threads: 1, ..CheckOptions::default() };
                    let report = check(&volume, &options, &NoProgress).expect("it can be checked");
                    assert!(report.findings.is_empty(), "{:#?}", report.findings);
                }
            }
        }
    }
}
