//! The group of an fsync: inodes that go into the log together with the synced inode. Without them a replay would get its names
//! wrong.
//!
//! | the synced inode | inodes that go along |
//! |---|---|
//! | is in a directory that the last commit does not have | that directory, with its names |
//! | has a name that another inode had at the last commit or in the log, or the number of such an entry in the log | the earlier owner: with its present names, or as deleted |
//! | is older than the last commit, and has gained or lost a name | the directory, as if it was synced (as on Linux: programs may count on it), and the present owner of the name |
//! | is a directory | all inodes that gained an entry there; new directories with all that is in them |
//! | is a directory | all inodes that lost an entry there: with their present names, or as deleted |
//! | has other names than the log says, or is gone | the directories of these logged names, and the present owners of the names |
//! | is below a directory that has another name than the log says | that directory |
//!
//! The rules apply again to each inode that goes along. Each inode stays locked until all are put, so all names are as they were at
//! one moment. The first lock waits, the others only try. A commit takes over where a lock is busy or the group would be too large.

use std::collections::{BTreeMap, BTreeSet};

use creamery_base::{ErrorKind, InodeId, ObjectId, Result, Wait};
use creamery_format::dir_item;
use creamery_tree::Tree;
use creamery_txn::{InodeLog, LogBase, LogGroup, LogLink, LogScope, LogTicket, LogWriter};

use super::{entries, extents, names};
use crate::counters::Fsyncs;
use crate::directory::{self, EntryTarget};
use crate::inode::extent_changes::Changes;
use crate::inode::lock::SharedInode;
use crate::inode::log_turn::LogGuard;
use crate::inode::{DirectoryInode, FileType, Inode, InodeItem, Inodes};
use crate::items::Name;
use crate::keys;

/// Upper bound of the directories above each other that one walk visits.
const DEPTH_MAX: usize = 1024;

/// Upper bound of the inodes that go into the log together.
const INODES_MAX: usize = 64;

/// The part of a directory that goes into the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DirectoryPart {
    /// The names of the directory.
    Names,
    /// The names and the entries of the directory.
    Entries,
}

/// The state of an inode that is to go along.
enum LogCandidate<'i> {
    /// The inode has no name any more.
    Gone,
    /// Another thread changes the inode.
    Busy,
    Here(&'i Inode, SharedInode<'i>),
}

impl<'i> LogCandidate<'i> {
    fn inode(inode: &'i Inode) -> Result<Self> {
        match inode.lock_shared(Wait::No) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Self::Busy),
            Err(error) if error.kind() == ErrorKind::Stale => Ok(Self::Gone),
            Ok(_) if inode.tree_item().nlink == 0 => Ok(Self::Gone),
            locked => Ok(Self::Here(inode, locked?)),
        }
    }
}

/// Collects the group: the inodes that were visited, and those that are still to be visited.
pub(super) struct LogContext<'a> {
    inodes: &'a Inodes,
    logs: LogWriter<'a>,
    base: &'a LogBase,
    /// The subvolume in its present state.
    tree: &'a Tree,
    found: BTreeMap<ObjectId, InodeLog>,
    gone: BTreeSet<ObjectId>,
    wanted: Vec<(ObjectId, DirectoryPart)>,
    /// Directories that must still exist.
    needed: BTreeSet<ObjectId>,
}

impl<'a> LogContext<'a> {
    pub(super) fn new(inodes: &'a Inodes, base: &'a LogBase, tree: &'a Tree) -> Self {
        let (found, gone) = (BTreeMap::new(), BTreeSet::new());
        let logs = inodes.engine().logs();
        Self { inodes, logs, base, tree, found, gone, wanted: Vec::new(), needed: BTreeSet::new() }
    }

    /// Puts the synced inode, which the caller has locked, and all inodes that go along. Returns `None` when a log cannot express
    /// the change.
    pub(super) fn put_first(mut self, inode: &Inode, turn: &LogGuard<'_>) -> Result<Option<LogTicket>> {
        self.look_and_go_on(inode, Some(turn), DirectoryPart::Entries)
    }

    /// Visits the wanted inodes. Each one stays locked until all are put, so each is a step deeper in the recursion.
    fn go_on(&mut self) -> Result<Option<LogTicket>> {
        while let Some((ino, want)) = self.next() {
            if self.found.len() + self.gone.len() >= INODES_MAX {
                return Ok(self.cannot_say());
            }
            let inode = match self.inodes.get(InodeId::new(self.base.subvolume(), ino), Wait::Yes) {
                Err(error) if error.kind() == ErrorKind::Stale => None,
                other => Some(other?),
            };
            match inode.as_deref().map_or(Ok(LogCandidate::Gone), LogCandidate::inode)? {
                LogCandidate::Gone if self.go_on_without(ino)? => {}
                LogCandidate::Gone | LogCandidate::Busy => return Ok(self.cannot_say()),
                LogCandidate::Here(inode, _names_stay) => {
                    if self.logs.ticket_of(self.base, ino, inode.tree_item().sequence).is_some() {
                        continue; // unchanged since it went along last
                    }
                    return self.go_on_with(inode, want);
                }
            }
        }
        self.put()
    }

    /// Adds an inode that this thread has locked, then visits the rest.
    fn go_on_with(&mut self, inode: &Inode, want: DirectoryPart) -> Result<Option<LogTicket>> {
        if inode.context().policy().flush_on_commit && inode.has_delayed_data() {
            return Ok(self.cannot_say());
        }
        if inode.is_dir() {
            return self.look_and_go_on(inode, None, want);
        }
        let Some(turn) = inode.log_turn().try_take() else { return Ok(self.cannot_say()) };
        self.look_and_go_on(inode, Some(&turn), want)
    }

    /// Adds an inode that is gone. If it was a directory, its entries in the last commit or in the log are elsewhere by now. Returns
    /// false when a log cannot express that.
    fn go_on_without(&mut self, ino: ObjectId) -> Result<bool> {
        if entries::had_any(ino, self.base)? || !self.tell_again(&self.logs.names_of(self.base, ino))? {
            return Ok(false);
        }
        let logged = self.logs.entries_of(self.base, ino);
        self.wanted.extend(logged.into_iter().map(|(_, child)| (child, DirectoryPart::Names)));
        if self.logs.ticket_of(self.base, ino, 0).is_some() {
            // A replay that does not learn of the deletion must not find the inode in its state before the sync.
            let Some(names) = names::names_in(self.base.tree(), ino)? else { return Ok(false) };
            self.needed.extend(names.iter().map(|link| link.dir));
            self.wanted.extend(names.iter().map(|link| (link.dir, DirectoryPart::Entries)));
        }
        self.gone.insert(ino);
        Ok(true)
    }

    /// Adds a locked inode, then visits the rest. Only inodes with extents have a `turn`.
    fn look_and_go_on(
        &mut self,
        inode: &Inode,
        turn: Option<&LogGuard<'_>>,
        want: DirectoryPart,
    ) -> Result<Option<LogTicket>> {
        let item = inode.hold_extents(Wait::Yes)?;
        let sector = u64::from(inode.engine().sector_size());
        let notes = inode.as_file().map(|file| file.log_changes());
        let changes =
            notes.zip(turn).and_then(|(notes, turn)| notes.take(turn, self.base.generation(), &item, sector));
        let looked = self.look(inode, &item, changes, want);
        drop(item);
        let ticket = looked.and_then(|looked| if looked { self.go_on() } else { Ok(None) });
        if let Some(notes) = notes
            && !matches!(ticket, Ok(Some(_)))
        {
            notes.forget();
        }
        ticket
    }

    /// The next wanted inode that was not visited yet.
    fn next(&mut self) -> Option<(ObjectId, DirectoryPart)> {
        while let Some((ino, want)) = self.wanted.pop() {
            let is_enough = |log: &InodeLog| want == DirectoryPart::Names || log.scope != LogScope::Names;
            let is_found = self.found.get(&ino).is_some_and(is_enough);
            if !is_found && !self.gone.contains(&ino) {
                return Some((ino, want));
            }
        }
        None
    }

    /// Whether the last commit has an inode.
    fn is_old(&self, ino: ObjectId) -> Result<bool> {
        Ok(self.base.tree().get(&keys::inode_item(ino), Wait::Yes, |_| ())?.is_some())
    }

    fn counters(&self) -> &Fsyncs {
        &self.inodes.context().counters().fsyncs
    }

    fn cannot_say(&self) -> Option<LogTicket> {
        Fsyncs::count(&self.counters().names);
        None
    }

    /// Composes the log entry of an inode that no thread changes, and adds the inodes that go along to the wanted ones. Returns
    /// false when a log cannot express it.
    fn look(
        &mut self,
        inode: &Inode,
        item: &InodeItem,
        changes: Option<Changes>,
        want: DirectoryPart,
    ) -> Result<bool> {
        let ino = inode.id.ino;
        let with_entries = inode.as_directory().filter(|_| want == DirectoryPart::Entries);
        let mut log = InodeLog { sequence: item.sequence, ..InodeLog::of(ino) };
        log.items.push((keys::inode_item(ino), item.encode().to_vec()));
        let is_said = item.nlink > 0
            && self.look_at_names(inode, &mut log)?
            && match &with_entries {
                Some(dir) => self.look_at_entries(dir, &mut log)?,
                None => true,
            };
        if !is_said {
            Fsyncs::count(&self.counters().names);
            return Ok(false);
        }
        let is_said = match inode.kind() {
            FileType::File | FileType::Symlink => extents::look(inode, item, self.base, changes, &mut log)?,
            _ => true,
        };
        if !is_said {
            Fsyncs::count(&self.counters().extents);
            return Ok(false);
        }
        if inode.is_dir() && with_entries.is_none() {
            log.scope = LogScope::Names;
        }
        self.found.insert(ino, log);
        Ok(true)
    }

    fn look_at_entries(&mut self, dir: &DirectoryInode<'_>, log: &mut InodeLog) -> Result<bool> {
        let Some(differing) = entries::look(dir, self.base, log)? else { return Ok(false) };
        self.wanted.extend(differing.lost.into_iter().map(|ino| (ino, DirectoryPart::Names)));
        for ino in differing.gained {
            let want = if self.is_old(ino)? { DirectoryPart::Names } else { DirectoryPart::Entries };
            self.wanted.push((ino, want));
        }
        Ok(true)
    }

    fn look_at_names(&mut self, inode: &Inode, log: &mut InodeLog) -> Result<bool> {
        let ino = inode.id.ino;
        let logged = self.logs.names_of(self.base, ino);
        let Some(became) = names::look(inode, self.base, &logged, log)? else { return Ok(false) };
        for link in &became.gained {
            if became.is_old {
                self.wanted.push((link.dir, DirectoryPart::Entries));
            }
            if !self.look_at_gained(link)? {
                return Ok(false);
            }
        }
        for link in &became.lost {
            self.wanted.push((link.dir, DirectoryPart::Entries));
            self.needed.insert(link.dir);
            if !self.want_owner(link)? {
                return Ok(false);
            }
        }
        if !self.tell_again(&became.unlike_log)? {
            return Ok(false);
        }
        let owners = self.logs.owners(self.base, ino, &log.links);
        self.wanted.extend(owners.into_iter().map(|owner| (owner, DirectoryPart::Names)));
        log.links.iter().try_for_each(|link| self.want_logged_above(link.dir))?;
        Ok(true)
    }

    /// Wants the lowest directory from `dir` up that has another name now than the log says.
    fn want_logged_above(&mut self, mut dir: ObjectId) -> Result<()> {
        for _ in 0..DEPTH_MAX {
            if dir == ObjectId::FIRST_FREE {
                break;
            }
            let names = names::names_in(self.tree, dir)?.unwrap_or_default();
            let logged = self.logs.names_of(self.base, dir);
            if !logged.is_empty() && logged != names {
                self.wanted.push((dir, DirectoryPart::Names));
                break; // its own visit goes further up
            }
            let Some(link) = names.first() else { break };
            dir = link.dir;
        }
        Ok(())
    }

    /// Handles names that the log has given otherwise than they are now. It wants their directories where the log has these entries,
    /// too, or where the owner at the last commit would get the name back. Returns false when a replay could not get the names
    /// right.
    fn tell_again(&mut self, links: &[LogLink]) -> Result<bool> {
        for link in links {
            let number = keys::dir_log_index(link.dir, link.index);
            let said = self.logs.items(self.base, &number, &number)?;
            let dir = InodeId::new(self.base.subvolume(), link.dir);
            let had = directory::find(self.base.tree(), dir, Name::new(&link.name)?, Wait::Yes)?.found;
            if had.is_some() || said.iter().any(|(key, _)| *key == number) {
                self.wanted.push((link.dir, DirectoryPart::Entries));
            }
            if !self.want_owner(link)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Wants the present owner of a name, so that a lookup after a power cut finds an inode under it, as it always did. Returns
    /// false when the owner is a subvolume.
    fn want_owner(&mut self, link: &LogLink) -> Result<bool> {
        let dir = InodeId::new(self.base.subvolume(), link.dir);
        let now = directory::find(self.tree, dir, Name::new(&link.name)?, Wait::Yes)?.found;
        match now.map(|found| found.target) {
            Some(EntryTarget::Subvolume(_)) => return Ok(false),
            Some(EntryTarget::Inode(owner)) => self.wanted.push((owner, DirectoryPart::Names)),
            None => {}
        }
        Ok(true)
    }

    /// Handles a name that the inode did not have at the last commit. Returns false when a replay could not give it to the inode.
    fn look_at_gained(&mut self, link: &LogLink) -> Result<bool> {
        let (tree, dir) = (self.base.tree(), InodeId::new(self.base.subvolume(), link.dir));
        if !self.is_old(link.dir)? {
            self.wanted.push((link.dir, DirectoryPart::Names));
            return Ok(true);
        }
        // Linux does not replay a number that another name had: the directory has left memory since, and counts from its last entry on.
        let number = keys::dir_index(link.dir, link.index);
        let has_name = |item: &[u8]| dir_item::find(item, &link.name).map(|found| found.is_some());
        if !tree.get(&number, Wait::Yes, has_name)?.unwrap_or(Ok(true))? {
            return Ok(false);
        }
        let had_it = directory::find(tree, dir, Name::new(&link.name)?, Wait::Yes)?.found;
        match had_it.map(|found| found.target) {
            Some(EntryTarget::Subvolume(_)) => return Ok(false),
            Some(EntryTarget::Inode(owner)) => self.wanted.push((owner, DirectoryPart::Names)),
            None => {}
        }
        Ok(true)
    }

    /// Puts the whole group.
    fn put(&mut self) -> Result<Option<LogTicket>> {
        if !self.needed.is_disjoint(&self.gone) {
            return Ok(self.cannot_say()); // a needed directory is gone, and its entries are elsewhere
        }
        let group = LogGroup {
            inodes: std::mem::take(&mut self.found).into_values().collect(),
            gone: self.gone.iter().copied().collect(),
        };
        let ticket = self.logs.put(self.base, &group)?;
        let counts = self.counters();
        Fsyncs::count(if ticket.is_some() { &counts.logged } else { &counts.refused });
        Ok(ticket)
    }
}
