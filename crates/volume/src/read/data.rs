//! Reading data: sectors that are bad in one copy come from another.

use std::ops::Range;

use creamery_base::{DamagedBlock, Error, ErrorKind, Logical, Result, Wait};
use creamery_device::AlignedBuffer;

use super::{Verdict, no_good_copy};
use crate::mapping::Piece;
use crate::members::MemberState;
use crate::volume::{Volume, index};

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
        let copies = self.map(at, out.len() as u64).map_err(|error| error.context(doing(at)))?.copies();
        let whole = 0..out.len() / sector;
        let mut pending = vec![whole];
        for copy in 0..copies {
            let mut bad = Vec::new();
            for run in &pending {
                self.read_run(at, run.clone(), copy, out, verify, &mut bad)?;
                if copy > 0 {
                    self.repair_run(at, run, copy, &bad, out, verify)?;
                }
            }
            pending = bad;
            if pending.is_empty() {
                return Ok(());
            }
        }
        let Some(first) = pending.first() else { return Ok(()) };
        let unreadable: usize = pending.iter().map(Range::len).sum();
        self.counters.unreadable.add(unreadable as u64);
        self.explain_sector(at + (first.start * sector) as u64, first.start, verify).map_err(|error| {
            error.context(format!("{unreadable} of {} sectors unreadable", out.len() / sector))
        })
    }

    /// Reads the sectors `run` of the range at `at` from one copy; those that are bad are appended to `bad`.
    fn read_run(
        &self,
        at: Logical,
        run: Range<usize>,
        copy: usize,
        out: &mut [u8],
        verify: VerifySector<'_>,
        bad: &mut Vec<Range<usize>>,
    ) -> Result<()> {
        let sector = index(self.sector_size());
        let bytes = run.start * sector..run.end * sector;
        let place = self.map_for_reading(at + bytes.start as u64, bytes.len() as u64)?;
        let pieces = &place.mirrors()[copy];
        match self.read_pieces(pieces, &mut out[bytes]) {
            Ok(()) => {
                let sectors =
                    pieces.iter().flat_map(|piece| (0..index(piece.len) / sector).map(move |_| piece));
                for (number, piece) in run.zip(sectors) {
                    let verdict = verify(number, &out[number * sector..(number + 1) * sector]);
                    if !self.is_believed(piece, verdict) {
                        push_sector(bad, number);
                    }
                }
            }
            // One unreadable sector fails the whole request: the others may be fine.
            Err(error)
                if matches!(error.kind(), ErrorKind::Io | ErrorKind::DeviceMissing) && run.len() > 1 =>
            {
                for number in run {
                    self.read_run(at, number..number + 1, copy, out, verify, bad)?;
                }
            }
            Err(_) => run.for_each(|number| push_sector(bad, number)),
        }
        Ok(())
    }

    /// Rewrites, on the copies before `good_copy`, the sectors of `run` that were bad there and are good now.
    fn repair_run(
        &self,
        at: Logical,
        run: &Range<usize>,
        good_copy: usize,
        bad: &[Range<usize>],
        out: &[u8],
        verify: VerifySector<'_>,
    ) -> Result<()> {
        let sector = index(self.sector_size());
        for good in without(run, bad) {
            self.counters.mirror_fallbacks.add(good.len() as u64);
            let bytes = &out[good.start * sector..good.end * sector];
            let place = self.map_for_reading(at + (good.start * sector) as u64, bytes.len() as u64)?;
            for mirror in &place.mirrors()[..good_copy] {
                self.repair(mirror, bytes, good.len() as u64, &|now| {
                    good.clone()
                        .zip(now.chunks(sector))
                        .any(|(number, bytes)| verify(number, bytes) == Verdict::Bad)
                });
            }
        }
        Ok(())
    }

    /// Why no copy of the sector at `at` was good, as an error. It is read once more to find out; should a copy
    /// be good now, the caller still has no data and gets an error.
    fn explain_sector(&self, at: Logical, number: usize, verify: VerifySector<'_>) -> Result<()> {
        let copies = self.map_for_reading(at, u64::from(self.sector_size()))?;
        let mut bytes = AlignedBuffer::zeroed(index(self.sector_size()));
        let explain = |mirror: &[Piece]| match self.read_pieces(mirror, &mut bytes) {
            Ok(()) => match verify(number, &bytes) {
                Verdict::Bad => Error::new(ErrorKind::Unreadable, "checksum mismatch"),
                verdict if self.is_believed(&mirror[0], verdict) => {
                    Error::new(ErrorKind::Io, "it was bad a moment ago")
                }
                _ => Error::new(ErrorKind::Unreadable, "its device missed writes, and it has no checksum"),
            },
            Err(error) => error,
        };
        let errors = copies.mirrors().iter().map(|mirror| &mirror[..]).map(explain).collect();
        Err(no_good_copy(DamagedBlock::Data(at), &copies, errors))
    }

    /// Whether a sector that was read from a device counts (MEMBER-3).
    fn is_believed(&self, piece: &Piece, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Good => true,
            Verdict::Bad => false,
            Verdict::Unknown => {
                !matches!(self.member_state(piece.at.dev), MemberState::Stale(_))
                    || self.rescue().ignore_data_csums
            }
        }
    }
}

/// Appends one sector, as part of the last run where it continues that.
fn push_sector(runs: &mut Vec<Range<usize>>, number: usize) {
    match runs.last_mut() {
        Some(last) if last.end == number => last.end += 1,
        _ => runs.push(number..number + 1),
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
        [1, 2, 3, 7, 9, 10].into_iter().for_each(|number| push_sector(&mut runs, number));
        assert_eq!(runs, [1..4, 7..8, 9..11]);
    }
}
