//! How often a tree block is referred to, and how.

use creamery_base::{Error, ErrorKind, Generation, Logical, Result, Wait};
use creamery_format::ExtentFlags;
use creamery_tree::BlockReferences;

use super::apply::item_keys;
use super::backref::ExtentKind;
use super::delayed_refs::Queued;
use super::item::ExtentItem;
use super::ref_head::RefHead;
use super::tree::ExtentTree;

/// How often in a row an extent may be on its way into the tree and be found in neither place.
pub(super) const MISSES_MAX: u32 = 64;

/// What an extent's item says, and what was queued when its leaf was held.
struct Seen {
    item: ExtentItem,
    queued: Queued,
}

impl ExtentTree {
    /// References of a tree block as they will be when everything queued has run. It may wait for a head that runs, so
    /// without a block of this tree.
    ///
    /// # Errors
    /// Device errors; damage: nobody refers to it.
    pub(crate) fn block_references(&self, at: Logical, level: u8) -> Result<BlockReferences> {
        let mut misses = 0;
        loop {
            let seen = self.see_block(at, level)?;
            // Without an item there is no leaf to hold. That is the truth while the head says so (REF-2).
            let (item, queued) = match seen {
                Some(Seen { item, queued }) => (Some(item), queued),
                None => (None, self.refs.queued(at)),
            };
            match (item, queued) {
                (_, Queued::Locked) => self.refs.wait(at),
                (Some(item), Queued::Nothing) => return references(at, &item, None),
                (Some(item), Queued::Changes(head)) => return references(at, &item, Some(&head)),
                (None, Queued::Changes(head)) if head.must_insert => {
                    let nothing = ExtentItem::new(Generation::default(), ExtentFlags::empty());
                    return references(at, &nothing, Some(&head));
                }
                // It was put into the tree between the two looks.
                (None, _) if misses < MISSES_MAX => misses += 1,
                (None, _) => return Err(unreferenced(at)),
            }
        }
    }

    /// Looks at a tree block's item, and with its leaf held at what is queued. Tree blocks of old filesystems have
    /// EXTENT_ITEMs.
    fn see_block(&self, at: Logical, level: u8) -> Result<Option<Seen>> {
        let kind = ExtentKind::TreeBlock { level };
        for key in item_keys(at, kind, u64::from(self.node_size)) {
            let see = |data: &[u8]| (ExtentItem::parse(&key, data), self.refs.queued(at));
            if let Some((item, queued)) = self.tree.get(&key, Wait::Yes, see)? {
                return Ok(Some(Seen { item: item?, queued }));
            }
        }
        Ok(None)
    }
}

/// What an item and what is queued come to.
fn references(at: Logical, item: &ExtentItem, head: Option<&RefHead>) -> Result<BlockReferences> {
    let count = item.refs.checked_add_signed(head.map_or(0, RefHead::sum)).filter(|&count| count > 0);
    let count = count.ok_or_else(|| unreferenced(at))?;
    let full_backref =
        item.flags.contains(ExtentFlags::FULL_BACKREF) || head.is_some_and(|head| head.full_backref);
    Ok(BlockReferences { count, full_backref })
}

fn unreferenced(at: Logical) -> Error {
    Error::new(ErrorKind::Corrupt, format!("tree block {at} is in use and has no reference"))
}
