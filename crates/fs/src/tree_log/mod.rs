//! The replay of logs: what fsync left on the devices when power went is brought into the subvolumes before anybody uses them.
//!
//! A log has copies of items of the inodes that were synced, as they were then, and of what they need to be found: the inodes of
//! the directories above and beside them. What a log tree is, and why all logs are one transaction, is in `creamery_txn`
//! (`tree_log`, `engine/replay`). Here is what the items mean:
//!
//! | item of the log | says |
//! |---|---|
//! | INODE_ITEM | the inode is so. With generation 0 only that it exists, and a regular file's size, if that is not 0. Without a name it is nothing: the rest of it is passed over |
//! | DIR_LOG_INDEX | of entries with these numbers, the directory has those of the log and no others |
//! | DIR_INDEX | the directory has this entry |
//! | INODE_REF, INODE_EXTREF | the inode has these names in that directory, and no others there |
//! | XATTR_ITEM | these are the attributes of that hash; what is in no such item of the log is gone |
//! | VERITY_DESC_ITEM, VERITY_MERKLE_ITEM | these are the pieces of the descriptor and the tree of a file with fs-verity; of any other file they say nothing |
//! | EXTENT_DATA | this part of the file is so |
//! | EXTENT_CSUM | these sectors have these checksums |
//! | DIR_ITEM, DIR_LOG_ITEM | nothing: old kernels say again what the numbers say |
//!
//! It goes in stages over all of a subvolume's log, so that what a stage needs is there: inodes and what they lost; entries; names
//! and data; and in the end the number of names of all that gained or lost one. What has none left gets an orphan item, and goes
//! the way of all that was deleted.
//!
//! | file | |
//! |---|---|
//! | `check` | reads all logs before anything is changed, and refuses what does not belong there |
//! | `inodes` | inode items, attributes, and what is behind the end of a file |
//! | `entries` | entries of directories, and the names that go with them |
//! | `extents` | data |
//! | `links` | how many names there are |
//! | `items` | reading while the tree is changed |
//!
//! # Invariants
//! - REPLAY-3: a log is refused as a whole, by name, before anything is changed, or replayed as a whole.
//!   Shown by `logs_that_lie_are_refused_by_name`.
//! - REPLAY-4: what is replayed is what Linux makes of the same log, times of directories that are not in it aside.
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
use creamery_txn::{Engine, Handle, LogTree, Replay, Units};

use crate::inode::InodeItem;
use crate::items::inode_ref::Extrefs;
use crate::keys;
use crate::operation::in_handle;
use check::LoggedInode;

/// What a replay brought into the filesystem.
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

/// Replays the logs of a filesystem that nobody uses yet; none when there are none, or it is only read.
/// Errors: no space; device errors; damage of the logs or of the filesystem. The devices are as they were then.
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

/// The tree of a subvolume; none when that was deleted since its log was written.
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
    /// Bytes.
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

    /// An inode as it is in the subvolume by now.
    fn item(&self, ino: ObjectId) -> Result<Option<InodeItem>> {
        self.tree.get(&keys::inode_item(ino), Wait::Yes, InodeItem::decode)?.transpose()
    }

    /// Makes changes of up to `items` items as one.
    fn change<T>(&self, items: u32, change: impl FnOnce(&Handle<'_>) -> Result<T>) -> Result<T> {
        // What was acknowledged was given room then: where there is no other, it may use the reserve.
        in_handle(self.engine, Units::freeing(items).of(self.id), change)
    }

    /// Changes an inode item that is there.
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
        updated.unwrap_or_else(|| Err(Error::new(ErrorKind::Corrupt, format!("inode {ino} is not there"))))
    }
}
