//! Listing a directory.
//!
//! Entries come in the order of their DIR_INDEX numbers. The position after an entry is its number plus one. So a listing can
//! stop and continue whatever was added or removed meanwhile: an entry that was there all the time is reported once. Positions 0
//! and 1 stand for `.` and `..`.
//!
//! Entries are copied in batches and reported with no lock held, since the receiver may ask for the attributes of a reported
//! inode.

use std::ops::{ControlFlow, Range};

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};
use creamery_format::{Key, KeyType, dir_item};
use creamery_tree::{ReadAhead, Walk};
use smallvec::SmallVec;

use super::Names;
use crate::directory::{EntryTarget, FIRST_INDEX};
use crate::inode::{DirectoryInode, FileType};
use crate::keys;

/// Entries and bytes of names copied at a time.
const BATCH_ENTRIES_MAX: usize = 128;
const BATCH_BYTES_MAX: usize = 8192;

/// One entry of a listing.
///
/// ```
/// fn hidden(entry: &creamery_fs::DirEntry<'_>) -> bool {
///     entry.name.starts_with(b".")
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode of the entry.
    pub id: InodeId,
    /// The kind of the inode.
    pub kind: FileType,
    /// The position after this entry.
    pub next_offset: u64,
}

#[derive(Default)]
struct EntryBatch {
    names: Vec<u8>,
    entries: SmallVec<[Record; 32]>,
}

struct Record {
    index: u64,
    target: EntryTarget,
    kind: FileType,
    name_end: usize,
}

impl Names {
    /// Reports the entries of `dir` from the position `offset` on, until `each` breaks or there are no more. An entry at which
    /// `each` breaks counts as not taken: continue at the `next_offset` of the one before.
    pub(crate) fn read_dir(
        &self,
        dir: InodeId,
        offset: u64,
        wait: Wait,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let inode = self.inodes.get(dir, wait)?;
        inode.check_alive()?;
        let directory = inode.as_directory().ok_or(ErrorKind::NotADirectory)?;
        let kind = FileType::Directory;
        if offset == 0 && each(DirEntry { name: b".", id: dir, kind, next_offset: 1 }).is_break() {
            return Ok(());
        }
        if offset <= 1 {
            // A directory that was removed while open has no parent any more.
            let id = match self.parent(dir, wait) {
                Err(error) if error.kind() == ErrorKind::NotFound => dir,
                other => other?,
            };
            if each(DirEntry { name: b"..", id, kind, next_offset: FIRST_INDEX }).is_break() {
                return Ok(());
            }
        }
        if dir.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Ok(());
        }
        self.report_entries(&directory, offset.max(FIRST_INDEX), wait, each)
    }

    /// Reports the entries of `dir` from the start of `range` to its end, as [`Names::read_dir`] does.
    pub(crate) fn read_dir_range(
        &self,
        dir: InodeId,
        range: Range<u64>,
        wait: Wait,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.read_dir(dir, range.start, wait, &mut |entry| {
            if entry.next_offset > range.end { ControlFlow::Break(()) } else { each(entry) }
        })
    }

    fn report_entries(
        &self,
        dir: &DirectoryInode<'_>,
        mut at: u64,
        wait: Wait,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut batch = EntryBatch::default();
        // The listing stops at the last number: it would report an entry there again and again.
        while at < u64::MAX {
            let more = batch.fill(dir, at, wait)?;
            let mut start = 0;
            for record in &batch.entries {
                let name = &batch.names[start..record.name_end];
                start = record.name_end;
                let id = self.resolve(dir.id, name, record.target, wait)?;
                let next_offset = record.index.saturating_add(1);
                if each(DirEntry { name, id, kind: record.kind, next_offset }).is_break() {
                    return Ok(());
                }
                at = next_offset;
            }
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// The position after the last entry that a directory has now.
    pub(crate) fn end_of_dir(&self, dir: InodeId, wait: Wait) -> Result<u64> {
        let inode = self.inodes.get(dir, wait)?;
        let _locked = inode.lock_shared(wait)?;
        let directory = inode.as_directory().ok_or(ErrorKind::NotADirectory)?;
        if let Some(last) = directory.last_delayed_index(wait)? {
            return Ok(last.saturating_add(1));
        }
        let cursor = inode.tree().cursor_at_or_before(&keys::dir_index(dir.ino, u64::MAX), wait)?;
        Ok(match cursor.item() {
            Some((key, _)) if key.objectid == dir.ino && key.kind == KeyType::DIR_INDEX => {
                key.offset.saturating_add(1)
            }
            _ => FIRST_INDEX,
        })
    }
}

impl EntryBatch {
    /// Copies entries from number `from` on; returns whether there are more. An error behind some of them shows in the next call.
    fn fill(&mut self, dir: &DirectoryInode<'_>, from: u64, wait: Wait) -> Result<bool> {
        self.names.clear();
        self.entries.clear();
        let outcome = self.fill_from(dir, from, wait);
        if outcome.is_err() && !self.entries.is_empty() {
            return Ok(true);
        }
        outcome
    }

    fn fill_from(&mut self, dir: &DirectoryInode<'_>, from: u64, wait: Wait) -> Result<bool> {
        let locked = dir.lock_shared(wait)?;
        let delayed = dir.delayed_entries(from, wait)?;
        // A listing mostly reads all of a directory.
        let walk = Walk::new(wait, ReadAhead::ForwardAlways).within(dir.id.ino);
        let mut cursor = dir.tree().cursor(&Key::new(dir.id.ino, KeyType::DIR_INDEX, from), walk)?;
        loop {
            match cursor.item() {
                Some((key, item)) if key.objectid == dir.id.ino && key.kind == KeyType::DIR_INDEX => {
                    self.push(dir.id, key.offset, item)?;
                }
                _ => break,
            }
            if self.is_full() {
                return Ok(true);
            }
            cursor.advance()?;
        }
        drop(cursor);
        drop(locked);
        // Some of them may have got into the tree meanwhile.
        let end = self.entries.last().map_or(from, |last| last.index.saturating_add(1));
        for entry in delayed.iter().filter(|entry| entry.index >= end) {
            if self.is_full() {
                return Ok(true);
            }
            self.push(dir.id, entry.index, &entry.item)?;
        }
        Ok(false)
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= BATCH_ENTRIES_MAX || self.names.len() >= BATCH_BYTES_MAX
    }

    fn push(&mut self, dir: InodeId, index: u64, item: &[u8]) -> Result<()> {
        let damaged =
            |what: &str| Error::new(ErrorKind::Corrupt, format!("directory {dir}: entry {index} {what}"));
        let (entry, _) = dir_item::entries(item).next().ok_or_else(|| damaged("is empty"))??;
        let kind = entry.file_type().filter(|kind| kind.mode_bits() != 0);
        let kind = kind.ok_or_else(|| damaged("has an unknown type"))?;
        let target = EntryTarget::from_location(entry.location, dir)?;
        self.names.extend_from_slice(entry.name);
        self.entries.push(Record { index, target, kind, name_end: self.names.len() });
        Ok(())
    }
}
