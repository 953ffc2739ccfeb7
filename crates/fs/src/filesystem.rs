//! The open filesystem: the engine, the subvolumes in use and the table of inodes.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, TreeId, Wait};
use creamery_tree::Tree;
use creamery_txn::{CommitParticipant, Engine};

use crate::inode::{Deferred, FileType, Inode, InodeItem};
use crate::inode_ref::Extrefs;
use crate::inode_table::{InodeTable, Known};
use crate::keys;
use crate::known_directories::KnownDirectories;
use crate::subvolume::{Subvolume, Subvolumes};

/// How often an operation looks its names up again when they keep changing under it.
pub(crate) const LOOKUP_ROUNDS_MAX: usize = 64;

/// What can be chosen when a filesystem is opened.
///
/// ```
/// let options = creamery_fs::FsOptions { inodes_cached: 1000, ..Default::default() };
/// # assert_eq!(options.inodes_cached, 1000);
/// ```
#[derive(Clone, Debug)]
pub struct FsOptions {
    /// About how many inodes stay in memory after their last use; each takes half a kilobyte.
    pub inodes_cached: usize,
    /// How many steps of the cleaner an operation takes on behalf of others at most ([`Filesystem::clean_step`]). Who has a
    /// thread for that may do without.
    pub cleaning_steps: usize,
}

impl Default for FsOptions {
    fn default() -> Self {
        Self { inodes_cached: 16 * 1024, cleaning_steps: 1 }
    }
}

/// An open filesystem. See the crate's head for its rules.
///
/// ```no_run
/// # fn example(engine: std::sync::Arc<creamery_txn::Engine>) -> creamery_base::Result<()> {
/// use creamery_base::Wait;
/// use creamery_fs::{Filesystem, FsOptions, NewInode};
/// let fs = Filesystem::open(engine, FsOptions::default())?;
/// let root = fs.root(fs.default_subvolume())?;
/// fs.create(root, b"hello", &NewInode::file(0o644))?;
/// assert_eq!(fs.stat(fs.lookup(root, b"hello", Wait::Yes)?, Wait::Yes)?.size, 0);
/// fs.sync()
/// # }
/// ```
pub struct Filesystem {
    pub(crate) engine: Arc<Engine>,
    pub(crate) root_tree: Arc<Tree>,
    pub(crate) subvolumes: Subvolumes,
    pub(crate) table: InodeTable,
    pub(crate) known_directories: KnownDirectories,
    pub(crate) deferred: Arc<Deferred>,
    pub(crate) extrefs: Extrefs,
    pub(crate) cleaning_steps: usize,
}

impl Filesystem {
    /// Opens the files of `engine`. When it may write, what was unlinked but not deleted at the last crash or shutdown is
    /// for the cleaner ([`Filesystem::clean_step`]), subvolume by subvolume as they are first used.
    pub fn open(engine: Arc<Engine>, options: FsOptions) -> Result<Arc<Self>> {
        let root_tree = engine.tree(TreeId::ROOT)?;
        let default = crate::subvolume::read_default(&root_tree)?;
        let extrefs = crate::subvolume::extrefs(&engine);
        let fs = Self {
            root_tree,
            subvolumes: Subvolumes::new(default),
            table: InodeTable::new(options.inodes_cached),
            known_directories: KnownDirectories::default(),
            deferred: Arc::new(Deferred::default()),
            extrefs,
            cleaning_steps: options.cleaning_steps,
            engine,
        };
        fs.engine.register(Arc::clone(&fs.deferred) as Arc<dyn CommitParticipant>);
        let fs = Arc::new(fs);
        fs.engine.register_reclaimer(&fs);
        fs.subvolume(default, Wait::Yes)?;
        Ok(fs)
    }

    /// The engine below.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The object of an inode; it stays alive while the caller holds it. [`ErrorKind::Stale`] when there is no
    /// such inode, or it has no name left and was not open.
    pub fn inode(&self, id: InodeId, wait: Wait) -> Result<Arc<Inode>> {
        self.engine.check_open()?;
        for _ in 0..LOOKUP_ROUNDS_MAX {
            let stamp = match self.table.get(id) {
                Known::Here(inode) => return Ok(inode),
                Known::Absent(stamp) => stamp,
            };
            let subvolume = self.subvolume(id.subvolume, wait)?;
            let item = self.read_item(&subvolume, id.ino, wait)?;
            let inode = Inode::new(id, subvolume, item);
            if let Some(inode) = self.table.publish_read(inode, stamp) {
                return Ok(inode);
            }
        }
        Err(Error::new(ErrorKind::Busy, format!("reading inode {id}")))
    }

    fn read_item(&self, subvolume: &Subvolume, ino: ObjectId, wait: Wait) -> Result<InodeItem> {
        if ino == keys::EMPTY_SUBVOLUME_DIR {
            return Ok(empty_subvolume_item());
        }
        if ino < ObjectId::FIRST_FREE || ino > ObjectId::LAST_FREE {
            return Err(ErrorKind::Stale.into());
        }
        let item = subvolume.tree.get(&keys::inode_item(ino), wait, InodeItem::decode)?;
        let item = item.ok_or(ErrorKind::Stale)??;
        if item.nlink == 0 {
            return Err(ErrorKind::Stale.into());
        }
        Ok(item)
    }

    /// The object of a directory that is about to be changed, in a subvolume that may be.
    pub(crate) fn dir_to_change(&self, id: InodeId) -> Result<Arc<Inode>> {
        self.clean_for_others();
        let dir = self.inode(id, Wait::Yes)?;
        dir.subvolume.check_writable()?;
        Ok(dir)
    }

    /// The object of an inode that is about to be changed, in a subvolume that may be.
    pub(crate) fn inode_to_change(&self, id: InodeId) -> Result<Arc<Inode>> {
        if id.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.dir_to_change(id)
    }
}

/// The directory that stands where a snapshot has the entry of a subvolume but not the subvolume itself.
fn empty_subvolume_item() -> InodeItem {
    InodeItem { mode: FileType::Directory.mode_bits() | 0o755, ..InodeItem::default() }
}
