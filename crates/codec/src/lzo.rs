//! Unpacking LZO1X, and the frame that Btrfs puts around it.
//!
//! # The frame
//! A little-endian length of the whole, itself included; then segments, each a little-endian length and that many
//! bytes that unpack to one sector (the last to a sector at most). A segment's length never lies across a sector
//! boundary of the packed data: if fewer than four bytes are left, they are padding.
//!
//! # The stream
//! The first byte identifies an instruction. The two low bits of a match say how many literals follow it
//! (here: its state), and the meaning of a byte below 16 depends on the state before it.
//!
//! ```text
//!   0000LLLL           state 0: 3 + L literals; then state 4
//!   0000DDSS H         state 1..3: 2 bytes from H << 2 | D, plus 1
//!   0000DDSS H         state 4: 3 bytes from H << 2 | D, plus 2049
//!   0001HLLL DDDDDDSS DDDDDDDD   2 + L bytes from 16384 + (H << 14 | D); D and H 0: the end
//!   001LLLLL DDDDDDSS DDDDDDDD   2 + L bytes from D, plus 1
//!   01LDDDSS H         3 + L bytes from H << 3 | D, plus 1
//!   1LLDDDSS H         5 + L bytes from H << 3 | D, plus 1
//! ```
//! An L of 0, if it has three bits or more, continues in the next bytes: each zero byte adds 255, the first other
//! byte adds itself and the largest value that L can have. The first byte of a stream may instead be 17 + the number of
//! literals that follow it.

use crate::UnpackError;
use crate::short_copy::{AT_ONCE, copy_few};

struct Reader<'a> {
    data: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], UnpackError> {
        let (taken, rest) = self.data.split_at_checked(len).ok_or(UnpackError::Truncated)?;
        self.data = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<usize, UnpackError> {
        Ok(usize::from(self.take(1)?[0]))
    }

    fn half(&mut self) -> Result<usize, UnpackError> {
        let bytes = self.take(2)?;
        Ok(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    }

    fn word(&mut self) -> Result<usize, UnpackError> {
        let bytes = self.take(4)?;
        let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        usize::try_from(value).map_err(|_| UnpackError::TooLong)
    }

    /// Returns a segment's length, and the segment.
    fn segment(&mut self) -> Result<(usize, &'a [u8]), UnpackError> {
        let len = self.word()?;
        Ok((len, self.take(len)?))
    }

    /// Returns a length whose field in the instruction is `field`; the largest value of the field is `most`.
    fn length(&mut self, field: usize, most: usize) -> Result<usize, UnpackError> {
        if field > 0 {
            return Ok(field);
        }
        let zeros = self.data.iter().take_while(|byte| **byte == 0).count();
        self.take(zeros)?;
        // No overflow: each 255 takes one byte of memory.
        Ok(most + zeros * 255 + self.byte()?)
    }
}

struct UnpackWriter<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl UnpackWriter<'_> {
    /// Copies the next `len` bytes of `reader`. Most pieces are short.
    fn take(&mut self, reader: &mut Reader<'_>, len: usize) -> Result<(), UnpackError> {
        if copy_few(reader.data, len, self.out, self.len) {
            reader.data = &reader.data[len..];
            self.len += len;
            return Ok(());
        }
        self.literals(reader.take(len)?)
    }

    fn literals(&mut self, bytes: &[u8]) -> Result<(), UnpackError> {
        let room = self.out.get_mut(self.len..self.len + bytes.len()).ok_or(UnpackError::TooLong)?;
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Repeats `len` bytes from `distance` back; the two may overlap.
    fn repeat(&mut self, distance: usize, len: usize) -> Result<(), UnpackError> {
        let from = self.len.checked_sub(distance).ok_or(UnpackError::Damaged)?;
        let end = self.len.checked_add(len).filter(|end| *end <= self.out.len());
        let end = end.ok_or(UnpackError::TooLong)?;
        if distance >= AT_ONCE && len <= AT_ONCE && self.len + AT_ONCE <= self.out.len() {
            self.out.copy_within(from..from + AT_ONCE, self.len);
            self.len = end;
            return Ok(());
        }
        // The bytes to repeat grow with those repeated.
        while self.len < end {
            let piece = (self.len - from).min(end - self.len);
            self.out.copy_within(from..from + piece, self.len);
            self.len += piece;
        }
        Ok(())
    }
}

/// Unpacks one LZO1X stream. Returns the number of bytes that it writes to `out`.
fn unpack_stream(packed: &[u8], out: &mut [u8]) -> Result<usize, UnpackError> {
    let mut reader = Reader { data: packed };
    let mut writer = UnpackWriter { out, len: 0 };
    let mut state = 0;
    if let Some(first) = packed.first().filter(|first| **first > 17) {
        reader.byte()?;
        let literals = usize::from(*first) - 17;
        writer.take(&mut reader, literals)?;
        state = literals.min(4);
    }
    loop {
        let code = reader.byte()?;
        let (distance, len, next) = match code {
            0..16 if state == 0 => {
                let literals = 3 + reader.length(code, 15)?;
                writer.take(&mut reader, literals)?;
                state = 4;
                continue;
            }
            0..16 => {
                let distance = (reader.byte()? << 2) + (code >> 2);
                if state == 4 { (distance + 2049, 3, code & 3) } else { (distance + 1, 2, code & 3) }
            }
            16..32 => {
                let len = 2 + reader.length(code & 7, 7)?;
                let half = reader.half()?;
                let distance = 16384 + ((code & 8) << 11) + (half >> 2);
                if distance == 16384 {
                    return Ok(writer.len);
                }
                (distance, len, half & 3)
            }
            32..64 => {
                let len = 2 + reader.length(code & 31, 31)?;
                let half = reader.half()?;
                ((half >> 2) + 1, len, half & 3)
            }
            64..128 => ((reader.byte()? << 3) + (code >> 2 & 7) + 1, 3 + (code >> 5 & 1), code & 3),
            _ => ((reader.byte()? << 3) + (code >> 2 & 7) + 1, 5 + (code >> 5 & 3), code & 3),
        };
        writer.repeat(distance, len)?;
        writer.take(&mut reader, next)?;
        state = next;
    }
}

/// Unpacks a frame of a filesystem with sectors of `sector` bytes. Returns the number of bytes that it writes to `out`; the rest of `out`
/// is arbitrary.
///
/// # Errors
/// The frame is incomplete, or a segment makes more than a sector, or refers to bytes before its beginning.
pub fn unpack_lzo(packed: &[u8], sector: usize, out: &mut [u8]) -> Result<usize, UnpackError> {
    unpack_lzo_from(packed, sector, 0, out)
}

/// Unpacks a frame from sector `first` on, as far as `out` goes. The segments before are skipped: they count as whole sectors, because
/// every packer makes all segments but the last that long.
///
/// # Errors
/// The frame is incomplete, or an unpacked segment makes more than a sector, or refers to bytes before its beginning.
pub fn unpack_lzo_from(
    packed: &[u8],
    sector: usize,
    first: usize,
    out: &mut [u8],
) -> Result<usize, UnpackError> {
    let total = Reader { data: packed }.word()?;
    let given = packed.len();
    let packed = packed.get(..total).ok_or(UnpackError::Lengths)?;
    // The frame must end in the last of the given sectors.
    if total < 4 || total.next_multiple_of(sector) < given {
        return Err(UnpackError::Lengths);
    }
    let (mut at, mut made, mut before) = (4, 0, first);
    while at < total && made < out.len() {
        let left = sector - at % sector;
        if left < 4 {
            at += left;
            continue;
        }
        let mut reader = Reader { data: &packed[at..] };
        let (len, segment) = reader.segment().map_err(|_| UnpackError::Lengths)?;
        at += 4 + len;
        if before > 0 {
            before -= 1;
            continue;
        }
        let room = out.len().min(made + sector);
        made += match unpack_stream(segment, &mut out[made..room]) {
            Err(UnpackError::TooLong) if room - made < sector => {
                unpack_beginning(segment, &mut out[made..], sector)?
            }
            unpacked => unpacked?,
        };
    }
    Ok(made)
}

/// Unpacks the beginning of a segment; the caller does not need the rest.
fn unpack_beginning(segment: &[u8], out: &mut [u8], sector: usize) -> Result<usize, UnpackError> {
    let mut whole = vec![0; sector];
    let len = unpack_stream(segment, &mut whole)?.min(out.len());
    out[..len].copy_from_slice(&whole[..len]);
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(segments: &[&[u8]]) -> Vec<u8> {
        let mut packed = vec![0; 4];
        for segment in segments {
            packed.extend(u32::try_from(segment.len()).expect("short").to_le_bytes());
            packed.extend(*segment);
        }
        let total = u32::try_from(packed.len()).expect("short");
        packed[..4].copy_from_slice(&total.to_le_bytes());
        packed
    }

    fn unpack(segments: &[&[u8]]) -> Result<Vec<u8>, UnpackError> {
        let mut out = vec![0; 300];
        let len = unpack_lzo(&frame(segments), 4096, &mut out)?;
        out.truncate(len);
        Ok(out)
    }

    const END: [u8; 3] = [0x11, 0, 0];

    #[test]
    fn every_instruction_does_what_the_drawing_says() {
        let stream = |parts: &[&[u8]]| [parts.concat(), END.to_vec()].concat();
        let rows: &[(Vec<u8>, &[u8])] = &[
            (stream(&[]), b""),
            (stream(&[&[17 + 5], b"hello"]), b"hello"),
            (stream(&[&[0], &[3], &[b'x'; 21]]), &[b'x'; 21]),
            // 4 literals, then 3 bytes from 4 back, then 1 literal.
            (stream(&[&[17 + 4], b"abcd", &[0b0100_1101, 0], b"!"]), b"abcdabc!"),
            // 5 to 8 bytes, overlapping: 1 back.
            (stream(&[&[17 + 4], b"abcd", &[0b1110_0000, 0]]), b"abcddddddddd"),
            // 2 + 40 bytes from 2 back.
            (stream(&[&[17 + 4], b"abcd", &[0x20, 9, 4, 0]]), &[&b"ab"[..], &b"cd".repeat(22)].concat()),
            // After one literal at the start, 2 bytes from 1 back.
            (stream(&[&[17 + 1], b"z", &[0, 0]]), b"zzz"),
        ];
        for (packed, want) in rows {
            assert_eq!(unpack(&[packed]).as_deref(), Ok(*want), "{packed:02x?}");
        }
        assert_eq!(unpack(&[&rows[1].0, &rows[3].0]).as_deref(), Ok(&b"helloabcdabc!"[..]));
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        let whole = [&[17 + 4][..], b"abcd", &[0x20, 9, 4, 0], &END].concat();
        for len in 0..whole.len() {
            assert!(unpack(&[&whole[..len]]).is_err(), "cut to {len}");
        }
        assert_eq!(unpack(&[&[18, b'z', 0x40, 1, 0x11, 0, 0]]), Err(UnpackError::Damaged));
        let long = frame(&[&[&[0][..], &[0; 2], &[1], &[7; 529], &END].concat()]);
        assert_eq!(unpack_lzo(&long, 512, &mut [0; 600]), Err(UnpackError::TooLong), "more than a sector");
        assert_eq!(unpack_lzo(&long, 4096, &mut [0; 600]), Ok(529));
        assert_eq!(unpack_lzo(&long, 4096, &mut [0; 300]), Ok(300), "the rest is not wanted");
        for total in [0_u32, 3, 4096] {
            let mut packed = vec![0; 8192];
            packed[..4].copy_from_slice(&total.to_le_bytes());
            assert_eq!(unpack_lzo(&packed, 4096, &mut [0; 300]), Err(UnpackError::Lengths), "{total}");
        }
        let mut seed = 1_u32;
        for _ in 0..20_000 {
            let mut bytes = frame(&[&whole, &whole]);
            for _ in 0..3 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (seed >> 8) as usize % bytes.len();
                bytes[at] = (seed >> 24) as u8;
            }
            let _ = unpack_lzo(&bytes, 64, &mut [0; 300]);
        }
    }
}
