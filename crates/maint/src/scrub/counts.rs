//! The counters of a scrub, with Linux' names.

use std::ops::AddAssign;

/// The scrubbed amounts and the errors of a device. An error counts at the first read, whether it is repaired or not.
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
    /// Bytes of parity that were compared with their data.
    pub parity_bytes_scrubbed: u64,
    /// Sectors that could not be read.
    pub read_errors: u64,
    /// Sectors of data, and tree blocks, that do not match their checksum.
    pub csum_errors: u64,
    /// Tree blocks that do not match the extent tree, and sectors of parity that do not match their data.
    pub verify_errors: u64,
    /// The part of `verify_errors` that are tree blocks of another transaction.
    pub generation_errors: u64,
    /// Sectors of data without a checksum.
    pub no_csum: u64,
    /// Sectors without a checksum whose copies differ.
    pub differing: u64,
    /// Copies of the superblock that differ from that of the last commit.
    pub super_errors: u64,
    /// Errors without a good copy, or whose repair could not be written.
    pub uncorrectable_errors: u64,
    /// Errors that were repaired.
    pub corrected_errors: u64,
    /// Errors that were left: nothing was to be written, or it is unknown which copy is right.
    pub unverified_errors: u64,
    /// The device offset at which it stopped, bytes.
    pub last_physical: u64,
    /// Bytes in use on the device: the amount to scrub.
    pub size: u64,
}

/// The counts of a task for a stripe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Bytes of the device before this offset neither count nor give findings.
    pub(super) from: u64,
    pub(super) counts: Counts,
    /// The errors that were repaired, which no later scrub finds.
    pub(super) mended: Counts,
}

/// The class of an error.
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

    /// The counts that remain for a device of which only the superblocks were judged, if another scrub judges them again: repairs of them,
    /// and repairs that other devices made ahead.
    pub(super) const fn mended_before_it_began(self) -> Self {
        let ahead = self.read_errors.saturating_add(self.csum_errors).saturating_add(self.verify_errors);
        let super_errors = self.corrected_errors.saturating_sub(ahead);
        Self { super_errors, unverified_errors: 0, uncorrectable_errors: 0, ..self }
    }

    /// Errors that Linux counts as corruption of a device: everything that was read and is wrong, except tree blocks of another
    /// transaction.
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
    /// Adds the counters, saturating; `last_physical` and `size` become the greater one.
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
