//! Repairs bad blocks from good copies.

use std::ops::Range;

use creamery_base::{ErrorKind, Logical, Physical, Result, Wait};
use creamery_device::AlignedBuffer;
use creamery_format::verify_block;
use creamery_txn::Engine;
use creamery_volume::{Mender, Verdict};

use super::finding::{Outcome, Rewritten};
use super::judge::{Bad, Judge};
use super::used::{Content, InUse};

/// The means of repair.
#[derive(Clone, Copy)]
pub(super) struct Mending<'v> {
    pub(super) engine: &'v Engine,
    pub(super) judge: Judge<'v>,
    /// `None` if nothing may be written (I-E4).
    pub(super) mender: Option<Mender<'v>>,
    /// Whether parity is computed from data without checksums, which then counts as right.
    pub(super) accepts_unsummed: bool,
    /// Whether commits are made meanwhile, which write the superblocks.
    pub(super) is_live: bool,
}

/// The result of a repair.
pub(super) struct Settled {
    pub(super) rewritten: Rewritten,
    /// The right bytes, if there are any.
    pub(super) good: Option<AlignedBuffer>,
}

impl Mending<'_> {
    /// Looks for good bytes in place of the bad ones at `at` of the device, and writes them there.
    pub(super) fn mend(&self, used: &InUse, bad: &Bad, at: Physical) -> Settled {
        if used.runs[bad.run].content == Content::Data(None) {
            // No checksum gives the right bytes, so nothing is overwritten.
            let mut other = AlignedBuffer::zeroed(bad.bytes.len());
            let read = self.judge.volume.find_data(bad.at, &mut other, &|_, _| Verdict::Unknown, Wait::Yes);
            let outcome = if read.is_ok() { Outcome::Undecided } else { Outcome::Lost };
            return Settled { rewritten: Rewritten::not(outcome), good: None };
        }
        let Ok(good) = self.good(used, bad) else {
            return Settled { rewritten: Rewritten::not(Outcome::Lost), good: None };
        };
        let written =
            self.mender.map(|mender| mender.rewrite(at, &good, &|now| self.is_good(used, bad, now)));
        let rewritten = written.map_or(Rewritten::not(Outcome::Mendable), Rewritten::by);
        Settled { rewritten, good: Some(good) }
    }

    /// The right bytes, read in any way. Errors: there are none.
    fn good(&self, used: &InUse, bad: &Bad) -> Result<AlignedBuffer> {
        let volume = self.judge.volume;
        match &used.runs[bad.run].content {
            Content::Tree { block, generation, level } => {
                let want = self.judge.expected(*block, *generation, *level);
                self.judge.part_of_block(bad.at, bad.bytes.len(), &want)
            }
            Content::Data(_) => {
                let mut good = AlignedBuffer::zeroed(bad.bytes.len());
                let verify = |_: usize, sector: &[u8]| Verdict::of_checksum(self.is_good(used, bad, sector));
                volume.find_data(bad.at, &mut good, &verify, Wait::Yes)?;
                Ok(good)
            }
        }
    }

    /// Whether `bytes` are the right ones in the place of bad ones. For data without a checksum nothing is known.
    fn is_good(&self, used: &InUse, bad: &Bad, bytes: &[u8]) -> bool {
        let run = &used.runs[bad.run];
        match &run.content {
            Content::Tree { block, generation, level } => {
                let want = self.judge.expected(*block, *generation, *level);
                match bytes.len() == self.judge.node_size {
                    true => verify_block(bytes, &self.judge.volume.expected_of_seed(bytes, want)).is_ok(),
                    false => {
                        let part = self.judge.part_of_block(bad.at, bytes.len(), &want);
                        part.is_ok_and(|part| part[..] == *bytes)
                    }
                }
            }
            Content::Data(None) => false,
            Content::Data(Some(sums)) => {
                let size = self.judge.checksum.size();
                let first = sums.start + (bad.bytes.start - run.bytes.start) / self.judge.sector * size;
                let want = &used.sums[first..first + size];
                creamery_codec::checksum(self.judge.checksum, bytes).as_bytes(self.judge.checksum) == want
            }
        }
    }

    /// The parts of `from` to `to`, of data, that files have written: preallocated space may hold anything. If that cannot be found out,
    /// the result is the whole range.
    pub(super) fn written(&self, from: Logical, to: Logical) -> Vec<Range<Logical>> {
        let mut parts = Vec::new();
        let mut at = from;
        while at < to {
            let extent = match self.engine.extent_users(at) {
                Ok(extent) => extent,
                Err(error) if error.kind() == ErrorKind::NotFound => break, // it is free by now
                Err(_) => {
                    parts.push(at..to);
                    break;
                }
            };
            for user in extent.users.iter().filter(|user| user.is_written) {
                let (skip, len) = if user.encoded { (0, extent.len) } else { (user.extent_offset, user.len) };
                let first = extent.start.checked_add(skip).unwrap_or(to);
                let (begin, end) = (first.max(from), first.checked_add(len).unwrap_or(to).min(to));
                if begin < end {
                    parts.push(begin..end);
                }
            }
            let end = extent.start.checked_add(extent.len).unwrap_or(to);
            at = end.max(at + self.judge.sector as u64);
        }
        parts
    }
}
