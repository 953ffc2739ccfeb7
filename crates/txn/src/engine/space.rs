//! Space for metadata: whether there is plenty, and new block groups.

use creamery_base::Result;

use super::Engine;
use crate::chunk_allocator::NewChunk;
use crate::space_info::SpaceKind;

impl Engine {
    /// Whether there is more metadata room than an operation that frees space needs, also if other threads take some before it begins.
    pub fn has_room_to_spare(&self) -> bool {
        self.headroom().has_room_to_spare()
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
