//! Rewriting a bad copy from a good one.

use creamery_device::AlignedBuffer;

use crate::Mode;
use crate::mapping::Piece;
use crate::volume::{Volume, index};

impl Volume {
    /// Writes `good` over the copy at `pieces` if a second look says `still_bad`, or cannot read it. Only in a
    /// volume open for writing. `count` is how many blocks or sectors it is. A failure is counted and otherwise
    /// ignored: the reader has its bytes.
    pub(crate) fn repair(
        &self,
        pieces: &[Piece],
        good: &[u8],
        count: u64,
        still_bad: &dyn Fn(&[u8]) -> bool,
    ) {
        if self.mode() != Mode::ReadWrite {
            return;
        }
        // Two readers that met the same damage come here one after the other, and the second one finds it gone.
        let _alone = self.repairing.lock();
        let mut now = AlignedBuffer::zeroed(good.len());
        if self.read_pieces(pieces, &mut now).is_ok() && !still_bad(&now) {
            return;
        }
        let mut rest = good;
        for piece in pieces {
            let (part, after) = rest.split_at(index(piece.len));
            let written = self.member(piece.at.dev).and_then(|it| it.device.write_at(piece.at.offset, part));
            if written.is_err() {
                self.counters.repair_failures.add(count);
                return;
            }
            rest = after;
        }
        self.counters.repaired.add(count);
    }
}
