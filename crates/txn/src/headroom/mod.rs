//! Headroom: how much of the space that can be handed out may still be promised.
//!
//! The promises to handles, plus the commit's own need for the trees that it must update ([`CommitNeed`]), must fit into the metadata
//! space that can be handed out right now. Delayed data has a part of the space besides ([`delayed`]).
//!
//! A handle states the most tree leaves it may change; the reckoning takes a whole path copied and split once for each.
//!
//! Everything here is arithmetic over the figures of owners, at the time of the call. A caller that acts on a figure holds the
//! reservations ([`Reservations::hold`](crate::space_info::Reservations::hold)) from the reckoning to the act.
//!
//! # Invariants
//! - RESERVE-1: no handle begins unless promised + commit's need + its own need fit into what can be handed out,
//!   the commit's need reckoned for the time after the handle has used all of its promise. A handle that does
//!   not free space leaves room for one that does.

mod commit_need;
mod delayed;

use std::sync::Arc;

use creamery_base::{Error, ErrorKind};
use creamery_format::Incompat;

use crate::commit::NextSuperblock;
use crate::flush_policy::FlushPolicy;
use crate::reclaim::RoomClaims;
use crate::reserve_items::{BLOCKS_PER_ITEM, ReserveItems};
use crate::space_info::{DelallocAccount, ReservationRequest, SpaceKind, Ticket};
use crate::transaction::Transaction;

pub(crate) use commit_need::CommitNeed;

/// Room for the metadata of operations to come: data leaves it in mixed block groups, and with less there is no room to spare.
const SPARE_UNITS: u64 = 64;
/// Room that only handles that free space may take, so that a full filesystem can be emptied.
const FREEING_UNITS: u64 = 28;
/// The part of it that only deleting subvolumes may take.
const DROPPING_UNITS: u64 = 12;
/// Plenty of room is a quarter more than the need.
const PLENTY_PART: u64 = 4;

/// How much room a promise leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// The room needed.
    Enough,
    /// More than that. An advance leaves it: near the end of the room other threads would call the advance in at once.
    Plenty,
}

/// Reckons what can still be promised, by the present state of these owners.
#[derive(Clone, Copy)]
pub(crate) struct Headroom<'e> {
    pub(crate) need: CommitNeed<'e>,
    pub(crate) transaction: &'e Transaction,
    pub(crate) delalloc: &'e Arc<DelallocAccount>,
    pub(crate) room_claims: &'e RoomClaims,
    pub(crate) superblock: &'e NextSuperblock,
}

impl<'e> Headroom<'e> {
    /// A ticket for `units` from this thread's advance, else from the free room.
    pub(crate) fn ticket_at_once(&self, units: ReserveItems) -> Option<Ticket<'e>> {
        let (policy, reservations) = (units.policy, self.need.reservations);
        let in_line = if policy.takes_reserve() { 0 } else { reservations.left_to_those_in_line()? };
        let fits = |sum: u64, policy, room| self.fits(sum.saturating_add(in_line), policy, room);
        let has_plenty = |sum| fits(sum, FlushPolicy::FlushAll, Room::Plenty);
        let advanced = reservations.take_advanced(self.wish(units), &has_plenty);
        advanced.or_else(|| reservations.take(self.wish(units), &|sum| fits(sum, policy, Room::Enough)))
    }

    /// A ticket for `units`, after waiting in line; `None` when no other ticket is left that could free room.
    pub(crate) fn ticket_in_turn(&self, units: ReserveItems) -> Option<Ticket<'e>> {
        let policy = units.policy;
        // Other threads may wait for reclaimed space.
        if !policy.stands_in_line() {
            return None;
        }
        let fits = |sum| self.fits(sum, policy, Room::Enough);
        self.need.reservations.take_in_turn(|| self.wish(units), &fits)
    }

    /// The request of a handle for `units`. It reads the generation before anything that depends on it (RESERVE-5).
    fn wish(&self, units: ReserveItems) -> ReservationRequest {
        ReservationRequest { units, item: self.item_bytes(), generation: self.transaction.generation() }
    }

    /// The error of a thread that finds no room for `units`.
    pub(crate) fn no_room_for(&self, units: ReserveItems) -> Error {
        let ReserveItems { items, policy, subvolume, .. } = units;
        let need = u64::from(items) * self.item_bytes();
        let of = subvolume.map_or(String::new(), |subvolume| format!(" of subvolume {subvolume}"));
        let message = format!("reserving {need} bytes of metadata for {items} items{of} ({policy:?})");
        Error::new(ErrorKind::NoSpace, message)
    }

    /// Whether the existing block groups have too little for `units` and their references, not counting room that is kept for
    /// delayed data.
    pub(crate) fn lacks_blocks_for(&self, units: ReserveItems) -> bool {
        let fits = |sum| self.available_blocks() >= self.wanted(sum, units.policy);
        self.need.reservations.take(self.wish(units), &fits).is_none()
    }

    /// Whether the blocks that can be handed out leave this `room` after a promise of `sum` (RESERVE-1).
    fn fits(&self, sum: u64, policy: FlushPolicy, room: Room) -> bool {
        let wanted = self.wanted(sum, policy);
        let now = if room == Room::Plenty { wanted.saturating_add(wanted / PLENTY_PART) } else { wanted };
        let leaves_room = self.delalloc.metadata() == 0 || policy == FlushPolicy::FlushLimit;
        self.available_blocks() >= now && (leaves_room || self.fits_later(sum, policy))
    }

    /// Bytes that changing an item may take.
    pub(crate) fn item_bytes(&self) -> u64 {
        ReserveItems::bytes_of_an_item(self.need.node_size)
    }

    /// Whether data and metadata share their block groups.
    pub(crate) fn shares_groups(&self) -> bool {
        self.superblock.incompat().contains(Incompat::MIXED_GROUPS)
    }

    /// Bytes that tree blocks may take of the existing block groups: without delayed data that has its place there.
    fn available_blocks(&self) -> u64 {
        let data = if self.shares_groups() { self.delalloc.data() } else { 0 };
        self.need.space.available(SpaceKind::Metadata).saturating_sub(data)
    }

    /// Bytes of metadata that are not promised, and that neither a commit nor freeing space may need (DISCARD-2).
    pub(crate) fn unpromised_metadata(&self) -> u64 {
        let wanted = self.wanted(self.need.reservations.may_use(), FlushPolicy::FlushAll);
        self.need.space.available(SpaceKind::Metadata).saturating_sub(wanted)
    }

    /// Whether an operation that frees space finds room, unless other threads take all of [`SPARE_UNITS`] before it begins.
    pub(crate) fn has_room_to_spare(&self) -> bool {
        let free = self.unpromised_metadata().saturating_sub(self.delalloc.metadata());
        free >= SPARE_UNITS * self.item_bytes()
    }

    /// Bytes that data may take now of block groups that it shares with metadata: it has to leave the room that handles, the
    /// commit and the freeing of files need, in this transaction and in those after.
    fn shared_with_data(&self) -> u64 {
        let spare = SPARE_UNITS * self.item_bytes();
        let promised = self.need.reservations.may_use() + self.delalloc.metadata();
        let taken = promised + self.need.whole(SPARE_UNITS * BLOCKS_PER_ITEM) + spare;
        self.need.space.available(SpaceKind::Metadata).saturating_sub(taken)
    }

    /// Bytes that have to be available when `sum` is promised: for handles, for freeing space, for the commit.
    fn wanted(&self, sum: u64, policy: FlushPolicy) -> u64 {
        let (reserve, copies) = self.left_by(policy);
        self.needed(sum + reserve, copies, CommitNeed::running)
    }

    /// Bytes like those of `wanted`, for a transaction that has copied nothing yet.
    pub(crate) fn wanted_later(&self, sum: u64, policy: FlushPolicy) -> u64 {
        let (reserve, copies) = self.left_by(policy);
        self.needed(sum + reserve, copies, CommitNeed::whole)
    }

    /// Bytes of the reserve that this policy leaves, and the number of copies of shared blocks that it leaves room for.
    fn left_by(&self, policy: FlushPolicy) -> (u64, u64) {
        let (units, copies) = match policy {
            _ if policy.takes_all_of_the_reserve() => (0, 0),
            _ if policy.takes_reserve() => {
                (DROPPING_UNITS, u64::from(self.need.root_tree.has_copied_shared()))
            }
            _ => (FREEING_UNITS, 2),
        };
        (units * self.item_bytes(), copies)
    }

    /// Bytes for `handles`, for their commit, and for the permanent growth by so many `copies` of shared blocks.
    fn needed(&self, handles: u64, copies: u64, commit: fn(&CommitNeed<'e>, u64) -> u64) -> u64 {
        let growth = copies * self.need.growth_by_a_shared_copy();
        handles + growth + commit(&self.need, handles / u64::from(self.need.node_size))
    }
}
