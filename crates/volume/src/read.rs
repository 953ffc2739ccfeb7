//! Reading tree blocks and data: copy after copy until one is good.

use std::ops::Range;

use creamery_base::{DamagedBlock, Error, ErrorKind, Logical, Result, Wait};
use creamery_device::{AlignedBuffer, Reply, Request};
use creamery_format::{BlockRef, Expected, verify_block, verify_block_but_checksum};

use crate::ask::ask_all;
use crate::mapping::{MirrorSet, Piece};
use crate::plan::{Part, Plan, place};
use crate::volume::{Volume, index};

/// Judges one sector of a data read, by its index in the range.
type VerifySector<'a> = &'a dyn Fn(usize, &[u8]) -> bool;

impl Volume {
    /// Reads the tree block at `at`, which is the address in `want`, from the first copy that is as expected.
    /// Bad copies before it are rewritten when the volume is open for writing.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] for [`Wait::No`]; [`ErrorKind::Unreadable`] or [`ErrorKind::Io`] when no copy is
    /// good, with what each of them had; [`ErrorKind::Corrupt`] when the address lies nowhere.
    pub fn read_tree_block(&self, at: Logical, want: &Expected, wait: Wait) -> Result<AlignedBuffer> {
        assert_eq!(at, want.logical);
        if !wait.allowed() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.counters.tree_block_reads.add(1);
        let doing = || format!("reading the tree block at logical {at}");
        if !at.is_aligned(u64::from(self.sector_size())) {
            return Err(Error::new(ErrorKind::Corrupt, format!("{}: the address is not aligned", doing())));
        }
        let copies = self.map(at, u64::from(self.node_size())).map_err(|error| error.context(doing()))?;
        let mut block = AlignedBuffer::zeroed(index(self.node_size()));
        let mut errors = Vec::new();
        for (copy, mirror) in copies.mirrors().iter().enumerate() {
            let outcome = self.read_pieces(mirror, &mut block);
            match outcome.and_then(|()| self.verify_read(&block, want).map_err(Error::from)) {
                Ok(()) => {
                    if copy > 0 {
                        self.counters.mirror_fallbacks.add(1);
                        self.repair_tree_block(&copies, copy, &block, want);
                    }
                    return Ok(block);
                }
                Err(error) => errors.push(error),
            }
        }
        if self.rescue().ignore_meta_csums && self.read_by_all_but_checksum(&copies, &mut block, want) {
            return Ok(block);
        }
        self.counters.unreadable.add(1);
        Err(no_good_copy(DamagedBlock::Tree(at), &copies, errors))
    }

    /// Whether a copy is as expected in all but its checksum, which is then in `block`.
    fn read_by_all_but_checksum(&self, copies: &MirrorSet, block: &mut [u8], want: &Expected) -> bool {
        copies.mirrors().iter().any(|mirror| {
            self.read_pieces(mirror, block).is_ok() && verify_block_but_checksum(block, want).is_ok()
        })
    }

    /// Reads tree blocks that lie side by side, with one request for each device that has some, from their first copies. For who
    /// can do without: those that are not as expected are none, and nothing is repaired or counted as unreadable.
    pub fn read_tree_blocks(&self, wants: &[Expected]) -> Vec<Option<AlignedBuffer>> {
        let node_size = index(self.node_size());
        let mut all = AlignedBuffer::zeroed(wants.len() * node_size);
        let Some(first) = wants.first() else { return Vec::new() };
        self.counters.tree_block_reads.add(wants.len() as u64);
        let read =
            self.map(first.logical, all.len() as u64).and_then(|copies| match copies.mirrors().first() {
                Some(mirror) => self.read_pieces(mirror, &mut all),
                None => Err(ErrorKind::Io.into()),
            });
        let verified = |(number, want): (usize, &Expected)| {
            assert_eq!(want.logical, first.logical + (number * node_size) as u64, "blocks side by side");
            let block = &all[number * node_size..(number + 1) * node_size];
            let is_good = read.is_ok() && self.verify_read(block, want).is_ok();
            is_good.then(|| AlignedBuffer::from_slice(block))
        };
        wants.iter().enumerate().map(verified).collect()
    }

    /// Rewrites the copies before `good_copy`, which were bad.
    fn repair_tree_block(&self, copies: &MirrorSet, good_copy: usize, good: &[u8], want: &Expected) {
        if self.repair_later(want) {
            return;
        }
        let anything = Expected { level: None, generation: None, owner: None, first_key: None, ..*want };
        for mirror in &copies.mirrors()[..good_copy] {
            self.repair(mirror, good, 1, &|now| {
                let Err(_) = self.verify_read(now, want) else { return false };
                // A whole block of this place with a later generation is not damage: it was freed and written
                // anew, and whoever asked for the old one is late. It must not be undone.
                let newer = verify_block(now, &anything).is_ok()
                    && BlockRef::new(now).generation() > BlockRef::new(good).generation();
                !newer
            });
        }
    }

    /// Fills `out`, whole sectors, from `at` on. `verify` gets each sector with its index in the range and says
    /// whether it is good; a sector that is not is taken from another copy, and the bad ones are rewritten when
    /// the volume is open for writing. Where data has no checksum, `verify` says yes.
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
        let place = self.map(at + bytes.start as u64, bytes.len() as u64)?;
        match self.read_pieces(&place.mirrors()[copy], &mut out[bytes]) {
            Ok(()) => {
                for number in run {
                    if !verify(number, &out[number * sector..(number + 1) * sector]) {
                        push_sector(bad, number);
                    }
                }
            }
            // One unreadable sector fails the whole request: the others may be fine.
            Err(error) if error.kind() == ErrorKind::Io && run.len() > 1 => {
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
            let place = self.map(at + (good.start * sector) as u64, bytes.len() as u64)?;
            for mirror in &place.mirrors()[..good_copy] {
                self.repair(mirror, bytes, good.len() as u64, &|now| {
                    good.clone().zip(now.chunks(sector)).any(|(number, bytes)| !verify(number, bytes))
                });
            }
        }
        Ok(())
    }

    /// Why no copy of the sector at `at` was good, as an error. It is read once more to find out; should a copy
    /// be good now, the caller still has no data and gets an error.
    fn explain_sector(&self, at: Logical, number: usize, verify: VerifySector<'_>) -> Result<()> {
        let copies = self.map(at, u64::from(self.sector_size()))?;
        let mut bytes = AlignedBuffer::zeroed(index(self.sector_size()));
        let explain = |mirror: &[Piece]| match self.read_pieces(mirror, &mut bytes) {
            Ok(()) if verify(number, &bytes) => Error::new(ErrorKind::Io, "it was bad a moment ago"),
            Ok(()) => Error::new(ErrorKind::Unreadable, "checksum mismatch"),
            Err(error) => error,
        };
        let errors = copies.mirrors().iter().map(|mirror| &mirror[..]).map(explain).collect();
        Err(no_good_copy(DamagedBlock::Data(at), &copies, errors))
    }

    /// Reads the pieces of one copy into `out`: all at once, if they are several.
    pub(crate) fn read_pieces(&self, pieces: &[Piece], out: &mut [u8]) -> Result<()> {
        let len: u64 = pieces.iter().map(|piece| piece.len).sum();
        assert_eq!(len, out.len() as u64, "the pieces of a copy cover the range");
        if let [piece] = pieces {
            return self.member(piece.at.dev)?.device.read_at(piece.at.offset, out);
        }
        let plan = Plan::of_copy(pieces)?;
        let start = |run: &[Part]| {
            let place = place(run);
            let buffer = AlignedBuffer::zeroed(index(place.len));
            Ok((self.member(place.at.dev)?, Request::Read { offset: place.at.offset, buffer }))
        };
        let reads = plan.runs().map(start).collect::<Result<Vec<_>>>()?;
        for (run, (_, reply)) in plan.runs().zip(ask_all(reads)) {
            let Reply::Read(buffer) = reply? else { unreachable!("a read is answered with its buffer") };
            let mut from = 0;
            for part in run {
                let bytes = &mut out[part.bytes()];
                bytes.copy_from_slice(&buffer[from..from + bytes.len()]);
                from += bytes.len();
            }
        }
        Ok(())
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

/// One line that lists what each copy had.
fn no_good_copy(block: DamagedBlock, copies: &MirrorSet, errors: Vec<Error>) -> Error {
    let kinds: Vec<ErrorKind> = errors.iter().map(Error::kind).collect();
    let kind =
        if kinds.iter().all(|kind| *kind == ErrorKind::Io) { ErrorKind::Io } else { ErrorKind::Unreadable };
    let told = |error: &Error| if error.kind() == kind { error.without_kind() } else { error.to_string() };
    let list: Vec<String> = (copies.mirrors().iter().zip(&errors).enumerate())
        .map(|(copy, (mirror, error))| match mirror.first() {
            Some(piece) => format!("copy {} ({}): {}", copy + 1, piece.at, told(error)),
            None => format!("copy {}: {}", copy + 1, told(error)),
        })
        .collect();
    Error::new(kind, format!("reading {block}: no good copy: {}", list.join("; "))).of_block(block)
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
