//! Requests to devices for one copy of a range.

use creamery_base::{ErrorKind, Result};
use creamery_device::{AlignedBuffer, Reply, Request};
use creamery_format::SUPERBLOCK_OFFSETS;

use super::attempt::Attempt;
use crate::ask::ask_all;
use crate::device_range::DeviceRange;
use crate::index::index;
use crate::mapping::MirrorSet;
use crate::members::Member;
use crate::volume::Volume;

impl Volume {
    /// Sorts copies by the order in which they are read.
    pub(super) fn in_order(&self, copies: MirrorSet) -> MirrorSet {
        if self.members().are_alike() {
            return copies;
        }
        copies.in_order(|dev| self.member_state(dev).rank())
    }

    /// Reads the pieces of one copy into `out`.
    pub(crate) fn read_pieces(&self, pieces: &[DeviceRange], out: &mut [u8]) -> Result<()> {
        let len: u64 = pieces.iter().map(|piece| piece.len).sum();
        assert_eq!(len, out.len() as u64, "the pieces of a copy cover the range");
        match pieces {
            [piece] => self.read_piece(piece, out),
            _ => self.read_attempt(&Attempt::of_copy(pieces)?, out),
        }
    }

    /// Reads a range in one way: straight into `out` if it is in one place, or else with all requests at once.
    pub(super) fn read_attempt(&self, attempt: &Attempt, out: &mut [u8]) -> Result<()> {
        if let Some(piece) = attempt.single() {
            return self.read_piece(&piece, out);
        }
        let places: Vec<DeviceRange> = attempt.places().collect();
        // Devices that read ahead by themselves all begin before one is read. Then bytes are read into place, without a copy.
        let begins =
            |piece: &DeviceRange| Ok(self.member(piece.at.dev)?.device.will_read(piece.at.offset, piece.len));
        let in_place = places.iter().map(begins).collect::<Result<Vec<bool>>>()?;
        if !in_place.iter().all(|is| *is) {
            let read = self.read_each(&places)?;
            attempt.finish(self, &read, out);
            return Ok(());
        }
        for part in attempt.parts() {
            self.read_piece(&DeviceRange { at: part.at, len: part.len }, &mut out[part.bytes()])?;
        }
        let mut besides = Vec::new();
        for piece in &places[attempt.runs()..] {
            let mut buffer = AlignedBuffer::zeroed(index(piece.len));
            self.read_piece(piece, &mut buffer)?;
            besides.push(buffer);
        }
        attempt.rebuild(self, &besides, out);
        Ok(())
    }

    fn read_piece(&self, piece: &DeviceRange, out: &mut [u8]) -> Result<()> {
        let member = self.member(piece.at.dev)?;
        self.answered((member, piece.at.offset), member.device.read_at(piece.at.offset, out))
    }

    /// Reads pieces, each into a buffer of its own, all at once.
    fn read_each(&self, pieces: &[DeviceRange]) -> Result<Vec<AlignedBuffer>> {
        let start = |piece: &DeviceRange| {
            let buffer = AlignedBuffer::zeroed(index(piece.len));
            Ok((self.member(piece.at.dev)?, Request::Read { offset: piece.at.offset, buffer }))
        };
        let reads = pieces.iter().map(start).collect::<Result<Vec<_>>>()?;
        let filled =
            |piece: &DeviceRange, (member, reply): (&Member, Result<Reply>)| -> Result<AlignedBuffer> {
                match self.answered((member, piece.at.offset), reply)? {
                    Reply::Read(buffer) => Ok(buffer),
                    Reply::Done => unreachable!("a read is answered with its buffer"),
                }
            };
        // Requests to one device must follow one another.
        let mut order: Vec<usize> = (0..reads.len()).collect();
        order.sort_by_key(|&number| reads[number].0.dev);
        let mut reads: Vec<_> = reads.into_iter().map(Some).collect();
        let sorted = order.iter().filter_map(|&number| reads[number].take());
        let mut buffers: Vec<Option<AlignedBuffer>> = order.iter().map(|_| None).collect();
        for (&number, answer) in order.iter().zip(ask_all(sorted)) {
            buffers[number] = Some(filled(&pieces[number], answer)?);
        }
        Ok(buffers.into_iter().flatten().collect())
    }

    /// Handles an answer of a member to a request at `offset`. If there are several members, one that cannot even return its superblock any
    /// more, or that answers with errors alone, has failed, and is read last from now on.
    fn answered<T>(&self, (member, offset): (&Member, u64), answer: Result<T>) -> Result<T> {
        if self.members().all().len() < 2 {
            return answer;
        }
        if !answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Io) {
            member.answered();
            return answer;
        }
        let is_last = member.counts_as_failed(offset);
        if !member.has_failed() {
            let mut superblock = AlignedBuffer::zeroed(index(self.sector_size()));
            if is_last || member.device.read_at(SUPERBLOCK_OFFSETS[0], &mut superblock).is_err() {
                member.set_failed();
                self.note_once(format!("{} does not answer any more", member.device.describe()));
            }
        }
        answer
    }
}
