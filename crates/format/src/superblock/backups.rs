//! The backups of the roots: the superblock as of earlier commits.

use std::cmp::Reverse;

use super::Superblock;

impl Superblock {
    /// Returns the superblock as of the earlier commits in its backups, newest first. Only the roots and their counts are
    /// of that time; the log is dropped, because it belongs to this commit. Backups that cannot be a superblock are left out.
    ///
    /// The blocks may be gone: space that a commit no longer needs may be in use again after the next.
    ///
    /// ```
    /// use creamery_format::Superblock;
    /// fn generations(superblock: &Superblock) -> Vec<u64> {
    ///     superblock.backups().iter().map(|earlier| earlier.generation().get()).collect()
    /// }
    /// ```
    #[must_use]
    pub fn backups(&self) -> Vec<Self> {
        let mut earlier: Vec<Self> = self
            .raw
            .super_roots
            .iter()
            .filter_map(|backup| {
                let mut superblock = self.clone();
                let raw = superblock.raw_mut();
                (raw.root, raw.root_level, raw.generation) =
                    (backup.tree_root, backup.tree_root_level, backup.tree_root_gen);
                (raw.chunk_root, raw.chunk_root_level, raw.chunk_root_generation) =
                    (backup.chunk_root, backup.chunk_root_level, backup.chunk_root_gen);
                (raw.total_bytes, raw.bytes_used) = (backup.total_bytes, backup.bytes_used);
                (raw.log_root, raw.log_root_transid, raw.log_root_level) = (0.into(), 0.into(), 0);
                let is_other =
                    superblock.root() != self.root() || superblock.chunk_root() != self.chunk_root();
                let is_usable = superblock.generation() <= self.generation() && superblock.check().is_ok();
                (is_other && is_usable).then_some(superblock)
            })
            .collect();
        earlier.sort_by_key(|superblock| Reverse(superblock.generation()));
        earlier
    }
}
