//! Takes values from the front of a fuzzer's bytes.

use creamery_edges::edge_values;

/// The bytes not used yet. Behind their end, values are 0.
#[derive(Clone)]
pub(crate) struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from(self.half()) | u32::from(self.half()) << 16
    }

    pub(crate) fn long(&mut self) -> u64 {
        u64::from(self.word()) | u64::from(self.word()) << 32
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.half()) % bound
    }

    /// At most `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    /// The remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    /// A number of an interesting form, for a place of `width` bytes that holds `now`.
    pub(crate) fn number(&mut self, width: usize, now: u64) -> u64 {
        match self.byte() % 8 {
            0 => u64::from(self.byte()),
            1 => u64::from(self.half()),
            2 => u64::from(self.word()),
            3 => self.long(),
            4 => {
                let edges = edge_values(width, now);
                let chosen = usize::from(self.byte()) % edges.size_hint().0;
                edges.into_iter().nth(chosen).unwrap_or(now)
            }
            5 => now.wrapping_add_signed(i64::from(self.byte().cast_signed())),
            6 => now.wrapping_add_signed(i64::from(self.byte().cast_signed()) * 4096),
            _ => now ^ 1 << (self.byte() % 64),
        }
    }
}
