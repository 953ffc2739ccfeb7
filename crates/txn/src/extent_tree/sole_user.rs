//! Whether one file is the only user of a data extent.

use creamery_base::{ErrorKind, Generation, Logical, Result, Wait};

use super::apply::item_key;
use super::backref::{Backref, ExtentKind};
use super::delayed_refs::Queued;
use super::item::ExtentItem;
use super::ref_head::RefHead;
use super::references::MISSES_MAX;
use super::tree::ExtentTree;

impl ExtentTree {
    /// Whether `user` is the only user of a data extent made after `since`, in the state after all queued changes have run. "No" may
    /// be wrong: it counts a reference that is queued to go, one whose drop is not durable yet (LOST-1), and
    /// one in an item of its own. It may wait
    /// for a head that runs, so the caller holds no block of this tree.
    ///
    /// # Errors
    /// Would block; device errors; damage.
    pub(crate) fn is_sole_user(
        &self,
        at: Logical,
        len: u64,
        user: Backref,
        since: Generation,
        wait: Wait,
    ) -> Result<bool> {
        let key = item_key(at, ExtentKind::Data, len);
        for _ in 0..MISSES_MAX {
            // Reads the queue with the item's leaf held (REF-2). Without an item there is no leaf to hold.
            let see = |data: &[u8]| (ExtentItem::parse(&key, data), self.refs.queued(at));
            let (item, queued) = match self.tree.get_locked(&key, wait, see)? {
                Some((item, queued)) => (Some(item?), queued),
                None => (None, self.refs.queued(at)),
            };
            match (item, queued) {
                // The running thread may wait for a device.
                (_, Queued::Locked) if wait == Wait::No => return Err(ErrorKind::WouldBlock.into()),
                (_, Queued::Locked) => self.refs.wait(at),
                (Some(item), Queued::Nothing) => {
                    return Ok(is_sole(&item, user, since) && !self.refs.has_lost_others(at, user));
                }
                (Some(item), Queued::Changes(head)) => {
                    let is_sole = is_sole(&item, user, since) && is_all_queued(&head, user);
                    return Ok(is_sole && !self.refs.has_lost_others(at, user));
                }
                (None, Queued::Changes(head)) if head.must_insert => {
                    return Ok(is_all_queued(&head, user) && !self.refs.has_lost_others(at, user));
                }
                // A head put it into the tree between the two reads.
                (None, _) => {}
            }
        }
        Ok(false)
    }
}

fn is_sole(item: &ExtentItem, user: Backref, since: Generation) -> bool {
    item.generation > since
        && item.refs == item.inline_count()
        && item.inline.iter().all(|(backref, _)| *backref == user)
}

fn is_all_queued(head: &RefHead, user: Backref) -> bool {
    head.changes.iter().all(|(backref, _)| *backref == user)
}

#[cfg(test)]
mod tests {
    use creamery_base::{InodeId, ObjectId, TreeId};
    use creamery_format::ExtentFlags;

    use super::*;

    #[test]
    fn one_file_is_the_sole_user_only_while_nobody_else_is_known() {
        let owner = |tree, ino| InodeId::new(tree, ObjectId::new(ino));
        let user = Backref::of_file(owner(TreeId::FS, 300), 0);
        let others = [
            Backref::of_file(owner(TreeId::FS, 301), 0),
            Backref::of_file(owner(TreeId::FS, 300), 4096),
            Backref::of_file(owner(TreeId::new(256), 300), 0),
            Backref::SharedData { parent: Logical::new(1 << 20) },
        ];
        let since = Generation::new(7);
        let item = |generation, backrefs: &[(Backref, u32)], refs| {
            let mut item = ExtentItem::new(Generation::new(generation), ExtentFlags::DATA);
            item.inline.extend_from_slice(backrefs);
            item.refs = refs;
            item
        };
        assert!(is_sole(&item(8, &[(user, 3)], 3), user, since));
        assert!(!is_sole(&item(7, &[(user, 3)], 3), user, since), "a snapshot may have its leaf");
        assert!(!is_sole(&item(8, &[(user, 3)], 4), user, since), "one stands elsewhere");
        for other in others {
            assert!(!is_sole(&item(8, &[(user, 1), (other, 1)], 2), user, since), "{other:?}");
            let mut head = RefHead::first(ExtentKind::Data, 4096, user);
            assert!(is_all_queued(&head, user));
            head.change(Logical::new(4096), other, 1).expect("no damage");
            assert!(!is_all_queued(&head, user), "{other:?}");
        }
    }
}
