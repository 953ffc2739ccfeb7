//! Space: its total, its used part, and its promises.
//!
//! ```text
//!   a block group's bytes     used | reserved | pinned | free or read-only | excluded
//!   used                      in extents, as the extent tree says when all delayed refs have run
//!   reserved                  handed out, and not in the extent tree yet
//!   pinned                    freed, and still reached by the last commit
//!   read-only                 free in a group in which nothing new is placed
//!   excluded                  under superblock copies
//!   may use                   of what is free, promised to handles of metadata, or kept for data in memory
//! ```
//! A [`SpaceInfo`] keeps the sums over all block groups of one type, and lists of the groups that are worth a look: by their longest
//! run for data, with room for a tree block, empty ones, with an item to be written. So an allocation, a reservation
//! and a commit cost the same with ten groups and with a hundred thousand. [`Reservations`] describes
//! promises; [`DelallocReservation`] describes room for data that is not written yet.
//!
//! # Invariants
//! - SPACE-1: the sums are those over the groups, whenever no group's lock is held.
//! - SPACE-2: the lists of a group follow from its state, whenever its lock is not held.

mod block_group;
mod delalloc;
mod free_space;
mod info;
mod kind;
mod lists;
mod reservations;
mod space;
mod thread_reserve;

pub(crate) use block_group::BlockGroup;
pub(crate) use delalloc::DelallocAccount;
pub use delalloc::DelallocReservation;
pub(crate) use info::SpaceInfo;
pub use kind::SpaceKind;
pub use reservations::BlockReserve;
pub(crate) use reservations::{ReservationRequest, Reservations, Ticket};
pub(crate) use space::Space;
