//! The copies of the superblock on one device.

use creamery_base::{DevId, Physical};
use creamery_format::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock};
use creamery_volume::MemberState;

use super::Counts;
use super::batch::count;
use super::finding::{Finding, Outcome, Sink, What};
use super::mend::Mending;

impl Mending<'_> {
    /// Judges all that fit on the device: each has to be whole, of this filesystem and device, and of the last commit. Bad copies behind the first one are
    /// written from that one; the first one is none that a scrub decides about.
    pub(super) fn superblocks(&self, dev: DevId, counts: &mut Counts, sink: &dyn Sink) {
        let volume = self.judge.volume;
        // A seed has a history of its own.
        let last = (volume.member_state(dev) == MemberState::Present).then(|| volume.superblock());
        let Some(end) = volume.device(dev).map(|device| device.len()) else { return };
        let mut first: Option<Superblock> = None;
        for offset in SUPERBLOCK_OFFSETS {
            // What lies behind the end of the filesystem is somebody else's.
            let end = first.as_ref().map_or(end, |first| end.min(first.dev_item().total_bytes.get()));
            if offset + SUPERBLOCK_LEN as u64 > end {
                break;
            }
            let at = Physical { dev, offset };
            let read = self.superblock(at);
            let judged = read.and_then(|found| match first.as_ref().or(last.as_ref()).unwrap_or(&found) {
                other if found.generation() != other.generation() => Err(format!(
                    "wrong generation, expected {}, found {}",
                    other.generation(),
                    found.generation()
                )),
                other if found.fsid() != other.fsid() => {
                    Err(format!("wrong UUID, expected {}, found {}", other.fsid(), found.fsid()))
                }
                _ if found.dev_item().dev_id() != dev => {
                    Err(format!("wrong device, expected {dev}, found {}", found.dev_item().dev_id()))
                }
                _ => Ok(found),
            });
            match judged {
                Ok(good) => first = first.or(Some(good)),
                Err(why) => {
                    counts.super_errors += 1;
                    let outcome = match (&first, self.mender) {
                        (None, _) => Outcome::Lost,
                        // It may lead to what the first one has lost; `rescue super-recover` decides.
                        (Some(first), _) if self.is_newer(at, first) => Outcome::Undecided,
                        (Some(_), None) => Outcome::Mendable,
                        (Some(first), Some(mender)) => {
                            let written = mender.rewrite_superblock(at, first);
                            if written.is_ok() { Outcome::Mended } else { Outcome::Lost }
                        }
                    };
                    count(outcome, 1, counts);
                    sink.found(&Finding { what: What::Superblock, at, logical: None, why, outcome });
                }
            }
            if offset == SUPERBLOCK_OFFSETS[0] && first.is_none() {
                return; // what the others should be nobody says
            }
        }
    }

    /// Whether a copy is whole and of a later commit than the first one.
    fn is_newer(&self, at: Physical, first: &Superblock) -> bool {
        self.superblock(at).is_ok_and(|copy| copy.generation() > first.generation())
    }

    fn superblock(&self, at: Physical) -> Result<Superblock, String> {
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        self.judge.volume.read_physical(at, &mut bytes).map_err(|error| error.to_string())?;
        Superblock::from_bytes(&bytes, at.offset).map_err(|error| error.to_string())
    }
}
