//! Packing LZO1X. The frame and the instructions are drawn in `lzo.rs`, which unpacks them.
//!
//! Each sector is a stream of its own: it refers to nothing before it. What was seen is remembered by a hash of four
//! bytes, in one table for all sectors of a call. The table is cleared for each call, so that what it packs
//! does not follow from what was packed before (PACK-3), but not for each sector: a place in another sector is told
//! by its number. No bytes are compared but for those the table points at, and where nothing matches for a
//! while the steps grow.
//!
//! A match has at least four bytes, so the instructions for two and three are never needed, and the first one of
//! a stream is always that for literals.

use crate::short_copy::copy_few;

const HASH_BITS: u32 = 12;
const TABLE_LEN: usize = 1 << HASH_BITS;
const MATCH_MIN: usize = 4;
/// From how far back each form of a match can repeat, and up to which length.
const NEAR_DISTANCE: usize = 2048;
const NEAR_LEN: usize = 8;
const MIDDLE_DISTANCE: usize = 16384;
const FAR_DISTANCE: usize = 49151;
/// So many bytes without a match make a step longer by one.
const SKIP_SHIFT: u32 = 5;
/// As many literals as the first byte of a stream can tell.
const FIRST_LITERALS: usize = 255 - 17;
/// A length in a frame.
const LENGTH: usize = 4;

/// Where each hash was last seen, by its place in the data of this call.
pub(super) struct LzoPacker {
    table: Box<[u32; TABLE_LEN]>,
}

impl LzoPacker {
    pub(super) fn new() -> Self {
        Self { table: Box::new([0; TABLE_LEN]) }
    }

    /// Packs `data` into a frame; returns its length, or nothing when `out` is too short for it.
    pub(super) fn pack(&mut self, data: &[u8], sector: usize, out: &mut [u8]) -> Option<usize> {
        self.table.fill(0);
        let mut writer = Writer { out, len: 0 };
        writer.put(&[0; LENGTH])?;
        for start in (0..data.len()).step_by(sector) {
            let left = sector - writer.len % sector;
            if left < LENGTH {
                writer.put(&[0; LENGTH][..left])?;
            }
            let header = writer.len;
            writer.put(&[0; LENGTH])?;
            let end = data.len().min(start + sector);
            self.pack_sector(&data[..end], start, &mut writer)?;
            writer.put_length(header, writer.len - header - LENGTH);
        }
        writer.put_length(0, writer.len);
        Some(writer.len)
    }

    /// Packs what `data` has from `start` on into one stream.
    fn pack_sector(&mut self, data: &[u8], start: usize, writer: &mut Writer<'_>) -> Option<()> {
        let mut stream = Stream { writer, after_match: false };
        // The place that is looked at, and the first one that is not told yet.
        let (mut at, mut told) = (start, start);
        while let Some(word) = word_at(data, at) {
            let slot = &mut self.table[hash(word)];
            let from = *slot as usize;
            *slot = at as u32;
            let is_near = from >= start && from < at && at - from <= FAR_DISTANCE;
            if !is_near || word_at(data, from) != Some(word) {
                at += 1 + ((at - told) >> SKIP_SHIFT);
                continue;
            }
            let before = common_before(&data[start..from], &data[told..at]);
            let len = MATCH_MIN + common(&data[from + MATCH_MIN..], &data[at + MATCH_MIN..]);
            stream.literals(&data[told..], at - before - told)?;
            stream.repeat(at - from, before + len)?;
            at += len;
            told = at;
        }
        stream.literals(&data[told..], data.len() - told)?;
        stream.writer.put(&[0b0001_0001, 0, 0])
    }
}

fn hash(word: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize
}

fn word_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

/// How many bytes both begin with; `there` is the one that ends first.
fn common(here: &[u8], there: &[u8]) -> usize {
    let mut len = 0;
    while let (Some(one), Some(other)) = (here[len..].first_chunk(), there[len..].first_chunk()) {
        let differ = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if differ != 0 {
            return len + differ.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + here[len..].iter().zip(&there[len..]).take_while(|(one, other)| one == other).count()
}

/// How many bytes both end with.
fn common_before(here: &[u8], there: &[u8]) -> usize {
    here.iter().rev().zip(there.iter().rev()).take_while(|(one, other)| one == other).count()
}

struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.out.get_mut(self.len..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    /// The first `len` bytes of `data`. Most are few.
    fn put_beginning(&mut self, data: &[u8], len: usize) -> Option<()> {
        if copy_few(data, len, self.out, self.len) {
            self.len += len;
            return Some(());
        }
        self.put(&data[..len])
    }

    fn put_length(&mut self, at: usize, len: usize) {
        self.out[at..at + LENGTH].copy_from_slice(&(len as u32).to_le_bytes());
    }

    /// An instruction whose length field has `bits` bits, the lowest of it; a length of 0 goes on behind it.
    fn put_long(&mut self, code: u8, bits: u32, len: usize) -> Option<()> {
        let most = (1 << bits) - 1;
        if len <= most {
            return self.put(&[code | len as u8]);
        }
        self.put(&[code])?;
        let mut rest = len - most;
        while rest > 255 {
            self.put(&[0])?;
            rest -= 255;
        }
        self.put(&[rest as u8])
    }
}

struct Stream<'a, 'b> {
    writer: &'a mut Writer<'b>,
    /// The last instruction is a match, which can tell of up to three literals.
    after_match: bool,
}

impl Stream<'_, '_> {
    /// The first `len` bytes of `data` as they are.
    fn literals(&mut self, data: &[u8], len: usize) -> Option<()> {
        match len {
            0 => return Some(()),
            // Every match ends in two bytes of which the first has the two bits for it.
            len @ 1..=3 if self.after_match => self.writer.out[self.writer.len - 2] |= len as u8,
            len @ 1..=FIRST_LITERALS if !self.after_match => self.writer.put(&[17 + len as u8])?,
            len => self.writer.put_long(0, 4, len - 3)?,
        }
        self.writer.put_beginning(data, len)
    }

    fn repeat(&mut self, distance: usize, len: usize) -> Option<()> {
        self.after_match = true;
        if distance <= NEAR_DISTANCE && len <= NEAR_LEN {
            let back = distance - 1;
            let code = if len <= 4 { 0b0100_0000 | (len - 3) << 5 } else { 0b1000_0000 | (len - 5) << 5 };
            return self.writer.put(&[(code | (back & 7) << 2) as u8, (back >> 3) as u8]);
        }
        if distance <= MIDDLE_DISTANCE {
            self.writer.put_long(0b0010_0000, 5, len - 2)?;
            return self.writer.put(&((distance - 1) << 2).to_le_bytes()[..2]);
        }
        let back = distance - MIDDLE_DISTANCE;
        self.writer.put_long(0b0001_0000 | (back >> 14 << 3) as u8, 3, len - 2)?;
        self.writer.put(&(back << 2).to_le_bytes()[..2])
    }
}
