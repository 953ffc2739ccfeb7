//! Space for metadata: whether there is plenty, and new block groups.

use creamery_base::Result;

use super::Engine;
use crate::chunk_allocator::NewChunk;
use crate::space_info::SpaceKind;

/// Room to spare is room for the changes of so many items.
const SPARE_ITEMS: u64 = 64;

impl Engine {
    /// Whether an operation that frees space surely finds metadata room, also if other threads take some before it begins.
    pub fn has_room_to_spare(&self) -> bool {
        let headroom = self.headroom();
        let free = headroom.unpromised_metadata().saturating_sub(self.delalloc.metadata());
        free >= SPARE_ITEMS * headroom.item_bytes()
    }

    /// Makes a chunk for `kind`, unless one was made since the count was `seen`; false when no device has room for a useful one.
    /// Waits for a commit's critical section to end.
    pub(super) fn allocate_chunk(&self, kind: SpaceKind, seen: u64) -> Result<bool> {
        let headroom = self.headroom();
        let running = self.transaction.join();
        let wish = NewChunk { kind, seen, generation: self.generation() };
        self.chunks.allocate(&self.space, wish, &|| headroom.claim(), &running)
    }
}
