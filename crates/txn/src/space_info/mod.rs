//! Space: what there is, what is used, and what was promised.
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
//! A [`SpaceInfo`] keeps the sums over all block groups of one type, and lists of those that are worth looking at: by their longest
//! run for data, with room for a tree block, with nothing in them, with an item to be written. So an allocation, a reservation
//! and a commit cost the same with ten groups and with a hundred thousand. Who promises what of it is told in
//! [`Reservations`]; what is kept for data that was not written yet, in [`DelallocReservation`].
//!
//! # Invariants
//! - SPACE-1: the sums are those over the groups, whenever no group's lock is held.
//! - SPACE-2: a group stands in the lists as its state says, whenever its lock is not held.

mod advance;
mod block_group;
mod delalloc;
mod free_space;
mod info;
mod kind;
mod lists;
mod reservations;
mod space;

pub(crate) use block_group::BlockGroup;
pub(crate) use delalloc::DelallocAccount;
pub use delalloc::DelallocReservation;
pub(crate) use info::SpaceInfo;
pub use kind::SpaceKind;
pub use reservations::KeptPromise;
pub(crate) use reservations::{Reservations, Ticket, Wish};
pub(crate) use space::Space;
