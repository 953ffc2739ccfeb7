//! Memory for blocks: pieces of one size, cut from slabs that the system hands out whole.
//!
//! A cache of tree blocks takes and gives back pieces of 16 KiB all the time. In the general allocator each piece needs one page
//! more for its alignment and leaves a hole too small for the next piece, so a process grows far beyond its budget. And the kernel
//! maps every page on its own at the first touch, which costs more than filling it. A slab is as large as a huge
//! page and aligned like one, its pieces lie side by side, and a slab without used pieces goes back to the system.
//!
//! The first touch of a slab costs a fifth of a millisecond, and many times that on a virtual machine whose host has
//! to find the memory first. A thread that takes a piece often holds locks of tree blocks, which other threads wait for. So a thread
//! that is about to change a tree, and holds none of them yet, calls [`prepare`], which keeps touched memory ready.
//!
//! # Invariants
//! - SLAB-1: a piece is in the list of free ones or with one owner, never both.
//! - SLAB-2: a slab is in the list of those with room exactly while it has a free piece.
//!   Shown by `pieces_are_aligned_and_no_two_are_the_same`, `memory_of_data_is_kept_until_it_is_trimmed`.
//! - SLAB-3: a slab goes back to the system only when all its pieces are free. Shown by `a_piece_outlives_a_pool_that_goes`.
//!
//! [`PooledMemory`] guarantees SLAB-1: there is one for each piece that is out, and only giving it back puts the memory into a list.
//! If a `PooledMemory` is lost, its memory is never used again.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use creamery_base::lock::{ProcessMutex, rank};

use crate::pooled_memory::PooledMemory;

const SLAB_LEN: usize = 2 << 20;
const SLAB: Layout = match Layout::from_size_align(SLAB_LEN, SLAB_LEN) {
    Ok(layout) => layout,
    Err(_) => panic!("a slab has the size of its alignment"),
};
/// Unused slabs that are kept for the next user, of each size.
const EMPTY_MAX: usize = 4;
/// Unused slabs that are kept, until [`trim`], of the sizes that file data comes in: a stream of data fills the same memory again and
/// again, and the first touch of other memory costs more than the copy.
const EMPTY_OF_DATA_MAX: usize = 48;
const SMALLEST: usize = 4096;
/// Sizes from 4 KiB to 64 KiB: the sizes of tree blocks.
const SIZES: usize = 5;
const LARGEST: usize = SMALLEST << (SIZES - 1);

static POOLS: [SharedPool; SIZES] = [
    SharedPool::new(SMALLEST),
    SharedPool::new(SMALLEST << 1),
    SharedPool::new(SMALLEST << 2),
    SharedPool::new(SMALLEST << 3),
    SharedPool::new(SMALLEST << 4),
];

/// The pool of one size. All users check the number of free pieces often, so it is readable without the lock.
struct SharedPool {
    pool: ProcessMutex<SlabPool, { rank::LEAF }>,
    free: AtomicUsize,
    /// Held by the thread that prepares a slab: one at a time is enough.
    preparing: ProcessMutex<(), { rank::POOL }>,
}

struct Slab {
    start: NonNull<u8>,
    free: Vec<u16>,
    /// The number of pieces, free or out.
    pieces: usize,
}

// SAFETY: a slab is plain memory; nothing about it is tied to a thread, and the pool's mutex guards the list.
unsafe impl Send for Slab {}

struct SlabPool {
    /// The size of a piece, bytes.
    size: usize,
    /// By address.
    slabs: BTreeMap<usize, Slab>,
    /// Addresses of slabs with a free piece.
    with_room: Vec<usize>,
    /// How many of those have only free pieces.
    empty: usize,
    /// Free pieces, all slabs together.
    free: usize,
}

fn pool_of(size: usize) -> Option<&'static SharedPool> {
    if !size.is_power_of_two() || size < SMALLEST {
        return None;
    }
    POOLS.get((size / SMALLEST).trailing_zeros() as usize)
}

/// Whether there are pieces of `size` bytes: a tree block's size.
pub(crate) fn has(size: usize) -> bool {
    pool_of(size).is_some()
}

/// Takes a piece of `size` bytes. `None` if there are none of that size.
pub(crate) fn take(size: usize) -> Option<PooledMemory> {
    Some(pool_of(size)?.with(SlabPool::take))
}

/// Makes sure that the next `pieces` pieces of `size` bytes, at most a slab full of them, need no memory of the system. Not
/// guaranteed: other threads take pieces, too.
pub(crate) fn prepare(size: usize, pieces: usize) {
    let Some(pool) = pool_of(size) else { return };
    let enough = || pool.free.load(Ordering::Relaxed) >= pieces;
    if enough() {
        return;
    }
    // A thread that prepared a slab meanwhile may have just released the lock.
    if let Some(_alone) = pool.preparing.try_lock()
        && !enough()
    {
        let mut slab = Slab::new(size);
        slab.touch();
        pool.with(|pool| pool.add(slab));
    }
}

/// Gives the memory back that was kept for further file data.
pub(crate) fn trim() {
    for pool in &POOLS {
        if pool.free.load(Ordering::Relaxed) > 0 {
            pool.with(SlabPool::trim);
        }
    }
}

/// Returns the memory in free pieces, of all sizes, bytes.
pub(crate) fn spare_bytes() -> u64 {
    let sizes = (0..SIZES).map(|power| (SMALLEST << power) as u64);
    POOLS.iter().zip(sizes).map(|(pool, size)| pool.free.load(Ordering::Relaxed) as u64 * size).sum()
}

/// Gives back a piece that was taken with this `size`. Panics for another size.
pub(crate) fn give_back(piece: PooledMemory, size: usize) {
    pool_of(size).expect("there are no pieces of this size").with(|pool| pool.give_back(piece));
}

impl SharedPool {
    const fn new(size: usize) -> Self {
        Self {
            pool: ProcessMutex::new(SlabPool::new(size)),
            free: AtomicUsize::new(0),
            preparing: ProcessMutex::new(()),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut SlabPool) -> T) -> T {
        let mut pool = self.pool.lock();
        let done = work(&mut pool);
        self.free.store(pool.free, Ordering::Relaxed);
        done
    }
}

impl SlabPool {
    const fn new(size: usize) -> Self {
        Self { size, slabs: BTreeMap::new(), with_room: Vec::new(), empty: 0, free: 0 }
    }

    /// Adds an unused slab; it is used after those that already have room.
    fn add(&mut self, slab: Slab) {
        assert!(slab.is_free() && slab.pieces == SLAB_LEN / self.size, "SLAB-1: a slab of this pool");
        let address = slab.start.addr().get();
        self.free += slab.pieces;
        self.slabs.insert(address, slab);
        self.with_room.insert(0, address);
        self.empty += 1;
    }

    fn take(&mut self) -> PooledMemory {
        if self.with_room.is_empty() {
            self.add(Slab::new(self.size));
        }
        let address = *self.with_room.last().expect("one was just added");
        let slab = self.slabs.get_mut(&address).expect("listed slabs exist");
        if slab.is_free() {
            self.empty -= 1;
        }
        let number = slab.free.pop().expect("SLAB-2");
        self.free -= 1;
        if slab.free.is_empty() {
            self.with_room.pop();
        }
        // SAFETY: pieces are numbered within the slab, so this stays inside its allocation.
        let start = unsafe { slab.start.add(usize::from(number) * self.size) };
        // SAFETY: the piece's number was in the list of free ones, and is removed from it (SLAB-1).
        unsafe { PooledMemory::from_start(start) }
    }

    fn give_back(&mut self, piece: PooledMemory) {
        let start = piece.start().addr().get();
        let address = start & !(SLAB_LEN - 1);
        let slab = self.slabs.get_mut(&address).expect("the piece came from a slab of this pool");
        slab.free.push(u16::try_from((start - address) / self.size).expect("at most 512 pieces"));
        self.free += 1;
        if slab.free.len() == 1 {
            self.with_room.push(address);
        }
        if slab.is_free() {
            self.empty += 1;
            if self.empty > self.empty_max() {
                self.give_up(address);
            }
        }
    }

    const fn empty_max(&self) -> usize {
        if self.size == LARGEST { EMPTY_OF_DATA_MAX } else { EMPTY_MAX }
    }

    /// Drops unused slabs beyond [`EMPTY_MAX`].
    fn trim(&mut self) {
        let empty = |slab: &(&usize, &Slab)| slab.1.is_free();
        let spare = self.empty.saturating_sub(EMPTY_MAX);
        let addresses: Vec<usize> = self.slabs.iter().filter(empty).map(|(at, _)| *at).take(spare).collect();
        addresses.into_iter().for_each(|address| self.give_up(address));
    }

    fn give_up(&mut self, address: usize) {
        let slab = self.slabs.remove(&address).expect("it was just there");
        let at = self.with_room.iter().position(|&listed| listed == address).expect("SLAB-2");
        self.with_room.swap_remove(at);
        self.empty -= 1;
        self.free -= slab.free.len();
    }
}

impl Slab {
    fn new(size: usize) -> Self {
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc(SLAB) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(SLAB) };
        // SAFETY: the range was just allocated; the advice changes how it is mapped, not its bytes. Without huge
        // pages it has no effect, which is all right.
        let _ = unsafe {
            rustix::mm::madvise(start.as_ptr().cast(), SLAB_LEN, rustix::mm::Advice::LinuxHugepage)
        };
        let pieces = SLAB_LEN / size;
        let last = u16::try_from(pieces).expect("at most 512 pieces");
        Self { start, free: (0..last).rev().collect(), pieces }
    }

    /// Whether none of its pieces is out.
    const fn is_free(&self) -> bool {
        self.free.len() == self.pieces
    }

    /// Makes the system find memory for the whole slab.
    fn touch(&mut self) {
        assert!(self.is_free(), "SLAB-1: the pieces that are out are not the slab's to write");
        for page in (0..SLAB_LEN).step_by(SMALLEST) {
            // SAFETY: inside the allocation, of which nobody has a piece. Volatile, or the compiler would drop the write.
            unsafe { self.start.add(page).write_volatile(0) };
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if self.is_free() {
            // SAFETY: nobody has a piece of it (SLAB-3), and it was allocated with this layout.
            unsafe { dealloc(self.start.as_ptr(), SLAB) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SIZE: usize = 16384;

    fn address(piece: &PooledMemory) -> usize {
        piece.start().addr().get()
    }

    #[test]
    fn memory_of_data_is_kept_until_it_is_trimmed() {
        let mut pool = SlabPool::new(LARGEST);
        let pieces: Vec<PooledMemory> = (0..64 * 32).map(|_| pool.take()).collect();
        pieces.into_iter().for_each(|piece| pool.give_back(piece));
        assert_eq!((pool.slabs.len(), pool.empty), (EMPTY_OF_DATA_MAX, EMPTY_OF_DATA_MAX));
        pool.trim();
        assert_eq!((pool.slabs.len(), pool.empty, pool.with_room.len()), (EMPTY_MAX, EMPTY_MAX, EMPTY_MAX));
    }

    #[test]
    fn pieces_are_aligned_and_no_two_are_the_same() {
        let mut pool = SlabPool::new(SIZE);
        let pieces: Vec<PooledMemory> = (0..300).map(|_| pool.take()).collect();
        let addresses: HashSet<usize> = pieces.iter().map(address).collect();
        assert_eq!(addresses.len(), 300);
        assert!(addresses.iter().all(|address| address % SIZE == 0));
        assert_eq!((pool.slabs.len(), pool.with_room.len(), pool.empty), (3, 1, 0));
        pieces.into_iter().for_each(|piece| pool.give_back(piece));
        assert_eq!((pool.slabs.len(), pool.with_room.len(), pool.empty), (3, 3, 3));
        let again = pool.take();
        assert!(addresses.contains(&address(&again)), "a free piece is used before a new slab is made");
        pool.give_back(again);
    }

    #[test]
    fn slabs_that_nobody_uses_go_back() {
        let mut pool = SlabPool::new(SIZE);
        let pieces: Vec<PooledMemory> = (0..10 * 128).map(|_| pool.take()).collect();
        assert_eq!(pool.slabs.len(), 10);
        pieces.into_iter().for_each(|piece| pool.give_back(piece));
        assert_eq!((pool.slabs.len(), pool.empty), (EMPTY_MAX, EMPTY_MAX));
    }

    #[test]
    fn prepared_slabs_are_used_after_those_in_use() {
        let mut pool = SlabPool::new(SIZE);
        let first = pool.take();
        let mut slab = Slab::new(SIZE);
        slab.touch();
        pool.add(slab);
        assert_eq!((pool.free, pool.empty), (255, 1));
        let second = pool.take();
        let slab_of = |piece: &PooledMemory| address(piece) / SLAB_LEN;
        assert_eq!(slab_of(&first), slab_of(&second), "the one in use comes first");
        pool.give_back(first);
        pool.give_back(second);
        assert_eq!((pool.free, pool.empty), (256, 2));
    }

    #[test]
    fn preparing_keeps_as_many_free_as_were_asked_for() {
        const SIZE: usize = 65536; // no other test takes pieces of this size
        let free = || pool_of(SIZE).expect("a size of blocks").free.load(Ordering::Relaxed);
        prepare(SIZE, 8);
        assert_eq!(free(), 32, "a slab");
        let taken: Vec<PooledMemory> = (0..24).map(|_| take(SIZE).expect("a piece")).collect();
        prepare(SIZE, 8);
        assert_eq!(free(), 8, "enough");
        prepare(SIZE, 9);
        assert_eq!(free(), 40, "one more slab");
        taken.into_iter().for_each(|piece| give_back(piece, SIZE));
        assert_eq!(free(), 64);
    }

    #[test]
    fn other_sizes_are_none_of_its_business() {
        for size in [0, 1, 512, 2048, 12288, 131_072] {
            assert_eq!(take(size), None, "{size}");
            assert!(!has(size), "{size}");
        }
    }

    #[test]
    #[should_panic(expected = "came from a slab of this pool")]
    fn a_piece_goes_back_to_the_pool_it_came_from_and_no_other() {
        let (mut pool, mut other) = (SlabPool::new(SIZE), SlabPool::new(SIZE / 2));
        let piece = pool.take();
        // SAFETY: this one is refused, and only then `piece` is used.
        let same = unsafe { PooledMemory::from_start(piece.start()) };
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.give_back(same)));
        pool.give_back(piece);
        refused.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    #[should_panic(expected = "SLAB-1")]
    fn a_slab_with_a_piece_out_is_not_written_to() {
        let mut pool = SlabPool::new(SIZE);
        let piece = pool.take();
        let touched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.slabs.first_entry().expect("a slab").get_mut().touch();
        }));
        pool.give_back(piece);
        touched.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    fn a_piece_outlives_a_pool_that_goes() {
        let mut pool = SlabPool::new(SIZE);
        let kept = pool.take();
        let slab = pool.slabs.pop_first().expect("a slab").1;
        let start = slab.start;
        drop(slab);
        // SAFETY: the piece is out, so the memory is there, and it is this test's alone.
        unsafe { kept.into_start().write_bytes(7, SIZE) };
        // SAFETY: the last piece is not used any more. The slab, which knows of the piece, is gone and has left its memory allocated.
        unsafe { dealloc(start.as_ptr(), SLAB) };
    }
}
