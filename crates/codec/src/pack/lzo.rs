//! Packing LZO1X. `lzo.rs`, which unpacks, describes the frame and the instructions.
//!
//! Each sector is a stream of its own: it refers to nothing before it. A table maps hashes of four bytes to their last
//! place. It is cleared for each sector, so that the packed bytes do not depend on data packed before
//! (PACK-3). A new hash points at the sector's beginning, which is as good a place to compare as any. So there
//! is one comparison for each place: its four bytes with those that the table points at. While nothing matches for
//! some time, the steps grow.
//!
//! A match has at least four bytes, so the instructions for two and three are never needed, and the first one of
//! a stream is always that for literals.

use crate::short_copy::AT_ONCE;

const HASH_BITS: u32 = 12;
const TABLE_LEN: usize = 1 << HASH_BITS;
const MATCH_MIN: usize = 4;
/// The largest distance, and the largest length, of each form of a match.
const NEAR_DISTANCE: usize = 2048;
const NEAR_LEN: usize = 8;
const MIDDLE_DISTANCE: usize = 16384;
const FAR_DISTANCE: usize = 49151;
/// The longest match whose length fits one byte, with its distance in the next two.
const MIDDLE_LEN: usize = 33;
/// This many bytes without a match make a step longer by one.
const SKIP_SHIFT: u32 = 5;
/// The number of literals that fit into the match before them: bits in the byte this far before the match's end.
const FLAGS_MAX: usize = 3;
const FLAGS_BEFORE: usize = 2;
/// The number of literals that the first byte of a stream can encode.
const FIRST_LITERALS: usize = 255 - 17;
/// A length in a frame.
const LENGTH: usize = 4;

/// The last place of each hash in this sector.
pub(super) struct LzoPacker {
    table: Box<[u16; TABLE_LEN]>,
}

impl LzoPacker {
    pub(super) fn new() -> Self {
        Self { table: Box::new([0; TABLE_LEN]) }
    }

    /// Packs `data` into a frame. Returns its length, or `None` if `out` is too short for it.
    pub(super) fn pack(&mut self, data: &[u8], sector: usize, out: &mut [u8]) -> Option<usize> {
        let mut writer = PackWriter { out, len: 0 };
        writer.put(&[0; LENGTH])?;
        for data in data.chunks(sector) {
            let left = sector - writer.len % sector;
            if left < LENGTH {
                writer.put(&[0; LENGTH][..left])?;
            }
            let header = writer.len;
            writer.put(&[0; LENGTH])?;
            self.pack_sector(data, &mut writer)?;
            writer.put_length(header, writer.len - header - LENGTH);
        }
        writer.put_length(0, writer.len);
        Some(writer.len)
    }

    /// Packs a sector into one stream.
    fn pack_sector(&mut self, data: &[u8], writer: &mut PackWriter<'_>) -> Option<()> {
        self.table.fill(0);
        let mut stream = Stream { writer, after_match: false };
        // The place to compare, and the first one that is not encoded yet.
        let (mut at, mut told) = (1, 0);
        while let Some(word) = word_at(data, at) {
            let slot = &mut self.table[hash(word)];
            let from = usize::from(*slot);
            *slot = at as u16;
            if word_at(data, from) != Some(word) || at - from > FAR_DISTANCE {
                at += 1 + ((at - told) >> SKIP_SHIFT);
                continue;
            }
            let len = MATCH_MIN + common(&data[from + MATCH_MIN..], &data[at + MATCH_MIN..]);
            let before = common_before(&data[..from], &data[..at]).min(at - told);
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

/// Returns how many bytes both begin with; `there` ends first.
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

/// Returns how many bytes both end with, of the last eight. 0 if there are fewer: few sectors' first bytes come again.
fn common_before(here: &[u8], there: &[u8]) -> usize {
    let (Some(one), Some(other)) = (here.last_chunk(), there.last_chunk()) else { return 0 };
    (u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other)).leading_zeros() as usize / 8
}

struct PackWriter<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl PackWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.out.get_mut(self.len..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    fn put_length(&mut self, at: usize, len: usize) {
        self.out[at..at + LENGTH].copy_from_slice(&(len as u32).to_le_bytes());
    }

    /// Writes an instruction whose length field has the lowest `bits` bits; a length of 0 continues behind it.
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
    writer: &'a mut PackWriter<'b>,
    /// The last instruction is a match, which can encode up to three literals.
    after_match: bool,
}

impl Stream<'_, '_> {
    /// Writes the first `len` bytes of `data` as literals.
    #[inline]
    fn literals(&mut self, data: &[u8], len: usize) -> Option<()> {
        if self.few_literals(data, len) { Some(()) } else { self.any_literals(data, len) }
    }

    /// Writes a few literals behind a match, if there is room for more. Returns false if not. The number of literals is unpredictable, also
    /// for a processor, so no branch depends on it.
    #[inline]
    fn few_literals(&mut self, data: &[u8], len: usize) -> bool {
        let Some(bytes) = data.first_chunk::<AT_ONCE>().filter(|_| self.after_match && len <= AT_ONCE) else {
            return false;
        };
        let behind = self.writer.out.get_mut(self.writer.len - FLAGS_BEFORE..);
        let Some(room) = behind.and_then(|out| out.first_chunk_mut::<{ FLAGS_BEFORE + 1 + AT_ONCE }>())
        else {
            return false;
        };
        let in_flags = len <= FLAGS_MAX;
        room[0] |= if in_flags { len as u8 } else { 0 };
        room[FLAGS_BEFORE] = (len as u8).wrapping_sub(3);
        let code = usize::from(!in_flags);
        room[FLAGS_BEFORE + code..][..AT_ONCE].copy_from_slice(bytes);
        self.writer.len += code + len;
        true
    }

    #[cold]
    fn any_literals(&mut self, data: &[u8], len: usize) -> Option<()> {
        match len {
            0 => return Some(()),
            // Every match ends in two bytes of which the first has the two bits for it.
            len @ 1..=FLAGS_MAX if self.after_match => {
                self.writer.out[self.writer.len - FLAGS_BEFORE] |= len as u8;
            }
            len @ 1..=FIRST_LITERALS if !self.after_match => self.writer.put(&[17 + len as u8])?,
            len => self.writer.put_long(0, 4, len - 3)?,
        }
        self.writer.put(&data[..len])
    }

    #[inline]
    fn repeat(&mut self, distance: usize, len: usize) -> Option<()> {
        self.after_match = true;
        if distance > MIDDLE_DISTANCE || len > MIDDLE_LEN {
            return self.repeat_far_or_long(distance, len);
        }
        // Both forms are computed, to avoid a branch.
        let back = distance as u32 - 1;
        let is_near = distance <= NEAR_DISTANCE && len <= NEAR_LEN;
        let near = (len as u32 - 1) << 5 | (back & 7) << 2 | back >> 3 << 8;
        let middle = 0b0010_0000 | (len as u32 - 2) | back << 10;
        let (bytes, taken) = if is_near { (near, 2) } else { (middle, 3) };
        if let Some(room) = self.writer.out.get_mut(self.writer.len..).and_then(<[u8]>::first_chunk_mut) {
            *room = bytes.to_le_bytes();
            self.writer.len += taken;
            return Some(());
        }
        self.writer.put(&bytes.to_le_bytes()[..taken])
    }

    fn repeat_far_or_long(&mut self, distance: usize, len: usize) -> Option<()> {
        if distance <= MIDDLE_DISTANCE {
            self.writer.put_long(0b0010_0000, 5, len - 2)?;
            return self.writer.put(&((distance - 1) << 2).to_le_bytes()[..2]);
        }
        let back = distance - MIDDLE_DISTANCE;
        self.writer.put_long(0b0001_0000 | (back >> 14 << 3) as u8, 3, len - 2)?;
        self.writer.put(&(back << 2).to_le_bytes()[..2])
    }
}
