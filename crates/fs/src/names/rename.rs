//! Renames.
//!
//! An entry that replaces another takes over its place: both of its directory items point to the moved inode and keep their
//! number. Otherwise it gets a new number at the end of its directory. A whiteout takes over the place of the entry that moves
//! away.
//!
//! # Invariants
//! - RENAME-1: a directory never becomes its own ancestor. A rename checks the chain of parents while it holds the subvolume's
//!   rename mutex, and every move from one directory to another holds it.
//!   Shown by `what_threads_see_of_shared_directories_is_linearizable`.
//! - RENAME-2: the old name is gone and the new one exists in the same transaction (FS-3); a lookup in either directory waits for
//!   both, since both are locked.
//!   Shown by `what_threads_see_of_shared_directories_is_linearizable`.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, Timespec, TreeId, Wait};
use creamery_format::FileType;
use creamery_format::dir_item::Head;
use creamery_txn::{Handle, ReserveItems};
use smallvec::SmallVec;

use super::Names;
use super::create::check_may_add;
use super::losing_name::LosingName;
use super::new_inode::{Draft, NewInode, NewKind};
use crate::directory::{self, EntryTarget, Found, NameSlot};
use crate::inode::LOOKUP_ROUNDS_MAX;
use crate::inode::attributes::DeviceNumber;
use crate::inode::guards::Guards;
use crate::inode::permission::check_may_remove;
use crate::inode::permission::check_not_append_only;
use crate::inode::{DirectoryInode, Inode, InodeItem};
use crate::items::Name;
use crate::items::inode_ref::{self, FoundLink, Spelling};
use crate::keys;
use crate::operation::{finish, or_end};
use crate::subvolume::{RenameGuard, Subvolume, SubvolumeEntry};

/// The most directories between a directory and the root of its subvolume: more mean damage.
const DEPTH_MAX: usize = 1 << 20;

/// The treatment of an inode that has the new name already.
///
/// ```
/// assert_eq!(creamery_fs::RenameMode::default(), creamery_fs::RenameMode::Replace);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RenameMode {
    /// It loses that name.
    #[default]
    Replace,
    /// The rename fails.
    NoReplace,
    /// It gets the old name.
    Exchange,
    /// It loses that name, and the old name becomes a whiteout, a character device 0/0.
    Whiteout,
}

/// Both ends of a rename.
struct Ends<'a> {
    from: DirectoryInode<'a>,
    name: Name<'a>,
    to: DirectoryInode<'a>,
    new_name: Name<'a>,
}

impl Ends<'_> {
    fn same_dir(&self) -> bool {
        self.from.id == self.to.id
    }

    fn present(&self) -> Spelling<'_> {
        Spelling { dir: self.from.id.ino, name: self.name }
    }

    fn wanted(&self) -> Spelling<'_> {
        Spelling { dir: self.to.id.ino, name: self.new_name }
    }
}

/// A rename that has passed the checks.
struct Renaming<'a> {
    subvolume: &'a Subvolume,
    ends: Ends<'a>,
    mode: RenameMode,
    /// The target of the old name.
    found: Found,
}

/// The object that moves: an inode, or a subvolume (whose root directory stays as it is).
enum Moved<'a> {
    Inode(&'a Arc<Inode>, FoundLink),
    Subvolume(TreeId),
}

impl Moved<'_> {
    fn target(&self) -> EntryTarget {
        match self {
            Self::Inode(inode, _) => EntryTarget::Inode(inode.id.ino),
            Self::Subvolume(id) => EntryTarget::Subvolume(*id),
        }
    }

    /// Whether other inodes move with it to another directory, or to another path in another subvolume.
    fn takes_others_along(&self, ends: &Ends<'_>) -> bool {
        match self {
            Self::Inode(inode, _) => inode.is_dir() && !ends.same_dir(),
            Self::Subvolume(_) => true,
        }
    }
}

/// Whether both names are of one inode. Errors: the present owner of the new name has to keep it, or there is no room for the
/// name.
fn check_new_name(
    ends: &Ends<'_>,
    mode: RenameMode,
    guards: &Guards<'_>,
    found: &Found,
    slot: &NameSlot,
) -> Result<bool> {
    match (slot.found, mode) {
        (Some(_), RenameMode::NoReplace) => return Err(ErrorKind::AlreadyExists.into()),
        (None, RenameMode::Exchange) => return Err(ErrorKind::NotFound.into()),
        (Some(other), _) if other.target == found.target => return Ok(true),
        // The present owner loses the name.
        (Some(_), _) => check_may_remove(&ends.to, guards.item(ends.to.id)).map(drop)?,
        (None, _) => slot.check_room(ends.from.tree(), ends.new_name)?,
    }
    Ok(false)
}

enum RenameRound {
    Done,
    /// The inodes that could not be locked out of order.
    Again(SmallVec<[Arc<Inode>; 2]>),
}

impl Names {
    /// Renames `name` in `from` to `new_name` in `to`.
    pub(crate) fn rename(
        &self,
        from: InodeId,
        name: &[u8],
        to: InodeId,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let (name, new_name) = (Name::new(name)?, Name::new(new_name)?);
        if from.subvolume != to.subvolume {
            return self.move_subvolume((from, name), (to, new_name), mode);
        }
        if from.ino == keys::EMPTY_SUBVOLUME_DIR || to.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let from = self.dir_to_change(from)?;
        let subvolume = self.subvolumes().get(from.id.subvolume, Wait::Yes)?;
        let to = self.inodes.get(to, Wait::Yes)?;
        let mut known = SmallVec::new();
        for _ in 0..LOOKUP_ROUNDS_MAX {
            match self.rename_round(&subvolume, (&from, name), (&to, new_name), mode, &known)? {
                RenameRound::Again(inodes) => known = inodes,
                RenameRound::Done => {
                    drop(known);
                    self.cleaner.help();
                    return Ok(());
                }
            }
        }
        Err(Error::new(ErrorKind::Busy, "source or target keeps changing"))
    }

    fn rename_round(
        &self,
        subvolume: &Subvolume,
        (from, name): (&Inode, Name<'_>),
        (to, new_name): (&Inode, Name<'_>),
        mode: RenameMode,
        known: &[Arc<Inode>],
    ) -> Result<RenameRound> {
        let (source, target);
        let still = (from.id != to.id).then(|| subvolume.hold_still());
        let mut inodes: SmallVec<[&Inode; 4]> = SmallVec::from_slice(&[from, to]);
        inodes.extend(known.iter().map(|inode| &**inode));
        let mut guards = match Guards::lock(&inodes) {
            Err(error) if error.kind() == ErrorKind::Stale && !known.is_empty() => {
                return Ok(RenameRound::Again(SmallVec::new()));
            }
            other => other?,
        };
        let from = check_may_remove(from, guards.item(from.id))?;
        let to = check_may_add(to, guards.item(to.id))?;
        let ends = Ends { from, name, to, new_name };
        let tree = ends.from.tree();
        let found =
            directory::find(tree, ends.from.id, ends.name, Wait::Yes)?.found.ok_or(ErrorKind::NotFound)?;
        let slot = directory::find(tree, ends.to.id, ends.new_name, Wait::Yes)?;
        // Two names of one inode: POSIX requires that nothing happens.
        if check_new_name(&ends, mode, &guards, &found, &slot)? {
            return Ok(RenameRound::Done);
        }
        let root = self.subvolume_root(&ends, found.target)?;
        if let Some(root) = root {
            if !guards.holds(root) {
                // A subvolume is opened without any inode lock.
                drop(guards);
                drop(still);
                return Ok(RenameRound::Again(SmallVec::from_iter([self.inodes.get(root, Wait::Yes)?])));
            }
            self.check_subvolume_may_move(&ends, &guards, root)?;
        }
        source = self.renamed_inode(ends.from.id, found.target)?;
        target = match slot.found {
            Some(other) => Some(self.replaced_inode(ends.to.id, other.target, mode, source.as_ref())?),
            None => None,
        };
        let mut all = true;
        for inode in [&source, &target].into_iter().flatten() {
            all = all && guards.try_add(inode)?;
        }
        if !all {
            drop(guards);
            let root = known.iter().find(|inode| Some(inode.id) == root).cloned();
            return Ok(RenameRound::Again([root, source, target].into_iter().flatten().collect()));
        }
        self.check_rename(&ends, mode, &guards, still.as_ref(), (source.as_ref(), target.as_ref()))?;
        let renaming = Renaming { subvolume, ends, mode, found };
        let done = self.carry_out(&renaming, &guards, (source.as_ref(), target.as_ref()));
        if [Some(&found), slot.found.as_ref()].iter().flatten().any(|was| was.kind == FileType::Directory) {
            self.known_directories.forget_all(&guards);
        }
        done?;
        drop(guards);
        drop(still);
        if let Some(inode) = target {
            let id = inode.id;
            drop(inode);
            self.table().forget_dead(id);
        }
        Ok(RenameRound::Done)
    }

    fn carry_out(
        &self,
        renaming: &Renaming<'_>,
        guards: &Guards<'_>,
        (source, target): (Option<&Arc<Inode>>, Option<&Arc<Inode>>),
    ) -> Result<()> {
        let Renaming { ends, mode, found, .. } = renaming;
        let link = |inode: &Arc<Inode>, old: Spelling<'_>| {
            inode_ref::find_entry(inode.tree(), inode.id, old.dir, old.name)
        };
        let moved = match (source, found.target) {
            (Some(inode), _) => Moved::Inode(inode, link(inode, ends.present())?),
            (None, EntryTarget::Subvolume(id)) => Moved::Subvolume(id),
            (None, EntryTarget::Inode(_)) => unreachable!("an inode was looked up"),
        };
        match (&moved, target, mode) {
            (Moved::Inode(source, source_link), Some(target), RenameMode::Exchange) => {
                let target_link = link(target, ends.wanted())?;
                self.exchange(ends, guards, (source, *source_link), (target, target_link))
            }
            (_, _, RenameMode::Exchange) => Err(Error::unsupported("exchanging a subvolume")),
            _ => self.move_name(renaming, guards, &moved, target),
        }
    }

    /// The object of an entry's inode; `None` for a subvolume.
    fn renamed_inode(&self, dir: InodeId, target: EntryTarget) -> Result<Option<Arc<Inode>>> {
        match target {
            EntryTarget::Inode(ino) => self.inodes.get(InodeId::new(dir.subvolume, ino), Wait::Yes).map(Some),
            EntryTarget::Subvolume(_) => Ok(None),
        }
    }

    /// Checks whether a subvolume may get another name, and move to another directory.
    fn check_subvolume_may_move(&self, ends: &Ends<'_>, guards: &Guards<'_>, root: InodeId) -> Result<()> {
        check_not_append_only(guards.item(root))?;
        if ends.same_dir() { Ok(()) } else { self.check_may_move(root.subvolume) }
    }

    /// The root directory of the subvolume that moves; `None` for anything else.
    fn subvolume_root(&self, ends: &Ends<'_>, target: EntryTarget) -> Result<Option<InodeId>> {
        match target {
            EntryTarget::Subvolume(id) if !self.is_stub(&ends.from, ends.name, id)? => {
                Ok(Some(InodeId::new(id, ObjectId::FIRST_FREE)))
            }
            _ => Ok(None),
        }
    }

    /// The object with the new name. A subvolume cannot be replaced.
    fn replaced_inode(
        &self,
        dir: InodeId,
        target: EntryTarget,
        mode: RenameMode,
        source: Option<&Arc<Inode>>,
    ) -> Result<Arc<Inode>> {
        let is_dir = source.is_none_or(|source| source.is_dir());
        self.renamed_inode(dir, target)?.ok_or_else(|| match (mode, is_dir) {
            (RenameMode::Exchange, _) => Error::unsupported("exchanging a subvolume"),
            // As on Linux: it cannot tell whether the subvolume is empty.
            (_, true) => ErrorKind::DirectoryNotEmpty.into(),
            (_, false) => ErrorKind::IsADirectory.into(),
        })
    }

    fn check_rename(
        &self,
        ends: &Ends<'_>,
        mode: RenameMode,
        guards: &Guards<'_>,
        still: Option<&RenameGuard<'_>>,
        (source, target): (Option<&Arc<Inode>>, Option<&Arc<Inode>>),
    ) -> Result<()> {
        let still =
            || still.expect("RENAME-1: from one directory to another, the chain of parents stands still");
        let is_dir = |inode: &Arc<Inode>| inode.is_dir();
        let source_is_dir = source.is_none_or(is_dir);
        if let Some(source) = source {
            check_not_append_only(guards.item(source.id))?;
            if source_is_dir && !ends.same_dir() {
                check_not_inside(still(), &ends.to, source.id)?;
            }
        }
        let Some(target) = target else { return Ok(()) };
        check_not_append_only(guards.item(target.id))?;
        if mode == RenameMode::Exchange {
            if is_dir(target) && !ends.same_dir() {
                check_not_inside(still(), &ends.from, target.id)?;
            }
            return Ok(());
        }
        match (source_is_dir, is_dir(target)) {
            (true, false) => Err(ErrorKind::NotADirectory.into()),
            // A directory above the source is not empty, since it contains the source; Linux reports that first.
            (false, true)
                if !ends.same_dir() && check_not_inside(still(), &ends.from, target.id).is_err() =>
            {
                Err(ErrorKind::DirectoryNotEmpty.into())
            }
            (false, true) => Err(ErrorKind::IsADirectory.into()),
            (true, true) if !directory::is_empty(target.tree(), target.id.ino)? => {
                Err(ErrorKind::DirectoryNotEmpty.into())
            }
            _ => Ok(()),
        }
    }

    fn move_name(
        &self,
        renaming: &Renaming<'_>,
        guards: &Guards<'_>,
        moved: &Moved<'_>,
        target: Option<&Arc<Inode>>,
    ) -> Result<()> {
        let Renaming { subvolume, ends, mode, found } = renaming;
        let now = self.engine().env().now();
        let whiteout = match mode {
            RenameMode::Whiteout => {
                Some(self.draft_whiteout(subvolume, ends, guards.item(ends.from.id), now)?)
            }
            _ => None,
        };
        let old_index = self.index_of_moved(ends, moved)?;
        let appended = target.is_none().then(|| directory::next_index(&ends.to)).transpose()?;
        let losing = match target {
            Some(inode) => {
                let item = guards.item(inode.id);
                Some(LosingName::plan(self.table(), inode, item, ends.to.id.ino, ends.new_name)?)
            }
            None => None,
        };
        let index = appended.or(losing.as_ref().map(|losing| losing.link.index)).expect("one or the other");
        let mut step = MoveStep { names: self, ends, moved, losing, index, old_index, now, whiteout };
        if let Err(error) = step.run(guards, found) {
            if let Some(losing) = &step.losing {
                losing.take_back(self.table());
            }
            return Err(error);
        }
        if let Some(appended) = appended {
            ends.to.set_next_index(appended + 1);
        }
        if let Some(losing) = &step.losing {
            losing.done();
            // A program that writes a new file and renames it over the old one relies on having one of the two after a crash.
            if let Moved::Inode(inode, _) = moved {
                inode.start_writeback();
            }
        }
        if let Some((ino, draft)) = step.whiteout {
            draft.publish(
                self.table(),
                InodeId::new(ends.from.id.subvolume, ino),
                ends.from.subvolume().clone(),
            );
        }
        Ok(())
    }

    fn draft_whiteout(
        &self,
        subvolume: &Subvolume,
        ends: &Ends<'_>,
        dir_item: &InodeItem,
        now: Timespec,
    ) -> Result<(ObjectId, Draft<'static>)> {
        let kind = NewKind::CharDevice(DeviceNumber { major: 0, minor: 0 });
        let new = NewInode { kind, ..NewInode::file(0) };
        Ok((subvolume.allocate_ino()?, Draft::new(&ends.from, dir_item, &new, now)?))
    }

    /// The number of the entry that moves.
    fn index_of_moved(&self, ends: &Ends<'_>, moved: &Moved<'_>) -> Result<u64> {
        match moved {
            Moved::Inode(_, link) => Ok(link.index),
            Moved::Subvolume(id) => self.subvolumes().index_of(ends.from.id, ends.name.bytes(), *id),
        }
    }

    fn exchange(
        &self,
        ends: &Ends<'_>,
        guards: &Guards<'_>,
        (source, source_link): (&Arc<Inode>, FoundLink),
        (target, target_link): (&Arc<Inode>, FoundLink),
    ) -> Result<()> {
        let now = self.engine().env().now();
        let tree = ends.from.tree();
        // The second is respelled after the first, and then a refusal would abort.
        inode_ref::check_room(tree, target.id.ino, ends.present(), self.extrefs)?;
        let handle = self.engine().start(ReserveItems::items(14).of(ends.from.id.subvolume))?;
        let running = handle.generation();
        let head = |inode: &Arc<Inode>| Head {
            location: EntryTarget::Inode(inode.id.ino).location(),
            transid: running,
            kind: inode.kind(),
        };
        let (source_head, target_head) = (head(source), head(target));
        let (handle, source_moved) = or_end(handle, |handle| {
            let (old, new) = ((ends.present(), source_link), (ends.wanted(), target_link.index));
            inode_ref::respell(handle, tree, source.id.ino, old, new, self.extrefs)
        })?;
        let done = (|| {
            let (old, new) = ((ends.wanted(), target_link), (ends.present(), source_link.index));
            let target_moved = inode_ref::respell(&handle, tree, target.id.ino, old, new, self.extrefs)?;
            source_moved.finish(&handle, tree, source.id.ino, ends.present(), source_link)?;
            target_moved.finish(&handle, tree, target.id.ino, ends.wanted(), target_link)?;
            directory::redirect(&handle, &ends.from, ends.name, source_link.index, &target_head)?;
            directory::redirect(&handle, &ends.to, ends.new_name, target_link.index, &source_head)?;
            for inode in [source, target] {
                inode.update(&handle, |item| item.ctime = now)?;
            }
            if (source.is_dir() || target.is_dir()) && !ends.same_dir() {
                self.engine().logs().give_up(&handle);
            }
            update_dirs(&handle, ends, guards, (0, 0), now)
        })();
        finish(handle, done)
    }
}

/// A move that has passed the checks.
struct MoveStep<'a> {
    names: &'a Names,
    ends: &'a Ends<'a>,
    moved: &'a Moved<'a>,
    losing: Option<LosingName<'a>>,
    /// The number of the new entry.
    index: u64,
    /// The number of the old one.
    old_index: u64,
    now: Timespec,
    whiteout: Option<(ObjectId, Draft<'static>)>,
}

impl MoveStep<'_> {
    fn units(&self) -> ReserveItems {
        let losing = self.losing.as_ref().map_or(0, LosingName::units);
        let whiteout = self.whiteout.as_ref().map_or(0, |(_, draft)| draft.item_count());
        ReserveItems::items(11 + losing + whiteout).of(self.ends.from.id.subvolume)
    }

    /// Makes the changes in the tree.
    fn run(&mut self, guards: &Guards<'_>, found: &Found) -> Result<()> {
        let Self { names, ends, moved, .. } = *self;
        let handle = names.engine().start(self.units())?;
        let tree = ends.from.tree();
        // The reference first: it may fail, and then nothing has changed.
        let (handle, respelled) = or_end(handle, |handle| match moved {
            Moved::Inode(inode, link) => {
                let (old, new) = ((ends.present(), *link), (ends.wanted(), self.index));
                inode_ref::respell(handle, tree, inode.id.ino, old, new, names.extrefs).map(Some)
            }
            Moved::Subvolume(_) => Ok(None),
        })?;
        let done = (|| {
            if let (Moved::Inode(inode, link), Some(respelled)) = (moved, respelled) {
                respelled.finish(&handle, tree, inode.id.ino, ends.present(), *link)?;
                inode.update(&handle, |item| item.ctime = self.now)?;
            }
            if let Some(losing) = &mut self.losing {
                losing.apply(&handle, self.now)?;
            }
            self.change_entries(&handle, found)?;
            if let Moved::Subvolume(id) = moved {
                let entry =
                    SubvolumeEntry { dir: ends.to.id, index: self.index, name: ends.new_name.bytes() };
                names.subvolumes().update_refs(&handle, *id, &entry)?;
            }
            // After this a sync of an inode below it finds the new path.
            if moved.takes_others_along(ends) {
                names.engine().logs().give_up(&handle);
            }
            let more = if self.losing.is_some() { 0 } else { ends.new_name.size_in_directory() };
            let less = if self.whiteout.is_some() { 0 } else { ends.name.size_in_directory() };
            update_dirs(&handle, ends, guards, (less, more), self.now)
        })();
        finish(handle, done)
    }

    fn change_entries(&mut self, handle: &Handle<'_>, found: &Found) -> Result<()> {
        let Ends { from, name, to, new_name } = self.ends;
        let kind = match self.moved {
            Moved::Inode(inode, _) => inode.kind(),
            Moved::Subvolume(_) => FileType::Directory,
        };
        let head = Head { location: self.moved.target().location(), transid: handle.generation(), kind };
        if self.losing.is_some() {
            directory::redirect(handle, to, *new_name, self.index, &head)?;
        } else {
            directory::add_item(handle, to, *new_name, &head)?;
            directory::add_index(handle, to, self.index, *new_name, &head)?;
        }
        if let Some((ino, draft)) = &mut self.whiteout {
            let head = Head { location: keys::inode_item(*ino), kind: FileType::CharDevice, ..head };
            directory::redirect(handle, from, *name, self.old_index, &head)?;
            return draft.insert(handle, from.tree(), *ino, Some((from.id.ino, self.old_index, *name)));
        }
        if self.ends.same_dir() {
            // The new entry may have joined the item of the old one.
            directory::remove(handle, from, *name, self.old_index)
        } else {
            directory::remove_found(handle, from, *name, found, self.old_index)
        }
    }
}

/// Changes the items of both directories: `from` lost and `to` gained these bytes.
fn update_dirs(
    handle: &Handle<'_>,
    ends: &Ends<'_>,
    guards: &Guards<'_>,
    (less, more): (u64, u64),
    now: Timespec,
) -> Result<()> {
    assert!(guards.holds(ends.from.id) && guards.holds(ends.to.id), "RENAME-2: look-ups wait for both");
    let update = |dir: &DirectoryInode<'_>, less: u64, more: u64| {
        let size = guards.item(dir.id).size.saturating_add(more).saturating_sub(less);
        dir.update_later(handle, |item| directory::touch(item, size, now)).map(drop)
    };
    if ends.same_dir() {
        return update(&ends.from, less, more);
    }
    update(&ends.from, less, 0)?;
    update(&ends.to, 0, more)
}

/// Fails when `dir` is `ancestor` or lies below it.
fn check_not_inside(_still: &RenameGuard<'_>, dir: &Inode, ancestor: InodeId) -> Result<()> {
    let mut at = dir.id;
    for _ in 0..DEPTH_MAX {
        if at == ancestor {
            return Err(Error::invalid("moving a directory into itself"));
        }
        if at.ino == ObjectId::FIRST_FREE {
            return Ok(());
        }
        at.ino = inode_ref::first_parent(dir.tree(), at, Wait::Yes)?;
    }
    Err(Error::new(ErrorKind::Corrupt, format!("directory {}: its parents do not lead to the root", dir.id)))
}
