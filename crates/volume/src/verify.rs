//! Checks of tree blocks: all readers make the checks of [`verify_block`]. A volume open for writing accepts
//! a leaf only if Linux does (VOL-7): a change of another leaf would write it, and Linux would then refuse the filesystem.

use creamery_format::{
    BlockRef, CorruptKind, Corruption, Expected, Incompat, WritingRules, check_leaf_for_writing, verify_block,
};

use crate::members::MemberPart;
use crate::open::Mode;
use crate::volume::Volume;

impl Volume {
    /// Checks a tree block that was read.
    /// Errors: damage.
    pub(crate) fn verify_read(&self, bytes: &[u8], want: &Expected) -> Result<(), Corruption> {
        match verify_block(bytes, want) {
            Err(wrong) if matches!(wrong.kind(), CorruptKind::Fsid { .. }) => {
                verify_block(bytes, &self.expected_of_seed(bytes, *want))?;
            }
            judged => judged?,
        }
        match self.mode() {
            Mode::ReadOnly => Ok(()),
            Mode::ReadWrite => self.verify_leaf_for_writing(BlockRef::new(bytes)),
        }
    }

    /// Returns the expectation for a block that was read. For a block of a seed of this filesystem it has the seed's UUID.
    ///
    /// # Panics
    /// If `bytes` have no tree block's length.
    #[must_use]
    pub fn expected_of_seed(&self, bytes: &[u8], want: Expected) -> Expected {
        let found = BlockRef::new(bytes).fsid();
        let seeds = self.members().all().iter().filter(|member| member.part == MemberPart::Seed);
        let is_of_seed = seeds.map(|member| member.metadata_uuid).any(|uuid| uuid == found);
        if is_of_seed { Expected { fsid: found, ..want } } else { want }
    }

    /// Checks that a tree block that passes [`verify_block`] may be written, or changed later. A block that is written may be of a later
    /// transaction than the next one, and so may its items.
    /// Errors: Linux does not accept it.
    pub(crate) fn verify_leaf_for_writing(&self, block: BlockRef<'_>) -> Result<(), Corruption> {
        let rules = self.writing_rules();
        let newest = rules.newest.max(block.generation());
        check_leaf_for_writing(block, &WritingRules { newest, ..rules })
    }

    /// Returns the rules for leaves of a filesystem that is written.
    #[must_use]
    pub fn writing_rules(&self) -> WritingRules {
        let (generation, incompat) = self.last_commit();
        WritingRules {
            newest: generation.next(),
            sector_size: self.sector_size(),
            node_size: self.node_size(),
            checksum_size: self.checksum_type().size(),
            has_skinny_metadata: incompat.contains(Incompat::SKINNY_METADATA),
        }
    }
}
