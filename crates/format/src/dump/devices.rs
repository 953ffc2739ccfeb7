//! Items of the chunk, device, block group, free space and RAID stripe trees.

use std::fmt;

use creamery_base::Uuid;
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::Printed;
use crate::corrupt::CorruptKind;
use crate::items::chunk::{BlockGroupFlags, RawBlockGroupItem, RawChunk, RawStripe};
use crate::items::device::{RawDevExtent, RawDevItem};
use crate::items::free_space::RawFreeSpaceInfo;
use crate::items::split;

pub(super) fn block_group(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    let group = split::<RawBlockGroupItem>(data, "block group item")?.0;
    write!(w, "\t\tblock group used {} chunk_objectid {} flags ", group.used, group.chunk_objectid)?;
    write!(w, "{}", group.flags())?;
    Ok(w.write_char('\n')?)
}

pub(super) fn free_space_info(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    let info = split::<RawFreeSpaceInfo>(data, "free space info")?.0;
    Ok(writeln!(w, "\t\tfree space info extent count {} flags {}", info.extent_count, info.flags)?)
}

pub(super) fn chunk_item(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    let (chunk, rest) = split::<RawChunk>(data, "chunk")?;
    let count = usize::from(chunk.num_stripes.get());
    let damage = CorruptKind::Truncated {
        what: "stripes of a chunk",
        found: rest.len(),
        want: count * RawStripe::LEN,
    };
    let stripes = <[RawStripe]>::ref_from_prefix_with_elems(rest, count).map_err(|_| damage)?.0;
    Ok(super::devices::chunk(w, chunk, stripes)?)
}

/// A chunk, from the chunk tree or the superblock.
pub(super) fn chunk(w: &mut dyn fmt::Write, chunk: &RawChunk, stripes: &[RawStripe]) -> fmt::Result {
    write!(w, "\t\tlength {} owner {} stripe_len {} type ", chunk.length, chunk.owner, chunk.stripe_len)?;
    write!(w, "{}", BlockGroupFlags::from_bits_retain(chunk.kind.get()))?;
    let RawChunk { io_align, io_width, sector_size, num_stripes, sub_stripes, .. } = chunk;
    writeln!(w, "\n\t\tio_align {io_align} io_width {io_width} sector_size {sector_size}")?;
    writeln!(w, "\t\tnum_stripes {num_stripes} sub_stripes {sub_stripes}")?;
    for (i, stripe) in stripes.iter().enumerate() {
        writeln!(w, "\t\t\tstripe {i} devid {} offset {}", stripe.devid, stripe.offset)?;
        writeln!(w, "\t\t\tdev_uuid {}", Uuid::from_bytes(stripe.dev_uuid))?;
    }
    Ok(())
}

pub(super) fn dev_item(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    let dev = split::<RawDevItem>(data, "device item")?.0;
    let RawDevItem { devid, total_bytes, bytes_used, io_align, io_width, sector_size, .. } = dev;
    writeln!(w, "\t\tdevid {devid} total_bytes {total_bytes} bytes_used {bytes_used}")?;
    let kind = dev.kind;
    writeln!(w, "\t\tio_align {io_align} io_width {io_width} sector_size {sector_size} type {kind}")?;
    let RawDevItem { generation, start_offset, dev_group, seek_speed, bandwidth, .. } = dev;
    writeln!(w, "\t\tgeneration {generation} start_offset {start_offset} dev_group {dev_group}")?;
    writeln!(w, "\t\tseek_speed {seek_speed} bandwidth {bandwidth}")?;
    writeln!(w, "\t\tuuid {}", dev.uuid())?;
    Ok(writeln!(w, "\t\tfsid {}", Uuid::from_bytes(dev.fsid))?)
}

pub(super) fn dev_extent(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    let extent = split::<RawDevExtent>(data, "device extent")?.0;
    let RawDevExtent { chunk_tree, chunk_objectid, chunk_offset, length, .. } = extent;
    writeln!(w, "\t\tdev extent chunk_tree {chunk_tree}")?;
    writeln!(w, "\t\tchunk_objectid {chunk_objectid} chunk_offset {chunk_offset} length {length}")?;
    Ok(writeln!(w, "\t\tchunk_tree_uuid {}", Uuid::from_bytes(extent.chunk_tree_uuid))?)
}

pub(super) fn raid_stripe(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    let stripes = data.as_chunks::<16>().0;
    for (i, stripe) in stripes.iter().enumerate() {
        let (devid, physical) = split::<U64>(stripe, "stripe")?;
        let physical = split::<U64>(physical, "stripe")?.0;
        writeln!(w, "\t\t\tstripe {i} devid {devid} physical {physical}")?;
    }
    Ok(())
}
