//! The parts of a device that chunks occupy, from a durable commit.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use creamery_base::{DevId, Error, ErrorKind, Logical, ObjectId, Physical, Result, TreeId, Wait};
use creamery_format::{Key, KeyType, RawDevExtent};
use creamery_tree::{ReadAhead, Walk as TreeWalk};
use creamery_txn::{DurableTrees, Engine};
use creamery_volume::{Chunk, Stripe};
use zerocopy::FromBytes;

use super::finding::{Finding, FindingKind, Outcome};

/// A part of the device that a chunk occupies.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceExtent {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) chunk: Logical,
}

/// Bytes in use on a device, without parity, as of the last commit.
pub(super) fn in_use_on(engine: &Engine, dev: DevId) -> u64 {
    let uses: HashMap<Logical, u64> = engine.group_uses().into_iter().collect();
    let share = |chunk: &Arc<Chunk>| {
        let stripes = chunk.stripes.len();
        let own = chunk.stripes.iter().filter(|stripe| stripe.dev == dev).count();
        let copies = (0..stripes).map(|stripe| chunk.copy_of_stripe(stripe)).max().map_or(1, |last| last + 1);
        let copies = if chunk.has_parity() { 1 } else { copies };
        let used = u128::from(uses.get(&chunk.start).copied().unwrap_or(0));
        u64::try_from(used * (own * copies) as u128 / stripes.max(1) as u128).unwrap_or(u64::MAX)
    };
    engine.volume().chunks().iter().map(share).fold(0, u64::saturating_add)
}

/// The parts of a device that chunks occupy, behind an offset.
/// Errors: device errors; damage.
pub(super) fn extents_of(
    durable: &DurableTrees<'_>,
    ahead: ReadAhead,
    (dev, from): (DevId, u64),
) -> Result<VecDeque<DeviceExtent>> {
    let tree = durable.tree(TreeId::DEV)?;
    let first = Key::new(ObjectId::new(dev.get()), KeyType::DEV_EXTENT, 0);
    let mut cursor = durable.cursor(&tree, &first, TreeWalk::new(Wait::Yes, ahead))?;
    let mut extents = VecDeque::new();
    while let Some((key, data)) = cursor.item() {
        if (key.objectid, key.kind) != (first.objectid, first.kind) {
            break;
        }
        let item = RawDevExtent::ref_from_bytes(data)
            .map_err(|_| Error::new(ErrorKind::Corrupt, format!("device extent {key}: wrong length")))?;
        let extent = DeviceExtent {
            start: key.offset,
            len: item.length.get(),
            chunk: Logical::new(item.chunk_offset.get()),
        };
        if extent.start.saturating_add(extent.len) > from {
            extents.push_back(extent);
        }
        cursor.advance()?;
    }
    Ok(extents)
}

/// The chunk at an address.
/// Errors: not found: there is none; device errors; damage.
pub(super) fn chunk_at(durable: &DurableTrees<'_>, at: Logical, sector_size: u32) -> Result<Arc<Chunk>> {
    let tree = durable.tree(TreeId::CHUNK)?;
    let key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, at.get());
    let cursor = durable.cursor(&tree, &key, Wait::Yes)?;
    match cursor.item() {
        Some((found, data)) if found == key => Chunk::from_item(at, data, sector_size).map(Arc::new),
        _ => {
            let what = format!("a device extent refers to chunk {at}, which is missing");
            Err(Error::new(ErrorKind::NotFound, what))
        }
    }
}

/// The stripe of a chunk that begins at this place of a device.
pub(super) fn stripe_at(chunk: &Chunk, place: Physical) -> Result<usize> {
    let is_here = |stripe: &Stripe| (stripe.dev, stripe.offset) == (place.dev, place.offset);
    chunk.stripes.iter().position(is_here).ok_or_else(|| {
        let what = format!("a device extent refers to chunk {}, which has no stripe at {place}", chunk.start);
        Error::new(ErrorKind::NotFound, what)
    })
}

/// The finding about an extent whose trees cannot be read: it covers the extent behind the offset `reached`.
pub(super) fn not_scrubbed(dev: DevId, extent: &DeviceExtent, reached: u64, error: &Error) -> Finding {
    let at = Physical { dev, offset: reached.max(extent.start) };
    let left = extent.start.saturating_add(extent.len).saturating_sub(at.offset);
    let why = format!("{left} bytes of the device were not scrubbed: {error}");
    Finding { what: FindingKind::NotScrubbed, at, logical: Some(extent.chunk), why, outcome: Outcome::Lost }
}
