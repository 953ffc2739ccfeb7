//! Listings.
//!
//! What a listing has to remember - where it ends, so that it does end while somebody renames what he is told about - the node
//! has, for as long as the kernel knows it ([`Nodes`](crate::nodes::Nodes)), and so it is with whether the kernel may keep what
//! it is told (`kept_listings`). An open directory itself has no state here but its number: an odd one means that
//! listing it moves no access time.
//!
//! `OPENDIR` is answered all the same: were it not implemented the kernel would spare it, and keep all listings; but it does not
//! keep those right that several make at once.
//!
//! # Invariants
//! - LISTING-1: a listing that begins tells what there is then, whoever changed it and whoever lists it meanwhile.
//!   Shown by `listings/changed`, `listings/changed-by-several`.
//! - LISTING-2: a listing ends, and not before what was there when it began, unless others begin listings of the same directory
//!   for ever: those under way together end where the last of them does. Shown by `listings/renamed-while-listed`.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use creamery_base::Wait;
use creamery_fs::{Atime, DirEntry, FileType};
use creamery_fuse::protocol::{DirectoryEntry, DirectoryPlusSink, DirectorySink, OpenReplyFlags, Pushed};
use creamery_fuse::{FileHandle, NodeId, OpenRequest, Opened, Result};

use super::Adapter;
use crate::flags;
use crate::kept_listings::Keeping;

/// A bit of the number of an open directory: listing it moves no access time.
const IS_QUIET: u64 = 1;

impl Adapter {
    /// Opens a directory.
    pub(super) fn open_directory(&self, node: NodeId, open: &OpenRequest) -> Opened {
        let quiet = if flags::is_quiet(open.flags) { IS_QUIET } else { 0 };
        let number = (self.directories_opened.fetch_add(1, Ordering::Relaxed) << 1) | quiet;
        // Every access is to be seen here where all are to move the time.
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

    /// Notes that a name has moved, or that two were exchanged.
    pub(super) fn names_moved(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8])) {
        self.nodes.name_changed(from.0);
        if from.0 == to.0 {
            return;
        }
        self.nodes.name_changed(to.0);
        // The `..` of a directory is one of its names.
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
        // What went in before the failing entry is a good answer; the next request meets the failure first.
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
            // Without attributes (damage, or gone meanwhile) the name alone: a lookup will say what is wrong.
            // It has room, so a reference that is counted goes there.
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
