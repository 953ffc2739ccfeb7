//! Open files, by the number that the kernel holds.
//!
//! # What the kernel does not tell
//! A program that maps a file shared changes pages of the kernel's cache. Of the mapping, of the change, and of a page that lies over
//! what is a hole on disk, nobody hears before it is written back. But such a mapping takes a file that was opened to read
//! and to write, and holds it: the kernel writes the pages back when the mapping goes, and releases the file after that, long
//! after the program may have closed its descriptor. So while a handle to read and to write is open, any hole of the file may
//! be none ([`Handles::may_be_mapped`]), until the kernel has handed over what it has of it (`mapped_pages`).

use std::collections::BTreeMap;
use std::sync::Arc;

use creamery_base::lock::{RankedRwLock, rank};
use creamery_base::{InodeId, TreeId};
use creamery_fs::OpenFile;
use creamery_fuse::{Errno, FileHandle, OpenRequest};

use crate::capabilities::Capabilities;
use crate::flags::{self, PagePath};
use crate::kept_pages::{Filled, HasFilled, KeptPages, Stale};

struct Open {
    file: Arc<OpenFile>,
    may_be_mapped: bool,
    /// What is written through it is to be durable then (O_SYNC, O_DSYNC).
    is_durable: bool,
    has_filled: HasFilled,
    pages: Arc<KeptPages>,
    /// Those that the kernel leaves to a file that is written through this handle.
    capabilities: Option<Arc<Capabilities>>,
}

/// The handles of one file.
#[derive(Default)]
struct Users {
    handles: usize,
    /// Handles through which it may be mapped.
    may_be_mapped: usize,
    pages: Arc<KeptPages>,
    capabilities: Arc<Capabilities>,
}

#[derive(Default)]
struct Slots {
    files: Vec<Option<Open>>,
    free: Vec<usize>,
    users: BTreeMap<InodeId, Users>,
}

/// The table of open files.
#[derive(Default)]
pub(crate) struct Handles {
    slots: RankedRwLock<Slots, { rank::TABLE }>,
}

impl Handles {
    /// A number for a file that was opened as `open` says.
    pub(crate) fn add(&self, file: Arc<OpenFile>, open: &OpenRequest) -> FileHandle {
        let (may_be_mapped, is_durable) = (flags::maps(open.flags), flags::syncs(open.flags));
        let mut slots = self.slots.write();
        let users = slots.users.entry(file.id()).or_default();
        users.handles += 1;
        users.may_be_mapped += usize::from(may_be_mapped);
        let pages = Arc::clone(&users.pages);
        let capabilities = flags::is_around_cache(open.flags).then(|| Arc::clone(&users.capabilities));
        let has_filled = HasFilled::default();
        let file = Open { file, may_be_mapped, is_durable, has_filled, pages, capabilities };
        let at = match slots.free.pop() {
            Some(at) => {
                slots.files[at] = Some(file);
                at
            }
            None => {
                slots.files.push(Some(file));
                slots.files.len() - 1
            }
        };
        FileHandle::new(at as u64)
    }

    pub(crate) fn get(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Errno> {
        self.find(handle, |open| Arc::clone(&open.file))
    }

    /// The file, for a request that comes by `path` and has not been carried out yet (PAGES-1).
    pub(crate) fn get_for(&self, handle: FileHandle, path: PagePath) -> Result<Arc<OpenFile>, Errno> {
        self.find(handle, |open| {
            if path == PagePath::Through {
                open.pages.fill(&open.has_filled);
            }
            Arc::clone(&open.file)
        })
    }

    /// The capabilities that a write through this handle is to take away.
    pub(crate) fn capabilities(&self, handle: FileHandle) -> Result<Option<Arc<Capabilities>>, Errno> {
        self.find(handle, |open| open.capabilities.clone())
    }

    /// Somebody has given a file capabilities.
    pub(crate) fn capabilities_given(&self, id: InodeId) {
        if let Some(users) = self.slots.read().users.get(&id) {
            users.capabilities.given();
        }
    }

    /// Which pages the kernel is to drop behind a write that went around them.
    pub(crate) fn behind_a_write(&self, handle: FileHandle) -> Stale {
        self.find(handle, |open| open.pages.behind_a_write()).unwrap_or(Stale::Written)
    }

    /// The kernel has dropped all pages that these requests had filled.
    pub(crate) fn dropped(&self, handle: FileHandle, filled: Filled) {
        // A handle that is closed meanwhile has nobody to tell.
        let _ = self.find(handle, |open| open.pages.dropped(filled));
    }

    /// The file, and whether what is copied to it is to be durable then.
    pub(crate) fn get_to_copy(&self, handle: FileHandle) -> Result<(Arc<OpenFile>, bool), Errno> {
        self.find(handle, |open| (Arc::clone(&open.file), open.is_durable))
    }

    fn find<T>(&self, handle: FileHandle, tell: impl FnOnce(&Open) -> T) -> Result<T, Errno> {
        let slots = self.slots.read();
        let at = usize::try_from(handle.get()).map_err(|_| Errno::EBADF)?;
        slots.files.get(at).and_then(Option::as_ref).map(tell).ok_or(Errno::EBADF)
    }

    /// Whether a program may have changed the file in ways that only the kernel knows.
    pub(crate) fn may_be_mapped(&self, id: InodeId) -> bool {
        self.slots.read().users.get(&id).is_some_and(|users| users.may_be_mapped > 0)
    }

    /// The files of a subvolume that are open.
    pub(crate) fn open_in(&self, subvolume: TreeId) -> Vec<InodeId> {
        let slots = self.slots.read();
        slots
            .files
            .iter()
            .flatten()
            .map(|open| open.file.id())
            .filter(|id| id.subvolume == subvolume)
            .collect()
    }

    /// The file, which is to be dropped by the caller: the last close of one without a name wakes the cleaner.
    pub(crate) fn remove(&self, handle: FileHandle) -> Option<Arc<OpenFile>> {
        let mut slots = self.slots.write();
        let at = usize::try_from(handle.get()).ok()?;
        let open = slots.files.get_mut(at).and_then(Option::take)?;
        slots.free.push(at);
        open.pages.close(&open.has_filled);
        let id = open.file.id();
        let users = slots.users.get_mut(&id).expect("the handle was counted");
        users.may_be_mapped -= usize::from(open.may_be_mapped);
        users.handles -= 1;
        if users.handles == 0 {
            slots.users.remove(&id);
        }
        Some(open.file)
    }
}
