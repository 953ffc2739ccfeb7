//! Making a chunk.

use std::sync::atomic::Ordering;

use creamery_base::lock::{RankedGuard, RankedRead, rank};
use creamery_base::{Generation, Logical, Result};
use creamery_format::BlockGroupFlags;
use creamery_volume::{Chunk, Stripe};

use super::device_space::{STRIPE, shortest_extent};
use super::excluded::excluded_ranges;
use super::{AllocatorState, ChunkAllocator};
use crate::space_info::{BlockGroup, Space, SpaceKind};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Chunk tree blocks that a commit changes besides those for the items of new chunks.
const SYSTEM_BLOCKS_MIN: u64 = 8;
/// Bytes that a chunk's item takes in a leaf at most, with two stripes.
const CHUNK_ITEM_BYTES: u64 = 256;

/// A request for a chunk.
#[derive(Clone, Copy)]
pub(crate) struct NewChunk {
    pub(crate) kind: SpaceKind,
    /// The value of [`ChunkAllocator::made`] when the existing chunks had no room.
    pub(crate) seen: u64,
    /// The running transaction.
    pub(crate) generation: Generation,
}

/// The unallocated space that metadata needs. While this exists, no promise takes more of it.
pub(crate) struct Claim<'e> {
    pub(crate) _alone: RankedGuard<'e, (), { rank::RESERVATION }>,
    /// Bytes for which chunks of metadata must stay possible.
    pub(crate) metadata: u64,
    /// Copies of a chunk of metadata.
    pub(crate) copies: u64,
}

impl ChunkAllocator {
    /// Makes a chunk and its block group; false when no device has room for a useful one besides the claimed space. True also when
    /// another thread made one meanwhile: there may be room in that. The transaction's gate is held (CHUNK-1).
    pub(crate) fn allocate<'e>(
        &self,
        space: &Space,
        wish: NewChunk,
        claim: &dyn Fn() -> Claim<'e>,
        _running: &RankedRead<'_, (), { rank::TRANSACTION }>,
    ) -> Result<bool> {
        let mut state = self.state.lock();
        if self.made() != wish.seen {
            return Ok(true);
        }
        while wish.kind != SpaceKind::System && !self.has_system_room(space, &state) {
            if !self.make(&mut state, space, NewChunk { kind: SpaceKind::System, ..wish }, claim)? {
                return Ok(false);
            }
        }
        let is_ready = wish.kind == SpaceKind::System || self.has_system_room(space, &state);
        assert!(is_ready, "CHUNK-2: no room for the items of a chunk that is made");
        self.make(&mut state, space, wish, claim)
    }

    /// Whether the chunk tree has room for the items of all pending chunks, of one more, and for other changes.
    pub(super) fn has_system_room(&self, space: &Space, state: &AllocatorState) -> bool {
        let node = u64::from(self.volume.node_size());
        let items = (state.pending.len() as u64 + state.recording + 1) * CHUNK_ITEM_BYTES;
        // Leaves are at least half full.
        space.available(SpaceKind::System) >= (SYSTEM_BLOCKS_MIN + items / (node / 2)) * node
    }

    /// Bytes for which chunks of data with so many `copies` can be made besides the claimed space.
    pub(crate) fn allocatable_data(&self, copies: u64, claim: &Claim<'_>) -> u64 {
        let all = self.allocatable(SpaceKind::Data, copies);
        if claim.metadata == 0 {
            return all;
        }
        let spare = self.allocatable(SpaceKind::Metadata, claim.copies).saturating_sub(claim.metadata);
        // Metadata takes whole stripes.
        let spare = spare / STRIPE * STRIPE;
        all.min(spare.saturating_mul(claim.copies) / copies)
    }

    /// Takes places on the device for a chunk of this kind, as long as possible; `None` where there is no room for a useful one. Data
    /// leaves the claimed space.
    fn take_places<'e>(
        &self,
        state: &mut AllocatorState,
        kind: SpaceKind,
        copies: usize,
        claim: &dyn Fn() -> Claim<'e>,
    ) -> Option<(u64, Vec<u64>)> {
        let claim = claim();
        let device = &mut state.devices[0];
        let most = match kind {
            SpaceKind::Data => GIB,
            SpaceKind::Metadata if device.total > 50 * GIB => GIB,
            SpaceKind::Metadata => 256 * MIB,
            SpaceKind::System => 32 * MIB,
        };
        // A tenth of the device at most, so that small devices keep both kinds of chunk possible.
        let len = most.min((device.total / 10).max(8 * MIB));
        let len = match kind {
            SpaceKind::Data => len.min(self.allocatable_data(copies as u64, &claim)),
            SpaceKind::Metadata | SpaceKind::System => len,
        };
        let (len, places) = device.find(copies, len, shortest_extent(kind), STRIPE)?;
        for &offset in &places {
            let taken = device.take(offset, len);
            assert!(taken, "a hole on the device was not a hole");
        }
        // The room that metadata counts on is there in one form or the other all the time.
        if kind != SpaceKind::Metadata {
            self.recount_unallocated(state);
        }
        Some((len, places))
    }

    fn make<'e>(
        &self,
        state: &mut AllocatorState,
        space: &Space,
        wish: NewChunk,
        claim: &dyn Fn() -> Claim<'e>,
    ) -> Result<bool> {
        let NewChunk { kind, generation, .. } = wish;
        // A new chunk has the type and profile of the existing ones.
        let flags = space.last_flags(kind).unwrap_or(kind.flag());
        let copies = if flags.contains(BlockGroupFlags::DUP) { 2 } else { 1 };
        let found = self.take_places(state, kind, copies, claim);
        let Some((len, places)) = found else { return Ok(false) };
        let start = self.volume.last_chunk().map_or(Logical::new(0), |chunk| chunk.end());
        let device = &mut state.devices[0];
        let (dev, dev_uuid) = (device.dev, device.uuid);
        let stripes = places.iter().map(|&offset| Stripe { dev, offset, dev_uuid }).collect();
        let sector = self.volume.sector_size();
        // The last address may be in use: by a chunk in a forged image.
        let chunk = start.checked_add(len).map(|_| Chunk::new(start, len, flags, sector, stripes));
        let pushed = chunk.as_ref().map_or(Ok(()), |chunk| self.volume.push_chunk(chunk.clone()));
        let (Some(chunk), Ok(())) = (chunk, &pushed) else {
            places.into_iter().for_each(|offset| device.give_back(offset));
            self.recount_unallocated(state);
            return pushed.map(|()| false);
        };
        let group = BlockGroup::new(start, len, flags, sector, 0, excluded_ranges(&chunk));
        let free = group.give_back(start, len);
        assert!(free, "nothing of a new group is free yet");
        // A thread that was handed space of it finds it here.
        self.newest.store(generation.get(), Ordering::SeqCst);
        {
            let _claim = claim();
            self.recount_unallocated(state);
            space.add_group(group);
        }
        state.pending.push(generation, chunk);
        self.pending.store(state.pending.len() as u64, Ordering::Release);
        self.made.fetch_add(1, Ordering::AcqRel);
        Ok(true)
    }
}
