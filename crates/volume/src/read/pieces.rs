//! Asking devices for one copy of a range.

use creamery_base::{ErrorKind, Logical, Result};
use creamery_device::{AlignedBuffer, Reply, Request};
use creamery_format::SUPERBLOCK_OFFSETS;

use crate::ask::ask_all;
use crate::mapping::{MirrorSet, Piece};
use crate::members::Member;
use crate::plan::{Part, Plan, place};
use crate::volume::{Volume, index};

impl Volume {
    /// The copies of a range in the order in which they are asked.
    pub(crate) fn map_for_reading(&self, at: Logical, len: u64) -> Result<MirrorSet> {
        let copies = self.map(at, len)?;
        if self.members().are_alike() {
            return Ok(copies);
        }
        Ok(copies.in_order(|dev| self.member_state(dev).rank()))
    }

    /// Reads the pieces of one copy into `out`: all at once, if they are several.
    pub(crate) fn read_pieces(&self, pieces: &[Piece], out: &mut [u8]) -> Result<()> {
        let len: u64 = pieces.iter().map(|piece| piece.len).sum();
        assert_eq!(len, out.len() as u64, "the pieces of a copy cover the range");
        if let [piece] = pieces {
            let member = self.member(piece.at.dev)?;
            return self.answered(member, member.device.read_at(piece.at.offset, out));
        }
        let plan = Plan::of_copy(pieces)?;
        let start = |run: &[Part]| {
            let place = place(run);
            let buffer = AlignedBuffer::zeroed(index(place.len));
            Ok((self.member(place.at.dev)?, Request::Read { offset: place.at.offset, buffer }))
        };
        let reads = plan.runs().map(start).collect::<Result<Vec<_>>>()?;
        for (run, (member, reply)) in plan.runs().zip(ask_all(reads)) {
            let Reply::Read(buffer) = self.answered(member, reply)? else {
                unreachable!("a read is answered with its buffer")
            };
            let mut from = 0;
            for part in run {
                let bytes = &mut out[part.bytes()];
                bytes.copy_from_slice(&buffer[from..from + bytes.len()]);
                from += bytes.len();
            }
        }
        Ok(())
    }

    /// An answer of a member. One of several that cannot even give its superblock any more has failed, and is asked last from now on.
    fn answered<T>(&self, member: &Member, answer: Result<T>) -> Result<T> {
        let is_error = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Io);
        if is_error && self.members().all().len() > 1 && !member.has_failed() {
            let mut superblock = AlignedBuffer::zeroed(index(self.sector_size()));
            if member.device.read_at(SUPERBLOCK_OFFSETS[0], &mut superblock).is_err() {
                member.set_failed();
                self.note(format!("{} does not answer any more", member.device.describe()));
            }
        }
        answer
    }
}
