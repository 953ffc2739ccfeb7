//! Finds bad blocks and data in bytes that were read.

use std::ops::Range;

use creamery_base::{Generation, Logical, Result, Uuid, Wait};
use creamery_codec::{ChecksumType, checksum};
use creamery_device::AlignedBuffer;
use creamery_format::{CorruptKind, Expected, verify_block};
use creamery_volume::Volume;

use super::Counts;
use super::counts::Class;
use super::sums::index;
use super::used::{Content, InUse, UsedRun};

/// The information for judging blocks and data.
#[derive(Clone, Copy)]
pub(super) struct Judge<'v> {
    pub(super) volume: &'v Volume,
    pub(super) checksum: ChecksumType,
    pub(super) sector: usize,
    pub(super) node_size: usize,
    fsid: Uuid,
}

/// A bad block, or bad data.
#[derive(Debug)]
pub(super) struct Bad {
    pub(super) run: usize,
    /// Its range in the bytes that were read.
    pub(super) bytes: Range<usize>,
    pub(super) at: Logical,
    pub(super) class: Class,
    pub(super) why: String,
}

impl<'v> Judge<'v> {
    pub(super) fn new(volume: &'v Volume) -> Self {
        let size = |bytes: u32| usize::try_from(bytes).expect("it fits in memory");
        Self {
            volume,
            checksum: volume.checksum_type(),
            sector: size(volume.sector_size()),
            node_size: size(volume.node_size()),
            fsid: volume.metadata_uuid(),
        }
    }

    /// The expected header of a tree block.
    pub(super) const fn expected(&self, logical: Logical, generation: Generation, level: u8) -> Expected {
        Expected {
            logical,
            level: Some(level),
            generation: Some(generation),
            owner: None,
            first_key: None,
            fsid: self.fsid,
            checksum: self.checksum,
        }
    }

    /// Judges the parts of `read` in use, and counts errors. Bytes that could not be read at all are not judged.
    pub(super) fn judge(&self, used: &InUse, read: &[u8], counts: &mut Counts) -> Vec<Bad> {
        let mut bad = Vec::new();
        for (number, run) in used.runs.iter().enumerate() {
            self.judge_run(used, (number, run), &read[run.bytes.clone()], counts, &mut bad);
        }
        bad
    }

    /// Judges a part of a run.
    pub(super) fn judge_part(
        &self,
        used: &InUse,
        (number, run): (usize, &UsedRun),
        part: Range<usize>,
        bytes: &[u8],
        counts: &mut Counts,
        bad: &mut Vec<Bad>,
    ) {
        let from = part.start - run.bytes.start;
        let content = match &run.content {
            Content::Data(Some(sums)) => {
                let size = self.checksum.size();
                let first = sums.start + from / self.sector * size;
                Content::Data(Some(first..first + part.len() / self.sector * size))
            }
            content => content.clone(),
        };
        let run = UsedRun { at: run.at + from as u64, bytes: part, content };
        self.judge_run(used, (number, &run), bytes, counts, bad);
    }

    /// Judges `bytes` of one run.
    fn judge_run(
        &self,
        used: &InUse,
        (number, run): (usize, &UsedRun),
        bytes: &[u8],
        counts: &mut Counts,
        bad: &mut Vec<Bad>,
    ) {
        match &run.content {
            Content::Tree { block, generation, level } => {
                counts.tree_bytes_scrubbed += bytes.len() as u64;
                let want = self.expected(*block, *generation, *level);
                let found = match bytes.len() == self.node_size {
                    true => self.judge_block(bytes, want),
                    // The block goes on elsewhere on the device: the part is compared with the good block, read in any way.
                    false => self.judge_part_of_block(bytes, run.at, &want),
                };
                if let Some((class, why)) = found {
                    counts.count(class);
                    bad.push(Bad { run: number, bytes: run.bytes.clone(), at: run.at, class, why });
                }
            }
            Content::Data(sums) => {
                counts.data_bytes_scrubbed += bytes.len() as u64;
                let Some(sums) = sums else {
                    counts.no_csum += (bytes.len() / self.sector) as u64;
                    return;
                };
                let sums = used.sums[sums.clone()].chunks_exact(self.checksum.size());
                for (sector, (found, want)) in bytes.chunks_exact(self.sector).zip(sums).enumerate() {
                    if checksum(self.checksum, found).as_bytes(self.checksum) != want {
                        let class = Class::Checksum;
                        counts.count(class);
                        let from = run.bytes.start + sector * self.sector;
                        let at = run.at + (sector * self.sector) as u64;
                        let why = "checksum mismatch".to_owned();
                        bad.push(Bad { run: number, bytes: from..from + self.sector, at, class, why });
                    }
                }
            }
        }
    }

    /// The fault of a block, if it has one.
    fn judge_block(&self, bytes: &[u8], want: Expected) -> Option<(Class, String)> {
        let want = self.volume.expected_of_seed(bytes, want);
        let corruption = verify_block(bytes, &want).err()?;
        let class = match corruption.kind() {
            CorruptKind::Checksum { .. } => Class::Checksum,
            CorruptKind::WrongGeneration { .. } => Class::Generation,
            _ => Class::Verify,
        };
        Some((class, corruption.kind().to_string()))
    }

    fn judge_part_of_block(&self, bytes: &[u8], at: Logical, want: &Expected) -> Option<(Class, String)> {
        match self.part_of_block(at, bytes.len(), want) {
            Ok(part) if part[..] == *bytes => None,
            Ok(_) => Some((Class::Checksum, "checksum mismatch".to_owned())),
            Err(error) => Some((Class::Verify, error.to_string())),
        }
    }

    /// The right bytes at `at`, a part of a block, read in any way that gives the good block.
    /// Errors: there is no such way.
    pub(super) fn part_of_block(&self, at: Logical, len: usize, want: &Expected) -> Result<AlignedBuffer> {
        let good = self.volume.find_tree_block(want.logical, want, Wait::Yes)?;
        let from = index(at.get() - want.logical.get());
        Ok(AlignedBuffer::from_slice(&good[from..from + len]))
    }
}
