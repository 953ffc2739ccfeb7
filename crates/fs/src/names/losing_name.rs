//! Removing a name of an inode, which may be its last.
//!
//! When the last name goes and the inode is not open, its items go in the same transaction, if they are few. Otherwise it gets an
//! orphan item and stays until its last user releases it (`ops/eviction`).

use std::sync::Arc;

use creamery_base::{ObjectId, Result, Timespec};
use creamery_txn::Handle;

use crate::inode::table::InodeTable;
use crate::inode::{FileInode, Inode, InodeItem};
use crate::items::Name;
use crate::items::inode_ref::{self, FoundLink};
use crate::ops::eviction::{self, FewItems};
use crate::subvolume::orphan_item;

/// Items that change when an inode loses its last name and stays for its users.
const ORPHAN_UNITS: u32 = 3;

/// The fate of an inode that loses a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// It has other names.
    StillNamed,
    /// It stays until its last user is gone.
    Orphan,
    /// The handle deletes its items, `few` of them, now. Delayed data may add more before that.
    Purge { few: FewItems, delayed: bool },
}

/// An inode that loses a name in a directory.
pub(crate) struct LosingName<'a> {
    pub(crate) inode: &'a Arc<Inode>,
    pub(crate) dir: ObjectId,
    pub(crate) name: Name<'a>,
    pub(crate) link: FoundLink,
    pub(crate) ending: Ending,
}

impl<'a> LosingName<'a> {
    /// Chooses the fate of `inode`, which the caller has locked and whose item is `item`. [`LosingName::take_back`] undoes it.
    pub(crate) fn plan(
        table: &InodeTable,
        inode: &'a Arc<Inode>,
        item: &InodeItem,
        dir: ObjectId,
        name: Name<'a>,
    ) -> Result<Self> {
        let link = inode_ref::find_entry(inode.tree(), inode.id, dir, name)?;
        let last = item.is_dir() || item.nlink <= 1;
        let ending = if !last {
            Ending::StillNamed
        } else {
            let delayed = inode.has_delayed_data();
            match (eviction::few_items(inode.tree(), inode.id.ino), table.doom(inode)) {
                (Ok(Some(few)), true) => Ending::Purge { few, delayed },
                (few, _) => few.map(|_| Ending::Orphan).inspect_err(|_| table.keep(inode))?,
            }
        };
        Ok(Self { inode, dir, name, link, ending })
    }

    /// Tree changes that [`LosingName::apply`] makes.
    pub(crate) fn units(&self) -> u32 {
        match self.ending {
            Ending::StillNamed => 2,
            Ending::Orphan => ORPHAN_UNITS,
            Ending::Purge { few, .. } => few.units.max(ORPHAN_UNITS),
        }
    }

    /// Removes the reference and all that goes with it. Only an abort undoes that: until this call a sync still finds the delayed
    /// data.
    pub(crate) fn apply(&mut self, handle: &Handle<'_>, now: Timespec) -> Result<()> {
        if let (Ending::Purge { few, delayed: true }, Some(file)) = (self.ending, self.inode.as_file())
            && !hold_delayed(&file, few.units.max(ORPHAN_UNITS))
        {
            self.ending = Ending::Orphan;
        }
        let Self { inode, dir, name, link, ending } = self;
        if let Ending::Purge { few, .. } = ending {
            inode.delete_items(handle, || eviction::purge(handle, inode.tree(), inode.id, &few.first))?;
            inode.context().note_deleted(handle.generation());
            return Ok(());
        }
        inode_ref::remove(handle, inode.tree(), inode.id.ino, *dir, *name, *link)?;
        if *ending == Ending::Orphan {
            orphan_item::insert(handle, inode.tree(), inode.id.ino)?;
        }
        let item = inode.update(handle, |item| {
            item.nlink = if *ending == Ending::StillNamed { item.nlink - 1 } else { 0 };
            if item.is_dir() {
                item.size = 0;
            }
            item.ctime = now;
        })?;
        assert_eq!(item.nlink == 0, *ending != Ending::StillNamed, "ORPHAN-1");
        Ok(())
    }

    /// Marks the object after the operation succeeded, while its guard is still held.
    pub(crate) fn done(&self) {
        if matches!(self.ending, Ending::Purge { .. }) {
            self.inode.set_gone();
        }
    }

    /// Undoes the plan when the operation then failed: the inode still has its last name.
    pub(crate) fn take_back(&self, table: &InodeTable) {
        if self.ending != Ending::StillNamed {
            table.keep(self.inode);
        }
    }
}

/// Keeps the delayed data of a file from ever reaching the tree. Returns false when some of it is on the way there, or has arrived
/// since the units were counted.
fn hold_delayed(file: &FileInode<'_>, units: u32) -> bool {
    let held = file.delalloc().hold();
    let now = eviction::few_items(file.tree(), file.id.ino);
    if held && now.is_ok_and(|now| now.is_some_and(|now| now.units <= units)) {
        return true;
    }
    file.delalloc().let_go();
    false
}
