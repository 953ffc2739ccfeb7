//! Compares parity with its data.
//!
//! A row is judged sector by sector: the same sector of all of its columns. Parity covers all data there, used or not, so it either matches
//! or not. If it does not match, either side may be wrong. It is reported as wrong parity only if all used data is known to be right: data
//! that matches its checksum, and tree blocks that verify. Rows without used space are skipped: they may never have been
//! written.

use creamery_base::{Logical, Physical, is_same};
use creamery_format::{Expected, verify_block};
use creamery_volume::{Chunk, FullStripes};

use crate::bad_data::BadData;
use crate::damaged_sector::DamagedSector;
use crate::problem::Problem;
use crate::ranges::Ranges;
use crate::reader::Reader;
use crate::report::ProblemSite;
use crate::walk::TreeBlocks;

/// The known facts about the filesystem.
pub(crate) struct ParityCheck<'a> {
    pub(crate) reader: &'a Reader<'a>,
    /// All ranges in use.
    pub(crate) used: &'a Ranges,
    /// Data that has checksums, if all bad sectors of it are in `bad`.
    pub(crate) sums: Option<&'a Ranges>,
    pub(crate) bad: &'a BadData,
    pub(crate) tree_blocks: &'a TreeBlocks,
}

/// One row of those that were read.
struct ParityRow<'s> {
    stripes: &'s FullStripes,
    row: u64,
}

impl ParityRow<'_> {
    /// The first address of the row's data.
    fn start(&self) -> Logical {
        self.stripes.start_of(self.row)
    }
}

impl ParityCheck<'_> {
    /// Judges all rows with used space; returns the number of parity bytes that were compared.
    pub(crate) fn run(&self) -> u64 {
        let chunks = self.reader.volume.chunks();
        chunks.iter().filter(|chunk| chunk.has_parity()).map(|chunk| self.chunk(chunk)).sum()
    }

    fn chunk(&self, chunk: &Chunk) -> u64 {
        let (start, size) = (chunk.start.get(), chunk.full_stripe_bytes());
        // The rest lies behind the ends of all devices, regardless of the chunk's length.
        let on_device = |stripe: &creamery_volume::Stripe| {
            let device = self.reader.volume.device(stripe.dev)?;
            Some(device.len().saturating_sub(stripe.offset).div_ceil(chunk.stripe_len))
        };
        let end = chunk.stripes.iter().filter_map(on_device).max().unwrap_or(0);
        let mut stripes = FullStripes::default();
        let mut compared = 0;
        let mut next = 0;
        // Only used ranges are visited, as a chunk may claim any number of rows.
        for (from, to) in self.used.within(start, chunk.end().get()) {
            let rows = next.max((from - start) / size)..(to - start).div_ceil(size);
            next = next.max(rows.end);
            for row in rows.start..rows.end.min(end) {
                let is_there = self.reader.volume.read_full_stripes(chunk, row..row + 1, &mut stripes);
                if is_there && stripes.is_data_read(row) {
                    compared += self.judge(&ParityRow { stripes: &stripes, row });
                }
            }
        }
        compared
    }

    fn judge(&self, row: &ParityRow<'_>) -> u64 {
        let mut compared = 0;
        let mut right = Vec::new();
        row.stripes.parity_of_data(row.row, &mut right);
        for (number, right) in right.iter().enumerate() {
            let column = row.stripes.data_columns() + number;
            let Some(found) = row.stripes.element(row.row, column) else { continue };
            let sector = usize::try_from(self.reader.sector_size).expect("a sector fits in memory");
            let sectors = right.chunks_exact(sector).zip(found.chunks_exact(sector)).enumerate();
            let wrong: Vec<usize> = sectors
                .filter(|(_, (right, found))| !is_same(right, found))
                .map(|(sector, _)| sector)
                .collect();
            let known: Vec<(usize, u64)> = wrong
                .iter()
                .filter_map(|&place| Some((place, self.known_right(row, place * sector)?)))
                .collect();
            if let Some(first) = known.first() {
                self.report(row, column, *first, known.len());
            }
            compared += found.len() as u64;
        }
        compared
    }

    /// The first used address at this sector of the columns, if there is one and all used data there is known to be right.
    fn known_right(&self, row: &ParityRow<'_>, within: usize) -> Option<u64> {
        let len = row.stripes.place(row.row, 0).len;
        let sector = self.reader.sector_size;
        let mut first = None;
        for column in 0..row.stripes.data_columns() {
            let at = row.start().get() + column as u64 * len + within as u64;
            if self.used.covered(at, at + sector) == 0 {
                continue;
            }
            let has_sum = self.sums.is_some_and(|sums| sums.covered(at, at + sector) == sector);
            let is_right = (has_sum && !self.bad.touches(at, at + sector))
                || self.is_in_good_block(at, row.stripes.element(row.row, column)?, within);
            if !is_right {
                return None;
            }
            first = first.or(Some(at));
        }
        first
    }

    /// Whether an address lies in a tree block that verifies and that `column` contains completely; the address is `within` bytes into the
    /// column.
    fn is_in_good_block(&self, at: u64, column: &[u8], within: usize) -> bool {
        let steps =
            (0..self.reader.node_size / self.reader.sector_size).map(|step| step * self.reader.sector_size);
        let starts = steps.filter_map(|before| Some((at.checked_sub(before)?, before)));
        let Some((start, before)) =
            starts.into_iter().find(|(start, _)| self.tree_blocks.blocks.contains_key(start))
        else {
            return false;
        };
        let lens = (usize::try_from(before), usize::try_from(self.reader.node_size));
        let (Ok(before), Ok(len)) = lens else { return false };
        let block = within.checked_sub(before).and_then(|from| column.get(from..from + len));
        let want = Expected::anything(Logical::new(start), &self.reader.volume.superblock());
        block.is_some_and(|block| verify_block(block, &want).is_ok())
    }

    fn report(&self, row: &ParityRow<'_>, column: usize, (place, logical): (usize, u64), sectors: usize) {
        let piece = row.stripes.place(row.row, column);
        let offset = piece.at.offset + place as u64 * self.reader.sector_size;
        let at = Physical { offset, ..piece.at };
        let name = if column == row.stripes.data_columns() { "P" } else { "Q" };
        let of = piece.len / self.reader.sector_size;
        let message = format!(
            "{name} of the row at logical {}, at {at}: {sectors} of {of} sectors, the first with logical {logical}",
            row.start()
        );
        let sector = DamagedSector {
            logical,
            devid: Some(at.dev.get()),
            device_offset: Some(at.offset),
            ..DamagedSector::default()
        };
        let place = ProblemSite { sector: Some(Box::new(sector)), ..ProblemSite::default() };
        self.reader.sink.add(Problem::Parity, place, message);
    }
}
