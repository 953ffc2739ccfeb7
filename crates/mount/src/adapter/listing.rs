//! Listings.
//!
//! An open directory has no state here but whether listing it moves its access time, which is its number. What a listing has to remember - where it ends, so that it does end while somebody
//! renames what he is told about - the node has, for as long as the kernel knows it ([`Nodes`](crate::nodes::Nodes)).
//!
//! `OPENDIR` is answered all the same, and without leave to keep what is listed. Were it not implemented the kernel would spare
//! it, and keep listings until the directory changes; but it does not keep them right (Linux 6.18): an answer that was given
//! before a change, to one process, is kept as what there is after it when a second one begins to list between the change
//! and the first one's taking the answer in. So a name that was just removed is told, until something else changes.
//!
//! # Invariants
//! - LISTING-1: a listing that begins tells what there is then, whoever changed it and whoever lists it meanwhile.
//!   Shown by `listings/changed`, `listings/changed-by-several`.
//! - LISTING-2: a listing ends, and not before what was there when it began, unless others begin listings of the same directory
//!   for ever: those under way together end where the last of them does. Shown by `listings/renamed-while-listed`.

use std::ops::ControlFlow;

use creamery_base::Wait;
use creamery_fs::DirEntry;
use creamery_fuse::protocol::{DirectoryEntry, DirectoryPlusSink, DirectorySink, Pushed};
use creamery_fuse::{FileHandle, NodeId, OpenRequest, Result};

use super::Adapter;
use crate::flags;

/// Numbers of open directories.
const MOVES_ACCESS_TIME: FileHandle = FileHandle::new(0);
const IS_QUIET: FileHandle = FileHandle::new(1);

impl Adapter {
    /// The number of a directory that is opened.
    pub(super) const fn directory_handle(open: &OpenRequest) -> FileHandle {
        if flags::is_quiet(open.flags) { IS_QUIET } else { MOVES_ACCESS_TIME }
    }

    /// Moves the access time of a directory that was listed.
    pub(super) fn listed(&self, node: NodeId, handle: FileHandle) {
        if handle != IS_QUIET {
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
            let attributes = if dots { None } else { self.fs.stat(found.id, Wait::Yes).ok() };
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
