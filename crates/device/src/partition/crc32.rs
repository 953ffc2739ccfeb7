//! CRC-32 as in Ethernet and zip (reflected, polynomial 04C11DB7): the checksum of GPT. Btrfs has another one, CRC-32C.

/// Each byte after eight shifts.
const TABLE: [u32; 256] = {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut table = [0; 256];
    let mut byte: u32 = 0;
    while byte < 256 {
        let mut rest = byte;
        let mut bit = 0;
        while bit < 8 {
            rest = (rest >> 1) ^ (POLYNOMIAL & (rest & 1).wrapping_neg());
            bit += 1;
        }
        table[byte as usize] = rest;
        byte += 1;
    }
    table
};

/// A running checksum.
#[derive(Clone, Copy)]
pub(super) struct Crc32(u32);

impl Crc32 {
    pub(super) const fn new() -> Self {
        Self(u32::MAX)
    }

    pub(super) fn with(self, bytes: &[u8]) -> Self {
        let step = |sum: u32, byte: &u8| (sum >> 8) ^ TABLE[usize::from(sum.to_le_bytes()[0] ^ byte)];
        Self(bytes.iter().fold(self.0, step))
    }

    pub(super) const fn get(self) -> u32 {
        !self.0
    }
}

pub(super) fn crc32(bytes: &[u8]) -> u32 {
    Crc32::new().with(bytes).get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_sums_come_out_in_one_piece_and_in_two() {
        for (text, sum) in [("", 0), ("123456789", 0xcbf4_3926), ("a", 0xe8b7_be43)] {
            assert_eq!(crc32(text.as_bytes()), sum, "{text}");
            let (first, second) = text.as_bytes().split_at(text.len() / 2);
            assert_eq!(Crc32::new().with(first).with(second).get(), sum, "{text}");
        }
    }
}
