//! Files with holes: the positions of their data in the file.
//!
//! GNU tar has four representations. Creamery writes version 1.0, which puts a map before the data, with decimal numbers, one per line.
//! Older ones put it in the extended header (0.0, 0.1), or in the header and blocks behind it.

use std::ops::Range;

use creamery_base::{Error, ErrorKind, Result};

use super::pax::number;

/// Most pieces of a map: archives of ours have no more, and more would cost too much memory.
pub(super) const PIECES_MAX: usize = 1 << 20;

/// The positions of the pieces of data, in order, and the length of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Map {
    pub(super) pieces: Vec<Range<u64>>,
    pub(super) size: u64,
}

pub(super) fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("sparse map {what}"))
}

impl Map {
    /// A map without holes.
    pub(super) fn whole(size: u64) -> Self {
        let all = 0..size;
        Self { pieces: if size == 0 { Vec::new() } else { vec![all] }, size }
    }

    /// Makes a map from offsets and lengths.
    pub(super) fn new(pairs: &[(u64, u64)], size: u64) -> Result<Self> {
        let mut pieces = Vec::with_capacity(pairs.len());
        let mut end = 0;
        for &(offset, len) in pairs {
            let next = offset.checked_add(len).filter(|&next| offset >= end && next <= size);
            end = next.ok_or_else(|| damaged("overlaps, or exceeds its file"))?;
            if len > 0 {
                pieces.push(offset..end);
            }
        }
        Ok(Self { pieces, size })
    }

    pub(super) fn data(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.end - piece.start).sum()
    }

    pub(super) fn has_holes(&self) -> bool {
        self.data() < self.size
    }

    /// The map in version 1.0, in whole blocks of `block` bytes.
    pub(super) fn to_text(&self, block: usize) -> Vec<u8> {
        // A hole at the end becomes a piece of length 0.
        let ends_in_data = self.pieces.last().is_some_and(|last| last.end == self.size);
        let end = if ends_in_data { None } else { Some(self.size..self.size) };
        let pieces: Vec<&Range<u64>> = self.pieces.iter().chain(&end).collect();
        let mut text = format!("{}\n", pieces.len()).into_bytes();
        for piece in pieces {
            text.extend_from_slice(format!("{}\n{}\n", piece.start, piece.end - piece.start).as_bytes());
        }
        text.resize(text.len().next_multiple_of(block), 0);
        text
    }
}

/// Parses the lines of a map from a stream of blocks.
#[derive(Default)]
pub(super) struct Lines {
    digits: Vec<u8>,
    numbers: Vec<u64>,
}

/// Digits of a 64-bit number.
const DIGITS_MAX: usize = 20;

impl Lines {
    /// Takes a block; returns whether the map ends in it.
    pub(super) fn push(&mut self, block: &[u8]) -> Result<bool> {
        for &byte in block {
            if byte != b'\n' {
                if self.digits.len() == DIGITS_MAX {
                    return Err(damaged("has too long a line"));
                }
                self.digits.push(byte);
                continue;
            }
            self.numbers
                .push(number(&self.digits).ok_or_else(|| damaged("has a line that is not a number"))?);
            self.digits.clear();
            if self.numbers[0] > PIECES_MAX as u64 {
                return Err(damaged("has too many entries"));
            }
            if self.numbers.len() as u64 == 1 + 2 * self.numbers[0] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn map(&self, size: u64) -> Result<Map> {
        let (pairs, _) = self.numbers.get(1..).unwrap_or_default().as_chunks::<2>();
        let pairs: Vec<(u64, u64)> = pairs.iter().map(|&[offset, len]| (offset, len)).collect();
        Map::new(&pairs, size)
    }
}

/// Parses a map of version 0.1: offsets and lengths, separated by commas.
pub(super) fn from_list(list: &[u8]) -> Result<Vec<(u64, u64)>> {
    let numbers: Option<Vec<u64>> = list.split(|&byte| byte == b',').map(number).collect();
    let numbers = numbers.filter(|numbers| numbers.len() % 2 == 0);
    let numbers = numbers.ok_or_else(|| damaged("is not a list of offsets and lengths"))?;
    let (pairs, _) = numbers.as_chunks::<2>();
    Ok(pairs.iter().map(|&[offset, len]| (offset, len)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_survives_its_text() {
        for (pairs, size) in [
            (&[(4096, 10), (8192, 4096)][..], 12_288),
            (&[(0, 1)], 1 << 40),
            (&[], 5),
            (&[(u64::MAX - 1, 1)], u64::MAX),
        ] {
            let map = Map::new(pairs, size).expect("a map");
            let text = map.to_text(512);
            assert_eq!(text.len() % 512, 0);
            let mut lines = Lines::default();
            let ends = text.chunks(512).map(|block| lines.push(block).expect("lines"));
            assert_eq!(ends.collect::<Vec<_>>().last(), Some(&true));
            assert_eq!(lines.map(size).expect("a map"), map);
        }
    }

    #[test]
    fn maps_that_lie_are_refused() {
        for (pairs, size) in [
            (&[(0, 11)][..], 10),
            (&[(5, 1), (4, 1)], 10),
            (&[(0, 5), (4, 1)], 10),
            (&[(1, u64::MAX)], u64::MAX),
        ] {
            assert!(Map::new(pairs, size).is_err());
        }
        for text in [&b"x\n"[..], b"9999999999\n", b"-1\n", b"111111111111111111111", b"\n"] {
            assert!(Lines::default().push(text).is_err(), "{}", text.escape_ascii());
        }
        for list in [&b"1"[..], b"1,x", b"", b"1,2,3"] {
            assert!(from_list(list).is_err());
        }
    }
}
