//! The bytes that reads see of held writes, by their offset.
//!
//! A read finds the held bytes of its range in logarithmic time, however many writes are held. Later writes replace
//! earlier ones: no two pieces overlap.

use std::collections::BTreeMap;

use creamery_base::memory;

use crate::SharedBytes;

/// Pieces by their offset on the device.
#[derive(Default)]
pub(super) struct Overlay {
    pieces: BTreeMap<u64, SharedBytes>,
}

fn index(position: u64) -> usize {
    usize::try_from(position).expect("a position in memory fits")
}

impl Overlay {
    /// Puts a write over the pieces of earlier ones.
    pub(super) fn write(&mut self, offset: u64, data: SharedBytes) {
        let end = offset + data.len() as u64;
        if data.is_empty() {
            return;
        }
        let before = self.pieces.range(..offset).next_back().map(|(at, piece)| (*at, piece.clone()));
        if let Some((at, piece)) = before
            && at + piece.len() as u64 > offset
        {
            self.pieces.insert(at, piece.slice(0..index(offset - at)));
            self.keep_behind(end, at, &piece);
        }
        while let Some((&at, _)) = self.pieces.range(offset..end).next() {
            let piece = self.pieces.remove(&at).expect("it was found");
            self.keep_behind(end, at, &piece);
        }
        self.pieces.insert(offset, data);
    }

    /// Keeps the bytes of a piece at `at` that lie behind `end`.
    fn keep_behind(&mut self, end: u64, at: u64, piece: &SharedBytes) {
        if at + piece.len() as u64 > end {
            self.pieces.insert(end, piece.slice(index(end - at)..piece.len()));
        }
    }

    /// The pieces that overlap a range.
    pub(super) fn overlapping(&self, offset: u64, len: usize) -> Vec<(u64, SharedBytes)> {
        let end = offset.saturating_add(len as u64);
        let before = self.pieces.range(..offset).next_back();
        let before = before.filter(|(at, piece)| *at + piece.len() as u64 > offset);
        before
            .into_iter()
            .chain(self.pieces.range(offset..end))
            .map(|(at, piece)| (*at, piece.clone()))
            .collect()
    }

    /// Returns the memory of the index, without the bytes of the writes.
    pub(super) fn memory(&self) -> u64 {
        memory::btree::<u64, SharedBytes>(self.pieces.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuffer;

    #[test]
    fn pieces_are_what_writes_in_their_order_leave() {
        const LEN: usize = 256;
        let (mut overlay, mut model) = (Overlay::default(), [None; LEN]);
        let mut seed = 1_u64;
        let mut below = |most: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % most
        };
        for number in 0..2000_u32 {
            let (at, value) = (below(LEN), (number % 251) as u8);
            let len = below(LEN - at + 1).min(40);
            overlay.write(at as u64, AlignedBuffer::from_slice(&vec![value; len]).into());
            model[at..at + len].fill(Some(value));
            let (from, count) = (below(LEN), below(64));
            let mut found = [None; LEN];
            for (at, piece) in overlay.overlapping(from as u64, count) {
                let at = at as usize;
                assert!(!piece.is_empty() && at < from + count && at + piece.len() > from);
                assert!(found[at..at + piece.len()].iter().all(Option::is_none), "no two pieces overlap");
                piece.iter().enumerate().for_each(|(index, byte)| found[at + index] = Some(*byte));
            }
            let range = from..(from + count).min(LEN);
            assert_eq!(found[range.clone()], model[range]);
        }
        assert!(overlay.memory() > 0);
    }
}
