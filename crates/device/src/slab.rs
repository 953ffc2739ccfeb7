//! Memory for blocks: pieces of one size, cut from slabs that the system hands out whole.
//!
//! A cache of tree blocks takes and gives back pieces of 16 KiB without end. From the general allocator each takes a page
//! more for its alignment and leaves a hole where nothing fits, so a process grows far beyond its budget; and the kernel
//! maps every page on its own when it is touched first, which costs more than filling it. A slab is as large as a huge
//! page and lies like one, its pieces lie side by side, and a slab that nobody uses any more goes back to the system.
//!
//! Touched for the first time, a slab costs a fifth of a millisecond, and many times that on a virtual machine whose host has
//! to find the memory first. Who takes a piece often holds locks of tree blocks, for which everybody waits. So whoever is
//! about to change a tree, and holds none of them yet, calls [`prepare`], which keeps touched memory in store.
//!
//! # Invariants
//! - SLAB-1: a piece is in the list of free ones or with one owner, never both.
//! - SLAB-2: a slab is in the list of those with room exactly while it has a free piece.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

const SLAB_LEN: usize = 2 << 20;
const SLAB: Layout = match Layout::from_size_align(SLAB_LEN, SLAB_LEN) {
    Ok(layout) => layout,
    Err(_) => panic!("a slab has the size of its alignment"),
};
/// Slabs without a user that are kept for the next one, of each size.
const EMPTY_MAX: usize = 4;
const SMALLEST: usize = 4096;
/// Sizes from 4 KiB to 64 KiB: the sizes of tree blocks.
const SIZES: usize = 5;

static POOLS: [SharedPool; SIZES] = [const { SharedPool::new() }; SIZES];

/// One size's pool. Everybody asks how many pieces are free all the time, so that is told without the lock.
struct SharedPool {
    pool: Mutex<Pool>,
    free: AtomicUsize,
    /// Held by whoever prepares a slab: one at a time is enough.
    preparing: Mutex<()>,
}

struct Slab {
    start: NonNull<u8>,
    free: Vec<u16>,
}

// SAFETY: a slab is plain memory; nothing about it is tied to a thread, and the pool's mutex guards the list.
unsafe impl Send for Slab {}

struct Pool {
    /// By address.
    slabs: BTreeMap<usize, Slab>,
    /// Addresses of slabs with a free piece.
    with_room: Vec<usize>,
    /// How many of those have nothing but free pieces.
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

/// A piece of `size` bytes, aligned to its size, with any content. None when this is no size of a tree block.
pub(crate) fn take(size: usize) -> Option<NonNull<u8>> {
    Some(pool_of(size)?.with(|pool| pool.take(size)))
}

/// Sees to it that the next `pieces` of `size` bytes, at most a slab full of them, need no memory of the system. A guess:
/// others take, too.
pub(crate) fn prepare(size: usize, pieces: usize) {
    let Some(pool) = pool_of(size) else { return };
    let enough = || pool.free.load(Ordering::Relaxed) >= pieces;
    if enough() {
        return;
    }
    // Who prepared one meanwhile may have just let go.
    if let Some(_alone) = pool.preparing.try_lock()
        && !enough()
    {
        let slab = Slab::new(size);
        slab.touch();
        pool.with(|pool| pool.add(slab, size));
    }
}

/// Gives a piece back; false when this is no size that [`take`] hands out.
///
/// # Safety
/// If `size` is such a size, `piece` came from [`take`] with it and nobody uses it from now on.
pub(crate) unsafe fn give_back(piece: NonNull<u8>, size: usize) -> bool {
    let Some(pool) = pool_of(size) else { return false };
    pool.with(|pool| pool.give_back(piece, size));
    true
}

impl SharedPool {
    const fn new() -> Self {
        Self { pool: Mutex::new(Pool::new()), free: AtomicUsize::new(0), preparing: Mutex::new(()) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Pool) -> T) -> T {
        let mut pool = self.pool.lock();
        let done = work(&mut pool);
        self.free.store(pool.free, Ordering::Relaxed);
        done
    }
}

impl Pool {
    const fn new() -> Self {
        Self { slabs: BTreeMap::new(), with_room: Vec::new(), empty: 0, free: 0 }
    }

    /// Adds a slab that nobody uses; it is used after those that already have room.
    fn add(&mut self, slab: Slab, size: usize) {
        let address = slab.start.addr().get();
        self.slabs.insert(address, slab);
        self.with_room.insert(0, address);
        self.empty += 1;
        self.free += SLAB_LEN / size;
    }

    fn take(&mut self, size: usize) -> NonNull<u8> {
        if self.with_room.is_empty() {
            self.add(Slab::new(size), size);
        }
        let address = *self.with_room.last().expect("one was just added");
        let slab = self.slabs.get_mut(&address).expect("listed slabs exist");
        if slab.free.len() == SLAB_LEN / size {
            self.empty -= 1;
        }
        let piece = slab.free.pop().expect("SLAB-2");
        self.free -= 1;
        if slab.free.is_empty() {
            self.with_room.pop();
        }
        // SAFETY: pieces are numbered within the slab, so this stays inside its allocation.
        unsafe { slab.start.add(usize::from(piece) * size) }
    }

    fn give_back(&mut self, piece: NonNull<u8>, size: usize) {
        let address = piece.addr().get() & !(SLAB_LEN - 1);
        let slab = self.slabs.get_mut(&address).expect("the piece came from a slab");
        slab.free.push(u16::try_from((piece.addr().get() - address) / size).expect("at most 512 pieces"));
        self.free += 1;
        if slab.free.len() == 1 {
            self.with_room.push(address);
        }
        if slab.free.len() == SLAB_LEN / size {
            self.empty += 1;
            if self.empty > EMPTY_MAX {
                self.give_up(address);
            }
        }
    }

    fn give_up(&mut self, address: usize) {
        let slab = self.slabs.remove(&address).expect("it was just there");
        let at = self.with_room.iter().position(|&listed| listed == address).expect("SLAB-2");
        self.with_room.swap_remove(at);
        self.empty -= 1;
        self.free -= slab.free.len();
        // SAFETY: all its pieces are free (SLAB-1), and it was allocated with this layout.
        unsafe { dealloc(slab.start.as_ptr(), SLAB) };
    }
}

impl Slab {
    fn new(size: usize) -> Self {
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc(SLAB) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(SLAB) };
        // SAFETY: the range was just allocated; the advice changes how it is mapped, not what it holds. Where huge
        // pages are not to be had it has no effect, which is all right.
        let _ = unsafe {
            rustix::mm::madvise(start.as_ptr().cast(), SLAB_LEN, rustix::mm::Advice::LinuxHugepage)
        };
        let pieces = u16::try_from(SLAB_LEN / size).expect("at most 512 pieces");
        Self { start, free: (0..pieces).rev().collect() }
    }

    /// Has the system find memory for all of it.
    fn touch(&self) {
        for page in (0..SLAB_LEN).step_by(SMALLEST) {
            // SAFETY: inside the allocation, which nobody else uses yet. Volatile, for the compiler sees no use in it.
            unsafe { self.start.add(page).write_volatile(0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn pieces_are_aligned_and_no_two_are_the_same() {
        let mut pool = Pool::new();
        let pieces: Vec<NonNull<u8>> = (0..300).map(|_| pool.take(16384)).collect();
        let addresses: HashSet<usize> = pieces.iter().map(|piece| piece.addr().get()).collect();
        assert_eq!(addresses.len(), 300);
        assert!(addresses.iter().all(|address| address % 16384 == 0));
        assert_eq!((pool.slabs.len(), pool.with_room.len(), pool.empty), (3, 1, 0));
        pieces.into_iter().for_each(|piece| pool.give_back(piece, 16384));
        assert_eq!((pool.slabs.len(), pool.with_room.len(), pool.empty), (3, 3, 3));
        let again = pool.take(16384);
        assert!(addresses.contains(&again.addr().get()), "a free piece is used before a new slab is made");
    }

    #[test]
    fn slabs_that_nobody_uses_go_back() {
        let mut pool = Pool::new();
        let pieces: Vec<NonNull<u8>> = (0..10 * 128).map(|_| pool.take(16384)).collect();
        assert_eq!(pool.slabs.len(), 10);
        pieces.into_iter().for_each(|piece| pool.give_back(piece, 16384));
        assert_eq!((pool.slabs.len(), pool.empty), (EMPTY_MAX, EMPTY_MAX));
    }

    #[test]
    fn prepared_slabs_are_used_after_those_in_use() {
        let mut pool = Pool::new();
        let first = pool.take(16384);
        let slab = Slab::new(16384);
        slab.touch();
        pool.add(slab, 16384);
        assert_eq!((pool.free, pool.empty), (255, 1));
        let second = pool.take(16384);
        let slab_of = |piece: NonNull<u8>| piece.addr().get() / SLAB_LEN;
        assert_eq!(slab_of(first), slab_of(second), "the one in use comes first");
        pool.give_back(first, 16384);
        pool.give_back(second, 16384);
        assert_eq!((pool.free, pool.empty), (256, 2));
    }

    #[test]
    fn preparing_keeps_as_many_free_as_were_asked_for() {
        const SIZE: usize = 65536; // of which no other test takes any
        let free = || pool_of(SIZE).expect("a size of blocks").free.load(Ordering::Relaxed);
        prepare(SIZE, 8);
        assert_eq!(free(), 32, "a slab");
        let taken: Vec<NonNull<u8>> = (0..24).map(|_| take(SIZE).expect("a piece")).collect();
        prepare(SIZE, 8);
        assert_eq!(free(), 8, "enough");
        prepare(SIZE, 9);
        assert_eq!(free(), 40, "one more slab");
        for piece in taken {
            // SAFETY: taken above with this size, and not used.
            assert!(unsafe { give_back(piece, SIZE) });
        }
        assert_eq!(free(), 64);
    }

    #[test]
    fn other_sizes_are_none_of_its_business() {
        for size in [0, 1, 512, 2048, 12288, 131_072] {
            assert_eq!(take(size), None, "{size}");
        }
    }
}
