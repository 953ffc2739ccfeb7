//! Names: the entries of directories, and the inode of each name.
//!
//! [`Names`] has the operations, each in a file of its own. Below them, `directory` changes the items of a directory, whose bytes
//! [`creamery_format::dir_item`] makes, and `items/inode_ref` changes the references from an inode to its names.
//!
//! # Locking
//! Every operation locks the directories first, and then tries the inodes of their entries (`inode/guards`).

mod create;
mod create_snapshot;
mod create_subvolume;
pub(crate) mod delete_subvolume;
mod known_directories;
mod link;
mod lookup;
mod losing_name;
mod move_subvolume;
mod new_inode;
mod read_dir;
mod rename;
mod unlink;

use std::sync::Arc;

use creamery_base::{ErrorKind, InodeId, ObjectId, Result, Wait};
use creamery_format::Incompat;
use creamery_txn::Engine;

pub use create_snapshot::SnapshotOptions;
pub(crate) use new_inode::new_file_has_checksums;
pub use new_inode::{Inherit, NewInode, NewKind};
pub use read_dir::DirEntry;
pub use rename::RenameMode;

use crate::cleaner::Cleaner;
use crate::directory;
use crate::inode::table::InodeTable;
use crate::inode::{Inode, InodeToChange, Inodes};
use crate::items::Name;
use crate::items::inode_ref::Extrefs;
use crate::subvolume::Subvolumes;
use known_directories::KnownDirectories;

/// The names of a filesystem.
pub(crate) struct Names {
    inodes: Arc<Inodes>,
    cleaner: Arc<Cleaner>,
    known_directories: KnownDirectories,
    extrefs: Extrefs,
}

impl Names {
    pub(crate) fn new(inodes: Arc<Inodes>, cleaner: Arc<Cleaner>) -> Self {
        let incompat = inodes.engine().incompat();
        let extrefs = if incompat.contains(Incompat::EXTENDED_IREF) { Extrefs::Yes } else { Extrefs::No };
        Self { inodes, cleaner, known_directories: KnownDirectories::default(), extrefs }
    }

    /// The memory of its cache, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.known_directories.memory()
    }

    fn engine(&self) -> &Engine {
        self.inodes.engine()
    }

    fn subvolumes(&self) -> &Subvolumes {
        self.inodes.subvolumes()
    }

    fn table(&self) -> &InodeTable {
        self.inodes.table()
    }

    /// Refuses a name that is taken, while nothing has changed. An insertion finds that out, too, but has copied blocks by then,
    /// which a commit would write.
    fn check_name_is_free(&self, dir: &Inode, name: Name<'_>) -> Result<()> {
        if self.engine().has_changes()
            || directory::find(dir.tree(), dir.id, name, Wait::Yes)?.found.is_none()
        {
            return Ok(());
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// The object of a directory for a change, in a writable subvolume.
    fn dir_to_change(&self, id: InodeId) -> Result<InodeToChange> {
        self.cleaner.help();
        let dir = self.inodes.get_to_change(id)?;
        if id.ino == ObjectId::FIRST_FREE {
            dir.subvolume().check_not_dead()?;
        }
        Ok(dir)
    }
}
