//! Rewriting a bad copy from a good one.
//!
//! # Invariants
//! - REPAIR-1: nothing is rewritten before [`Volume::decide_repairs`]. The code that opens a filesystem calls it once nothing can forbid
//!   writing any more. While the volume is untouched a repair is held (`untouched`).

use creamery_base::Wait;
use creamery_device::AlignedBuffer;
use creamery_format::Expected;

use crate::Mode;
use crate::device_range::DeviceRange;
use crate::index::index;
use crate::volume::Volume;

impl Volume {
    /// Starts to rewrite bad copies, in a volume that is open for writing: those found from now on, and those of tree
    /// blocks found before. Unless `wanted`, nothing is ever repaired.
    pub fn decide_repairs(&self, wanted: bool) {
        let decided = self.repairs.set(wanted && self.mode() == Mode::ReadWrite);
        assert!(decided.is_ok(), "REPAIR-1: it is decided once, by whoever opens");
        let unrepaired = std::mem::take(&mut *self.unrepaired.lock());
        for want in unrepaired.iter().filter(|_| self.may_repair()) {
            // The reader has its bytes already. If the block cannot be read again, that is counted.
            let _ = self.read_tree_block(want.logical, want, Wait::Yes);
        }
    }

    fn may_repair(&self) -> bool {
        self.repairs.get() == Some(&true)
    }

    /// Notes a tree block whose copies are to be repaired later. Returns false if it can be repaired now.
    pub(crate) fn repair_later(&self, want: &Expected) -> bool {
        if self.mode() == Mode::ReadWrite && self.repairs.get().is_none() {
            self.unrepaired.lock().push(*want);
            return true;
        }
        false
    }

    /// Writes `good` over the copy at `pieces` if a second look says `still_bad`, or cannot read it. Only in a
    /// volume open for writing. `count` is the number of blocks or sectors. A failure is counted and otherwise
    /// ignored: the reader has its bytes.
    pub(crate) fn repair(
        &self,
        pieces: &[DeviceRange],
        good: &[u8],
        count: u64,
        still_bad: &dyn Fn(&[u8]) -> bool,
    ) {
        if !self.may_repair() {
            return;
        }
        let len: u64 = pieces.iter().map(|piece| piece.len).sum();
        if !self.held.takes_repair(len) {
            return; // the next reader finds it again
        }
        // Two readers that found the same damage come here one after the other, and the second one finds it gone.
        let _alone = self.repairing.lock();
        let mut now = AlignedBuffer::zeroed(good.len());
        if self.read_pieces(pieces, &mut now).is_ok() && !still_bad(&now) {
            return;
        }
        let mut rest = good;
        for piece in pieces {
            let (part, after) = rest.split_at(index(piece.len));
            // The repair counts with its last piece.
            let counted = if after.is_empty() { count } else { 0 };
            match self.held.device(piece.at.dev).and_then(|it| it.repair_at(piece.at.offset, part, counted)) {
                Ok(is_written) if is_written => self.counters.repaired.add(counted),
                Ok(_) => {}
                Err(_) => return self.counters.repair_failures.add(count),
            }
            rest = after;
        }
    }
}
