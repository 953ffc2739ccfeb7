//! Bytes of a chunk with parity, as if some of its stripes were lost.
//!
//! What lies on other stripes is read where it is. Of each element that lies on a lost one the row says which columns it is the sum of; those that
//! were read anyway, because they are part of the range, are taken from there, and the others are read besides.
//!
//! # Invariants
//! - PARITY-1: no byte is read from a lost stripe. Shown by
//!   `data_without_checksums_is_rebuilt_but_never_guessed`.
//! - PARITY-2: data without checksum is rebuilt only where a stripe cannot be read. Shown by `data_without_checksums_is_rebuilt_but_never_guessed`.
//! - PARITY-3: bytes that are rebuilt are judged as if they had been read. Whoever reads has one judge for all ways.

use std::ops::Range;

use creamery_base::{Error, ErrorKind, Logical, Result};
use creamery_codec::parity::Recovery;
use creamery_device::AlignedBuffer;

use crate::Chunk;
use crate::index::index;
use crate::rows::{Element, Rows};
use crate::volume::Volume;

/// An element of the range, and the bytes of the range that it is.
struct Part {
    element: Element,
    bytes: Range<usize>,
    is_lost: bool,
}

/// What has to be rebuilt of one row.
struct Job<'p> {
    /// The elements of the range in this row.
    parts: &'p [Part],
    /// For each that is lost in turn.
    recoveries: Vec<Recovery>,
    /// What is needed of each column lies within these bytes of its element.
    within: Range<u64>,
    /// Columns that are read besides, with what they have there.
    besides: Vec<(usize, AlignedBuffer)>,
}

impl Volume {
    /// Fills `out` from `at` on, which lies in `chunk`, without the stripes that are `lost`.
    pub(super) fn read_without(
        &self,
        chunk: &Chunk,
        lost: &[usize],
        at: Logical,
        out: &mut [u8],
    ) -> Result<()> {
        let rows = Rows::of(chunk).expect("only chunks with parity lose stripes");
        let mut begin = 0;
        let part = |element: Element| {
            let bytes = begin..begin + index(element.len);
            begin = bytes.end;
            let is_lost = lost.contains(&rows.stripe_of(element.row, element.column));
            Part { element, bytes, is_lost }
        };
        let parts: Vec<Part> =
            rows.elements(at.get() - chunk.start.get(), out.len() as u64).map(part).collect();
        let by_row = parts.chunk_by(|one, next| one.element.row == next.element.row);
        let with_loss = by_row.filter(|parts| parts.iter().any(|part| part.is_lost));
        let mut jobs = with_loss.map(|parts| Job::plan(rows, lost, parts)).collect::<Result<Vec<_>>>()?;
        let there = parts.iter().filter(|part| !part.is_lost);
        self.read_scattered(there.map(|part| (rows.place(&part.element), part.bytes.clone())), out)?;
        self.read_besides(rows, &mut jobs)?;
        for job in jobs {
            self.counters.rebuilt_bytes.add(job.run(out));
        }
        Ok(())
    }

    /// Reads what the range itself has not.
    fn read_besides(&self, rows: Rows<'_>, jobs: &mut [Job<'_>]) -> Result<()> {
        let places = jobs.iter().flat_map(|job| {
            let (row, within) = (job.row(), job.within.clone());
            job.besides
                .iter()
                .map(move |(column, _)| rows.piece(row, *column, within.start, within.end - within.start))
        });
        let buffers = self.read_each(places)?;
        let besides = jobs.iter_mut().flat_map(|job| &mut job.besides);
        for ((column, buffer), read) in besides.zip(buffers) {
            if *column >= rows.row().data_columns() {
                self.counters.parity_read_bytes.add(read.len() as u64);
            }
            *buffer = read;
        }
        Ok(())
    }
}

impl<'p> Job<'p> {
    /// The elements are those of one row, and some of them are lost.
    ///
    /// # Errors
    /// More is lost than there is parity.
    fn plan(rows: Rows<'_>, lost: &[usize], parts: &'p [Part]) -> Result<Self> {
        let wanted = || parts.iter().filter(|part| part.is_lost).map(|part| &part.element);
        let row = parts[0].element.row;
        let begin = wanted().map(|element| element.within).min().expect("some are lost");
        let end = wanted().map(|element| element.within + element.len).max().expect("some are lost");
        let lost: Vec<usize> = lost.iter().map(|stripe| rows.column_of(row, *stripe)).collect();
        let recover = |element: &Element| {
            let recovery = rows.row().recover(element.column, &lost);
            recovery.map_err(|error| Error::with_source(ErrorKind::DeviceMissing, "rebuilding", error))
        };
        let recoveries = wanted().map(recover).collect::<Result<Vec<_>>>()?;
        let mut job = Self { parts, recoveries, within: begin..end, besides: Vec::new() };
        let mut needed: Vec<usize> = job.recoveries.iter().flat_map(Recovery::sources).collect();
        needed.sort_unstable();
        needed.dedup();
        needed.retain(|column| job.in_range(*column).is_none());
        job.besides = needed.into_iter().map(|column| (column, AlignedBuffer::zeroed(0))).collect();
        Ok(job)
    }

    fn row(&self) -> u64 {
        self.parts[0].element.row
    }

    /// The element of a column that is read with the range, where it has all that is needed.
    fn in_range(&self, column: usize) -> Option<&Part> {
        let covers = |part: &&Part| {
            let element = &part.element;
            let end = element.within + element.len;
            element.column == column && element.within <= self.within.start && end >= self.within.end
        };
        self.parts.iter().filter(|part| !part.is_lost).find(covers)
    }

    /// Fills the lost elements in; gives how many bytes they are.
    fn run(&self, out: &mut [u8]) -> u64 {
        let mut rebuilt = 0;
        for (part, recovery) in self.parts.iter().filter(|part| part.is_lost).zip(&self.recoveries) {
            let (len, within) = (part.bytes.len(), part.element.within);
            let (before, rest) = out.split_at_mut(part.bytes.start);
            let (bytes, after) = rest.split_at_mut(len);
            let source = |column: usize| {
                if let Some((_, buffer)) = self.besides.iter().find(|(other, _)| *other == column) {
                    let from = index(within - self.within.start);
                    return &buffer[from..from + len];
                }
                let other = self.in_range(column).expect("what the range has not is read besides");
                let from = other.bytes.start + index(within - other.element.within);
                match from.checked_sub(part.bytes.end) {
                    Some(from) => &after[from..from + len],
                    None => &before[from..from + len],
                }
            };
            let sources: Vec<&[u8]> = recovery.sources().map(source).collect();
            recovery.run(&sources, bytes);
            rebuilt += len as u64;
        }
        rebuilt
    }
}
