//! Devices, chunks and superblocks.

use creamery_base::{ObjectId, TreeId};
use creamery_check::Problem::*;
use creamery_format::{Key, KeyType};

use super::Change::{Image as Any, Item as One, Last, Superblock as Super};
use super::edits::{add, any, rekey, remove};
use super::{DamageRow, row};

pub(super) const ROWS: &[DamageRow] = &[
    row(
        "device under another key",
        Last(TreeId::CHUNK, KeyType::DEV_ITEM, any, |b, s| {
            rekey(b, s, |k| Key { objectid: ObjectId::new(2), ..k })
        }),
        &[SuperblockDeviceCount],
        true,
    ),
    row(
        "device extent lost",
        Last(TreeId::DEV, KeyType::DEV_EXTENT, any, remove),
        &[DeviceExtentMissing, DeviceBytesUsed],
        true,
    ),
    row(
        "device extent of another chunk",
        Last(TreeId::DEV, KeyType::DEV_EXTENT, any, |b, s| add(b, s, 16, 1 << 30)),
        &[DeviceExtentWrong],
        true,
    ),
    row(
        "length of a device extent",
        One(TreeId::DEV, KeyType::DEV_EXTENT, any, |b, s| add(b, s, 24, 1 << 20)),
        &[DeviceExtentWrong, DeviceExtentOverlap, DeviceBytesUsed],
        true,
    ),
    row(
        "used bytes of a device",
        Last(TreeId::CHUNK, KeyType::DEV_ITEM, any, |b, s| add(b, s, 16, 4096)),
        &[DeviceBytesUsed, SuperblockDevice],
        true,
    ),
    row(
        "size of a device",
        Last(TreeId::CHUNK, KeyType::DEV_ITEM, any, |b, s| add(b, s, 8, 1 << 20)),
        &[DeviceSize, SuperblockTotalBytes],
        true,
    ),
    row(
        "stripe moved",
        Last(TreeId::CHUNK, KeyType::CHUNK_ITEM, any, |b, s| add(b, s, 56, 65536)),
        &[DeviceExtentMissing, DeviceExtentExtra],
        true,
    ),
    row(
        "chunk lost",
        Last(TreeId::CHUNK, KeyType::CHUNK_ITEM, any, remove),
        &[BlockGroupExtra, DeviceExtentExtra],
        true,
    ),
    row(
        "superblock: feature without which nothing is read",
        Super(|raw| raw.incompat_flags = (raw.incompat_flags.get() & !(1 << 8)).into()),
        &[FeatureMissing],
        true,
    ),
    row(
        "superblock: features that old readers go by",
        Super(|raw| raw.incompat_flags = (raw.incompat_flags.get() & !(1 << 6 | 1)).into()),
        &[FeatureUntold],
        false,
    ),
    row(
        "superblock: block group tree without a free space tree",
        Super(|raw| raw.compat_ro_flags = (raw.compat_ro_flags.get() & !3 | 8).into()),
        &[GroupTreeAlone],
        true,
    ),
    row("stripe size", Super(|raw| raw.stripesize = 593_920_u32.into()), &[SuperblockStripeSize], true),
    row(
        "superblock: size",
        Super(|raw| raw.total_bytes = (raw.total_bytes.get() - 4096).into()),
        &[SuperblockTotalBytes],
        true,
    ),
    row(
        "superblock: a size above that of the devices",
        Super(|raw| raw.total_bytes = (raw.total_bytes.get() + 4096).into()),
        &[SuperblockTotalBytesAbove],
        false,
    ),
    row(
        "superblock: more devices than there are",
        Super(|raw| raw.num_devices = 8.into()),
        &[SuperblockDeviceCount],
        true,
    ),
    row(
        "superblock: used bytes",
        Super(|raw| raw.bytes_used = (raw.bytes_used.get() + 4096).into()),
        &[SuperblockBytesUsed],
        true,
    ),
    row(
        "superblock: device",
        Super(|raw| raw.dev_item.bytes_used = (raw.dev_item.bytes_used.get() + 4096).into()),
        &[SuperblockDevice],
        false,
    ),
    row(
        "superblock: system chunk of another place",
        Super(|raw| {
            let stripe = 17 + 48 + 32 + 8; // the second copy's offset
            raw.sys_chunk_array[stripe + 2] ^= 0x20;
        }),
        &[SystemChunkExtra],
        false,
    ),
    row(
        "superblock: second copy",
        Any(|image| image.poke((64 << 20) + 500, &[0xff; 8])),
        &[SuperblockCopyDamaged],
        false,
    ),
    row(
        "superblock: second copy erased",
        Any(|image| image.poke(64 << 20, &[0; 4096])),
        &[SuperblockCopyMissing],
        false,
    ),
];
