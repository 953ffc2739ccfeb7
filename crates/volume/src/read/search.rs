//! The state of one data read: the sectors still to be read, and in which way. All reads of data take these steps, whichever code sends the
//! requests.
//!
//! ```text
//! the whole range, first way --bad sectors--> runs of them, each in one piece, way after way --good--> repaired where it was bad
//!        |                                            |
//!        +--not read: its pieces, then its sectors    +--no way is left: bad
//! ```
//! A step is a range to read in one way; the caller returns the outcome, and gets the next step.

use std::collections::VecDeque;
use std::ops::Range;

use creamery_base::{Logical, Result};

use super::{ReadWay, Verdict, Ways};
use crate::device_range::DeviceRange;
use crate::index::index;
use crate::volume::Volume;

/// Checks one sector of a data read, by its index in the range.
pub(super) type VerifySector<'a> = &'a dyn Fn(usize, &[u8]) -> Verdict;

/// The state of a data read, see the [module](self). Sectors are counted from the beginning of the range.
pub(super) struct Search {
    at: Logical,
    sector: usize,
    steps: VecDeque<Step>,
    /// Sectors that are good in no way.
    bad: Vec<Range<usize>>,
}

/// Sectors to read in one way.
pub(super) struct Step {
    run: Range<usize>,
    way: ReadWay,
    /// Set behind the first way.
    further: Option<Further>,
}

/// The ways of a piece; each covers all of it.
#[derive(Clone)]
struct Further {
    piece: Range<usize>,
    tried: Vec<ReadWay>,
    current: ReadWay,
    left: Ways,
}

/// Sectors that are good now, and the ways in which they were bad, cut to these sectors.
pub(super) struct Mended {
    pub(super) sectors: Range<usize>,
    pub(super) bad: Vec<ReadWay>,
}

impl Step {
    pub(super) const fn way(&self) -> &ReadWay {
        &self.way
    }
}

impl Search {
    /// Creates the search for `len` bytes, whole sectors, at `at`.
    ///
    /// # Errors
    /// No chunk covers the range.
    pub(super) fn new(volume: &Volume, at: Logical, len: usize) -> Result<Self> {
        let sector = index(volume.sector_size());
        let mut search = Self { at, sector, steps: VecDeque::new(), bad: Vec::new() };
        search.begin(volume, 0..len / sector)?;
        Ok(search)
    }

    /// Returns the next step.
    pub(super) fn next(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// Returns the sectors that are good in no way. Call it when there is no next step.
    pub(super) fn into_bad(mut self) -> Vec<Range<usize>> {
        self.bad.sort_by_key(|run| run.start);
        let mut merged = Vec::new();
        self.bad.into_iter().for_each(|run| push_run(&mut merged, run));
        merged
    }

    pub(super) fn place(&self, run: &Range<usize>) -> Logical {
        self.at + (run.start * self.sector) as u64
    }

    /// Returns the address of a step, and its bytes in the range.
    pub(super) fn target(&self, step: &Step) -> (Logical, Range<usize>) {
        (self.place(&step.run), self.bytes(&step.run))
    }

    pub(super) fn bytes(&self, run: &Range<usize>) -> Range<usize> {
        run.start * self.sector..run.end * self.sector
    }

    fn ways(&self, volume: &Volume, run: &Range<usize>) -> Result<Ways> {
        volume.ways(self.place(run), (run.len() * self.sector) as u64)
    }

    fn begin(&mut self, volume: &Volume, run: Range<usize>) -> Result<()> {
        if let Some(way) = self.ways(volume, &run)?.next() {
            self.steps.push_back(Step { run, way, further: None });
        }
        Ok(())
    }

    /// Takes the outcome of a step: whether its bytes of `out` were read. Returns sectors that are good now and were bad before.
    ///
    /// # Errors
    /// No chunk covers the range.
    pub(super) fn took(
        &mut self,
        volume: &Volume,
        step: Step,
        read: &Result<()>,
        out: &[u8],
        verify: VerifySector<'_>,
    ) -> Result<Vec<Mended>> {
        let Step { run, way, further } = step;
        if read.is_err() && run.len() > 1 {
            // One sector that cannot be read fails the whole request: the others may be fine.
            return self.split(volume, &run, &way, further.as_ref()).map(|()| Vec::new());
        }
        let bad = match read {
            Ok(()) => self.judge(volume, &run, &way, out, verify),
            Err(_) => vec![run.clone()],
        };
        let Some(further) = further else {
            for run in bad {
                self.search(volume, &run)?;
            }
            return Ok(Vec::new());
        };
        let mended = without(&run, &bad).into_iter().map(|sectors| {
            let bad = further.tried.iter().map(|way| self.part(way, &further.piece, &sectors)).collect();
            Mended { sectors, bad }
        });
        let mended = mended.collect();
        bad.into_iter().for_each(|run| self.go_on(run, further.clone()));
        Ok(mended)
    }

    /// Splits a run into pieces, or, if it is one piece, into sectors.
    fn split(
        &mut self,
        volume: &Volume,
        run: &Range<usize>,
        way: &ReadWay,
        further: Option<&Further>,
    ) -> Result<()> {
        let parts = match way.direct().len() {
            1 => run.clone().map(|sector| sector..sector + 1).collect(),
            _ => self.pieces(run, way),
        };
        for part in parts {
            match further {
                None => self.begin(volume, part)?,
                Some(further) => self.step(part, further.clone()),
            }
        }
        Ok(())
    }

    fn pieces(&self, run: &Range<usize>, way: &ReadWay) -> Vec<Range<usize>> {
        let mut from = run.start;
        let part = |piece: &DeviceRange| {
            let part = from..from + index(piece.len) / self.sector;
            from = part.end;
            part
        };
        way.direct().iter().map(part).collect()
    }

    /// Tries all ways, piece by piece, for a run that is bad in the first way. The first way may be another one by now, because a
    /// member may have failed, so none is left out.
    fn search(&mut self, volume: &Volume, run: &Range<usize>) -> Result<()> {
        let Some(first) = self.ways(volume, run)?.next() else { return Ok(()) };
        for piece in self.pieces(run, &first) {
            let mut left = self.ways(volume, &piece)?;
            if let Some(current) = left.next() {
                let further = Further { piece: piece.clone(), tried: Vec::new(), current, left };
                self.step(piece, further);
            }
        }
        Ok(())
    }

    fn step(&mut self, run: Range<usize>, further: Further) {
        let way = self.part(&further.current, &further.piece, &run);
        self.steps.push_back(Step { run, way, further: Some(further) });
    }

    /// Reads a run that is bad in this way in the next one, if there is one.
    fn go_on(&mut self, run: Range<usize>, mut further: Further) {
        match further.left.next() {
            None => self.bad.push(run),
            Some(next) => {
                further.tried.push(std::mem::replace(&mut further.current, next));
                self.step(run, further);
            }
        }
    }

    /// Returns the sectors of a run that are bad as read in this way.
    fn judge(
        &self,
        volume: &Volume,
        run: &Range<usize>,
        way: &ReadWay,
        out: &[u8],
        verify: VerifySector<'_>,
    ) -> Vec<Range<usize>> {
        let pieces = way.direct().iter();
        let pieces = pieces.flat_map(|piece| std::iter::repeat_n(piece, index(piece.len) / self.sector));
        let mut bad = Vec::new();
        for (number, piece) in run.clone().zip(pieces) {
            let verdict = verify(number, &out[self.bytes(&(number..number + 1))]);
            if !volume.is_believed(way, piece, verdict) {
                push_run(&mut bad, number..number + 1);
            }
        }
        bad
    }

    fn part(&self, way: &ReadWay, piece: &Range<usize>, part: &Range<usize>) -> ReadWay {
        way.part(((part.start - piece.start) * self.sector) as u64, (part.len() * self.sector) as u64)
    }
}

/// Appends a run, or extends the last one if the run continues it.
fn push_run(runs: &mut Vec<Range<usize>>, run: Range<usize>) {
    match runs.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => runs.push(run),
    }
}

/// Returns the parts of `run` that none of the ascending `holes` covers.
fn without(run: &Range<usize>, holes: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut from = run.start;
    for hole in holes.iter().filter(|hole| hole.end > run.start && hole.start < run.end) {
        if from < hole.start {
            parts.push(from..hole.start);
        }
        from = from.max(hole.end);
    }
    if from < run.end {
        parts.push(from..run.end);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_at_holes() {
        let holes = [0..2, 4..5, 9..12];
        assert_eq!(without(&(0..12), &holes), [2..4, 5..9]);
        assert_eq!(without(&(2..4), &holes), vec![2..4]);
        assert_eq!(without(&(1..5), &holes), vec![2..4]);
        assert_eq!(without(&(9..12), &holes), Vec::<Range<usize>>::new());
    }

    #[test]
    fn neighbouring_sectors_become_one_run() {
        let mut runs = Vec::new();
        [1, 2, 3, 7, 9, 10].into_iter().for_each(|number| push_run(&mut runs, number..number + 1));
        assert_eq!(runs, [1..4, 7..8, 9..11]);
    }
}
