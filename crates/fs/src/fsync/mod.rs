//! What fsync makes durable without a commit: an inode as it is now, said in a log by how it differs from the last commit.
//!
//! A replay begins from the last commit (`tree_log`). So what the log has to say is the difference, and both trees are there to be
//! compared. What a replay would get wrong shows in the same comparison, and is committed.
//!
//! | of the inode | in the log | committed instead |
//! |---|---|---|
//! | its item | always | it has no name left |
//! | names | those that it has got; those that it has lost go by what its directory says | there are too many |
//! | entries of a directory that is synced | those that differ, by their numbers | there are too many to compare; a subvolume came or went |
//! | attributes | all of them: a replay takes away what is not there | |
//! | extents | those that differ, holes where data was, and what lies behind the end, which a replay cuts off | there are too many to compare |
//! | checksums | of all data in the log | |
//!
//! A name has two ends, and often two inodes that want it: who has to be told of besides is the business of `group`.
//!
//! What the whole filesystem has to be like is asked by [`Engine::log_base`](creamery_txn::Engine::log_base): no chunk may be new, nor
//! the subvolume. Who moves a directory to another one, moves or deletes a subvolume, or gives a logged inode a name, has all commit
//! until the transaction ends.
//!
//! Who syncs has the inode together with others, and those who go along too, so no name comes or goes meanwhile, and holds its extents
//! as they are while he looks. One at a time does so with an inode. Of two who look one after the other the later one's look stays (LOG-5).
//!
//! What takes long to compare are the extents: a file that is appended to and synced again and again has one more each time. So
//! `inode/extent_changes` has notes of where they changed since the last commit, or since the log was put, and only there one
//! looks; a log keeps what it has of the rest. Without notes all of the file is compared. Notes say too much at worst:
//! what is in them is compared, not believed.
//!
//! # Invariants
//! - FSYNC-1: what a replay makes of the last commit and the log is the inode as it was when it was synced, or later.
//!   Shown by `what_was_synced_survives_every_power_cut`, `logs_of_ours_are_replayed_by_linux_as_by_us`.
//! - FSYNC-2: a replay takes no name from an inode without giving it those that it has instead.
//!   Shown by `names_that_a_log_would_take_from_others_are_committed`, `what_was_synced_survives_every_power_cut`.
//! - FSYNC-3: what changed of an inode's extents is in its notes (`inode/extent_changes`), where it has any.
//!   Shown by `a_power_cut_notices_changes_that_no_log_was_told`.

mod entries;
mod extents;
mod group;
mod items;
mod names;

use creamery_base::{Result, Wait};
use creamery_txn::LogTicket;

use crate::fault::Fault;
use crate::inode::{FileType, Inode, Inodes};
use group::Gathering;

/// Makes an inode durable, without its data that is in memory only.
/// Errors: those of the devices, or of a commit.
pub(crate) fn fsync(inodes: &Inodes, inode: &Inode) -> Result<()> {
    if !inode.context().has(Fault::TimesLeftBehind) {
        // Else the item says that nothing was done since the last commit (OVERWRITE-1).
        inode.write_overwritten_times()?;
    }
    let (engine, transid) = (inode.engine(), inode.tree_item().transid);
    match log(inodes, inode)? {
        Some(ticket) => engine.sync_log(ticket),
        None => engine.commit_through(transid),
    }
}

/// Puts an inode into the log; none when it takes a commit, or is durable already.
fn log(inodes: &Inodes, inode: &Inode) -> Result<Option<LogTicket>> {
    let engine = inode.engine();
    if !matches!(inode.kind(), FileType::File | FileType::Directory) {
        return Ok(None);
    }
    // Who deletes it makes nothing of it durable.
    let Ok(_names_stay) = inode.lock_shared(Wait::Yes) else { return Ok(None) };
    let turn = inode.log_turn().take();
    // Not before the locks are there: as long as somebody has it, what was freed since the last commit stays withheld.
    let Some(base) = engine.log_base(inode.tree())? else { return Ok(None) };
    let item = inode.tree_item();
    if item.transid != base.generation() {
        return Ok(None);
    }
    match engine.is_logged(&base, inode.id.ino, item.sequence) {
        Some(ticket) => Ok(Some(ticket)),
        None => Gathering::new(inodes, &base, inode.tree()).put_first(inode, &turn),
    }
}
