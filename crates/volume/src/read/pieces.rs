//! Asking devices for one copy of a range.

use std::ops::Range;

use creamery_base::{ErrorKind, Result};
use creamery_device::{AlignedBuffer, Reply, Request};
use creamery_format::SUPERBLOCK_OFFSETS;

use crate::ask::ask_all;
use crate::index::index;
use crate::mapping::MirrorSet;
use crate::members::Member;
use crate::piece::Piece;
use crate::plan::{Plan, place};
use crate::volume::Volume;

impl Volume {
    /// Copies in the order in which they are asked.
    pub(super) fn in_order(&self, copies: MirrorSet) -> MirrorSet {
        if self.members().are_alike() {
            return copies;
        }
        copies.in_order(|dev| self.member_state(dev).rank())
    }

    /// Reads the pieces of one copy into `out`.
    pub(crate) fn read_pieces(&self, pieces: &[Piece], out: &mut [u8]) -> Result<()> {
        let len: u64 = pieces.iter().map(|piece| piece.len).sum();
        assert_eq!(len, out.len() as u64, "the pieces of a copy cover the range");
        let mut begin = 0;
        let scattered = pieces.iter().map(|piece| {
            let bytes = begin..begin + index(piece.len);
            begin = bytes.end;
            (*piece, bytes)
        });
        self.read_scattered(scattered, out)
    }

    /// Reads pieces, each into the bytes of `out` that it is: all at once, if they are several.
    pub(super) fn read_scattered(
        &self,
        pieces: impl IntoIterator<Item = (Piece, Range<usize>)>,
        out: &mut [u8],
    ) -> Result<()> {
        let plan = Plan::of_pieces(pieces)?;
        let mut runs = plan.runs();
        if let (Some([part]), None) = (runs.next(), runs.next()) {
            let member = self.member(part.at.dev)?;
            return self.answered(member, member.device.read_at(part.at.offset, &mut out[part.bytes()]));
        }
        let buffers = self.read_each(plan.runs().map(place))?;
        for (run, buffer) in plan.runs().zip(buffers) {
            let mut from = 0;
            for part in run {
                let bytes = &mut out[part.bytes()];
                bytes.copy_from_slice(&buffer[from..from + bytes.len()]);
                from += bytes.len();
            }
        }
        Ok(())
    }

    /// Reads pieces, each into a buffer of its own: all at once.
    pub(super) fn read_each(&self, pieces: impl Iterator<Item = Piece>) -> Result<Vec<AlignedBuffer>> {
        let start = |piece: Piece| {
            let buffer = AlignedBuffer::zeroed(index(piece.len));
            Ok((self.member(piece.at.dev)?, Request::Read { offset: piece.at.offset, buffer }))
        };
        let reads = pieces.map(start).collect::<Result<Vec<_>>>()?;
        let filled = |(member, reply)| match self.answered(member, reply)? {
            Reply::Read(buffer) => Ok(buffer),
            Reply::Done => unreachable!("a read is answered with its buffer"),
        };
        ask_all(reads).into_iter().map(filled).collect()
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
