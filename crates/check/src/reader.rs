//! Reads and judges single tree blocks and runs of data, copy by copy.
//!
//! The volume's own reads hide a bad copy if another is good. A verifier reports the bad copy, so it asks the volume only for the places of
//! the copies and reads each one itself.

use creamery_base::{Error, ErrorKind, Generation, Logical, Physical, Result, Uuid, Wait};
use creamery_codec::{ChecksumType, checksum};
use creamery_format::{
    BlockRef, Corruption, Expected, Key, WritingRules, check_leaf_for_writing, verify_block,
};
use creamery_volume::{MemberState, ReadWay, Volume};

use crate::bad_data::BadSector;
use crate::corruption::problem_of;
use crate::problem::Problem;
use crate::report::{ProblemSite, Sink};

/// Maximum number of copies of a block that one finding lists.
const BAD_MAX: usize = 8;

/// Reads blocks of one volume and reports damage.
pub(crate) struct Reader<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) sink: &'a Sink,
    pub(crate) generation: Generation,
    pub(crate) fsid: Uuid,
    pub(crate) checksum: ChecksumType,
    pub(crate) node_size: u64,
    pub(crate) sector_size: u64,
    /// The rules by which Linux accepts a leaf of a filesystem that it writes.
    rules: WritingRules,
    copies: Copies,
}

/// The copies to read if one of them is good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    /// Copies up to the first good one.
    UpToGood,
    /// All copies on devices that are present and up to date.
    All,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(volume: &'a Volume, sink: &'a Sink) -> Self {
        Self {
            volume,
            sink,
            generation: volume.generation(),
            fsid: volume.metadata_uuid(),
            checksum: volume.checksum_type(),
            node_size: volume.node_size().into(),
            sector_size: volume.sector_size().into(),
            rules: volume.writing_rules(),
            copies: Copies::UpToGood,
        }
    }

    pub(crate) fn looking_at(self, copies: Copies) -> Self {
        Self { copies, ..self }
    }

    /// Whether a copy is read although another one is good. A device that is missing or missed writes has a finding already.
    fn is_looked_at(&self, way: &ReadWay) -> bool {
        let is_there =
            |dev| matches!(self.volume.member_state(dev), MemberState::Present | MemberState::Seed);
        self.copies == Copies::All
            && !way.is_rebuilt()
            && way.direct().iter().all(|piece| is_there(piece.at.dev))
    }

    /// The reason for which Linux, and every other writer, refuses a leaf.
    pub(crate) fn refusal(&self, leaf: BlockRef<'_>) -> Option<Corruption> {
        check_leaf_for_writing(leaf, &self.rules).err()
    }

    /// The block that `want` describes, with all keys below `upper`. Reports bad copies; returns `None` if no copy is good, and all
    /// together do not give the block either.
    pub(crate) fn block(&self, want: &Expected, upper: Option<Key>) -> Option<Vec<u8>> {
        let place = ProblemSite { tree: want.owner.map(|tree| tree.get()), ..ProblemSite::default() };
        let place = ProblemSite { block: Some(want.logical.get()), level: want.level, ..place };
        if !want.logical.is_aligned(self.sector_size) {
            let message = format!("address not aligned, expected a multiple of {}", self.sector_size);
            self.sink.add(Problem::BlockAddress, place, message);
            return None;
        }
        let mut ways = match self.volume.ways(want.logical, self.node_size) {
            Ok(ways) => ways,
            Err(error) => {
                self.sink.add(Problem::BlockAddress, place, error.to_string());
                return None;
            }
        };
        let mut block = vec![0; usize::try_from(self.node_size).expect("a node fits in memory")];
        let mut bad = Vec::new();
        while let Some(way) = ways.next() {
            match self.judge_way(&way, want, upper, &mut block) {
                Ok(()) => {
                    self.report_bad_copies(&place, &bad);
                    let mut other = vec![0; block.len()];
                    for way in ways.filter(|way| self.is_looked_at(way)) {
                        if let Err(fault) = self.judge_way(&way, want, upper, &mut other) {
                            self.report_bad_copies(&place, &[(way, fault)]);
                        }
                    }
                    return Some(block);
                }
                Err(fault) if bad.len() < BAD_MAX => bad.push((way, fault)),
                Err(_) => {}
            }
        }
        let together = self.put_together(want, upper);
        self.report_bad(place, &bad, together.is_some());
        together
    }

    /// A block that no way returns intact, put together from good sectors of all ways. Linux cannot read it, so it stays an error; but the
    /// check can go on below it.
    fn put_together(&self, want: &Expected, upper: Option<Key>) -> Option<Vec<u8>> {
        let block = self.volume.find_tree_block(want.logical, want, Wait::Yes).ok()?;
        let want = self.volume.expected_of_seed(&block, *want);
        judge(&block, &want, upper).ok().map(|()| block.to_vec())
    }

    fn judge_way(
        &self,
        way: &ReadWay,
        want: &Expected,
        upper: Option<Key>,
        block: &mut [u8],
    ) -> Result<(), BlockFault> {
        self.volume.read_way(way, want.logical, block).map_err(BlockFault::Read)?;
        judge(block, &self.volume.expected_of_seed(block, *want), upper)
    }

    /// Reports the copies that were tried before the good one. A rebuild that treats one stripe as lost and succeeds says nothing about
    /// other rebuilds.
    fn report_bad_copies(&self, place: &ProblemSite, bad: &[(ReadWay, BlockFault)]) {
        let copies = bad.iter().filter(|(way, _)| !way.is_rebuilt()).count().max(1);
        for (way, fault) in bad.iter().take(copies) {
            let message = format!("{way}: {}", fault.message());
            self.sink.add(Problem::BlockCopy, place.clone(), message);
        }
    }

    /// Reports a block without a good copy: one finding, whose problem is that of the first copy.
    fn report_bad(&self, place: ProblemSite, bad: &[(ReadWay, BlockFault)], can_be_put_together: bool) {
        let Some((_, first)) = bad.first() else { return };
        let place = match first {
            BlockFault::Corrupt(corruption) => ProblemSite::from(corruption.site()),
            _ => place,
        };
        let mut message = first.message();
        for (way, fault) in &bad[1..] {
            let other = fault.message();
            if other != first.message() {
                message = match way.is_rebuilt() {
                    true => format!("{message}; {way}: {other}"),
                    false => format!("{message}; the copy at {way}: {other}"),
                };
            }
        }
        if can_be_put_together {
            message = format!("{message}; put together from all copies it is good: creamery scrub mends it");
        }
        self.sink.add(first.problem(), place, message);
    }

    /// Reads `out`, whole sectors that begin at `at`, and compares each with its checksum in `sums`. Returns sectors without a good copy,
    /// and good ones that have a bad copy among those that were read.
    pub(crate) fn verify_data(&self, at: Logical, sums: &[u8], out: &mut [u8]) -> Vec<BadSector> {
        // A checksum item without an extent is reported by the comparison of these two.
        let Ok(mut ways) = self.volume.ways(at, out.len() as u64) else { return Vec::new() };
        let Some(first) = ways.next() else { return Vec::new() };
        let sector = self.sector_len();
        let mut is_good = vec![true; out.len() / sector];
        let others = ways.filter(|way| self.is_looked_at(way));
        for way in std::iter::once(first.clone()).chain(others) {
            let is_read = self.volume.read_way(&way, at, out).is_ok();
            for (number, is_good) in is_good.iter_mut().enumerate() {
                let bytes = &out[number * sector..(number + 1) * sector];
                *is_good &= is_read && self.has_sum(bytes, sums, number);
            }
        }
        let mut found = Vec::new();
        let mut from = 0;
        // Nearly always all sectors are good. Bad ones are read once more, piece by piece, in all ways.
        for piece in first.direct() {
            let sectors = usize::try_from(piece.len).expect("it is in memory") / sector;
            let bad: Vec<usize> = (from..from + sectors).filter(|number| !is_good[*number]).collect();
            for run in bad.chunk_by(|one, next| one + 1 == *next) {
                let (first, end) = (run[0], run[run.len() - 1] + 1);
                let size = self.checksum.size();
                let (at, sums) = (at + (first * sector) as u64, &sums[first * size..end * size]);
                found.extend(self.verify_in_all_ways(at, sums, &mut out[first * sector..end * sector]));
            }
            from += sectors;
        }
        found
    }

    /// Verifies a run of sectors of one piece in all ways: copies, and rebuilds from parity.
    fn verify_in_all_ways(&self, at: Logical, sums: &[u8], out: &mut [u8]) -> Vec<BadSector> {
        let Ok(ways) = self.volume.ways(at, out.len() as u64) else { return Vec::new() };
        let sector = self.sector_len();
        let mut good = vec![false; out.len() / sector];
        let mut failed: Vec<(usize, Problem, Option<Physical>, String)> = Vec::new();
        for (tried, way) in ways.enumerate() {
            let is_looked_at = self.is_looked_at(&way);
            for (number, good) in good.iter_mut().enumerate() {
                if *good && !is_looked_at {
                    continue;
                }
                let (from, bytes) = ((number * sector) as u64, number * sector..(number + 1) * sector);
                let own = way.part(from, sector as u64);
                let outcome = self.volume.read_way(&own, at + from, &mut out[bytes.clone()]);
                let is_good = outcome.is_ok() && self.has_sum(&out[bytes], sums, number);
                *good |= is_good;
                // Further rebuilds say nothing about a copy; a missing device has a finding of its own.
                let is_missing =
                    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::DeviceMissing);
                let is_told = (tried == 0 || !way.is_rebuilt())
                    && !(is_missing && failed.iter().any(|(other, ..)| *other == number));
                if !is_good && is_told {
                    let why = outcome.as_ref().err().map_or("checksum mismatch".to_owned(), Error::to_string);
                    let problem =
                        if outcome.is_err() { Problem::DataUnreadable } else { Problem::DataChecksum };
                    let at = own.direct().first().map(|piece| piece.at);
                    let name = match (way.is_rebuilt(), at) {
                        (true, _) => way.to_string(),
                        (false, Some(at)) => format!("copy at {at}"),
                        (false, None) => "copy at no device".to_owned(),
                    };
                    failed.push((number, problem, at, format!("{name}: {why}")));
                }
            }
            if self.copies == Copies::UpToGood && good.iter().all(|good| *good) {
                break;
            }
        }
        let bad = failed.into_iter().map(|(number, problem, copy, why)| BadSector {
            at: copy,
            logical: at.get().saturating_add(number as u64 * self.sector_size),
            problem: if good[number] { Problem::DataCopy } else { problem },
            why,
        });
        bad.collect()
    }

    fn sector_len(&self) -> usize {
        usize::try_from(self.sector_size).expect("a sector fits in memory")
    }

    /// Whether the sector matches checksum `number` of `sums`.
    fn has_sum(&self, sector: &[u8], sums: &[u8], number: usize) -> bool {
        let size = self.checksum.size();
        checksum(self.checksum, sector).as_bytes(self.checksum) == &sums[number * size..(number + 1) * size]
    }
}

/// The fault of one copy of a block.
enum BlockFault {
    Read(Error),
    Corrupt(Corruption),
    NullKey,
    Upper { found: Key, want: Key },
}

fn judge(block: &[u8], want: &Expected, upper: Option<Key>) -> Result<(), BlockFault> {
    verify_block(block, want).map_err(BlockFault::Corrupt)?;
    let view = BlockRef::new(block);
    // No item has this key, and btrfs check demands a greater first key.
    if view.is_leaf() && view.first_key() == Some(Key::MIN) {
        return Err(BlockFault::NullKey);
    }
    let last = view.last_key();
    match (last, upper) {
        (Some(found), Some(want)) if found >= want => Err(BlockFault::Upper { found, want }),
        _ => Ok(()),
    }
}

impl BlockFault {
    fn message(&self) -> String {
        match self {
            Self::Read(error) => error.to_string(),
            Self::Corrupt(corruption) => corruption.kind().to_string(),
            Self::NullKey => "the first key is all zeros".to_owned(),
            Self::Upper { found, want } => format!("last key, expected below {want}, found {found}"),
        }
    }

    fn problem(&self) -> Problem {
        match self {
            Self::Read(_) => Problem::BlockUnreadable,
            Self::NullKey => Problem::BlockKeyOrder,
            Self::Upper { .. } => Problem::BlockUpperKey,
            Self::Corrupt(corruption) => problem_of(corruption),
        }
    }
}
