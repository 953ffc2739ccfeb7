//! The copies of the superblock on one device.

use creamery_base::{DevId, Physical};
use creamery_format::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock};
use creamery_volume::MemberState;

use super::Counts;
use super::batch::count;
use super::finding::{Finding, FindingKind, Outcome, Rewritten, Sink};
use super::mend::Mending;

/// The largest number of reads of a copy that is half written.
const LOOKS: usize = 4;

impl Mending<'_> {
    /// Judges all copies that fit on the device: each must be whole, of this filesystem and device, and of the last commit. Bad copies
    /// behind the first one are rewritten from it; a scrub does not decide about the first one. Beside commits, all copies are left to
    /// them.
    pub(super) fn superblocks(&self, dev: DevId, counts: &mut Counts, sink: &dyn Sink) {
        let volume = self.judge.volume;
        let Some(end) = volume.device(dev).map(|device| device.len()) else { return };
        let mut first: Option<Superblock> = None;
        for offset in SUPERBLOCK_OFFSETS {
            // Bytes behind the end of the filesystem do not belong to it.
            let end = first.as_ref().map_or(end, |first| end.min(first.dev_item().total_bytes.get()));
            if offset + SUPERBLOCK_LEN as u64 > end {
                break;
            }
            let at = Physical { dev, offset };
            let judged = match self.is_live {
                true => self.judge_beside_commits(at),
                false => self.judge_superblock(at, first.as_ref()),
            };
            match judged {
                Ok(good) => first = first.or(Some(good)),
                Err(why) => {
                    counts.super_errors += 1;
                    let rewritten = match (&first, self.mender) {
                        _ if self.is_live => Rewritten::not(Outcome::Mendable),
                        (None, _) => Rewritten::not(Outcome::Lost),
                        // It may have changes that the first one has lost; `rescue super-recover` decides.
                        (Some(first), _) if self.is_newer(at, first) => Rewritten::not(Outcome::Undecided),
                        (Some(_), None) => Rewritten::not(Outcome::Mendable),
                        (Some(first), Some(mender)) => Rewritten::by(mender.rewrite_superblock(at, first)),
                    };
                    let (why, outcome) = (rewritten.why(&why), rewritten.outcome);
                    count(outcome, 1, counts);
                    sink.found(&Finding { what: FindingKind::Superblock, at, logical: None, why, outcome });
                }
            }
            if offset == SUPERBLOCK_OFFSETS[0] && first.is_none() && !self.is_live {
                return; // the right content of the others is unknown
            }
        }
    }

    /// Judges one copy, against the first one of its device, or the last commit.
    fn judge_superblock(&self, at: Physical, first: Option<&Superblock>) -> Result<Superblock, String> {
        let volume = self.judge.volume;
        // A seed has a history of its own.
        let last = (volume.member_state(at.dev) == MemberState::Present).then(|| volume.superblock());
        let found = self.superblock(at)?;
        let other = first.or(last.as_ref()).unwrap_or(&found);
        self.is_of_device(at, &found, other)?;
        if found.generation() != other.generation() {
            return Err(format!(
                "wrong generation, expected {}, found {}",
                other.generation(),
                found.generation()
            ));
        }
        Ok(found)
    }

    /// Judges one copy that a commit may write at the moment: it must be of the last commit or the next one. A half-written copy is read
    /// again.
    fn judge_beside_commits(&self, at: Physical) -> Result<Superblock, String> {
        let mut why = String::new();
        for _ in 0..LOOKS {
            let before = self.judge.volume.superblock();
            let judged = self.superblock(at).and_then(|found| {
                self.is_of_device(at, &found, &before)?;
                let (first, last) = (before.generation(), self.judge.volume.superblock().generation().next());
                match (first..=last).contains(&found.generation()) {
                    true => Ok(found),
                    false => Err(format!("wrong generation, expected {first}, found {}", found.generation())),
                }
            });
            match judged {
                Ok(found) => return Ok(found),
                Err(bad) => why = bad,
            }
            std::thread::yield_now();
        }
        Err(why)
    }

    fn is_of_device(&self, at: Physical, found: &Superblock, other: &Superblock) -> Result<(), String> {
        if found.fsid() != other.fsid() {
            return Err(format!("wrong UUID, expected {}, found {}", other.fsid(), found.fsid()));
        }
        match found.dev_item().dev_id() {
            dev if dev == at.dev => Ok(()),
            dev => Err(format!("wrong device, expected {}, found {dev}", at.dev)),
        }
    }

    /// Whether a copy is whole and of a later commit than the first one.
    fn is_newer(&self, at: Physical, first: &Superblock) -> bool {
        let copy = self.superblock(at).and_then(|copy| self.is_of_device(at, &copy, first).map(|()| copy));
        copy.is_ok_and(|copy| copy.generation() > first.generation())
    }

    fn superblock(&self, at: Physical) -> Result<Superblock, String> {
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        self.judge.volume.read_physical(at, &mut bytes).map_err(|error| error.to_string())?;
        Superblock::from_bytes(&bytes, at.offset).map_err(|error| error.to_string())
    }
}
