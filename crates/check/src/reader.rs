//! Reading and judging single tree blocks and runs of data, copy by copy.
//!
//! The volume's own reading hides a bad copy when another is good, as it should. A verifier wants to tell, so it
//! asks the volume only where the copies lie and looks at them itself.

use creamery_base::{Error, ErrorKind, Generation, Logical, Physical, Result, Uuid};
use creamery_codec::{ChecksumType, checksum};
use creamery_format::{
    BlockRef, Corruption, Expected, Key, WritingRules, check_leaf_for_writing, verify_block,
};
use creamery_volume::{Mirror, Volume};

use crate::bad_data::BadSector;
use crate::corruption::problem_of;
use crate::problem::Problem;
use crate::report::{Place, Sink};

/// Reads blocks of one volume and reports what is wrong with them.
pub(crate) struct Reader<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) sink: &'a Sink,
    pub(crate) generation: Generation,
    pub(crate) fsid: Uuid,
    pub(crate) checksum: ChecksumType,
    pub(crate) node_size: u64,
    pub(crate) sector_size: u64,
    /// What leaves have to be for Linux, which writes the filesystem.
    rules: WritingRules,
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
        }
    }

    /// What Linux, and whoever else writes, refuses a leaf for.
    pub(crate) fn refusal(&self, leaf: BlockRef<'_>) -> Option<Corruption> {
        check_leaf_for_writing(leaf, &self.rules).err()
    }

    /// The block that `want` describes, whose keys are all below `upper`; none when there is no good copy, which
    /// is reported.
    ///
    /// # Errors
    /// The volume cannot read this kind of chunk at all.
    pub(crate) fn block(&self, want: &Expected, upper: Option<Key>) -> Result<Option<Vec<u8>>> {
        let place = Place { tree: want.owner.map(|tree| tree.get()), ..Place::default() };
        let place = Place { block: Some(want.logical.get()), level: want.level, ..place };
        if !want.logical.is_aligned(self.sector_size) {
            let message = format!("address not aligned, want a multiple of {}", self.sector_size);
            self.sink.add(Problem::BlockAddress, place, message);
            return Ok(None);
        }
        let mirrors = match self.volume.map(want.logical, self.node_size) {
            Ok(mirrors) => mirrors,
            Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
            Err(error) => {
                self.sink.add(Problem::BlockAddress, place, error.to_string());
                return Ok(None);
            }
        };
        let mut block = vec![0; usize::try_from(self.node_size).expect("a node fits in memory")];
        let mut bad = Vec::new();
        for mirror in mirrors.mirrors() {
            let judged = self.read_pieces(mirror, &mut block).map_err(BlockFault::Read);
            let judged = judged.and_then(|()| judge(&block, want, upper));
            match judged {
                Ok(()) => {
                    self.report_bad_copies(&place, &bad);
                    return Ok(Some(block));
                }
                Err(fault) => bad.push((mirror.first().map(|piece| piece.at.to_string()), fault)),
            }
        }
        self.report_bad(place, &bad);
        Ok(None)
    }

    fn report_bad_copies(&self, place: &Place, bad: &[(Option<String>, BlockFault)]) {
        for (at, fault) in bad {
            let message = format!("{}: {}", at.as_deref().unwrap_or("no device"), fault.message());
            self.sink.add(Problem::BlockCopy, place.clone(), message);
        }
    }

    /// All copies are bad: one finding, named after what the first one has.
    fn report_bad(&self, place: Place, bad: &[(Option<String>, BlockFault)]) {
        let Some((_, first)) = bad.first() else { return };
        let place = match first {
            BlockFault::Corrupt(corruption) => Place::from(corruption.site()),
            _ => place,
        };
        let mut message = first.message();
        for (at, fault) in &bad[1..] {
            let other = fault.message();
            if other != first.message() {
                let at = at.as_deref().unwrap_or("no device");
                message = format!("{message}; the copy at {at}: {other}");
            }
        }
        self.sink.add(first.problem(), place, message);
    }

    pub(crate) fn read_pieces(&self, pieces: &Mirror, out: &mut [u8]) -> Result<()> {
        let mut rest = out;
        for piece in pieces {
            let len = usize::try_from(piece.len).unwrap_or(usize::MAX).min(rest.len());
            let (part, after) = rest.split_at_mut(len);
            let Some(device) = self.volume.device(piece.at.dev) else {
                return Err(Error::new(ErrorKind::NotFound, format!("device {}", piece.at.dev)));
            };
            device.read_at(piece.at.offset, part)?;
            rest = after;
        }
        Ok(())
    }

    /// Reads `out`, whole sectors that begin at `at`, and compares each with its sum in `sums`. Gives sectors
    /// without a good copy, and good ones whose other copies, tried before, are bad.
    ///
    /// # Errors
    /// The volume cannot read this kind of chunk at all.
    pub(crate) fn verify_data(&self, at: Logical, sums: &[u8], out: &mut [u8]) -> Result<Vec<BadSector>> {
        let mirrors = match self.volume.map(at, out.len() as u64) {
            Ok(mirrors) => mirrors,
            Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
            // A checksum item without extent is reported where those are compared.
            Err(_) => return Ok(Vec::new()),
        };
        let size = self.checksum.size();
        let sector = usize::try_from(self.sector_size).expect("a sector fits in memory");
        let mut good = vec![false; out.len() / sector];
        let mut failed_before: Vec<(usize, Problem, Option<Physical>, String)> = Vec::new();
        for mirror in mirrors.mirrors() {
            let outcome = self.read_pieces(mirror, out);
            for (number, bytes) in out.chunks_exact(sector).enumerate() {
                if good[number] {
                    continue;
                }
                let want = &sums[number * size..(number + 1) * size];
                good[number] =
                    outcome.is_ok() && checksum(self.checksum, bytes).as_bytes(self.checksum) == want;
                if !good[number] {
                    let why = outcome.as_ref().err().map_or("checksum mismatch".to_owned(), Error::to_string);
                    let problem =
                        if outcome.is_err() { Problem::DataUnreadable } else { Problem::DataChecksum };
                    let at = place_in(mirror, number as u64 * self.sector_size);
                    let name = at.map_or_else(|| "no device".to_owned(), |at| at.to_string());
                    failed_before.push((number, problem, at, format!("copy at {name}: {why}")));
                }
            }
            if good.iter().all(|good| *good) {
                break;
            }
        }
        let bad = failed_before.into_iter().map(|(number, problem, copy, why)| BadSector {
            at: copy,
            logical: at.get().saturating_add(number as u64 * self.sector_size),
            problem: if good[number] { Problem::DataCopy } else { problem },
            why,
        });
        Ok(bad.collect())
    }
}

/// Where on its device a copy has its byte `inside`.
fn place_in(copy: &Mirror, mut inside: u64) -> Option<Physical> {
    for piece in copy {
        if inside < piece.len {
            return Some(Physical { offset: piece.at.offset.saturating_add(inside), ..piece.at });
        }
        inside -= piece.len;
    }
    None
}

/// What one copy of a block had.
enum BlockFault {
    Read(Error),
    Corrupt(Corruption),
    NullKey,
    Upper { found: Key, want: Key },
}

fn judge(block: &[u8], want: &Expected, upper: Option<Key>) -> Result<(), BlockFault> {
    verify_block(block, want).map_err(BlockFault::Corrupt)?;
    let view = BlockRef::new(block);
    // No item has this key, and btrfs check wants the first one to be greater.
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
