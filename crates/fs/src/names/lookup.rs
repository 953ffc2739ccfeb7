//! Lookups of an inode by its directory and name.

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, TreeId, Wait};

use super::Names;
use crate::directory::{self, EntryTarget};
use crate::fault::Fault;
use crate::inode::FileType;
use crate::inode::LOOKUP_ROUNDS_MAX;
use crate::items::{Name, inode_ref};
use crate::keys;

impl Names {
    /// The inode called `name` in `dir`. Crosses into subvolumes, and knows `.` and `..`.
    ///
    /// A directory has to confirm that this is its name. Each has one name, so a thread that follows names meets no directory
    /// twice and walks in no loop, whatever the entries of a damaged filesystem contain.
    pub(crate) fn lookup(&self, dir: InodeId, name: &[u8], wait: Wait) -> Result<InodeId> {
        self.lookup_kind(dir, name, wait).map(|(id, _)| id)
    }

    /// Looks up the inode called `name` in `dir`, as [`Names::lookup`] does, and the type in the entry (or in the inode, if the
    /// entry has no valid type).
    pub(crate) fn lookup_kind(&self, dir: InodeId, name: &[u8], wait: Wait) -> Result<(InodeId, FileType)> {
        self.engine().check_open()?;
        if let Some(child) = self.known_directories.get(dir, name) {
            return Ok((child, FileType::Directory));
        }
        let mut asked = None;
        let mut gone = None;
        for _ in 0..LOOKUP_ROUNDS_MAX {
            let (child, kind) = self.lookup_entry(dir, name, asked, wait)?;
            if let Some(kind) = kind {
                return Ok((child, kind));
            }
            // Asked without the directory's lock, since the inode may be an older one (INODE-4); then the entry is read again.
            match self.kind_of(child, wait) {
                Ok(kind) => asked = Some((child, kind)),
                Err(error) if error.kind() == ErrorKind::Stale && gone != Some(child) => gone = Some(child),
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(ErrorKind::Busy, format!("directory {dir}: the name keeps changing")))
    }

    /// The inode of the entry `name` in `dir`, and its type in the entry. The type is `None` if the entry has no valid one and
    /// `asked`, an inode and its type, is another inode.
    fn lookup_entry(
        &self,
        dir: InodeId,
        name: &[u8],
        asked: Option<(InodeId, FileType)>,
        wait: Wait,
    ) -> Result<(InodeId, Option<FileType>)> {
        let epoch = self.known_directories.epoch();
        let inode = self.inodes.get(dir, wait)?;
        // Held until the entry is read: a rename removes an entry before it adds the other one.
        let locked = inode.lock_shared(wait)?;
        if !inode.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        match name {
            b"." => return Ok((dir, Some(FileType::Directory))),
            b".." => {
                drop(locked);
                return Ok((self.parent(dir, wait)?, Some(FileType::Directory)));
            }
            _ if dir.ino == keys::EMPTY_SUBVOLUME_DIR => return Err(ErrorKind::NotFound.into()),
            _ => {}
        }
        let found =
            directory::find(inode.tree(), dir, Name::new(name)?, wait)?.found.ok_or(ErrorKind::NotFound)?;
        if found.target == EntryTarget::Subvolume(TreeId::FS) {
            let shown = String::from_utf8_lossy(name);
            let message =
                format!("directory {dir}: entry '{shown}' points to the top level, which has no parent");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let child = self.resolve(dir, name, found.target, wait)?;
        let typed = Some(found.kind).filter(|kind| kind.mode_bits() != 0);
        let kind = typed.or(asked.filter(|(id, _)| *id == child).map(|(_, kind)| kind));
        if kind == Some(FileType::Directory) && child.ino != keys::EMPTY_SUBVOLUME_DIR {
            if !self.is_named(child, dir, name, wait)? {
                let shown = String::from_utf8_lossy(name);
                let message = format!(
                    "directory {dir}: entry '{shown}' points to directory {child}, which is elsewhere"
                );
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            if typed.is_some() {
                self.known_directories.put(dir, name, child, epoch);
            }
        }
        if kind.is_none() && self.inodes.context().has(Fault::DirectoryKeptLocked) {
            return Ok((child, Some(self.kind_of(child, wait)?)));
        }
        Ok((child, kind))
    }

    /// Whether the directory `child` has the name `name` in `dir` by its own reference.
    fn is_named(&self, child: InodeId, dir: InodeId, name: &[u8], wait: Wait) -> Result<bool> {
        if child.ino == ObjectId::FIRST_FREE {
            // `resolve` has compared the name; the top level is in no directory.
            let parent = self.subvolumes().parent_of(child.subvolume, wait)?;
            return Ok(child.subvolume != TreeId::FS && parent == Some(dir));
        }
        let subvolume = self.subvolumes().get(child.subvolume, wait)?;
        inode_ref::is_first(subvolume.tree(), child.ino, dir.ino, name, wait)
    }

    fn kind_of(&self, id: InodeId, wait: Wait) -> Result<FileType> {
        let inode = self.inodes.get(id, wait)?;
        drop(inode.lock_shared(wait)?);
        Ok(inode.kind())
    }

    /// The inode of an entry `name` of `dir`.
    pub(super) fn resolve(
        &self,
        dir: InodeId,
        name: &[u8],
        target: EntryTarget,
        wait: Wait,
    ) -> Result<InodeId> {
        match target {
            EntryTarget::Inode(ino) => Ok(InodeId::new(dir.subvolume, ino)),
            EntryTarget::Subvolume(child) => self.subvolumes().resolve(dir, name, child, wait),
        }
    }

    /// The subvolume whose root is at `path`, from the top level; an empty path is the top level itself.
    pub(crate) fn resolve_subvolume(&self, path: &[u8]) -> Result<TreeId> {
        self.subvolumes().get(TreeId::FS, Wait::Yes)?;
        let mut at = InodeId::new(TreeId::FS, ObjectId::FIRST_FREE);
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            at = self.lookup(at, name, Wait::Yes)?;
        }
        if at.ino == ObjectId::FIRST_FREE {
            return Ok(at.subvolume);
        }
        Err(Error::invalid(format!("{} is not the root of a subvolume", String::from_utf8_lossy(path))))
    }

    /// The directory of `id`, or one of them; the root of the top level is its own parent.
    pub(crate) fn parent(&self, id: InodeId, wait: Wait) -> Result<InodeId> {
        if id.ino == ObjectId::FIRST_FREE {
            return Ok(self.subvolumes().parent_of(id.subvolume, wait)?.unwrap_or(id));
        }
        if id.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Ok(InodeId::new(id.subvolume, ObjectId::FIRST_FREE));
        }
        let subvolume = self.subvolumes().get(id.subvolume, wait)?;
        let parent = inode_ref::first_parent(subvolume.tree(), id, wait)?;
        Ok(InodeId::new(id.subvolume, parent))
    }
}
