//! Taking values off the front of a fuzzer's bytes.

/// Bytes not used yet. Where they end, values are 0.
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

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    /// A number in one of the forms in which numbers are interesting, for a place that holds `now`.
    pub(crate) fn number(&mut self, now: u64) -> u64 {
        const TELLING: [u64; 16] = [
            0,
            1,
            2,
            0x7f,
            0xff,
            0x1000,
            0xffff,
            0x1_0000,
            0x7fff_ffff,
            0xffff_ffff,
            1 << 32,
            i64::MAX as u64,
            1 << 63,
            u64::MAX,
            u64::MAX - 4095,
            u64::MAX - 1,
        ];
        match self.byte() % 8 {
            0 => u64::from(self.byte()),
            1 => u64::from(self.half()),
            2 => u64::from(self.word()),
            3 => self.long(),
            4 => TELLING[usize::from(self.byte() % 16)],
            5 => now.wrapping_add_signed(i64::from(self.byte().cast_signed())),
            6 => now.wrapping_add_signed(i64::from(self.byte().cast_signed()) * 4096),
            _ => now ^ 1 << (self.byte() % 64),
        }
    }
}
