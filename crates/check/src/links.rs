//! Explains why a subvolume's names do not add up: lists entries and refs, for a share of the inodes at a time.
//!
//! Only damaged subvolumes need this. The share is chosen such that the list fits in memory; each share takes one walk over the subvolume.

use std::collections::{BTreeMap, HashSet};

use creamery_base::{ObjectId, Result};
use creamery_format::{DirEntries, FileType, InodeExtrefs, InodeRefs, Key, KeyType, RawInodeItem};
use zerocopy::FromBytes;

use crate::hash;
use crate::problem::Problem;
use crate::reader::Reader;
use crate::references::References;
use crate::report::ProblemSite;
use crate::walk::{Again, Leaf, Meta, Root, Sequence, Walker};

/// Approximate memory of an inode with one name, bytes.
const INODE_BYTES: u64 = 400;

/// A fact about an inode in a leaf.
enum Note {
    Inode {
        kind: Option<FileType>,
        links: u32,
    },
    Ref {
        dir: u64,
        index: u64,
        name: Box<[u8]>,
    },
    Entry {
        dir: u64,
        index: u64,
        kind: u8,
        name: Box<[u8]>,
    },
    Orphan,
    /// It is a directory without links, whose entries have no effect any more.
    Deleted,
}

#[derive(Default)]
struct Inode {
    item: Option<(Option<FileType>, u32)>,
    refs: Vec<(u64, u64, Box<[u8]>)>,
    entries: Vec<(u64, u64, Box<[u8]>, u8)>,
    orphan: bool,
}

#[derive(Default)]
struct Inodes {
    /// The inodes of the share.
    mine: BTreeMap<u64, Inode>,
    /// Directories without links, of all shares.
    deleted: HashSet<u64>,
}

impl Inodes {
    fn of(&mut self, ino: u64) -> &mut Inode {
        self.mine.entry(ino).or_default()
    }
}

impl Sequence<Vec<(u64, Note)>> for Inodes {
    fn leaf(&mut self, _meta: &Meta, notes: Vec<(u64, Note)>) {
        for (ino, note) in notes {
            match note {
                Note::Inode { kind, links } => self.of(ino).item = Some((kind, links)),
                Note::Ref { dir, index, name } => self.of(ino).refs.push((dir, index, name)),
                Note::Entry { dir, index, kind, name } => self.of(ino).entries.push((dir, index, name, kind)),
                Note::Orphan => self.of(ino).orphan = true,
                Note::Deleted => {
                    self.deleted.insert(ino);
                }
            }
        }
    }

    fn again(&mut self, _want: &creamery_format::Expected, _upper: Option<Key>) -> Again {
        Again::Twice
    }
}

/// Lists the wrong names of a subvolume that has `inodes` inodes.
pub(crate) fn explain(reader: &Reader<'_>, root: &Root, inodes: u64, memory_limit: u64) -> Result<()> {
    let shares = (inodes.saturating_mul(INODE_BYTES) / memory_limit.max(1)).saturating_add(1).min(4096);
    for share in 0..shares {
        let mine = |ino: u64| shares == 1 || (hash::numbers(5, &[ino]) >> 1) % shares == share;
        let references = References::new();
        let mut walker = Walker::new(reader, &references, 1);
        walker.count(false);
        let mut found = Inodes::default();
        walker.walk(root, &|leaf: &Leaf<'_>| notes(leaf, &mine), &mut found)?;
        for (ino, mut inode) in found.mine {
            inode.entries.retain(|entry| !found.deleted.contains(&entry.0));
            inode.judge(reader, root, ino);
        }
    }
    Ok(())
}

fn notes(leaf: &Leaf<'_>, mine: &dyn Fn(u64) -> bool) -> Vec<(u64, Note)> {
    let mut notes = Vec::new();
    for slot in 0..leaf.block.count() {
        let (key, data) = (leaf.block.key(slot), leaf.block.data(slot));
        let ino = key.objectid.get();
        match key.kind {
            KeyType::ORPHAN_ITEM if key.objectid == ObjectId::ORPHAN && mine(key.offset) => {
                notes.push((key.offset, Note::Orphan));
            }
            KeyType::INODE_ITEM => {
                let Ok(raw) = RawInodeItem::ref_from_bytes(data) else { continue };
                let (kind, links) = (FileType::from_mode(raw.mode.get()), raw.nlink.get());
                if mine(ino) {
                    notes.push((ino, Note::Inode { kind, links }));
                }
                if kind == Some(FileType::Directory) && links == 0 {
                    notes.push((ino, Note::Deleted));
                }
            }
            KeyType::INODE_REF if mine(ino) && key.offset != ino => {
                let names = InodeRefs::new(data).flatten();
                notes.extend(names.map(|it| (ino, ref_note(key.offset, it.index, it.name))));
            }
            KeyType::INODE_EXTREF if mine(ino) => {
                let names = InodeExtrefs::new(data).flatten();
                notes.extend(names.map(|it| (ino, ref_note(it.parent, it.index, it.name))));
            }
            KeyType::DIR_INDEX => {
                for entry in DirEntries::new(data).flatten() {
                    let child = entry.location.objectid.get();
                    if entry.location.kind == KeyType::INODE_ITEM && mine(child) {
                        let (index, kind, name) = (key.offset, entry.kind, entry.name.into());
                        notes.push((child, Note::Entry { dir: ino, index, kind, name }));
                    }
                }
            }
            _ => {}
        }
    }
    notes
}

fn ref_note(dir: u64, index: u64, name: &[u8]) -> Note {
    Note::Ref { dir, index, name: name.into() }
}

impl Inode {
    fn judge(self, reader: &Reader<'_>, root: &Root, ino: u64) {
        let key = |objectid: u64, kind, offset| {
            ProblemSite::key(root.tree, Key::new(ObjectId::new(objectid), kind, offset))
        };
        let sink = reader.sink;
        match self.item {
            Some((_, 0)) if !self.orphan => {
                sink.add(Problem::InodeUnlinked, key(ino, KeyType::INODE_ITEM, 0), "");
            }
            None if self.orphan => {
                let place = key(ObjectId::ORPHAN.get(), KeyType::ORPHAN_ITEM, ino);
                sink.add(Problem::OrphanStale, place, "");
            }
            _ => {}
        }
        for (dir, index, name, kind) in &self.entries {
            let place = || key(*dir, KeyType::DIR_INDEX, *index);
            let shown = String::from_utf8_lossy(name);
            let has_ref = self.refs.iter().any(|it| (it.0, it.1, &it.2) == (*dir, *index, name));
            match self.item {
                None => {
                    let message = format!("'{shown}' names inode {ino}");
                    sink.add(Problem::EntryWithoutInode, place(), message);
                    continue;
                }
                Some((Some(want), _)) if want.to_disk() != *kind => {
                    let message =
                        format!("'{shown}' of inode {ino}, expected {}, found {kind}", want.to_disk());
                    sink.add(Problem::EntryType, place(), message);
                }
                Some(_) => {}
            }
            if !has_ref {
                sink.add(Problem::EntryWithoutRef, place(), format!("'{shown}' names inode {ino}"));
            }
        }
        for (dir, index, name) in &self.refs {
            let has_entry = self.entries.iter().any(|it| (it.0, it.1, &it.2) == (*dir, *index, name));
            if !has_entry {
                let shown = String::from_utf8_lossy(name);
                let message = format!("'{shown}' with index {index}");
                sink.add(Problem::RefWithoutEntry, key(ino, KeyType::INODE_REF, *dir), message);
            }
        }
    }
}
