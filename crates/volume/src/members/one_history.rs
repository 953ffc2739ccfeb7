//! Checking that the members of an open volume have the same roots, block for block (MEMBER-1). The reader of the root tree compares the
//! roots of other trees if a member missed writes: trees that did not change since are as they were when it stopped.

use creamery_base::{DevId, Result, TreeId};
use creamery_device::AlignedBuffer;
use creamery_format::{CSUM_FIELD, Expected};

use super::MemberPart;
use super::assemble::split_brain;
use crate::index::index;
use crate::volume::Volume;

impl Volume {
    /// Compares the copies of the root tree's root and of the chunk tree's, if several members have one. Chunks that are not mapped are
    /// skipped.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](creamery_base::ErrorKind::Unsupported): two good copies differ, so members were written separately
    /// (MEMBER-1).
    pub fn expect_one_history(&self) -> Result<()> {
        if self.members().all().len() < 2 {
            return Ok(());
        }
        let superblock = self.superblock();
        let (root, level) = superblock.root();
        let (chunk_root, chunk_level, chunk_generation) = superblock.chunk_root();
        let wanted = |logical, level, generation, owner| Expected {
            level: Some(level),
            generation: Some(generation),
            owner: Some(owner),
            ..Expected::anything(logical, &superblock)
        };
        self.expect_equal_copies(&wanted(chunk_root, chunk_level, chunk_generation, TreeId::CHUNK))?;
        self.expect_equal_copies(&wanted(root, level, superblock.generation(), TreeId::ROOT))?;
        // A member that missed writes stopped at a commit that the others had, too: its roots are still there, unless they were overwritten
        // since.
        for member in self.members().all() {
            let MemberPart::Stale(generation) = member.part else { continue };
            let backups = superblock.backups();
            let Some(backup) = backups.iter().find(|backup| backup.generation() == generation) else {
                continue;
            };
            let (root, level) = backup.root();
            let (chunk_root, chunk_level, chunk_generation) = backup.chunk_root();
            self.expect_equal_copies(&wanted(chunk_root, chunk_level, chunk_generation, TreeId::CHUNK))?;
            self.expect_equal_copies(&wanted(root, level, generation, TreeId::ROOT))?;
        }
        Ok(())
    }

    /// Whether a member missed writes, so that older blocks may show two histories ([`expect_equal_copies`](Self::expect_equal_copies)).
    #[must_use]
    pub fn has_stale_members(&self) -> bool {
        self.members().all().iter().any(|member| matches!(member.part, MemberPart::Stale(_)))
    }

    /// Compares the copies of a tree block on several members. Two histories of equal steps have differing blocks of one generation in one
    /// place. Damaged copies are left to their readers.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](creamery_base::ErrorKind::Unsupported): two good copies differ, so members were written separately.
    pub fn expect_equal_copies(&self, want: &Expected) -> Result<()> {
        let Ok(copies) = self.map(want.logical, u64::from(self.node_size())) else { return Ok(()) };
        let mut first: Option<(DevId, AlignedBuffer)> = None;
        for mirror in copies.mirrors() {
            let Some(piece) = mirror.first() else { continue };
            let mut block = AlignedBuffer::zeroed(index(self.node_size()));
            if self.read_pieces(mirror, &mut block).is_err() || self.verify_read(&block, want).is_err() {
                continue;
            }
            match &first {
                None => first = Some((piece.at.dev, block)),
                // No checksum covers the unused rest of the checksum's own field.
                Some((dev, other)) if *dev != piece.at.dev && other[CSUM_FIELD..] != block[CSUM_FIELD..] => {
                    let (one, two) =
                        (self.member(*dev)?.device.describe(), self.member(piece.at.dev)?.device.describe());
                    let generation = self.superblock().generation();
                    return Err(split_brain((&one, generation), (&two, generation)));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
