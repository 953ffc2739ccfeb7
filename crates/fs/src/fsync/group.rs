//! Who goes into the log together with an inode that is synced: those without whom a replay would get its names wrong.
//!
//! | of who is synced | goes along |
//! |---|---|
//! | is in a directory that the last commit does not have | that directory, with its names |
//! | has a name that was another's at the last commit or in the log, or the number of such an entry in the log | who had it: with the names that he has now, or as one who is gone |
//! | is older than the last commit, and has got or lost a name | the directory, as if it was synced, too: so does Linux, and programs may count on it; and who has the name now |
//! | is a directory | all who have got an entry there; new directories with all that is in them |
//! | is one, too | all who have lost an entry there: with the names that they have now, or as those who are gone |
//! | is called otherwise than the log says, or is gone | the directories of which the log says so, too; and who is called so now |
//! | is below a directory that is called otherwise than the log says | that directory |
//!
//! And so on with those who go along. Each is locked until all are put, the first one by waiting, the others by trying: so all names
//! are as they were at one moment. Where that does not work, or they would be too many, a commit does it.

use std::collections::{BTreeMap, BTreeSet};

use creamery_base::{ErrorKind, InodeId, ObjectId, Result, Wait};
use creamery_format::dir_item;
use creamery_tree::Tree;
use creamery_txn::{InodeLog, LogBase, LogGroup, LogLink, LogScope, LogTicket};

use super::{entries, extents, names};
use crate::counters::Fsyncs;
use crate::directory::{self, Target};
use crate::inode::extent_changes::Changes;
use crate::inode::lock::SharedInode;
use crate::inode::log_turn::Turn;
use crate::inode::{DirectoryInode, FileType, Inode, InodeItem, Inodes};
use crate::items::Name;
use crate::keys;

/// Directories above each other that are looked at at most.
const DEPTH_MAX: usize = 1024;

/// Inodes that go into the logs together at most.
const INODES_MAX: usize = 64;

/// What is wanted of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Want {
    /// What it is called.
    Names,
    /// That, and what is in it.
    Entries,
}

/// One who is wanted.
enum Met<'i> {
    /// He has no name any more.
    Gone,
    /// Somebody changes him.
    Busy,
    Here(&'i Inode, SharedInode<'i>),
}

impl<'i> Met<'i> {
    fn inode(inode: &'i Inode) -> Result<Self> {
        match inode.lock_shared(Wait::No) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Self::Busy),
            Err(error) if error.kind() == ErrorKind::Stale => Ok(Self::Gone),
            Ok(_) if inode.tree_item().nlink == 0 => Ok(Self::Gone),
            locked => Ok(Self::Here(inode, locked?)),
        }
    }
}

/// Those who were looked at, and those who are still to be.
pub(super) struct Gathering<'a> {
    inodes: &'a Inodes,
    base: &'a LogBase,
    /// The subvolume as it is.
    tree: &'a Tree,
    found: BTreeMap<ObjectId, InodeLog>,
    gone: BTreeSet<ObjectId>,
    wanted: Vec<(ObjectId, Want)>,
    /// Directories that have to be there still.
    needed: BTreeSet<ObjectId>,
}

impl<'a> Gathering<'a> {
    pub(super) fn new(inodes: &'a Inodes, base: &'a LogBase, tree: &'a Tree) -> Self {
        let (found, gone) = (BTreeMap::new(), BTreeSet::new());
        Self { inodes, base, tree, found, gone, wanted: Vec::new(), needed: BTreeSet::new() }
    }

    /// Puts the inode that is synced, which the caller has locked, and all who go along. None when a log cannot say it.
    pub(super) fn put_first(mut self, inode: &Inode, turn: &Turn<'_>) -> Result<Option<LogTicket>> {
        self.look_and_go_on(inode, Some(turn), Want::Entries)
    }

    /// Goes on with those who are wanted. Who is told of stays locked until all are put, so each is a step deeper.
    fn go_on(&mut self) -> Result<Option<LogTicket>> {
        while let Some((ino, want)) = self.next() {
            if self.found.len() + self.gone.len() >= INODES_MAX {
                return Ok(self.cannot_say());
            }
            let inode = match self.inodes.get(InodeId::new(self.base.subvolume(), ino), Wait::Yes) {
                Err(error) if error.kind() == ErrorKind::Stale => None,
                other => Some(other?),
            };
            match inode.as_deref().map_or(Ok(Met::Gone), Met::inode)? {
                Met::Gone if self.go_on_without(ino)? => {}
                Met::Gone | Met::Busy => return Ok(self.cannot_say()),
                Met::Here(inode, _names_stay) => {
                    let engine = inode.engine();
                    if engine.is_logged(self.base, ino, inode.tree_item().sequence).is_some() {
                        continue; // nothing has become of it since it went along last
                    }
                    return self.go_on_with(inode, want);
                }
            }
        }
        self.put()
    }

    /// With one who is locked.
    fn go_on_with(&mut self, inode: &Inode, want: Want) -> Result<Option<LogTicket>> {
        if inode.context().policy().flush_on_commit && inode.has_delayed_data() {
            return Ok(self.cannot_say());
        }
        if inode.is_dir() {
            return self.look_and_go_on(inode, None, want);
        }
        let Some(turn) = inode.log_turn().try_take() else { return Ok(self.cannot_say()) };
        self.look_and_go_on(inode, Some(&turn), want)
    }

    /// Without one who is gone: what the last commit or the log has in it, if it was a directory, is elsewhere by now. False when that
    /// cannot be said.
    fn go_on_without(&mut self, ino: ObjectId) -> Result<bool> {
        let engine = self.inodes.engine();
        if entries::had_any(ino, self.base)? || !self.tell_again(&engine.logged_names(self.base, ino))? {
            return Ok(false);
        }
        let logged = engine.logged_entries(self.base, ino);
        self.wanted.extend(logged.into_iter().map(|(_, child)| (child, Want::Names)));
        if engine.is_logged(self.base, ino, 0).is_some() {
            // A replay that knows nothing of it any more must not find it as it was before it was synced.
            let Some(names) = names::names_in(self.base.tree(), ino)? else { return Ok(false) };
            self.needed.extend(names.iter().map(|link| link.dir));
            self.wanted.extend(names.iter().map(|link| (link.dir, Want::Entries)));
        }
        self.gone.insert(ino);
        Ok(true)
    }

    /// Looks at one who is locked; only what has extents has a turn.
    fn look_and_go_on(
        &mut self,
        inode: &Inode,
        turn: Option<&Turn<'_>>,
        want: Want,
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

    /// The next one who is wanted and was not looked at.
    fn next(&mut self) -> Option<(ObjectId, Want)> {
        while let Some((ino, want)) = self.wanted.pop() {
            let is_enough = |log: &InodeLog| want == Want::Names || log.scope != LogScope::Names;
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

    /// What the log has to say of an inode that nobody changes, and who goes along. False when it cannot.
    fn look(
        &mut self,
        inode: &Inode,
        item: &InodeItem,
        changes: Option<Changes>,
        want: Want,
    ) -> Result<bool> {
        let ino = inode.id.ino;
        let with_entries = inode.as_directory().filter(|_| want == Want::Entries);
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
        self.wanted.extend(differing.lost.into_iter().map(|ino| (ino, Want::Names)));
        for ino in differing.gained {
            let want = if self.is_old(ino)? { Want::Names } else { Want::Entries };
            self.wanted.push((ino, want));
        }
        Ok(true)
    }

    fn look_at_names(&mut self, inode: &Inode, log: &mut InodeLog) -> Result<bool> {
        let (engine, ino) = (inode.engine(), inode.id.ino);
        let logged = engine.logged_names(self.base, ino);
        let Some(became) = names::look(inode, self.base, &logged, log)? else { return Ok(false) };
        for link in &became.gained {
            if became.is_old {
                self.wanted.push((link.dir, Want::Entries));
            }
            if !self.look_at_gained(link)? {
                return Ok(false);
            }
        }
        for link in &became.lost {
            self.wanted.push((link.dir, Want::Entries));
            self.needed.insert(link.dir);
            if !self.want_owner(link)? {
                return Ok(false);
            }
        }
        if !self.tell_again(&became.unlike_log)? {
            return Ok(false);
        }
        let owners = engine.logged_owners(self.base, ino, &log.links);
        self.wanted.extend(owners.into_iter().map(|owner| (owner, Want::Names)));
        log.links.iter().try_for_each(|link| self.want_logged_above(link.dir))?;
        Ok(true)
    }

    /// A directory from `dir` up goes along that is called otherwise than the log says.
    fn want_logged_above(&mut self, mut dir: ObjectId) -> Result<()> {
        for _ in 0..DEPTH_MAX {
            if dir == ObjectId::FIRST_FREE {
                break;
            }
            let names = names::names_in(self.tree, dir)?.unwrap_or_default();
            let logged = self.inodes.engine().logged_names(self.base, dir);
            if !logged.is_empty() && logged != names {
                self.wanted.push((dir, Want::Names));
                break; // it looks further up itself
            }
            let Some(link) = names.first() else { break };
            dir = link.dir;
        }
        Ok(())
    }

    /// The log has given these names otherwise than they are now. Where it has said so of their directories, too, or who had them at
    /// the last commit would have them again, these are told of. False when a replay could not get them right.
    fn tell_again(&mut self, links: &[LogLink]) -> Result<bool> {
        for link in links {
            let number = keys::dir_log_index(link.dir, link.index);
            let said = self.inodes.engine().logged_items(self.base, &number, &number)?;
            let dir = InodeId::new(self.base.subvolume(), link.dir);
            let had = directory::find(self.base.tree(), dir, Name::new(&link.name)?, Wait::Yes)?.found;
            if had.is_some() || said.iter().any(|(key, _)| *key == number) {
                self.wanted.push((link.dir, Want::Entries));
            }
            if !self.want_owner(link)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Who has a name now goes along: who looks for it behind a power cut finds something, as he always did. False when it is a
    /// subvolume's.
    fn want_owner(&mut self, link: &LogLink) -> Result<bool> {
        let dir = InodeId::new(self.base.subvolume(), link.dir);
        let now = directory::find(self.tree, dir, Name::new(&link.name)?, Wait::Yes)?.found;
        match now.map(|found| found.target) {
            Some(Target::Subvolume(_)) => return Ok(false),
            Some(Target::Inode(owner)) => self.wanted.push((owner, Want::Names)),
            None => {}
        }
        Ok(true)
    }

    /// Somebody has a name that he did not have at the last commit. False when a replay could not give it to him.
    fn look_at_gained(&mut self, link: &LogLink) -> Result<bool> {
        let (tree, dir) = (self.base.tree(), InodeId::new(self.base.subvolume(), link.dir));
        if !self.is_old(link.dir)? {
            self.wanted.push((link.dir, Want::Names));
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
            Some(Target::Subvolume(_)) => return Ok(false),
            Some(Target::Inode(owner)) => self.wanted.push((owner, Want::Names)),
            None => {}
        }
        Ok(true)
    }

    /// Puts all of them.
    fn put(&mut self) -> Result<Option<LogTicket>> {
        if !self.needed.is_disjoint(&self.gone) {
            return Ok(self.cannot_say()); // a directory is gone, and what was in it is elsewhere
        }
        let group = LogGroup {
            inodes: std::mem::take(&mut self.found).into_values().collect(),
            gone: self.gone.iter().copied().collect(),
        };
        let ticket = self.inodes.engine().log_inodes(self.base, &group)?;
        let counts = self.counters();
        Fsyncs::count(if ticket.is_some() { &counts.logged } else { &counts.refused });
        Ok(ticket)
    }
}
