//! Checks before writes, writes of borrowed data, and discards.

use creamery_base::{Error, ErrorKind, Logical, Result};
use creamery_format::{BlockRef, Expected, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, verify_block};

use crate::device_range::DeviceRange;
use crate::durable::Written;
use crate::index::index;
use crate::plan::{BlockKind, CopyPart, Plan, place};
use crate::report::WriteReport;
use crate::volume::Volume;

/// Fails if a write would overlap a superblock copy, whatever the free space tree of a damaged filesystem says.
pub(crate) fn check_beside_superblocks(mirror: &[DeviceRange]) -> Result<()> {
    for piece in mirror {
        let end = piece.at.offset + piece.len;
        let hit = SUPERBLOCK_OFFSETS
            .iter()
            .find(|&&copy| copy < end && piece.at.offset < copy + SUPERBLOCK_LEN as u64);
        if let Some(copy) = hit {
            let message =
                format!("{} of {} bytes would overwrite the superblock at {copy}", piece.at, piece.len);
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
    }
    Ok(())
}

impl Volume {
    pub(crate) fn verify_before_write(&self, at: Logical, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len(), index(self.node_size()), "a tree block has node size");
        assert!(at.is_aligned(u64::from(self.sector_size())), "a tree block lies on a sector boundary");
        let block = BlockRef::new(bytes);
        let want = Expected {
            logical: at,
            level: Some(block.level()),
            generation: Some(block.generation()),
            owner: Some(block.owner()),
            first_key: None,
            fsid: self.metadata_uuid(),
            checksum: self.checksum_type(),
        };
        verify_block(bytes, &want).and_then(|()| self.verify_leaf_for_writing(block)).map_err(|damage| {
            Error::from(damage).context(format!("about to write the tree block at logical {at}"))
        })
    }

    /// Adds the copies of a range to a plan for writing.
    pub(crate) fn plan_write(&self, plan: &mut Plan, at: Logical, len: u64, what: BlockKind) -> Result<()> {
        let sector = u64::from(self.sector_size());
        assert!(at.is_aligned(sector), "what is written lies on sector boundaries");
        assert!(len.is_multiple_of(sector), "whole sectors are written");
        let copies = self.map(at, len)?;
        copies.mirrors().iter().try_for_each(|mirror| check_beside_superblocks(mirror))?;
        plan.add(at, what, &copies);
        Ok(())
    }

    pub(crate) fn count_write(&self, len: u64) {
        self.counters.writes.add(1);
        self.counters.write_bytes.add(len);
    }

    /// Writes `data`, whole sectors, from `at` on to all copies: a batch of one range. The bytes are only borrowed, so one
    /// request ends before the next one begins. A [`flush`](Self::flush) makes the data durable; it needs the token.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn write_data(&self, at: Logical, data: &[u8]) -> Result<Written> {
        self.check_writable()?;
        let mut plan = Plan::with_capacity(1);
        self.plan_write(&mut plan, at, data.len() as u64, BlockKind::Data)?;
        let plan = plan.cut()?;
        self.begin_writing()?;
        let outcomes = plan.runs().map(|run| self.write_run(run, data)).enumerate();
        let failed: Vec<(usize, Error)> =
            outcomes.filter_map(|(run, outcome)| Some((run, outcome.err()?))).collect();
        self.counters.write_failures.add(failed.len() as u64);
        WriteReport::new(self.number(), plan, failed).into_written()
    }

    fn write_run(&self, run: &[CopyPart], data: &[u8]) -> Result<()> {
        let place = place(run);
        self.count_write(place.len);
        let device = &self.member(place.at.dev)?.device;
        if let [part] = run {
            return device.write_at(place.at.offset, &data[part.bytes()]);
        }
        let slices: Vec<&[u8]> = run.iter().map(|part| &data[part.bytes()]).collect();
        device.write_vectored_at(place.at.offset, &slices)
    }

    /// Tells the devices that a range is free. Returns how many bytes they accepted, each copy counted. The content of
    /// the range is unspecified afterwards. Devices without discard are skipped.
    ///
    /// # Errors
    /// A device fails, or the range leaves its chunk.
    pub fn discard(&self, at: Logical, len: u64) -> Result<u64> {
        let copies = self.map(at, len)?;
        copies.mirrors().iter().flatten().try_fold(0, |told, piece| Ok(told + self.discard_piece(piece)?))
    }

    /// Tells a device that a piece of it is free. Returns how many bytes it accepted.
    ///
    /// # Errors
    /// The device fails, or is missing.
    pub fn discard_piece(&self, piece: &DeviceRange) -> Result<u64> {
        self.check_writable()?;
        check_beside_superblocks(&[*piece])?;
        self.begin_writing()?;
        match self.member(piece.at.dev)?.device.discard(piece.at.offset, piece.len) {
            Ok(()) => {
                self.counters.discarded_bytes.add(piece.len);
                Ok(piece.len)
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(0),
            Err(error) => {
                self.counters.discard_failures.add(1);
                Err(error)
            }
        }
    }
}
