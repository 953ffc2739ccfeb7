//! Writing tree blocks and data: to every copy, in as few requests as possible.

use std::ops::Range;

use creamery_base::{DevId, Error, ErrorKind, Logical, Physical, Result};
use creamery_format::{BlockRef, Expected, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, verify_block};

use crate::durable::{CopyFailure, Written};
use crate::mapping::Piece;
use crate::volume::{Volume, index};

/// Adjacent blocks are merged into one request up to this many bytes.
const REQUEST_MAX: u64 = 2 << 20;

/// Part of a block, at its place on a device.
struct Part<'a> {
    at: Physical,
    bytes: &'a [u8],
    /// Index of the block in the batch.
    block: usize,
}

impl Part<'_> {
    fn end(&self) -> (DevId, u64) {
        (self.at.dev, self.at.offset + self.bytes.len() as u64)
    }
}

/// Whatever the free space tree of a damaged filesystem says, nothing is written over a superblock copy.
fn check_beside_superblocks(mirror: &[Piece]) -> Result<()> {
    for piece in mirror {
        let end = piece.at.offset + piece.len;
        let hit = SUPERBLOCK_OFFSETS
            .iter()
            .find(|&&copy| copy < end && piece.at.offset < copy + SUPERBLOCK_LEN as u64);
        if let Some(copy) = hit {
            let message =
                format!("{} of {} bytes would overwrite the superblock at {copy}", piece.at, piece.len);
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
    }
    Ok(())
}

impl Volume {
    /// Writes tree blocks, each of them checked first, to all their copies.
    ///
    /// # Errors
    /// When a block is not as a reader would accept it (nothing was written then), or when a block has reached
    /// none of its copies.
    pub fn write_tree_blocks(&self, blocks: &[(Logical, &[u8])]) -> Result<Written> {
        self.check_writable()?;
        // VOL-6
        blocks.iter().try_for_each(|&(at, bytes)| self.verify_before_write(at, bytes))?;
        let mut parts = Vec::with_capacity(blocks.len() * 2);
        for (block, &(at, bytes)) in blocks.iter().enumerate() {
            let copies = self.map(at, bytes.len() as u64)?;
            for mirror in copies.mirrors() {
                let mut rest = bytes;
                check_beside_superblocks(mirror)?;
                for piece in mirror {
                    let (bytes, after) = rest.split_at(index(piece.len));
                    parts.push(Part { at: piece.at, bytes, block });
                    rest = after;
                }
            }
        }
        parts.sort_unstable_by_key(|part| part.at);
        let runs = runs_of(&parts);
        self.counters.tree_block_writes.add(blocks.len() as u64);
        let failures = self.judge_failures(blocks, &parts, self.write_runs(&parts, &runs))?;
        Ok(Written::new(self.number(), failures))
    }

    fn verify_before_write(&self, at: Logical, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len(), index(self.node_size()), "a tree block has node size");
        assert!(at.is_aligned(u64::from(self.sector_size())), "a tree block lies on a sector boundary");
        let block = BlockRef::new(bytes);
        let want = Expected {
            logical: at,
            level: Some(block.level()),
            generation: Some(block.generation()),
            owner: Some(block.owner()),
            first_key: None,
            fsid: self.metadata_uuid(),
            checksum: self.checksum_type(),
        };
        verify_block(bytes, &want).map_err(|damage| {
            Error::from(damage).context(format!("about to write the tree block at logical {at}"))
        })
    }

    /// Writes the runs and returns those that failed.
    fn write_runs(&self, parts: &[Part<'_>], runs: &[Range<usize>]) -> Vec<(Range<usize>, Error)> {
        let write =
            |run: &Range<usize>| self.write_run(&parts[run.clone()]).err().map(|error| (run.clone(), error));
        runs.iter().filter_map(write).collect()
    }

    fn write_run(&self, parts: &[Part<'_>]) -> Result<()> {
        let at = parts[0].at;
        let slices: Vec<&[u8]> = parts.iter().map(|part| part.bytes).collect();
        self.counters.writes.add(1);
        self.counters.write_bytes.add(slices.iter().map(|slice| slice.len() as u64).sum());
        self.member(at.dev)?.device.write_vectored_at(at.offset, &slices)
    }

    /// An error if a block has reached no copy whole, else what was missed.
    fn judge_failures(
        &self,
        blocks: &[(Logical, &[u8])],
        parts: &[Part<'_>],
        failed: Vec<(Range<usize>, Error)>,
    ) -> Result<Vec<CopyFailure>> {
        if failed.is_empty() {
            return Ok(Vec::new());
        }
        self.counters.write_failures.add(failed.len() as u64);
        let reached = |block: usize| -> Result<bool> {
            let (at, bytes) = blocks[block];
            let whole = |mirror: &[Piece]| mirror.iter().all(|piece| !is_among(piece.at, parts, &failed));
            Ok(self.map(at, bytes.len() as u64)?.mirrors().iter().any(|mirror| whole(mirror)))
        };
        for (run, error) in &failed {
            for part in &parts[run.clone()] {
                if !reached(part.block)? {
                    let what = format!(
                        "the tree block at logical {} reached no device: {error}",
                        blocks[part.block].0
                    );
                    return Err(Error::new(ErrorKind::Io, what));
                }
            }
        }
        let failure = |(run, error): (Range<usize>, Error)| {
            let parts = &parts[run];
            let len = parts.iter().map(|part| part.bytes.len() as u64).sum();
            CopyFailure { piece: Piece { at: parts[0].at, len }, error }
        };
        Ok(failed.into_iter().map(failure).collect())
    }

    /// Writes `data`, whole sectors, from `at` on to all copies. A [`flush`](Self::flush) makes it durable, which wants the
    /// token.
    ///
    /// # Errors
    /// When no copy could be written whole.
    pub fn write_data(&self, at: Logical, data: &[u8]) -> Result<Written> {
        self.check_writable()?;
        let sector = u64::from(self.sector_size());
        assert!(at.is_aligned(sector), "data lies on sector boundaries");
        assert!((data.len() as u64).is_multiple_of(sector), "data is written in whole sectors");
        let copies = self.map(at, data.len() as u64)?;
        copies.mirrors().iter().try_for_each(|mirror| check_beside_superblocks(mirror))?;
        let mut last_error = None;
        let mut reached = 0;
        for mirror in copies.mirrors() {
            match self.write_pieces(mirror, data) {
                Ok(()) => reached += 1,
                Err(error) => {
                    self.counters.write_failures.add(1);
                    last_error = Some(error);
                }
            }
        }
        match last_error {
            Some(error) if reached == 0 => Err(error.context(format!("writing data at logical {at}"))),
            _ => Ok(self.nothing_written()),
        }
    }

    fn write_pieces(&self, pieces: &[Piece], data: &[u8]) -> Result<()> {
        let mut rest = data;
        for piece in pieces {
            let (part, after) = rest.split_at(index(piece.len));
            self.counters.writes.add(1);
            self.counters.write_bytes.add(piece.len);
            self.member(piece.at.dev)?.device.write_at(piece.at.offset, part)?;
            rest = after;
        }
        Ok(())
    }

    /// Tells the devices that a range is free; returns how many bytes they took, each copy counted. What is read there
    /// afterwards is unspecified. Devices that have no such thing are passed over.
    ///
    /// # Errors
    /// When a device fails, or the range leaves its chunk.
    pub fn discard(&self, at: Logical, len: u64) -> Result<u64> {
        let copies = self.map(at, len)?;
        copies.mirrors().iter().flatten().try_fold(0, |told, piece| Ok(told + self.discard_piece(piece)?))
    }

    /// The same of a range of a device.
    ///
    /// # Errors
    /// When the device fails, or is missing.
    pub fn discard_piece(&self, piece: &Piece) -> Result<u64> {
        self.check_writable()?;
        check_beside_superblocks(&[*piece])?;
        match self.member(piece.at.dev)?.device.discard(piece.at.offset, piece.len) {
            Ok(()) => {
                self.counters.discarded_bytes.add(piece.len);
                Ok(piece.len)
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(0),
            Err(error) => {
                self.counters.discard_failures.add(1);
                Err(error)
            }
        }
    }
}

/// Cuts parts sorted by place into runs that are adjacent on one device.
fn runs_of(parts: &[Part<'_>]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (number, part) in parts.iter().enumerate() {
        let len = part.bytes.len() as u64;
        let before = number.checked_sub(1).map(|before| &parts[before]);
        let adjacent = before.is_some_and(|before| before.end() == (part.at.dev, part.at.offset));
        if let Some(before) = before {
            let apart = before.at.dev != part.at.dev || before.end().1 <= part.at.offset;
            assert!(apart, "two blocks of a batch overlap at {}", part.at);
        }
        match runs.last_mut() {
            Some(run) if adjacent && bytes + len <= REQUEST_MAX => {
                run.end += 1;
                bytes += len;
            }
            _ => {
                runs.push(number..number + 1);
                bytes = len;
            }
        }
    }
    runs
}

/// Whether the part that begins at `place` is in one of the failed runs.
fn is_among(place: Physical, parts: &[Part<'_>], failed: &[(Range<usize>, Error)]) -> bool {
    parts
        .binary_search_by_key(&place, |part| part.at)
        .is_ok_and(|it| failed.iter().any(|(run, _)| run.contains(&it)))
}
