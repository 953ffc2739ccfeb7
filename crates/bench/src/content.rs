//! The content of files: bytes that do not compress, or text, which does. It is equal on every side, and known at every offset.

use anyhow::{Result, ensure};
use creamery_testkit::Random;

/// Bytes after which the content repeats; no piece divides them.
const PERIOD: usize = (4 << 20) + 4096;
/// The longest piece, bytes.
pub(crate) const PIECE_MAX: usize = 1 << 20;
/// The distance between the contents of two generations, and of two files, bytes.
const GENERATION: usize = 1_000_003;
const FILE: usize = 10_007;
/// Bytes of a piece that are compared while time is measured: enough to tell it from any other, and from zeros.
const GLANCE: usize = 16;

const SEED: u64 = 20_251_121;

/// The content of files in one generation; writing again changes all of it.
pub(crate) struct Contents {
    pool: Vec<u8>,
    generation: usize,
    /// Whether to expect zeros: the server keeps no data.
    zeros: bool,
}

impl Contents {
    pub(crate) fn new(generation: usize, zeros: bool) -> Self {
        Self::of(Random::new(SEED).bytes(PERIOD), generation, zeros)
    }

    /// Content of text, which compresses.
    pub(crate) fn text(generation: usize) -> Self {
        Self::of(Random::new(SEED).text(PERIOD), generation, false)
    }

    fn of(mut pool: Vec<u8>, generation: usize, zeros: bool) -> Self {
        pool.extend_from_within(..PIECE_MAX);
        Self { pool, generation, zeros }
    }

    /// `len` bytes of file number `file` at `offset`.
    pub(crate) fn at(&self, file: usize, offset: u64, len: usize) -> &[u8] {
        let shift = self.generation * GENERATION + file * FILE;
        let start = (offset as usize % PERIOD + shift) % PERIOD;
        &self.pool[start..start + len]
    }

    /// Checks that `found` begins with the expected content.
    pub(crate) fn glance(&self, file: usize, offset: u64, found: &[u8]) -> Result<()> {
        self.compare(file, offset, &found[..found.len().min(GLANCE)])
    }

    /// Checks that `found` is the expected content.
    pub(crate) fn compare(&self, file: usize, offset: u64, found: &[u8]) -> Result<()> {
        let right = match self.zeros {
            true => found.iter().all(|byte| *byte == 0),
            false => found == self.at(file, offset, found.len()),
        };
        ensure!(right, "file {file} does not have at {offset} what was written there");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Contents, PERIOD};

    #[test]
    fn content_depends_on_place_generation_and_file_but_not_on_the_piece() {
        let contents = [0, 1].map(|generation| Contents::new(generation, false));
        let far = PERIOD as u64 - 4096;
        let whole = contents[0].at(3, far, 8192);
        assert_eq!(whole[4096..], *contents[0].at(3, far + 4096, 4096));
        for other in [contents[0].at(3, 0, 4096), contents[0].at(4, far, 4096), contents[1].at(3, far, 4096)]
        {
            assert_ne!(whole[..16], other[..16]);
        }
        assert!(contents[0].compare(3, far, whole).is_ok());
        assert!(contents[1].glance(3, far, whole).is_err());
        assert!(contents[0].compare(3, far, &[0; 16]).is_err());
        assert!(Contents::new(0, true).compare(3, far, &[0; 16]).is_ok());
    }
}
