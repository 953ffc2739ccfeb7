//! fsync without a commit: the log gets the inode in its present state, as the difference from the last commit.
//!
//! A replay begins from the last commit (`tree_log`). So the log has to hold the difference, and both trees are there to be
//! compared. The same comparison shows the changes that a replay would get wrong: these are committed.
//!
//! | of the inode | in the log | committed instead |
//! |---|---|---|
//! | its item | always | it has no name left |
//! | names | gained names; the log of its directory covers the lost ones | there are too many |
//! | entries of a directory that is synced | those that differ, by their numbers | there are too many to compare; a subvolume came or went |
//! | attributes | all of them: a replay removes attributes that the log lacks | |
//! | extents | those that differ, holes where data was, and extents past the end of the file, which a replay cuts off | there are too many to compare |
//! | checksums | of all data in the log | |
//!
//! A name has two ends, and often two inodes claim it: `group` finds the inodes that have to go along.
//!
//! [`LogWriter::base`](creamery_txn::LogWriter::base) checks the conditions on the whole filesystem: no chunk may be new, nor the
//! subvolume. Three operations make all fsyncs commit until the transaction ends: moving a directory to another one, moving or
//! deleting a subvolume, and giving a logged inode a name.
//!
//! An fsync locks the inode shared, and the inodes that go along too. So no name comes or goes meanwhile, and the extents stay as they are
//! during the comparison. One thread at a time compares an inode. Of two comparisons one after the other the log keeps the later one
//! (LOG-5).
//!
//! Extents take longest to compare: a file that is appended to and synced again and again has one more each time. So
//! `inode/extent_changes` notes where they changed since the last commit, or since the log was put. An fsync compares only these
//! ranges; a log keeps its items for the rest. Without notes all of the file is compared. Notes cover too much at worst: the
//! comparison decides, not the note.
//!
//! # Invariants
//! - FSYNC-1: a replay of the log on the last commit gives the inode as it was when it was synced, or later.
//!   Shown by `what_was_synced_survives_every_power_cut`, `logs_of_ours_are_replayed_by_linux_as_by_us`.
//! - FSYNC-2: a replay takes no name from an inode without giving it the names that it has instead.
//!   Shown by `names_that_a_log_would_take_from_others_are_committed`, `what_was_synced_survives_every_power_cut`.
//! - FSYNC-3: the notes of an inode (`inode/extent_changes`), where it has any, cover each change of its extents.
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
use group::LogContext;

/// Makes an inode durable, without its data that is in memory only. Errors: those of the devices, or of a commit.
pub(crate) fn fsync(inodes: &Inodes, inode: &Inode) -> Result<()> {
    if !inode.context().has(Fault::TimesLeftBehind) {
        // Without this the item would claim that nothing was done since the last commit (OVERWRITE-1).
        inode.write_overwritten_times()?;
    }
    let (engine, transid) = (inode.engine(), inode.tree_item().transid);
    match log(inodes, inode)? {
        Some(ticket) => engine.logs().sync(ticket),
        None => engine.commit_through(transid),
    }
}

/// Puts an inode into the log. Returns `None` when it takes a commit, or is durable already.
fn log(inodes: &Inodes, inode: &Inode) -> Result<Option<LogTicket>> {
    let engine = inode.engine();
    if !matches!(inode.kind(), FileType::File | FileType::Directory) {
        return Ok(None);
    }
    // A deleted inode has nothing to make durable.
    let Ok(_names_stay) = inode.lock_shared(Wait::Yes) else { return Ok(None) };
    let turn = inode.log_turn().take();
    // Only after the locks are taken: as long as a thread has the base, space freed since the last commit stays withheld.
    let Some(base) = engine.logs().base(inode.tree())? else { return Ok(None) };
    let item = inode.tree_item();
    if item.transid != base.generation() {
        return Ok(None);
    }
    match engine.logs().ticket_of(&base, inode.id.ino, item.sequence) {
        Some(ticket) => Ok(Some(ticket)),
        None => LogContext::new(inodes, &base, inode.tree()).put_first(inode, &turn),
    }
}
