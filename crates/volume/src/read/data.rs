//! Reading data: sectors that are bad in one copy come from another.

use std::ops::Range;

use creamery_base::{DamagedBlock, Error, ErrorKind, Logical, Result, Wait};

use super::ways::{Kind, Trust};
use super::{Verdict, Way, Ways, no_good_copy};
use crate::index::index;
use crate::members::MemberState;
use crate::piece::Piece;
use crate::volume::Volume;

/// Ways that are tried to explain why none is good.
const EXPLAINED: usize = 16;

/// Judges one sector of a data read, by its index in the range.
type VerifySector<'a> = &'a dyn Fn(usize, &[u8]) -> Verdict;

impl Volume {
    /// Fills `out`, whole sectors, from `at` on. `verify` gets each sector with its index in the range and says
    /// what is known of it; a sector that is bad is taken from another copy, and the bad ones are rewritten when
    /// the volume is open for writing.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] for [`Wait::No`]; [`ErrorKind::Unreadable`] or [`ErrorKind::Io`] when a sector has
    /// no good copy, with the logical address of the first such sector; [`ErrorKind::Corrupt`] when the range lies
    /// nowhere. What `out` holds then is unspecified.
    pub fn read_data(&self, at: Logical, out: &mut [u8], verify: VerifySector<'_>, wait: Wait) -> Result<()> {
        let sector = index(self.sector_size());
        assert!(out.len().is_multiple_of(sector), "data is read in whole sectors");
        if !wait.allowed() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.counters.data_reads.add(1);
        self.counters.data_read_bytes.add(out.len() as u64);
        let doing = |at: Logical| format!("reading data at logical {at}");
        if !at.is_aligned(sector as u64) {
            return Err(Error::new(ErrorKind::Corrupt, format!("{}: the address is not aligned", doing(at))));
        }
        let mut read = Reading { volume: self, at, out, verify, bad: Vec::new() };
        read.first(0..read.sectors()).map_err(|error| error.context(doing(at)))?;
        for run in std::mem::take(&mut read.bad) {
            read.further(&run)?;
        }
        let Some(first) = read.bad.first().cloned() else { return Ok(()) };
        let unreadable: usize = read.bad.iter().map(Range::len).sum();
        self.counters.unreadable.add(unreadable as u64);
        let error = read.explain(first.start)?;
        Err(error.context(format!("{unreadable} of {} sectors unreadable", read.sectors())))
    }

    /// Whether a sector counts, that was read in this way, and lies on this piece (MEMBER-3).
    fn is_believed(&self, way: &Way, piece: &Piece, verdict: Verdict) -> bool {
        let is_stale = match &way.0 {
            Kind::Copy(_) => matches!(self.member_state(piece.at.dev), MemberState::Stale(_)),
            Kind::Without { trust, .. } => *trust == Trust::Stale,
        };
        match verdict {
            Verdict::Good => true,
            Verdict::Bad => false,
            Verdict::Unknown => !is_stale || self.rescue().ignore_data_csums,
        }
    }
}

/// A read of data under way. Sectors are counted from where it begins.
struct Reading<'a> {
    volume: &'a Volume,
    at: Logical,
    out: &'a mut [u8],
    verify: VerifySector<'a>,
    /// Sectors that were tried, and are not good so far.
    bad: Vec<Range<usize>>,
}

impl Reading<'_> {
    fn sector(&self) -> usize {
        index(self.volume.sector_size())
    }

    fn sectors(&self) -> usize {
        self.out.len() / self.sector()
    }

    fn place(&self, sector: usize) -> Logical {
        self.at + (sector * self.sector()) as u64
    }

    fn ways(&self, run: &Range<usize>) -> Result<Ways> {
        self.volume.ways(self.place(run.start), (run.len() * self.sector()) as u64)
    }

    /// Reads a run in the way that comes first.
    fn first(&mut self, run: Range<usize>) -> Result<()> {
        let Some(way) = self.ways(&run)?.next() else { return Ok(()) };
        if self.read(&run, &way).is_ok() {
            let bad = self.judge(&run, &way);
            bad.into_iter().for_each(|run| push_run(&mut self.bad, run));
            return Ok(());
        }
        // One sector that cannot be read fails the whole request: the others may be fine.
        match run.len() {
            1 => push_run(&mut self.bad, run),
            _ => self.parts(&run, &way).into_iter().try_for_each(|part| self.first(part))?,
        }
        Ok(())
    }

    /// Its pieces, if there are several, or else its sectors.
    fn parts(&self, run: &Range<usize>, way: &Way) -> Vec<Range<usize>> {
        match way.direct().len() {
            1 => run.clone().map(|sector| sector..sector + 1).collect(),
            _ => self.pieces(run, way),
        }
    }

    fn pieces(&self, run: &Range<usize>, way: &Way) -> Vec<Range<usize>> {
        let mut from = run.start;
        let part = |piece: &Piece| {
            let part = from..from + index(piece.len) / self.sector();
            from = part.end;
            part
        };
        way.direct().iter().map(part).collect()
    }

    /// Reads a run that is bad in the way that comes first, in the ways behind that, piece by piece.
    fn further(&mut self, run: &Range<usize>) -> Result<()> {
        let pieces = self.ways(run)?.next().map(|way| self.pieces(run, &way));
        for piece in pieces.into_iter().flatten() {
            let mut bad = vec![piece.clone()];
            let mut tried: Vec<Way> = Vec::new();
            for way in self.ways(&piece)? {
                if !tried.is_empty() {
                    let retried = bad.into_iter().flat_map(|part| self.retry(&piece, part, &way, &tried));
                    bad = retried.collect();
                }
                if bad.is_empty() {
                    break;
                }
                tried.push(way);
            }
            bad.into_iter().for_each(|run| push_run(&mut self.bad, run));
        }
        Ok(())
    }

    /// Reads `part` of a piece in another way, and repairs it where it was bad; gives what is still bad.
    fn retry(
        &mut self,
        piece: &Range<usize>,
        part: Range<usize>,
        way: &Way,
        tried: &[Way],
    ) -> Vec<Range<usize>> {
        let sector = self.sector();
        let cut = |way: &Way, of: &Range<usize>| {
            way.part(((of.start - piece.start) * sector) as u64, (of.len() * sector) as u64)
        };
        let own = cut(way, &part);
        if self.read(&part, &own).is_err() {
            return match part.len() {
                1 => vec![part],
                _ => part.flat_map(|sector| self.retry(piece, sector..sector + 1, way, tried)).collect(),
            };
        }
        let bad = self.judge(&part, &own);
        for good in without(&part, &bad) {
            self.volume.counters.mirror_fallbacks.add(good.len() as u64);
            tried.iter().for_each(|before| self.repair(&good, &cut(before, &good)));
        }
        bad
    }

    fn read(&mut self, run: &Range<usize>, way: &Way) -> Result<()> {
        let (at, sector) = (self.place(run.start), self.sector());
        self.volume.read_way(way, at, &mut self.out[run.start * sector..run.end * sector])
    }

    fn verdict(&self, sector: usize) -> Verdict {
        let len = self.sector();
        (self.verify)(sector, &self.out[sector * len..(sector + 1) * len])
    }

    /// The sectors of a run that are not good as they were read in this way.
    fn judge(&self, run: &Range<usize>, way: &Way) -> Vec<Range<usize>> {
        let pieces = way.direct().iter();
        let pieces = pieces.flat_map(|piece| std::iter::repeat_n(piece, index(piece.len) / self.sector()));
        let mut bad = Vec::new();
        for (number, piece) in run.clone().zip(pieces) {
            if !self.volume.is_believed(way, piece, self.verdict(number)) {
                push_run(&mut bad, number..number + 1);
            }
        }
        bad
    }

    /// Rewrites sectors that are good now where they were bad.
    fn repair(&self, good: &Range<usize>, bad: &Way) {
        let sector = self.sector();
        let bytes = &self.out[good.start * sector..good.end * sector];
        self.volume.repair(bad.direct(), bytes, good.len() as u64, &|now| {
            let mut sectors = good.clone().zip(now.chunks(sector));
            sectors.any(|(number, bytes)| (self.verify)(number, bytes) == Verdict::Bad)
        });
    }

    /// Why a sector is good in no way. It is read once more to find out; should it be good now, the caller still has no data and gets an
    /// error.
    fn explain(&mut self, sector: usize) -> Result<Error> {
        let run = sector..sector + 1;
        let mut bad = Vec::new();
        for way in self.ways(&run)?.take(EXPLAINED) {
            let error = match self.read(&run, &way) {
                Err(error) => error,
                Ok(()) => match self.verdict(sector) {
                    Verdict::Bad => Error::new(ErrorKind::Unreadable, "checksum mismatch"),
                    verdict if self.volume.is_believed(&way, &way.direct()[0], verdict) => {
                        Error::new(ErrorKind::Io, "it was bad a moment ago")
                    }
                    _ => {
                        Error::new(ErrorKind::Unreadable, "its device missed writes, and it has no checksum")
                    }
                },
            };
            bad.push((way, error));
        }
        Ok(no_good_copy(DamagedBlock::Data(self.place(sector)), &bad))
    }
}

/// Appends a run, as part of the last one where it continues that.
fn push_run(runs: &mut Vec<Range<usize>>, run: Range<usize>) {
    match runs.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => runs.push(run),
    }
}

/// The parts of `run` that none of the ascending `holes` covers.
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
