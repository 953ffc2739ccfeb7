//! Open files, by the number that the kernel holds.
//!
//! # Changes that the kernel does not report
//! A program that maps a file shared changes pages of the kernel's cache. The server does not learn of the mapping, of the change, or of a page over
//! a hole on disk, before the page is written back. But such a mapping needs a file that is open to read
//! and to write, and keeps it open: the kernel writes the pages back when the mapping ends, and releases the file after that, perhaps long
//! after the program has closed its descriptor. So while a handle to read and to write is open, any hole of the file may
//! have data ([`Handles::may_be_mapped`]), until the kernel has handed over its pages (`mapped_pages`).

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
    /// Whether a write through it is durable when it returns (O_SYNC, O_DSYNC).
    is_durable: bool,
    has_filled: HasFilled,
    pages: Arc<KeptPages>,
    /// The file's capabilities, which the kernel does not remove when the file is written through this handle.
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
    /// A number for a file that was opened with `open`.
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

    /// The file, for a request on `path` that has not been carried out yet (PAGES-1).
    pub(crate) fn get_for(&self, handle: FileHandle, path: PagePath) -> Result<Arc<OpenFile>, Errno> {
        self.find(handle, |open| {
            if path == PagePath::Through {
                open.pages.fill(&open.has_filled);
            }
            Arc::clone(&open.file)
        })
    }

    /// The capabilities that a write through this handle must remove.
    pub(crate) fn capabilities(&self, handle: FileHandle) -> Result<Option<Arc<Capabilities>>, Errno> {
        self.find(handle, |open| open.capabilities.clone())
    }

    /// Records that a process has set capabilities of a file.
    pub(crate) fn capabilities_given(&self, id: InodeId) {
        if let Some(users) = self.slots.read().users.get(&id) {
            users.capabilities.given();
        }
    }

    /// The pages that the kernel must drop after a write that bypassed them.
    pub(crate) fn behind_a_write(&self, handle: FileHandle) -> Stale {
        self.find(handle, |open| open.pages.behind_a_write()).unwrap_or(Stale::Written)
    }

    /// Records that the kernel has dropped all pages that these requests had filled.
    pub(crate) fn dropped(&self, handle: FileHandle, filled: Filled) {
        // A handle may be closed meanwhile; then this does nothing.
        let _ = self.find(handle, |open| open.pages.dropped(filled));
    }

    /// The file, and whether a copy to it must be durable when it returns.
    pub(crate) fn get_to_copy(&self, handle: FileHandle) -> Result<(Arc<OpenFile>, bool), Errno> {
        self.find(handle, |open| (Arc::clone(&open.file), open.is_durable))
    }

    fn find<T>(&self, handle: FileHandle, tell: impl FnOnce(&Open) -> T) -> Result<T, Errno> {
        let slots = self.slots.read();
        let at = usize::try_from(handle.get()).map_err(|_| Errno::EBADF)?;
        slots.files.get(at).and_then(Option::as_ref).map(tell).ok_or(Errno::EBADF)
    }

    /// Whether a mapping may have changed the file without the server's knowledge.
    pub(crate) fn may_be_mapped(&self, id: InodeId) -> bool {
        self.slots.read().users.get(&id).is_some_and(|users| users.may_be_mapped > 0)
    }

    /// The open files of a subvolume.
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

    /// Removes the file. The caller drops it: the last close of one without a name wakes the cleaner.
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
