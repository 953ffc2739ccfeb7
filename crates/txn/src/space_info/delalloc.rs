//! Room for data that is in memory only, and for the metadata that writing it back will take: the part of "may use" for data
//! and delayed changes.
//!
//! A delayed write (delayed allocation) takes its room at once, so that "no space" is an error of the write and not
//! lost later. The room is kept as two sums that all other requests leave alone: bytes of data, which
//! [`Engine::allocate_data`](crate::Engine::allocate_data) does not hand out to others, and bytes of metadata, which no
//! promise takes. The data has its place in existing block groups: a reservation makes a chunk where they have too little. The metadata
//! may have its place where no chunk is yet, for it is the worst case of writing back: chunks of data leave that much, and chunks
//! of metadata come when it is needed.
//!
//! # Invariants
//! - DELALLOC-7: kept room can be allocated. The data fits into the free space of data block groups; the metadata, with all
//!   promises and the commit's need, into metadata block groups and the chunks that can still be made (CHUNK-4). Each allocation from one
//!   of these checks the sums first, with the reservations held. Shown by `whatever_a_full_filesystem_accepted_is_there`.
//! - DELALLOC-1: the sums are those of all reservations that exist: each is given back once, by its last owner.
//! - DELALLOC-9: a handle's promise out of a reservation is kept again, all of it, when the handle ends without a change
//!   ([`Engine::end_unused`](crate::Engine::end_unused)). Shown by `a_step_that_is_planned_anew_loses_no_room`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::CachePadded;

use crate::qgroup::Charge;

/// The two sums.
pub(crate) struct DelallocAccount {
    data: CachePadded<AtomicU64>,
    metadata: AtomicU64,
    /// Bytes that changing an item may take.
    item: u64,
}

impl DelallocAccount {
    /// Creates the account of a filesystem in which changing an item may take `item` bytes.
    pub(crate) fn new(item: u64) -> Self {
        Self { data: CachePadded::default(), metadata: AtomicU64::new(0), item }
    }

    /// Bytes of data space kept.
    pub(crate) fn data(&self) -> u64 {
        self.data.load(Ordering::SeqCst)
    }

    /// Bytes of metadata space kept.
    pub(crate) fn metadata(&self) -> u64 {
        self.metadata.load(Ordering::SeqCst)
    }

    /// Keeps more room.
    pub(crate) fn keep(
        self: &Arc<Self>,
        data: u64,
        metadata: u64,
        charge: Option<Charge>,
    ) -> DelallocReservation {
        self.data.fetch_add(data, Ordering::SeqCst);
        self.metadata.fetch_add(metadata, Ordering::SeqCst);
        DelallocReservation { account: Arc::clone(self), data, metadata, charge }
    }
}

/// Room kept for data that is to be written later, and for its metadata. Dropping it gives the rest
/// back.
///
/// ```no_run
/// # fn put_off(engine: &creamery_txn::Engine) -> Option<creamery_txn::DelallocReservation> {
/// let mut room = engine.reserve_delalloc(creamery_base::TreeId::FS, 1 << 20, 4).ok()??;
/// let half = room.take(512 << 10, 1 << 16);
/// assert_eq!(half.data_bytes(), 512 << 10);
/// # Some(room)
/// # }
/// ```
#[must_use = "dropping it gives the room back"]
pub struct DelallocReservation {
    account: Arc<DelallocAccount>,
    data: u64,
    metadata: u64,
    /// The part of quota limits reserved for the data.
    charge: Option<Charge>,
}

impl DelallocReservation {
    /// Bytes of data that it is for.
    #[must_use]
    pub const fn data_bytes(&self) -> u64 {
        self.data
    }

    /// Bytes of metadata kept for it.
    #[must_use]
    pub const fn metadata_bytes(&self) -> u64 {
        self.metadata
    }

    /// Splits off room for `data` bytes with `metadata` bytes, or all if there is less.
    pub fn take(&mut self, data: u64, metadata: u64) -> Self {
        let (data, metadata) = (data.min(self.data), metadata.min(self.metadata));
        self.data -= data;
        self.metadata -= metadata;
        let charge = self.charge.as_mut().map(|charge| charge.take(data));
        Self { account: Arc::clone(&self.account), data, metadata, charge }
    }

    /// Splits off the room that it has for changing `items` items.
    pub fn take_items(&mut self, items: u32) -> Self {
        self.take(0, u64::from(items) * self.account.item)
    }

    /// Adds the room of `other`.
    ///
    /// # Panics
    /// When `other` is of another filesystem.
    pub fn add(&mut self, mut other: Self) {
        assert!(self.is_of(&other.account), "DELALLOC-1: room of another filesystem");
        self.data += std::mem::take(&mut other.data);
        self.metadata += std::mem::take(&mut other.metadata);
        match (&mut self.charge, other.charge.take()) {
            (Some(mine), Some(charge)) => mine.add(charge),
            (mine @ None, charge) => *mine = charge,
            (Some(_), None) => {}
        }
    }

    /// Gives up room for `data` bytes that have space now. The quota limits reserved for them stay reserved, with the space, until a
    /// transaction has the data (QGROUP-4).
    pub(crate) fn has_space(&mut self, data: u64) -> Option<Charge> {
        self.take(data, 0).charge.take()
    }

    /// Gives up the room for changing `items` items, or all if there is less, to a handle's promise. Returns its bytes.
    pub(crate) fn has_promise(&mut self, items: u32) -> u64 {
        self.take_items(items).metadata
    }

    /// Whether `account` keeps it.
    pub(crate) fn is_of(&self, account: &Arc<DelallocAccount>) -> bool {
        Arc::ptr_eq(&self.account, account)
    }

    /// Keeps `metadata` bytes again that were in a handle's promise.
    pub(crate) fn keep_again(&mut self, metadata: u64) {
        self.account.metadata.fetch_add(metadata, Ordering::SeqCst);
        self.metadata += metadata;
    }
}

impl Drop for DelallocReservation {
    fn drop(&mut self) {
        for (sum, part) in [(&*self.account.data, self.data), (&self.account.metadata, self.metadata)] {
            let all = sum.fetch_sub(part, Ordering::SeqCst);
            assert!(all >= part, "DELALLOC-1: more is given back than was kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_split_and_joined_is_given_back_once() {
        let account = Arc::new(DelallocAccount::new(4));
        let mut first = account.keep(100, 10, None);
        let second = first.take(30, 50);
        assert_eq!((first.data_bytes(), first.metadata_bytes()), (70, 0));
        assert_eq!((second.data_bytes(), second.metadata_bytes()), (30, 10));
        assert_eq!((account.data(), account.metadata()), (100, 10));
        assert!(first.has_space(50).is_none(), "there are no limits");
        assert_eq!((account.data(), account.metadata()), (50, 10));
        first.add(second);
        assert_eq!(first.has_promise(2), 8);
        assert_eq!((account.data(), account.metadata()), (50, 2));
        assert_eq!(first.has_promise(2), 2, "there is no more");
        first.keep_again(2);
        assert_eq!((first.metadata_bytes(), account.metadata()), (2, 2));
        drop(first);
        assert_eq!((account.data(), account.metadata()), (0, 0));
    }

    #[test]
    #[should_panic(expected = "DELALLOC-1")]
    fn room_of_two_filesystems_is_not_mixed() {
        let [one, other] = [(); 2].map(|()| Arc::new(DelallocAccount::new(4)));
        let mut room = one.keep(1, 1, None);
        room.add(other.keep(1, 1, None));
    }

    #[test]
    #[should_panic(expected = "DELALLOC-1")]
    fn room_that_is_given_back_twice_is_a_bug() {
        let account = Arc::new(DelallocAccount::new(4));
        let room = account.keep(1, 1, None);
        account.data.fetch_sub(1, Ordering::SeqCst);
        drop(room);
    }
}
