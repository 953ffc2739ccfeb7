//! Listings.
//!
//! The node keeps the state of a listing for as long as the kernel knows it ([`Nodes`](crate::nodes::Nodes)): the end of the listing, so that it
//! ends even if a program renames the files that it lists, and whether the kernel may cache the
//! listing (`kept_listings`). An open directory itself has no state here except its number: an odd one means that
//! listing it moves no access time.
//!
//! The server answers `OPENDIR` although it keeps no state for it. If the server did not implement it (ENOSYS), the kernel would skip the
//! request, and cache all listings; but it does not cache those correctly that several processes make at once.
//!
//! # Invariants
//! - LISTING-1: a new listing returns the current state, whatever changes and listings by other processes go on.
//!   Shown by `changed`, `beside_others`, two cases of listings.
//! - LISTING-2: a listing ends, and not before the entries that existed at its start, unless other processes begin listings of the same directory
//!   for ever: listings in progress at the same time end where the last of them does. Shown by `renamed_while_listed`.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use creamery_base::Wait;
use creamery_fs::{Atime, DirEntry, FileType};
use creamery_fuse::protocol::{DirectoryEntry, DirectoryPlusSink, DirectorySink, OpenReplyFlags, Pushed};
use creamery_fuse::{FileHandle, NodeId, OpenRequest, Opened, Result};

use super::Adapter;
use crate::flags;
use crate::kept_listings::Keeping;

/// Flag in the number of an open directory: listing it moves no access time.
const IS_QUIET: u64 = 1;

impl Adapter {
    /// Opens a directory.
    pub(super) fn open_directory(&self, node: NodeId, open: &OpenRequest) -> Opened {
        let quiet = if flags::is_quiet(open.flags) { IS_QUIET } else { 0 };
        let number = (self.directories_opened.fetch_add(1, Ordering::Relaxed) << 1) | quiet;
        // With `strictatime` the server must see every access.
        let keeping = match self.fs.atime().atime {
            Atime::Strict => Keeping::Nothing,
            _ => self.nodes.directory_opened(node, number),
        };
        let flags = match keeping {
            Keeping::Nothing => OpenReplyFlags::empty(),
            Keeping::Anew => OpenReplyFlags::CACHE_DIR,
            Keeping::What => OpenReplyFlags::CACHE_DIR | OpenReplyFlags::KEEP_CACHE,
        };
        Opened { handle: FileHandle::new(number), flags }
    }

    /// Records that a name has moved, or that two were exchanged.
    pub(super) fn names_moved(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8])) {
        self.nodes.name_changed(from.0);
        if from.0 == to.0 {
            return;
        }
        self.nodes.name_changed(to.0);
        // The `..` of a directory counts as one of its names.
        for (dir, name) in [from, to] {
            let found = self.fs.lookup_kind(self.nodes.inode(dir), name, Wait::Yes);
            if let Ok((id, FileType::Directory)) = found
                && let Ok(node) = self.nodes.node(id)
            {
                self.nodes.name_changed(node);
            }
        }
    }

    /// Moves the access time of a directory that was listed.
    pub(super) fn listed(&self, node: NodeId, handle: FileHandle) {
        if handle.get() & IS_QUIET == 0 {
            self.fs.accessed(self.nodes.inode(node));
        }
    }

    /// Reports the entries of a directory from `offset` on.
    fn list(
        &self,
        node: NodeId,
        offset: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let dir = self.nodes.inode(node);
        let end = match self.nodes.listing_end(node) {
            Some(end) if offset != 0 => end,
            _ => self.nodes.listing_begins(node, self.fs.end_of_dir(dir, Wait::Yes)?),
        };
        Ok(self.fs.read_dir_range(dir, offset..end, Wait::Yes, each)?)
    }

    pub(super) fn list_names(&self, node: NodeId, offset: u64, sink: &mut DirectorySink<'_>) -> Result<()> {
        let mut failure = None;
        self.list(node, offset, &mut |entry| {
            let ino = match self.nodes.number(entry.id) {
                Ok(ino) => ino,
                Err(errno) => {
                    failure = Some(errno);
                    return ControlFlow::Break(());
                }
            };
            let kind = entry.kind.mode_bits() >> 12;
            match sink.push(&DirectoryEntry { ino, offset: entry.next_offset, kind, name: entry.name }) {
                Pushed::Yes => ControlFlow::Continue(()),
                Pushed::Full => ControlFlow::Break(()),
            }
        })?;
        // The entries before the failing one are a valid answer; the next request begins with the failure.
        failure.filter(|_| sink.is_empty()).map_or(Ok(()), Err)
    }

    pub(super) fn list_entries(
        &self,
        node: NodeId,
        offset: u64,
        sink: &mut DirectoryPlusSink<'_>,
    ) -> Result<()> {
        self.list(node, offset, &mut |found| {
            let kind = found.kind.mode_bits() >> 12;
            let ino = self.nodes.number(found.id).unwrap_or(0);
            let name = DirectoryEntry { ino, offset: found.next_offset, kind, name: found.name };
            if !sink.has_room(found.name.len()) {
                return ControlFlow::Break(());
            }
            let dots = found.name == b"." || found.name == b"..";
            let attributes = if dots || self.subvolumes.is_gone(found.id.subvolume) {
                None
            } else {
                self.fs.stat(found.id, Wait::Yes).ok()
            };
            // Without attributes (damage, or a removed file) the entry has only its name: a lookup reports the error.
            // The entry fits, so the reference that is counted reaches the kernel.
            let pushed = match attributes.and_then(|attributes| self.entry(&attributes).ok()) {
                Some(entry) => sink.push(&name, &entry),
                None => sink.names().push(&name),
            };
            match pushed {
                Pushed::Yes => ControlFlow::Continue(()),
                Pushed::Full => ControlFlow::Break(()),
            }
        })
    }
}
