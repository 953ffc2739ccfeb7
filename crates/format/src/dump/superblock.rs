//! The superblock, in the form of `btrfs inspect-internal dump-super`.

use std::fmt;

use creamery_base::Uuid;
use creamery_codec::{ChecksumType, checksum};
use zerocopy::{FromBytes, IntoBytes};

use super::devices;
use crate::corrupt::SumHex;
use crate::features::{COMPAT_RO_NAMES, INCOMPAT_NAMES, Incompat, Names, SUPER_FLAG_NAMES, write_names};
use crate::items::chunk::{RawChunk, RawStripe};
use crate::items::split;
use crate::key::{Key, KeyType, RawKey};
use crate::superblock::{MAGIC, RawRootBackup, RawSuperblock};

const CSUM_FIELD: usize = 32;

/// Prints a superblock that was read at byte offset `at` of `device`; `full` adds the system chunk array and the
/// backup roots (`-f`). The superblock may be damaged.
///
/// # Errors
/// Only what `w` returns.
pub fn superblock(
    w: &mut dyn fmt::Write,
    raw: &RawSuperblock,
    at: u64,
    device: &str,
    full: bool,
) -> fmt::Result {
    writeln!(w, "superblock: bytenr={at}, device={device}")?;
    writeln!(w, "---------------------------------------------------------")?;
    identity(w, raw)?;
    numbers(w, raw)?;
    features(w, raw)?;
    dev_item(w, raw)?;
    if full {
        writeln!(w, "sys_chunk_array[2048]:")?;
        sys_chunks(w, raw)?;
        writeln!(w, "backup_roots[4]:")?;
        // With several extent trees, the backups have the block group tree instead.
        let many = raw.incompat_flags.get() & Incompat::EXTENT_TREE_V2.bits() != 0;
        let extent_name = if many { "backup_block_group_root:\t" } else { "backup_extent_root:\t" };
        // Unused slots are skipped.
        let used = |backup: &RawRootBackup| backup.tree_root.get() != 0 || backup.tree_root_gen.get() != 0;
        for (i, backup) in raw.super_roots.iter().enumerate().filter(|(_, backup)| used(backup)) {
            writeln!(w, "\tbackup {i}:")?;
            backup_root(w, backup, extent_name)?;
            w.write_char('\n')?;
        }
    }
    w.write_char('\n')
}

const fn matches(equal: bool) -> &'static str {
    if equal { "[match]" } else { "[DON'T MATCH]" }
}

/// Bytes as text, with a point for each unprintable byte.
struct Dotted<'a>(&'a [u8]);

impl fmt::Display for Dotted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&byte| match byte {
            b' '..=b'~' => write!(f, "{}", char::from(byte)),
            _ => f.write_str("."),
        })
    }
}

fn identity(w: &mut dyn fmt::Write, raw: &RawSuperblock) -> fmt::Result {
    let number = raw.csum_type.get();
    match ChecksumType::from_disk(number) {
        Some(kind) => {
            let sum = checksum(kind, &raw.as_bytes()[CSUM_FIELD..]);
            let good = raw.csum[..kind.size()] == *sum.as_bytes(kind);
            writeln!(w, "csum_type\t\t{number} ({kind})\ncsum_size\t\t{}", kind.size())?;
            writeln!(w, "csum\t\t\t{} {}", SumHex::new(raw.csum, kind.size()), matches(good))?;
        }
        None => {
            writeln!(w, "csum_type\t\t{number} (INVALID)\ncsum_size\t\t{CSUM_FIELD}")?;
            writeln!(w, "csum\t\t\t{} [UNKNOWN CSUM TYPE OR SIZE]", SumHex::new(raw.csum, CSUM_FIELD))?;
        }
    }
    writeln!(w, "bytenr\t\t\t{}", raw.bytenr)?;
    writeln!(w, "flags\t\t\t0x{:x}", raw.flags.get())?;
    flag_list(w, raw.flags.get(), SUPER_FLAG_NAMES)?;
    writeln!(w, "magic\t\t\t{} {}", Dotted(&raw.magic), matches(raw.magic == MAGIC))?;
    writeln!(w, "fsid\t\t\t{}", Uuid::from_bytes(raw.fsid))?;
    writeln!(w, "metadata_uuid\t\t{}", Uuid::from_bytes(raw.metadata_uuid))?;
    let label = raw.label.split(|&byte| byte == 0).next().unwrap_or_default();
    writeln!(w, "label\t\t\t{}", Dotted(label))
}

fn numbers(w: &mut dyn fmt::Write, raw: &RawSuperblock) -> fmt::Result {
    writeln!(w, "generation\t\t{}", raw.generation)?;
    writeln!(w, "root\t\t\t{}", raw.root)?;
    writeln!(w, "sys_array_size\t\t{}", raw.sys_chunk_array_size)?;
    writeln!(w, "chunk_root_generation\t{}", raw.chunk_root_generation)?;
    writeln!(w, "root_level\t\t{}", raw.root_level)?;
    writeln!(w, "chunk_root\t\t{}", raw.chunk_root)?;
    writeln!(w, "chunk_root_level\t{}", raw.chunk_root_level)?;
    writeln!(w, "log_root\t\t{}", raw.log_root)?;
    writeln!(w, "log_root_transid (deprecated)\t{}", raw.log_root_transid)?;
    writeln!(w, "log_root_level\t\t{}", raw.log_root_level)?;
    writeln!(w, "total_bytes\t\t{}", raw.total_bytes)?;
    writeln!(w, "bytes_used\t\t{}", raw.bytes_used)?;
    writeln!(w, "sectorsize\t\t{}", raw.sectorsize)?;
    writeln!(w, "nodesize\t\t{}", raw.nodesize)?;
    writeln!(w, "leafsize (deprecated)\t{}", raw.leafsize)?;
    writeln!(w, "stripesize\t\t{}", raw.stripesize)?;
    writeln!(w, "root_dir\t\t{}", raw.root_dir_objectid)?;
    writeln!(w, "num_devices\t\t{}", raw.num_devices)
}

fn features(w: &mut dyn fmt::Write, raw: &RawSuperblock) -> fmt::Result {
    writeln!(w, "compat_flags\t\t0x{:x}", raw.compat_flags.get())?;
    writeln!(w, "compat_ro_flags\t\t0x{:x}", raw.compat_ro_flags.get())?;
    flag_list(w, raw.compat_ro_flags.get(), COMPAT_RO_NAMES)?;
    writeln!(w, "incompat_flags\t\t0x{:x}", raw.incompat_flags.get())?;
    flag_list(w, raw.incompat_flags.get(), INCOMPAT_NAMES)?;
    writeln!(w, "cache_generation\t{}", raw.cache_generation)?;
    writeln!(w, "uuid_tree_generation\t{}", raw.uuid_tree_generation)
}

/// Writes the names of the set bits, one a line; nothing if none is set.
fn flag_list(w: &mut dyn fmt::Write, bits: u64, names: Names) -> fmt::Result {
    if bits == 0 {
        return Ok(());
    }
    w.write_str("\t\t\t( ")?;
    write_names(w, bits, names, " |\n\t\t\t  ")?;
    w.write_str(" )\n")
}

fn dev_item(w: &mut dyn fmt::Write, raw: &RawSuperblock) -> fmt::Result {
    let dev = &raw.dev_item;
    let metadata_uuid = raw.incompat_flags.get() & Incompat::METADATA_UUID.bits() != 0;
    let fsid = if metadata_uuid { raw.metadata_uuid } else { raw.fsid };
    writeln!(w, "dev_item.uuid\t\t{}", dev.uuid())?;
    writeln!(w, "dev_item.fsid\t\t{} {}", Uuid::from_bytes(dev.fsid), matches(dev.fsid == fsid))?;
    writeln!(w, "dev_item.type\t\t{}", dev.kind)?;
    writeln!(w, "dev_item.total_bytes\t{}", dev.total_bytes)?;
    writeln!(w, "dev_item.bytes_used\t{}", dev.bytes_used)?;
    writeln!(w, "dev_item.io_align\t{}", dev.io_align)?;
    writeln!(w, "dev_item.io_width\t{}", dev.io_width)?;
    writeln!(w, "dev_item.sector_size\t{}", dev.sector_size)?;
    writeln!(w, "dev_item.devid\t\t{}", dev.devid)?;
    writeln!(w, "dev_item.dev_group\t{}", dev.dev_group)?;
    writeln!(w, "dev_item.seek_speed\t{}", dev.seek_speed)?;
    writeln!(w, "dev_item.bandwidth\t{}", dev.bandwidth)?;
    writeln!(w, "dev_item.generation\t{}", dev.generation)
}

/// Prints the system chunk array, up to the first bytes that are no chunk.
fn sys_chunks(w: &mut dyn fmt::Write, raw: &RawSuperblock) -> fmt::Result {
    let mut rest = match raw.sys_chunk_array_size.get() as usize {
        size if size > raw.sys_chunk_array.len() => &[],
        size => &raw.sys_chunk_array[..size],
    };
    for i in 0.. {
        let Ok((key, after)) = split::<RawKey>(rest, "key") else { break };
        let key = Key::from(*key);
        writeln!(w, "\titem {i} key {key}")?;
        let Ok((chunk, after)) = split::<RawChunk>(after, "chunk") else { break };
        let count = usize::from(chunk.num_stripes.get());
        let Ok((stripes, after)) = <[RawStripe]>::ref_from_prefix_with_elems(after, count) else { break };
        if key.kind != KeyType::CHUNK_ITEM || count == 0 {
            break;
        }
        devices::chunk(w, chunk, stripes)?;
        rest = after;
    }
    Ok(())
}

fn backup_root(w: &mut dyn fmt::Write, backup: &RawRootBackup, extent_name: &str) -> fmt::Result {
    for (name, root, generation, level) in [
        ("backup_tree_root:\t", backup.tree_root, backup.tree_root_gen, backup.tree_root_level),
        ("backup_chunk_root:\t", backup.chunk_root, backup.chunk_root_gen, backup.chunk_root_level),
        (extent_name, backup.extent_root, backup.extent_root_gen, backup.extent_root_level),
        ("backup_fs_root:\t\t", backup.fs_root, backup.fs_root_gen, backup.fs_root_level),
        ("backup_dev_root:\t", backup.dev_root, backup.dev_root_gen, backup.dev_root_level),
        ("csum_root:\t", backup.csum_root, backup.csum_root_gen, backup.csum_root_level),
    ] {
        writeln!(w, "\t\t{name}{root}\tgen: {generation}\tlevel: {level}")?;
    }
    writeln!(w, "\t\tbackup_total_bytes:\t{}", backup.total_bytes)?;
    writeln!(w, "\t\tbackup_bytes_used:\t{}", backup.bytes_used)?;
    writeln!(w, "\t\tbackup_num_devices:\t{}", backup.num_devices)
}
