//! Rows of RAID5 and RAID6: judges their data, each element on its device, and then their parity against the data. Everything is read once.
//!
//! Parity is judged place by place: one place of all columns of a row. Parity is rewritten if all data in use at its place is verified, or
//! was rebuilt and then verified; unused space counts as it lies. If data that files have written has no checksum, it is unknown which side
//! is right, and both are left (I-E6), unless the caller accepts such data as it stands. Both are also left as long as a log waits: its
//! data is in no tree yet. If data is lost, or cannot be read, the right parity is unknown; the parity there is reported only if it cannot
//! be read.

use std::collections::BTreeMap;
use std::ops::Range;

use creamery_base::{Logical, Physical, is_same};
use creamery_device::AlignedBuffer;
use creamery_volume::{Chunk, FullStripes, Stripe};

use super::batch::{count, count_extents};
use super::counts::{Class, Tally};
use super::finding::{Finding, FindingKind, Outcome, Rewritten, Sink, Unheard};
use super::mend::Mending;
use super::rows::{Element, RowBatch};
use super::used::Content;

/// The knowledge about a place of a row, for all of its data together. Later variants win.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Known {
    Unused,
    Good,
    /// Some data has no checksum.
    Unsummed,
    /// Some unused space cannot be read, so the parity is unknown.
    Unread,
    /// Some data has no good copy.
    Lost,
}

/// The knowledge about each place of a row.
struct Places {
    known: Vec<Known>,
    sector: usize,
}

impl Places {
    /// Notes the knowledge about a range of an element.
    fn note(&mut self, bytes: Range<usize>, is: Known) {
        for place in bytes.step_by(self.sector) {
            let known = &mut self.known[place / self.sector];
            *known = is.max(*known);
        }
    }
}

impl Mending<'_> {
    /// Judges rows of a chunk, and repairs bad bytes. `tallies` belong to the chunk's stripes.
    pub(super) fn rows(
        &self,
        chunk: &Chunk,
        batch: &RowBatch,
        stripes: &mut FullStripes,
        tallies: &mut [Tally],
        sink: &dyn Sink,
    ) {
        let RowBatch { rows, elements } = batch;
        let volume = self.judge.volume;
        let at_once = if volume.will_read_full_stripes(chunk, rows) { 1 } else { rows.end - rows.start };
        let (mut elements, mut right) = (&elements[..], Vec::new());
        for row in rows.clone() {
            if !stripes.rows().contains(&row) || row == rows.start {
                let next = row..rows.end.min(row + at_once);
                let is_there = volume.read_full_stripes(chunk, next, stripes);
                assert!(is_there, "rows {rows:?} are of chunk {}, which has parity", chunk.start);
            }
            let (own, rest) = elements.split_at(elements.partition_point(|element| element.row == row));
            elements = rest;
            let sector = self.judge.sector;
            let len = stripes.element_mut(row, 0).len();
            let mut places = Places { known: vec![Known::Unused; len / sector], sector };
            for element in own {
                let at = stripes.place(row, element.column).at;
                let mut none = Tally::default();
                let (tally, sink) = heard(chunk, at, (tallies, &mut none), sink);
                self.element(element, stripes, &mut places, tally, sink);
            }
            self.read_the_rest(row, own, stripes, &mut places);
            self.parity(chunk, (row, own), (stripes, &mut right), &places, (tallies, sink));
        }
    }

    /// Judges the data of a row on one device. Bad bytes that can be recovered are right in `stripes` afterwards.
    fn element(
        &self,
        element: &Element,
        stripes: &mut FullStripes,
        places: &mut Places,
        tally: &mut Tally,
        sink: &dyn Sink,
    ) {
        let Element { row, column, used } = element;
        let at = stripes.place(*row, *column).at;
        let counts = &mut tally.counts;
        count_extents(used, counts);
        let bad = match stripes.element(*row, *column) {
            Some(read) => self.judge.judge(used, read, counts),
            None => self.read_by_block(used, at, stripes.element_mut(*row, *column), counts),
        };
        for run in &used.runs {
            let is = if run.content == Content::Data(None) { Known::Unsummed } else { Known::Good };
            places.note(run.bytes.clone(), is);
        }
        for bad in bad {
            let settled = self.settle(used, &bad, at, counts, sink);
            if settled.rewritten.outcome == Outcome::Mended {
                tally.mended.count(bad.class);
                count(Outcome::Mended, 1, &mut tally.mended);
            }
            match settled.good.filter(|good| good.len() == bad.bytes.len()) {
                Some(good) => stripes.element_mut(*row, *column)[bad.bytes].copy_from_slice(&good),
                // If data cannot be read and has no checksum, its parity is unknown.
                None if used.runs[bad.run].content == Content::Data(None) => {
                    places.note(bad.bytes, Known::Unread)
                }
                None => places.note(bad.bytes, Known::Lost),
            }
        }
    }

    /// Reads the unused space of elements that could not be read completely, where parity needs it.
    fn read_the_rest(&self, row: u64, own: &[Element], stripes: &mut FullStripes, places: &mut Places) {
        for column in 0..stripes.data_columns() {
            if stripes.why_not(row, column).is_none() {
                continue;
            }
            let runs: Vec<_> = own
                .iter()
                .filter(|element| element.column == column)
                .flat_map(|element| &element.used.runs)
                .collect();
            let at = stripes.place(row, column).at;
            let sector = places.sector;
            for from in (0..places.known.len()).map(|place| place * sector) {
                let bytes = from..from + sector;
                let is_used =
                    runs.iter().any(|run| run.bytes.start < bytes.end && bytes.start < run.bytes.end);
                if is_used || places.known[from / sector] == Known::Unused {
                    continue;
                }
                let at = Physical { offset: at.offset + from as u64, ..at };
                let read = &mut stripes.element_mut(row, column)[bytes.clone()];
                if self.judge.volume.read_physical(at, read).is_err() {
                    places.note(bytes, Known::Unread);
                }
            }
        }
    }

    /// Judges the parity of a row against its data in `stripes`.
    fn parity(
        &self,
        chunk: &Chunk,
        (row, own): (u64, &[Element]),
        (stripes, right): (&mut FullStripes, &mut Vec<AlignedBuffer>),
        places: &Places,
        (tallies, sink): (&mut [Tally], &dyn Sink),
    ) {
        let sector = self.judge.sector;
        stripes.parity_of_data(row, right);
        for (number, right) in right.iter().enumerate() {
            let column = stripes.data_columns() + number;
            let at = stripes.place(row, column).at;
            let mut none = Tally::default();
            let (tally, sink) = heard(chunk, at, (&mut *tallies, &mut none), sink);
            let unread = self.read_parity(row, column, stripes, places);
            let read = &*stripes.element_mut(row, column);
            tally.counts.parity_bytes_scrubbed += (read.len() - unread.len() * sector) as u64;
            let (mut wrong, mut worst) = (0, None::<Rewritten>);
            let mut unsummed = BTreeMap::new();
            for (place, right) in right.chunks_exact(sector).enumerate() {
                let from = place * sector;
                let is_unread = unread.contains(&place);
                let known = match places.known[place] {
                    Known::Unused => continue,
                    // The right parity is unknown.
                    Known::Unread | Known::Lost if !is_unread => continue,
                    _ if !is_unread && is_same(&read[from..from + sector], right) => continue,
                    Known::Unsummed => {
                        let (known, data) = self.known_of_unsummed(own, from);
                        unsummed.extend(data.filter(|_| !self.accepts_unsummed));
                        known
                    }
                    known => known,
                };
                if known == Known::Unused {
                    continue;
                }
                wrong += 1;
                let class = if is_unread { Class::Unread } else { Class::Verify };
                tally.counts.count(class);
                let at = Physical { offset: at.offset + from as u64, ..at };
                let rewritten = self.write_parity(at, known, right);
                let outcome = rewritten.outcome;
                count(outcome, 1, &mut tally.counts);
                if outcome == Outcome::Mended {
                    tally.mended.count(class);
                    count(outcome, 1, &mut tally.mended);
                }
                if worst.as_ref().is_none_or(|worst| worst.outcome < outcome) {
                    worst = Some(rewritten);
                }
            }
            let Some(worst) = worst else { continue };
            let why = match stripes.why_not(row, column) {
                Some(why) => why.to_string(),
                None => {
                    format!("{wrong} of {} parity sectors do not match their data", places.known.len())
                }
            };
            let logical = Some(stripes.start_of(row));
            let (why, outcome) = (worst.why(&why), worst.outcome);
            tell((at, logical), (&why, outcome), unsummed, sink);
        }
    }

    /// Reads parity that could not be read completely, where it counts. Returns the places that cannot be read.
    fn read_parity(&self, row: u64, column: usize, stripes: &mut FullStripes, places: &Places) -> Vec<usize> {
        if stripes.why_not(row, column).is_none() {
            return Vec::new();
        }
        let at = stripes.place(row, column).at;
        let sector = places.sector;
        let counts = |place: &usize| places.known[*place] != Known::Unused;
        let mut unread = Vec::new();
        for place in (0..places.known.len()).filter(counts) {
            let from = place * sector;
            let at = Physical { offset: at.offset + from as u64, ..at };
            let read = &mut stripes.element_mut(row, column)[from..from + sector];
            if self.judge.volume.read_physical(at, read).is_err() {
                unread.push(place);
            }
        }
        unread
    }

    /// The knowledge about a place with data without checksums: preallocated space counts as it lies.
    fn known_of_unsummed(&self, own: &[Element], from: usize) -> (Known, Option<(Logical, Logical)>) {
        let sector = self.judge.sector;
        let (mut known, mut data) = (Known::Unused, None);
        for run in own.iter().flat_map(|element| &element.used.runs) {
            if !run.bytes.contains(&from) {
                continue;
            }
            let is = match run.content {
                Content::Data(None) => {
                    let at: Logical = run.at + (from - run.bytes.start) as u64;
                    let is_written = !self.written(at, at + sector as u64).is_empty();
                    if is_written {
                        data = Some((run.at, at));
                    }
                    if is_written { Known::Unsummed } else { Known::Unused }
                }
                _ => Known::Good,
            };
            known = known.max(is);
        }
        (known, data)
    }

    /// Writes the parity of one place, if that is allowed.
    fn write_parity(&self, at: Physical, known: Known, right: &[u8]) -> Rewritten {
        let has_log = self.judge.volume.superblock().log_root().is_some();
        match (known, self.mender) {
            (Known::Lost, _) => Rewritten::not(Outcome::Lost),
            (Known::Unread, _) => Rewritten::not(Outcome::Undecided),
            (Known::Unsummed, _) if !self.accepts_unsummed => Rewritten::not(Outcome::Undecided),
            _ if has_log => Rewritten::not(Outcome::Undecided),
            (_, None) => Rewritten::not(Outcome::Mendable),
            (_, Some(mender)) => {
                assert_is_right(known, if self.accepts_unsummed { Known::Unsummed } else { Known::Good });
                Rewritten::by(mender.rewrite(at, right, &|now| now == right))
            }
        }
    }
}

/// Reports parity at a place: by the address of its row, or by each address of data without checksums, which may belong to different files.
fn tell(
    (at, row): (Physical, Option<Logical>),
    (why, outcome): (&str, Outcome),
    unsummed: BTreeMap<Logical, Logical>,
    sink: &dyn Sink,
) {
    let finding = |what, logical| Finding { what, at, logical, why: why.to_owned(), outcome };
    if unsummed.is_empty() {
        sink.found(&finding(FindingKind::Parity, row));
    }
    unsummed
        .into_values()
        .for_each(|logical| sink.found(&finding(FindingKind::UnsummedParity, Some(logical))));
}

/// The tally of the stripe at a place, and the sink; if an earlier scrub has judged the place, `none` and a sink that drops findings.
fn heard<'t>(
    chunk: &Chunk,
    at: Physical,
    (tallies, none): (&'t mut [Tally], &'t mut Tally),
    sink: &'t dyn Sink,
) -> (&'t mut Tally, &'t dyn Sink) {
    let is_its = |stripe: &Stripe| stripe.dev == at.dev;
    let stripe =
        chunk.stripes.iter().position(is_its).expect("a place of the chunk is on one of its devices");
    let tally = &mut tallies[stripe];
    if at.offset < tally.from { (none, &Unheard) } else { (tally, sink) }
}

/// Asserts, before parity is written, that its data is verified, or no worse than `worst`, which is accepted.
fn assert_is_right(known: Known, worst: Known) {
    assert!((Known::Good..=worst).contains(&known), "I-E6: parity of data that is {known:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "I-E6")]
    fn parity_of_lost_data_is_not_written() {
        assert_is_right(Known::Good, Known::Good);
        assert_is_right(Known::Unsummed, Known::Unsummed);
        assert_is_right(Known::Lost, Known::Unsummed);
    }

    #[test]
    #[should_panic(expected = "I-E6")]
    fn parity_of_data_without_checksums_is_not_written_unless_that_is_accepted() {
        assert_is_right(Known::Unsummed, Known::Good);
    }
}
