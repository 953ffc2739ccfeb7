//! The numbers of a scrub, by the names that Linux has for them.

use std::ops::AddAssign;

/// What was scrubbed of a device, and what was wrong. Errors are counted at the first read, mended or not.
///
/// ```
/// let mut all = creamery_maint::scrub::Counts::default();
/// all += creamery_maint::scrub::Counts { csum_errors: 1, ..Default::default() };
/// assert_eq!(all.errors(), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Data extents.
    pub data_extents_scrubbed: u64,
    /// Tree blocks.
    pub tree_extents_scrubbed: u64,
    /// Bytes of data.
    pub data_bytes_scrubbed: u64,
    /// Bytes of tree blocks.
    pub tree_bytes_scrubbed: u64,
    /// Bytes of parity that were compared with what their data has.
    pub parity_bytes_scrubbed: u64,
    /// Sectors that could not be read.
    pub read_errors: u64,
    /// Sectors of data, and tree blocks, that have not their checksum.
    pub csum_errors: u64,
    /// Tree blocks that are not what the extent tree says, and sectors of parity that are not that of their data.
    pub verify_errors: u64,
    /// Those of `verify_errors` that are tree blocks of another transaction.
    pub generation_errors: u64,
    /// Sectors of data without a checksum.
    pub no_csum: u64,
    /// Sectors without a checksum of which two copies differ.
    pub differing: u64,
    /// Copies of the superblock that are not that of the last commit.
    pub super_errors: u64,
    /// Errors for which there is nothing good.
    pub uncorrectable_errors: u64,
    /// Errors that were mended.
    pub corrected_errors: u64,
    /// Errors that can be mended, and were not: nothing was to be written.
    pub unverified_errors: u64,
    /// Where on the device it stopped, bytes.
    pub last_physical: u64,
    /// Bytes that are in use on the device: so much there is to scrub.
    pub size: u64,
}

/// What a task has counted of a stripe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// What lies before this place of the device neither counts nor is found.
    pub(super) from: u64,
    pub(super) counts: Counts,
    /// Those errors of it that were mended, which no later scrub finds.
    pub(super) mended: Counts,
}

/// How something is bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Unread,
    Checksum,
    /// A tree block of another transaction.
    Generation,
    Verify,
}

impl Counts {
    /// Counts an error by its class.
    pub(super) const fn count(&mut self, class: Class) {
        match class {
            Class::Unread => self.read_errors += 1,
            Class::Checksum => self.csum_errors += 1,
            Class::Generation => {
                self.verify_errors += 1;
                self.generation_errors += 1;
            }
            Class::Verify => self.verify_errors += 1,
        }
    }

    /// What counts still of a device on which a scrub has judged no more than the superblocks, where another scrub judges those again: what was mended of them, and
    /// what other devices have mended ahead.
    pub(super) const fn mended_before_it_began(self) -> Self {
        let ahead = self.read_errors.saturating_add(self.csum_errors).saturating_add(self.verify_errors);
        let super_errors = self.corrected_errors.saturating_sub(ahead);
        Self { super_errors, unverified_errors: 0, uncorrectable_errors: 0, ..self }
    }

    /// Errors that Linux counts as corruption of a device: all that was read and is not what it has to be, but for tree blocks of another transaction.
    #[must_use]
    pub const fn corruption_errors(&self) -> u64 {
        let others = self.verify_errors.saturating_sub(self.generation_errors);
        self.csum_errors.saturating_add(self.super_errors).saturating_add(others)
    }

    /// All errors that were found.
    #[must_use]
    pub const fn errors(&self) -> u64 {
        let all = self.read_errors.saturating_add(self.csum_errors).saturating_add(self.verify_errors);
        all.saturating_add(self.super_errors).saturating_add(self.differing)
    }
}

impl AddAssign for Counts {
    /// Adds the numbers up, as far as they go; of `last_physical` and `size` it is the greater one.
    fn add_assign(&mut self, other: Self) {
        self.data_extents_scrubbed = self.data_extents_scrubbed.saturating_add(other.data_extents_scrubbed);
        self.tree_extents_scrubbed = self.tree_extents_scrubbed.saturating_add(other.tree_extents_scrubbed);
        self.data_bytes_scrubbed = self.data_bytes_scrubbed.saturating_add(other.data_bytes_scrubbed);
        self.tree_bytes_scrubbed = self.tree_bytes_scrubbed.saturating_add(other.tree_bytes_scrubbed);
        self.parity_bytes_scrubbed = self.parity_bytes_scrubbed.saturating_add(other.parity_bytes_scrubbed);
        self.read_errors = self.read_errors.saturating_add(other.read_errors);
        self.csum_errors = self.csum_errors.saturating_add(other.csum_errors);
        self.verify_errors = self.verify_errors.saturating_add(other.verify_errors);
        self.generation_errors = self.generation_errors.saturating_add(other.generation_errors);
        self.no_csum = self.no_csum.saturating_add(other.no_csum);
        self.differing = self.differing.saturating_add(other.differing);
        self.super_errors = self.super_errors.saturating_add(other.super_errors);
        self.uncorrectable_errors = self.uncorrectable_errors.saturating_add(other.uncorrectable_errors);
        self.corrected_errors = self.corrected_errors.saturating_add(other.corrected_errors);
        self.unverified_errors = self.unverified_errors.saturating_add(other.unverified_errors);
        self.last_physical = self.last_physical.max(other.last_physical);
        self.size = self.size.max(other.size);
    }
}
