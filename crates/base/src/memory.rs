//! What collections of the standard library take on the heap, bytes: for those who say how much memory they have.
//!
//! A vector says its capacity; of the others only the number of elements is known, or how many there is room for, and what that
//! takes follows from how they are made. What the allocator adds to each piece that it hands out is in none of these.

/// What a value in an `Arc` takes: itself and two counts.
///
/// ```
/// assert_eq!(creamery_base::memory::shared::<[u64; 6]>(), 64);
/// ```
#[must_use]
pub const fn shared<T>() -> u64 {
    let counts = (2 * size_of::<usize>()).next_multiple_of(align_of::<T>());
    (counts + size_of::<T>()) as u64
}

/// What a vector or a queue with room for `capacity` elements takes.
///
/// ```
/// assert_eq!(creamery_base::memory::vec::<u32>(100), 400);
/// ```
#[must_use]
pub const fn vec<T>(capacity: usize) -> u64 {
    (capacity * size_of::<T>()) as u64
}

/// What a hash map with room for `capacity` entries takes: a power of two of places, an eighth of them empty, each with a byte
/// beside it.
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

/// What a `BTreeMap` with `len` entries takes, or a set with `V` = `()`. An estimate: a node has room for eleven entries and is
/// reckoned with seven. Where keys only rise it has six, and where they come and go in any order, near to eight.
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
