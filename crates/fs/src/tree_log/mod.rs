//! The replay of logs: changes that fsync left on the devices before a power cut go into the subvolumes before any operation
//! begins.
//!
//! A log has copies of items of the synced inodes in their state at that time, and of the items needed to find them: the inodes of
//! the directories above and beside them. `creamery_txn` (`tree_log`, `engine/replay`) explains log trees, and why all logs are one
//! transaction. The items mean this:
//!
//! | item of the log | says |
//! |---|---|
//! | INODE_ITEM | the state of the inode. With generation 0 only that it exists, and a regular file's size, if that is not 0. Without a name the rest of the inode is ignored |
//! | DIR_LOG_INDEX | of entries with these numbers, the directory has those of the log and no others |
//! | DIR_INDEX | the directory has this entry |
//! | INODE_REF, INODE_EXTREF | the inode has these names in that directory, and no others there |
//! | XATTR_ITEM | these are the attributes of that hash; attributes in no such item of the log are gone |
//! | VERITY_DESC_ITEM, VERITY_MERKLE_ITEM | these are the pieces of the descriptor and the tree of a file with fs-verity; of any other file they say nothing |
//! | EXTENT_DATA | this part of the file is so |
//! | EXTENT_CSUM | these sectors have these checksums |
//! | DIR_ITEM, DIR_LOG_ITEM | nothing: old kernels repeat the items by number there |
//!
//! The replay goes in stages over all of a subvolume's log, so that each stage finds the results that it needs: inodes and their
//! losses; entries; names and data; and in the end the number of names of all inodes that gained or lost one. An inode without
//! names gets an orphan item, and is deleted like any other.
//!
//! | file | |
//! |---|---|
//! | `check` | reads all logs before anything is changed, and refuses items that do not belong there |
//! | `inodes` | inode items, attributes, and data past the end of a file |
//! | `entries` | entries of directories, and the names that go with them |
//! | `extents` | data |
//! | `links` | the number of names |
//! | `items` | reading while the tree is changed |
//!
//! # Invariants
//! - REPLAY-3: a log is refused as a whole, by name, before anything is changed, or replayed as a whole.
//!   Shown by `logs_that_lie_are_refused_by_name`.
//! - REPLAY-4: a replay gives the result of Linux for the same log, times of directories that are not in it aside.
//!   Shown by `logs_of_linux_are_replayed_as_linux_does`.

mod check;
mod entries;
mod extents;
mod inodes;
mod items;
mod links;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, TreeId, Wait};
use creamery_format::Incompat;
use creamery_tree::Tree;
use creamery_txn::{Engine, Handle, LogTree, Replay, ReserveItems};

use crate::inode::InodeItem;
use crate::items::inode_ref::Extrefs;
use crate::keys;
use crate::operation::in_handle;
use check::LoggedInode;

/// The numbers of subvolumes and inodes that a replay brought into the filesystem.
///
/// ```
/// let replayed = creamery_fs::Replayed { subvolumes: 1, inodes: 3 };
/// assert_eq!(replayed.to_string(), "subvolumes: 1, inodes: 3");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Replayed {
    /// Subvolumes that had a log.
    pub subvolumes: u64,
    /// Inodes in the logs.
    pub inodes: u64,
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subvolumes: {}, inodes: {}", self.subvolumes, self.inodes)
    }
}

/// Replays the logs of a filesystem that is not in use yet. `None` when there are none, or it is only read.
/// Errors: no space; device errors; damage of the logs or of the filesystem. The devices are unchanged then.
pub(crate) fn replay(engine: &Engine) -> Result<Option<Replayed>> {
    let replaying = || "replaying the log of what was synced after the last commit";
    replay_all(engine).map_err(|error| error.context(replaying()))
}

fn replay_all(engine: &Engine) -> Result<Option<Replayed>> {
    let Some((mut replay, logs)) = engine.begin_replay()? else { return Ok(None) };
    let mut checked = Vec::new();
    for log in &logs {
        let inodes = check::check(engine, log, &mut replay)?;
        if let Some(tree) = living_tree(engine, log.subvolume())? {
            checked.push((log, inodes, tree));
        }
    }
    let mut replayed = Replayed { subvolumes: checked.len() as u64, inodes: 0 };
    for (log, inodes, tree) in checked {
        replayed.inodes += inodes.len() as u64;
        LogReplay::new(engine, &mut replay, log, tree)
            .run(&inodes)
            .map_err(|error| error.context(format!("subvolume {}", log.subvolume())))?;
    }
    replay.finish()?;
    Ok(Some(replayed))
}

/// The tree of a subvolume; `None` when that was deleted since its log was written.
fn living_tree(engine: &Engine, id: TreeId) -> Result<Option<Arc<Tree>>> {
    match engine.root_item(id) {
        Ok(item) if item.refs.get() == 0 => Ok(None),
        Ok(_) => engine.tree(id).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The replay of one subvolume's log.
struct LogReplay<'a, 'e> {
    engine: &'a Engine,
    replay: &'a mut Replay<'e>,
    log: &'a Tree,
    id: TreeId,
    tree: Arc<Tree>,
    /// The sector size, in bytes.
    sector: u64,
    extrefs: Extrefs,
    /// Inodes that may have gained or lost names.
    relinked: BTreeSet<ObjectId>,
}

impl<'a, 'e> LogReplay<'a, 'e> {
    fn new(engine: &'a Engine, replay: &'a mut Replay<'e>, log: &'a LogTree, tree: Arc<Tree>) -> Self {
        let has_extrefs = engine.incompat().contains(Incompat::EXTENDED_IREF);
        Self {
            engine,
            replay,
            log: log.tree(),
            id: log.subvolume(),
            tree,
            sector: engine.sector_size().into(),
            extrefs: if has_extrefs { Extrefs::Yes } else { Extrefs::No },
            relinked: BTreeSet::new(),
        }
    }

    fn run(mut self, inodes: &[LoggedInode]) -> Result<()> {
        for inode in inodes {
            self.replay_inode(inode)?;
            if inode.item.is_dir() {
                self.remove_entries(inode.ino)?;
            }
        }
        for inode in inodes.iter().filter(|inode| inode.item.is_dir()) {
            self.add_entries(inode.ino)?;
        }
        for inode in inodes {
            self.replay_names(inode.ino)?;
            self.replay_xattrs(inode.ino)?;
            self.replay_verity(inode)?;
            self.replay_extents(inode)?;
        }
        self.relinked.extend(inodes.iter().map(|inode| inode.ino));
        self.count_links()
    }

    const fn inode_id(&self, ino: ObjectId) -> InodeId {
        InodeId::new(self.id, ino)
    }

    /// The present item of an inode in the subvolume.
    fn item(&self, ino: ObjectId) -> Result<Option<InodeItem>> {
        self.tree.get(&keys::inode_item(ino), Wait::Yes, InodeItem::decode)?.transpose()
    }

    /// Makes changes of up to `items` items as one.
    fn change<T>(&self, items: u32, change: impl FnOnce(&Handle<'_>) -> Result<T>) -> Result<T> {
        // Acknowledged changes got room at that time: where there is no other, they may use the reserve.
        in_handle(self.engine, ReserveItems::freeing(items).of(self.id), change)
    }

    /// Changes an existing inode item.
    fn update_item(
        &self,
        handle: &Handle<'_>,
        ino: ObjectId,
        edit: impl FnOnce(&mut InodeItem),
    ) -> Result<()> {
        let updated = self.tree.update(handle, &keys::inode_item(ino), |data| {
            let mut item = InodeItem::decode(data)?;
            edit(&mut item);
            data.copy_from_slice(&item.encode());
            Ok(())
        })?;
        updated.unwrap_or_else(|| Err(Error::new(ErrorKind::Corrupt, format!("inode {ino} is missing"))))
    }
}
