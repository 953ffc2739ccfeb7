//! One way to read a range: the requests to devices, and the range made from their answers.
//!
//! Elements on stripes that are not lost are read in place. For each element on a lost stripe the row says of which columns it is the
//! sum. Columns that are read anyway, as part of the range, are taken from there, and the others are read in addition.
//!
//! # Invariants
//! - PARITY-1: no byte is read from a lost stripe. Shown by
//!   `data_without_checksums_is_rebuilt_but_never_guessed`.
//! - PARITY-2: data without checksum is rebuilt only if a stripe cannot be read. Shown by
//!   `data_without_checksums_is_rebuilt_but_never_guessed`.
//! - PARITY-3: rebuilt bytes pass the same check as bytes that were read. A reader has one check for all ways.
//!   Shown by `rot_in_any_columns_is_rebuilt_as_far_as_the_parity_goes`.

use std::ops::Range;

use creamery_base::{Error, ErrorKind, Logical, Result};
use creamery_codec::parity::Recovery;
use creamery_device::AlignedBuffer;

use super::ReadWay;
use super::ways::Kind;
use crate::device_range::DeviceRange;
use crate::index::index;
use crate::plan::{Plan, place};
use crate::rows::{Element, Rows};
use crate::volume::Volume;

/// The plan to read a range in one way, see the [module](self).
pub(super) struct Attempt {
    /// The reads of the range itself.
    plan: Plan,
    jobs: Vec<Job>,
    /// The places of additional reads, in the order of the jobs.
    besides: Vec<DeviceRange>,
}

/// An element of the range, and the bytes of the range that it covers.
struct ElementPart {
    element: Element,
    bytes: Range<usize>,
    is_lost: bool,
}

/// The rebuilding of one row.
struct Job {
    /// The elements of the range in this row.
    parts: Vec<ElementPart>,
    /// One recovery for each lost element, in order.
    recoveries: Vec<Recovery>,
    /// The bytes within an element that are needed of each column.
    within: Range<u64>,
    /// Columns that are read in addition.
    besides: Vec<usize>,
    data_columns: usize,
}

impl Attempt {
    /// Plans to read the range of `len` bytes at `at` in one of its ways.
    ///
    /// # Errors
    /// More is lost than parity recovers; the map has two pieces in one place.
    pub(super) fn of(way: &ReadWay, at: Logical, len: u64) -> Result<Self> {
        match &way.0 {
            Kind::Copy(mirror, _) => Self::of_copy(mirror),
            Kind::Without { chunk, lost, .. } => {
                let rows = Rows::of(chunk).expect("only chunks with parity lose stripes");
                Self::without(rows, lost, at.get() - chunk.start.get(), len)
            }
        }
    }

    /// Plans to read these pieces.
    ///
    /// # Errors
    /// The map has two of them in one place.
    pub(super) fn of_copy(pieces: &[DeviceRange]) -> Result<Self> {
        let plan = Plan::of_pieces(with_bytes(pieces))?;
        Ok(Self { plan, jobs: Vec::new(), besides: Vec::new() })
    }

    fn without(rows: Rows<'_>, lost: &[usize], from: u64, len: u64) -> Result<Self> {
        let mut begin = 0;
        let part = |element: Element| {
            let bytes = begin..begin + index(element.len);
            begin = bytes.end;
            let is_lost = lost.contains(&rows.stripe_of(element.row, element.column));
            ElementPart { element, bytes, is_lost }
        };
        let parts: Vec<ElementPart> = rows.elements(from, len).map(part).collect();
        let there = parts.iter().filter(|part| !part.is_lost);
        let plan = Plan::of_pieces(there.map(|part| (rows.place(&part.element), part.bytes.clone())))?;
        let mut by_row: Vec<Vec<ElementPart>> = Vec::new();
        for part in parts {
            match by_row.last_mut() {
                Some(row) if row[0].element.row == part.element.row => row.push(part),
                _ => by_row.push(vec![part]),
            }
        }
        by_row.retain(|parts| parts.iter().any(|part| part.is_lost));
        let jobs =
            by_row.into_iter().map(|parts| Job::plan(rows, lost, parts)).collect::<Result<Vec<_>>>()?;
        let besides = jobs.iter().flat_map(|job| job.places(rows)).collect();
        Ok(Self { plan, jobs, besides })
    }

    /// Returns the place of the whole range, if it is one piece.
    pub(super) fn single(&self) -> Option<DeviceRange> {
        let mut runs = self.plan.runs();
        match (runs.next(), runs.next()) {
            (Some([part]), None) if self.jobs.is_empty() => Some(DeviceRange { at: part.at, len: part.len }),
            _ => None,
        }
    }

    /// Returns the pieces that devices are asked for.
    pub(super) fn places(&self) -> impl Iterator<Item = DeviceRange> {
        self.plan.runs().map(place).chain(self.besides.iter().copied())
    }

    /// Returns the pieces of the range itself, each with its bytes.
    pub(super) fn parts(&self) -> impl Iterator<Item = &crate::plan::CopyPart> {
        self.plan.runs().flatten()
    }

    /// Returns how many of the [places](Self::places) belong to the range itself; those behind them are additional reads.
    pub(super) fn runs(&self) -> usize {
        self.plan.runs().len()
    }

    /// Fills the range from the bytes that were read, in the order of the [places](Self::places).
    pub(super) fn finish(&self, volume: &Volume, read: &[AlignedBuffer], out: &mut [u8]) {
        self.spread(read, out);
        self.rebuild(volume, &read[self.runs()..], out);
    }

    /// Puts the bytes of the range itself into place.
    fn spread(&self, read: &[AlignedBuffer], out: &mut [u8]) {
        for (run, buffer) in self.plan.runs().zip(read) {
            let mut from = 0;
            for part in run {
                let bytes = &mut out[part.bytes()];
                bytes.copy_from_slice(&buffer[from..from + bytes.len()]);
                from += bytes.len();
            }
        }
    }

    /// Fills in the lost elements, from the range itself and the additional reads.
    pub(super) fn rebuild(&self, volume: &Volume, besides: &[AlignedBuffer], out: &mut [u8]) {
        let mut rest = besides;
        for job in &self.jobs {
            let (besides, after) = rest.split_at(job.besides.len());
            rest = after;
            let parity = job.besides.iter().zip(besides).filter(|(column, _)| job.is_parity(**column));
            volume.counters.parity_read_bytes.add(parity.map(|(_, read)| read.len() as u64).sum());
            volume.counters.rebuilt_bytes.add(job.run(besides, out));
        }
    }
}

/// Pairs pieces of one copy with the bytes of the range that they cover.
fn with_bytes(pieces: &[DeviceRange]) -> impl Iterator<Item = (DeviceRange, Range<usize>)> {
    let mut begin = 0;
    pieces.iter().map(move |piece| {
        let bytes = begin..begin + index(piece.len);
        begin = bytes.end;
        (*piece, bytes)
    })
}

impl Job {
    /// Plans the rebuilding of elements of one row, some of which are lost.
    ///
    /// # Errors
    /// More is lost than there is parity.
    fn plan(rows: Rows<'_>, lost: &[usize], parts: Vec<ElementPart>) -> Result<Self> {
        let row = parts[0].element.row;
        let lost: Vec<usize> = lost.iter().map(|stripe| rows.column_of(row, *stripe)).collect();
        let recover = |part: &ElementPart| {
            let recovery = rows.row().recover(part.element.column, &lost);
            recovery.map_err(|error| Error::with_source(ErrorKind::DeviceMissing, "rebuilding", error))
        };
        let wanted = || parts.iter().filter(|part| part.is_lost);
        let begin = wanted().map(|part| part.element.within).min().expect("some are lost");
        let end = wanted().map(|part| part.element.within + part.element.len).max().expect("some are lost");
        let recoveries = wanted().map(recover).collect::<Result<Vec<_>>>()?;
        let mut needed: Vec<usize> = recoveries.iter().flat_map(Recovery::sources).collect();
        needed.sort_unstable();
        needed.dedup();
        let data_columns = rows.row().data_columns();
        let mut job = Self { parts, recoveries, within: begin..end, besides: Vec::new(), data_columns };
        needed.retain(|column| job.in_range(*column).is_none());
        job.besides = needed;
        Ok(job)
    }

    /// Returns the places of the additional reads.
    fn places(&self, rows: Rows<'_>) -> impl Iterator<Item = DeviceRange> {
        let (row, within) = (self.parts[0].element.row, self.within.clone());
        self.besides
            .iter()
            .map(move |column| rows.piece(row, *column, within.start, within.end - within.start))
    }

    fn is_parity(&self, column: usize) -> bool {
        column >= self.data_columns
    }

    /// Returns the element of a column that is read with the range, if it has all needed bytes.
    fn in_range(&self, column: usize) -> Option<&ElementPart> {
        let covers = |part: &&ElementPart| {
            let element = &part.element;
            let end = element.within + element.len;
            element.column == column && element.within <= self.within.start && end >= self.within.end
        };
        self.parts.iter().filter(|part| !part.is_lost).find(covers)
    }

    /// Fills in the lost elements. Returns their length in bytes.
    fn run(&self, besides: &[AlignedBuffer], out: &mut [u8]) -> u64 {
        let mut rebuilt = 0;
        for (part, recovery) in self.parts.iter().filter(|part| part.is_lost).zip(&self.recoveries) {
            let (len, within) = (part.bytes.len(), part.element.within);
            let (before, rest) = out.split_at_mut(part.bytes.start);
            let (bytes, after) = rest.split_at_mut(len);
            let source = |column: usize| {
                if let Some(at) = self.besides.iter().position(|other| *other == column) {
                    let from = index(within - self.within.start);
                    return &besides[at][from..from + len];
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
