//! What fsync makes durable without a commit: an inode as it is now, said in a log by how it differs from the last commit.
//!
//! A replay begins from the last commit (`tree_log`). So what the log has to say is the difference, and both trees are there to be
//! compared. What a replay would get wrong shows in the same comparison, and is committed.
//!
//! | of the inode | in the log | committed instead |
//! |---|---|---|
//! | its item | always | it is no regular file; it has no name left |
//! | names | of a new inode, all | an older one has got or lost one; one is in a directory that the last commit does not have, or is taken there, or its number is |
//! | attributes | all of them: a replay takes away what is not there | |
//! | extents | those that differ, holes where data was, and what lies behind the end, which a replay cuts off | there are too many to compare |
//! | checksums | of all data in the log | |
//!
//! What the whole filesystem has to be like is asked by [`Engine::log_base`](creamery_txn::Engine::log_base): no chunk may be new, nor
//! the subvolume. A name, or the number of an entry, that the log gave to another inode is refused when it is put. Who moves a directory
//! or a subvolume, or gives a logged inode a name, has all commit until the transaction ends.
//!
//! Who syncs has the inode together with others, so no name comes or goes meanwhile, and holds its extents as they are while he
//! looks. One at a time does so with an inode. Of two who look one after the other the later one's look stays (LOG-5).
//!
//! What takes long to compare are the extents: a file that is appended to and synced again and again has one more each time. So
//! `changes` has notes of where they changed since the last commit, or since the log was put, and only there one looks; a log is told
//! to keep what it has of the rest. Without notes all of the file is compared. Notes say too much at worst: what is in them is compared,
//! not believed.
//!
//! # Invariants
//! - FSYNC-1: what a replay makes of the last commit and the log is the inode as it was when it was synced, or later.
//!   Shown by `what_was_synced_survives_every_power_cut`, `logs_of_ours_are_replayed_by_linux_as_by_us`.
//! - FSYNC-2: a replay takes no name from an inode that was not synced.
//!   Shown by `names_that_a_log_would_take_from_others_are_committed`.
//! - FSYNC-3: what changed of an inode's extents is in its notes, where it has any.
//!   Shown by `a_power_cut_notices_changes_that_no_log_was_told`.

mod changes;
pub(crate) mod counters;
mod extents;
mod items;
mod names;

use creamery_base::{Result, Wait};
use creamery_txn::{InodeLog, LogBase, LogTicket};

use crate::inode::{FileType, Inode, InodeItem};
use crate::keys;
use changes::Changes;
pub(crate) use changes::ExtentChanges;
use counters::Fsyncs;

/// Makes an inode durable, without its data that is in memory only.
/// Errors: those of the devices, or of a commit.
pub(crate) fn fsync(inode: &Inode) -> Result<()> {
    let (engine, transid) = (inode.engine(), inode.tree_item().transid);
    match log(inode)? {
        Some(ticket) => engine.sync_log(ticket),
        None => engine.commit_through(transid),
    }
}

/// Puts an inode into the log; none when it takes a commit, or is durable already.
fn log(inode: &Inode) -> Result<Option<LogTicket>> {
    let engine = inode.engine();
    if inode.kind() != FileType::File {
        return Ok(None);
    }
    // Who deletes it makes nothing of it durable.
    let Ok(_names_stay) = inode.lock_shared(Wait::Yes) else { return Ok(None) };
    let turn = inode.log_changes().turn();
    // Not before the locks are there: as long as somebody has it, what was freed since the last commit stays withheld.
    let Some(base) = engine.log_base(inode.tree())? else { return Ok(None) };
    let item = inode.hold_extents(Wait::Yes)?;
    if item.transid != base.generation() {
        return Ok(None);
    }
    if let Some(ticket) = engine.is_logged(&base, inode.id.ino, item.sequence) {
        return Ok(Some(ticket));
    }
    let sector = u64::from(engine.sector_size());
    let changes = inode.log_changes().take(&turn, base.generation(), &item, sector);
    let log = look(inode, &item, &base, changes);
    drop(item);
    let ticket = log.and_then(|log| log.map_or(Ok(None), |log| put(inode, &base, &log)));
    if !matches!(ticket, Ok(Some(_))) {
        inode.log_changes().forget();
    }
    ticket
}

fn put(inode: &Inode, base: &LogBase, log: &InodeLog) -> Result<Option<LogTicket>> {
    let ticket = inode.engine().log_inode(base, log)?;
    let counts = &inode.shared().fsyncs;
    Fsyncs::count(if ticket.is_some() { &counts.logged } else { &counts.refused });
    Ok(ticket)
}

/// What the log has to say of an inode that nobody changes; none when it cannot.
fn look(
    inode: &Inode,
    item: &InodeItem,
    base: &LogBase,
    changes: Option<Changes>,
) -> Result<Option<InodeLog>> {
    let (ino, counts) = (inode.id.ino, &inode.shared().fsyncs);
    let mut log = InodeLog { sequence: item.sequence, ..InodeLog::of(ino) };
    log.items.push((keys::inode_item(ino), item.encode().to_vec()));
    if item.nlink == 0 || !names::look(inode, base, &mut log)? {
        Fsyncs::count(&counts.names);
        return Ok(None);
    }
    if !extents::look(inode, item, base, changes, &mut log)? {
        Fsyncs::count(&counts.extents);
        return Ok(None);
    }
    Ok(Some(log))
}
