//! The references to a tree block, and their form.

use creamery_base::{Error, ErrorKind, Logical, Result, Wait};
use creamery_format::{ExtentFlags, ExtentItem as ItemView, Key};
use creamery_tree::BlockReferences;

use super::apply::{item_key, item_keys};
use super::backref::ExtentKind;
use super::delayed_refs::Queued;
use super::item::ExtentItem;
use super::ref_head::RefHead;
use super::tree::ExtentTree;

/// Most times in a row that an extent on its way into the tree may be found in neither place.
pub(super) const MISSES_MAX: u32 = 64;

/// References in an item, or their queued changes.
#[derive(Clone, Copy, Default)]
struct CountedReferences {
    /// The number of references, or its change.
    count: i64,
    full_backref: bool,
    /// Whether the item does not exist yet.
    must_insert: bool,
}

impl CountedReferences {
    fn of_item(key: &Key, data: &[u8]) -> Result<Self> {
        let damaged = |kind| Error::with_source(ErrorKind::Corrupt, format!("extent item {key}"), kind);
        let head = ItemView::parse(key.kind, data).map_err(damaged)?.head;
        // A larger count is damage, and the changes of a transaction cannot bring it back.
        let count = i64::try_from(head.refs.get()).unwrap_or(i64::MAX);
        let full_backref = head.flags().contains(ExtentFlags::FULL_BACKREF);
        Ok(Self { count, full_backref, must_insert: false })
    }

    fn of_head(head: &RefHead) -> Self {
        Self { count: head.sum(), full_backref: head.full_backref, must_insert: head.must_insert }
    }

    /// The sum of an item and its queued changes.
    fn with(self, at: Logical, queued: Self) -> Result<BlockReferences> {
        let count = self.count.checked_add(queued.count).and_then(|count| u64::try_from(count).ok());
        let count = count.filter(|&count| count > 0).ok_or_else(|| unreferenced(at))?;
        Ok(BlockReferences { count, full_backref: self.full_backref || queued.full_backref })
    }
}

impl ExtentTree {
    /// References of a tree block in the state after all queued changes have run. It may wait for a head that runs, so
    /// the caller holds no block of this tree. Even with [`Wait::No`] it waits for locks of this tree's blocks.
    ///
    /// # Errors
    /// Would block: for a device, or for a head that runs; device errors; damage: the block has no reference.
    pub(crate) fn block_references(&self, at: Logical, level: u8, wait: Wait) -> Result<BlockReferences> {
        let mut misses = 0;
        loop {
            // Without an item there is no leaf to hold. The head's answer is the truth as long as it is there (REF-2).
            let (item, queued) = match self.see_block(at, level, wait)? {
                Some((item, queued)) => (Some(item), queued),
                None => (None, self.refs.queued_of(at, CountedReferences::of_head)),
            };
            match (item, queued) {
                // The running thread may wait for a device.
                (_, Queued::Locked) if wait == Wait::No => return Err(ErrorKind::WouldBlock.into()),
                (_, Queued::Locked) => self.refs.wait(at),
                (Some(item), Queued::Nothing) => return item.with(at, CountedReferences::default()),
                (Some(item), Queued::Changes(queued)) => return item.with(at, queued),
                (None, Queued::Changes(queued)) if queued.must_insert => {
                    return CountedReferences::default().with(at, queued);
                }
                // A head put it into the tree between the two reads.
                (None, _) if misses < MISSES_MAX => misses += 1,
                (None, _) => return Err(unreferenced(at)),
            }
        }
    }

    /// Whether there is an extent of `len` bytes of data at `at`, while nothing is queued.
    ///
    /// # Errors
    /// Device errors; damage.
    pub(crate) fn has_data(&self, at: Logical, len: u64) -> Result<bool> {
        let key = item_key(at, ExtentKind::Data, len);
        let item = self.tree.get(&key, Wait::Yes, |data| ExtentItem::parse(&key, data))?.transpose()?;
        Ok(item.is_some_and(|item| item.flags.contains(ExtentFlags::DATA)))
    }

    /// Reads a tree block's item, and with its leaf held the queued changes. Tree blocks of old filesystems have
    /// EXTENT_ITEMs.
    fn see_block(
        &self,
        at: Logical,
        level: u8,
        wait: Wait,
    ) -> Result<Option<(CountedReferences, Queued<CountedReferences>)>> {
        let kind = ExtentKind::TreeBlock { level };
        for key in item_keys(at, kind, u64::from(self.node_size)) {
            let see = |data: &[u8]| {
                (CountedReferences::of_item(&key, data), self.refs.queued_of(at, CountedReferences::of_head))
            };
            let seen = match wait {
                Wait::Yes => self.tree.get_locked(&key, wait, see)?,
                Wait::No => self.tree.get_cached(&key, see)?,
            };
            if let Some((item, queued)) = seen {
                return Ok(Some((item?, queued)));
            }
        }
        Ok(None)
    }
}

fn unreferenced(at: Logical) -> Error {
    Error::new(ErrorKind::Corrupt, format!("tree block {at} is in use and has no reference"))
}
