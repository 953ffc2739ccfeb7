//! Extents that a deleted subvolume shared: those below a block to which it drops its pointer.

use creamery_base::{Logical, Result};
use creamery_format::{BlockRef, KeyType};
use creamery_tree::BufferStore;

use super::Qgroups;
use super::changed::{Before, Changed};
use super::state::QuotaState;
use crate::backref_walk::read_by_address;
use crate::extent_tree::{ExtentKind, file_extent_address};

/// Most extents noted in a transaction. With more, the numbers become inconsistent: walking them all would
/// stop all other threads for too long.
const NOTED_MAX: usize = 128 << 10;
/// Most blocks of a subtree that are read.
const BLOCKS_MAX: usize = 4096;

impl Qgroups {
    /// Notes all extents below the block at `at`, of level `level`, which is about to lose a root. Blocks below a
    /// shared block do not change. Errors: device errors; damage.
    pub(crate) fn trace(&self, store: &BufferStore, at: Logical, level: u8) -> Result<()> {
        let is_known = |state: &mut QuotaState| state.inconsistent && state.rescan.is_none();
        if self.with(is_known) != Some(false) {
            return Ok(());
        }
        let node_size = u64::from(store.volume().node_size());
        let (mut next, mut read) = (vec![(at, level)], 0);
        while let Some((at, level)) = next.pop() {
            read += 1;
            let noted = self.with(|state| state.changed.len()).unwrap_or(0);
            if read > BLOCKS_MAX || noted > NOTED_MAX {
                self.with(QuotaState::mark_inconsistent);
                return Ok(());
            }
            let bytes = read_by_address(store, at, level)?;
            let block = BlockRef::new(&bytes);
            let mut below = Vec::new();
            for slot in 0..block.count() {
                if level > 0 {
                    let kind = ExtentKind::TreeBlock { level: level - 1 };
                    below.push((block.child(slot).0, kind, node_size));
                } else if block.key(slot).kind == KeyType::EXTENT_DATA
                    && let Some((start, len, _)) = file_extent_address(block.data(slot))
                {
                    below.push((start, ExtentKind::Data, len));
                }
            }
            self.counting.traced.add(below.len() as u64);
            if level > 0 {
                next.extend(below.iter().map(|(at, ..)| (*at, level - 1)));
            }
            let noted = self.with(|state| {
                for (at, kind, len) in below {
                    let new = || Changed { kind, len, before: Before::Commit, touched: true };
                    state.changed.entry(at).or_insert_with(new).touched = true;
                }
                state.changed.len()
            });
            self.set_noted(noted);
        }
        Ok(())
    }
}
