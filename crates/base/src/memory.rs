//! Heap memory of collections of the standard library, bytes: for statistics of memory use.
//!
//! A vector has a capacity. Other collections show only their number of elements, or of elements that they have room for; their
//! memory follows from their implementation. The overhead of the allocator is not included.

/// Returns the memory of a value in an `Arc`: itself and two counts.
///
/// ```
/// assert_eq!(creamery_base::memory::shared::<[u64; 6]>(), 64);
/// ```
#[must_use]
pub const fn shared<T>() -> u64 {
    let counts = (2 * size_of::<usize>()).next_multiple_of(align_of::<T>());
    (counts + size_of::<T>()) as u64
}

/// Returns the memory of a vector or a queue with room for `capacity` elements.
///
/// ```
/// assert_eq!(creamery_base::memory::vec::<u32>(100), 400);
/// ```
#[must_use]
pub const fn vec<T>(capacity: usize) -> u64 {
    (capacity * size_of::<T>()) as u64
}

/// Returns the memory of a hash map with room for `capacity` entries: a power of two of places, an eighth of them empty, each with
/// a byte beside it.
///
/// ```
/// assert_eq!(creamery_base::memory::hash_map::<u64, u64>(0), 0);
/// assert_eq!(creamery_base::memory::hash_map::<u64, u64>(896), 1024 * 17 + 16);
/// ```
#[must_use]
pub const fn hash_map<K, V>(capacity: usize) -> u64 {
    if capacity == 0 {
        return 0;
    }
    let places = (capacity * 8 / 7).next_power_of_two();
    (places * (size_of::<(K, V)>() + 1) + 16) as u64
}

/// Returns the memory of a `BTreeMap` with `len` entries, or of a set with `V` = `()`. An estimate: a node has room for eleven entries
/// and counts as filled with seven. It has six if keys only rise, and nearly eight if they come and go in any order.
///
/// ```
/// use creamery_base::memory::btree;
/// assert_eq!(btree::<u64, u64>(0), 0);
/// assert_eq!(btree::<u64, u64>(1), btree::<u64, u64>(7));
/// assert!(btree::<u64, ()>(1000) < btree::<u64, u64>(1000));
/// ```
#[must_use]
pub const fn btree<K, V>(len: usize) -> u64 {
    const ROOM: usize = 11;
    const FILLED: usize = 7;
    let leaf = ROOM * (size_of::<K>() + size_of::<V>()) + 2 * size_of::<usize>();
    let inner = leaf + (ROOM + 1) * size_of::<usize>();
    let leaves = len.div_ceil(FILLED);
    // Each inner node has one child more than it has entries.
    let inners = leaves.saturating_sub(1).div_ceil(FILLED);
    (leaves * leaf + inners * inner) as u64
}
