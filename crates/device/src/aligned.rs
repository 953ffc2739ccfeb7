//! Heap bytes aligned to a page, as O_DIRECT and io_uring need them. Buffers of a tree block's size come from `slab`.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::pooled_memory::PooledMemory;
use crate::slab;

/// The alignment of every [`AlignedBuffer`], and the unit its allocation is rounded up to.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Bytes on the heap whose first one lies at a multiple of [`BUFFER_ALIGNMENT`].
///
/// ```
/// use creamery_device::AlignedBuffer;
/// let mut block = AlignedBuffer::zeroed(16384);
/// block[0] = 7;
/// assert_eq!(block.as_ptr() as usize % 4096, 0);
/// assert_eq!(block.clone()[..2], [7, 0]);
/// ```
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
    /// How many bytes of its allocation lie before `start`; only set for an untouched buffer.
    before: Option<usize>,
}

// SAFETY: the buffer owns its bytes alone, like a `Box<[u8]>`; nothing about them is tied to a thread.
unsafe impl Send for AlignedBuffer {}
// SAFETY: a shared reference only hands out `&[u8]`; changing the bytes needs `&mut`.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Creates a buffer of `len` zero bytes. The length comes from the caller's own bookkeeping, never straight from a disk.
    ///
    /// # Panics
    /// If `len` is too large for any allocation.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let start = Self::allocate(len);
        // SAFETY: `allocate` gave `len` bytes that nobody else has.
        unsafe { start.write_bytes(0, len) };
        Self { start, len, before: None }
    }

    /// Creates a buffer like [`zeroed`](Self::zeroed), of which often only a part is used: the rest takes no memory of the system.
    ///
    /// # Panics
    /// If `len` is too large for any allocation.
    #[must_use]
    pub fn untouched(len: usize) -> Self {
        let layout = Self::untouched_layout(len);
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        let before = base.align_offset(BUFFER_ALIGNMENT);
        assert!(before < BUFFER_ALIGNMENT, "alignment of bytes can always be had");
        // SAFETY: the allocation is by `BUFFER_ALIGNMENT` longer than `len`, and `before` is less than that.
        let start = unsafe { base.add(before) };
        Self { start, len, before: Some(before) }
    }

    /// Creates a copy of `bytes`.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Self {
        let (start, len) = (Self::allocate(bytes.len()), bytes.len());
        // SAFETY: `allocate` gave `len` bytes that nobody else has, so they are not those of `bytes`.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), len) };
        Self { start, len, before: None }
    }

    /// Makes sure that the next `count` buffers of `len` bytes, a tree block's size, need no memory of the system, which may
    /// take milliseconds. For threads that are about to take locks under which they create such buffers. One call takes
    /// 2 MiB at most.
    pub fn prepare(len: usize, count: usize) {
        slab::prepare(len, count);
    }

    /// Gives back memory that is kept for more buffers than usual. For callers that have just written all their
    /// data.
    pub fn trim_spare() {
        slab::trim();
    }

    /// Returns the memory that is kept for the next buffers of tree blocks' sizes, of the whole process, bytes.
    ///
    /// ```
    /// use creamery_device::AlignedBuffer;
    /// AlignedBuffer::prepare(16384, 1);
    /// assert!(AlignedBuffer::spare_bytes() >= 16384);
    /// ```
    #[must_use]
    pub fn spare_bytes() -> u64 {
        slab::spare_bytes()
    }

    /// Allocates `len` bytes, with any content.
    fn allocate(len: usize) -> NonNull<u8> {
        let Some(layout) = Self::layout(len) else { return NonNull::dangling() };
        if let Some(piece) = slab::take(layout.size()) {
            return piece.into_start();
        }
        // SAFETY: the layout's size is not zero: `layout` gave none for an empty buffer.
        let start = unsafe { alloc(layout) };
        NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// Returns the layout of an untouched buffer. It asks for no alignment, because allocators return untouched zeros only without one.
    fn untouched_layout(len: usize) -> Layout {
        let size = len.checked_add(BUFFER_ALIGNMENT).expect("a buffer fits the address space");
        Layout::from_size_align(size, 1).expect("a buffer fits the address space")
    }

    /// Returns the layout of a buffer. `None` for an empty buffer, which has no allocation.
    fn layout(len: usize) -> Option<Layout> {
        if len == 0 {
            return None;
        }
        let size = len.checked_next_multiple_of(BUFFER_ALIGNMENT).expect("a buffer fits the address space");
        Some(Layout::from_size_align(size, BUFFER_ALIGNMENT).expect("a buffer fits the address space"))
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: `untouched` got the allocation with this layout, because the length never changes; `start` lies `before` bytes behind its
            // beginning, and the buffer ends now.
            unsafe { dealloc(self.start.sub(before).as_ptr(), Self::untouched_layout(self.len)) };
            return;
        }
        let Some(layout) = Self::layout(self.len) else { return };
        if slab::has(layout.size()) {
            // SAFETY: `start` is that of the piece that `allocate` took for this very length, which never changes. Only this
            // buffer has it, and the buffer ends now.
            let piece = unsafe { PooledMemory::from_start(self.start) };
            slab::give_back(piece, layout.size());
        } else {
            // SAFETY: `allocate` got `start` with this layout, because the length never changes, and the buffer ends now.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` bytes, all written at birth, or dangling with length 0, and
        // the borrow of `self` keeps them alive and unchanged.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for AlignedBuffer {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl Default for AlignedBuffer {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl PartialEq for AlignedBuffer {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for AlignedBuffer {}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_aligned_and_zeroed() {
        for len in [1, 511, 4096, 4097, 65536, 1 << 20] {
            for mut buffer in [AlignedBuffer::zeroed(len), AlignedBuffer::untouched(len)] {
                assert_eq!(buffer.len(), len);
                assert_eq!(buffer.as_ptr() as usize % BUFFER_ALIGNMENT, 0);
                assert!(buffer.iter().all(|&b| b == 0));
                buffer[len - 1] = 1;
                assert_eq!(buffer.clone(), buffer);
            }
        }
        assert!(AlignedBuffer::untouched(0).is_empty());
    }

    #[test]
    fn an_empty_buffer_is_an_empty_slice() {
        let empty = AlignedBuffer::zeroed(0);
        assert!(empty.is_empty());
        assert_eq!(empty.clone(), AlignedBuffer::from_slice(&[]));
    }

    #[test]
    fn a_clone_does_not_share_bytes() {
        let first = AlignedBuffer::from_slice(b"abc");
        let mut second = first.clone();
        second[0] = b'x';
        assert_eq!((&first[..], &second[..]), (&b"abc"[..], &b"xbc"[..]));
    }
}
