//! What a commit with a log may show.
//!
//! A log has a commit's inodes, each as it was at some fsync behind it: the one that was synced, and those that went along. So every inode
//! that is found is as it was at one moment - the commit, or one of the calls of fsync - with the names that it had then and no
//! others; one that was synced, no earlier than at that moment. What lies in between two moments may mix inodes, never the parts of one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result, ensure};
use creamery_base::InodeId;
use creamery_fs::FileType;

use crate::delayed_data::explains;
use crate::model::{Content, Model, ROOT};
use crate::snapshot::{Entry, Snapshot, Walked};

/// A name, in a directory by its number.
type Name = (u64, Vec<u8>);

/// All files at a commit, or at an fsync behind it.
pub(crate) struct Moment {
    pub(crate) model: Model,
    snapshot: Snapshot,
    paths: BTreeMap<u64, Vec<u8>>,
    names: HashMap<u64, BTreeSet<Name>>,
}

impl Moment {
    pub(crate) fn of(model: &Model) -> Self {
        let mut names: HashMap<u64, BTreeSet<Name>> = HashMap::new();
        for (dir, node) in &model.nodes {
            let Content::Directory(children) = &node.content else { continue };
            for (name, child) in children {
                names.entry(*child).or_default().insert((*dir, name.clone()));
            }
        }
        Self { snapshot: model.snapshot(), paths: model.paths(), names, model: model.clone() }
    }

    fn names(&self, id: u64) -> BTreeSet<Name> {
        let is_there = self.paths.contains_key(&id);
        self.names.get(&id).filter(|_| is_there).cloned().unwrap_or_default()
    }

    fn children(&self, dir: u64) -> Option<&BTreeMap<Vec<u8>, u64>> {
        match &self.model.nodes.get(&dir)?.content {
            Content::Directory(children) => Some(children),
            _ => None,
        }
    }

    /// Whether it was then what was found at `path`, names aside.
    fn explains(&self, id: u64, path: &[u8], walked: &Walked) -> bool {
        let Some(wanted) = self.paths.get(&id).map(|path| &self.snapshot.entries[path]) else { return false };
        let found = &walked.snapshot.entries[path];
        let mut same = Entry { nlink: found.nlink, first: found.first.clone(), ..wanted.clone() };
        if found.kind == FileType::Directory {
            same.size = found.size;
        }
        let versions = self.model.nodes[&id].unsynced();
        if let (Some((versions, _)), Some(content)) = (versions, walked.contents.get(path))
            && explains(&versions, content, found.mtime)
        {
            (same.size, same.content, same.mtime) = (found.size, found.content, found.mtime);
        }
        same == *found
    }
}

/// What was found behind a power cut.
pub(crate) struct Found<'w> {
    walked: &'w Walked,
    /// The paths of each inode, by its number in the model.
    paths: BTreeMap<u64, Vec<Vec<u8>>>,
    ids: BTreeMap<Vec<u8>, u64>,
}

impl<'w> Found<'w> {
    /// `numbers` says which number each inode has in the model. Errors: there is one that nobody made; links or sizes do not count up.
    pub(crate) fn new(walked: &'w Walked, numbers: &HashMap<InodeId, u64>) -> Result<Self> {
        let mut found = Self { walked, paths: BTreeMap::new(), ids: BTreeMap::new() };
        for (path, inode) in &walked.ids {
            let id = if path.is_empty() {
                ROOT
            } else {
                *numbers.get(inode).context("an inode that nobody made")?
            };
            found.paths.entry(id).or_default().push(path.clone());
            found.ids.insert(path.clone(), id);
        }
        found.check_counts()?;
        Ok(found)
    }

    fn check_counts(&self) -> Result<()> {
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        for path in self.walked.ids.keys().filter(|path| !path.is_empty()) {
            let (dir, name) = self.split(path);
            *sizes.entry(dir).or_default() += 2 * name.len() as u64;
        }
        for (id, paths) in &self.paths {
            let (entry, told) =
                (&self.walked.snapshot.entries[&paths[0]], String::from_utf8_lossy(&paths[0]));
            if entry.kind == FileType::Directory {
                let size = sizes.get(id).copied().unwrap_or(0);
                ensure!(entry.size == size, "directory {told}: size {}, not {size}", entry.size);
            } else {
                ensure!(
                    entry.nlink as usize == paths.len(),
                    "{told}: {} links, {} names",
                    entry.nlink,
                    paths.len()
                );
            }
        }
        Ok(())
    }

    fn split(&self, path: &[u8]) -> Name {
        let cut = path.iter().rposition(|byte| *byte == b'/');
        let (dir, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        (self.ids[dir], name.to_vec())
    }

    fn names(&self, id: u64) -> BTreeSet<Name> {
        self.paths[&id].iter().map(|path| self.split(path)).collect()
    }

    /// Errors: an inode is as it was at none of the `moments`, the first of which is the commit; `synced` says for those inodes
    /// that were synced the moment from which on.
    pub(crate) fn check(&self, moments: &[&Moment], synced: &HashMap<u64, usize>) -> Result<()> {
        let all: BTreeSet<u64> = moments.iter().flat_map(|moment| moment.paths.keys().copied()).collect();
        ensure!(self.paths.keys().all(|id| all.contains(id)), "something is there that was not made then");
        for id in all.into_iter().filter(|id| *id != ROOT) {
            let from = synced.get(&id).copied().unwrap_or(0);
            let Some(paths) = self.paths.get(&id) else {
                let was_missing = moments[from..].iter().any(|moment| moment.names(id).is_empty());
                ensure!(was_missing, "{} is not there", told(moments, from, id));
                continue;
            };
            let names = self.names(id);
            // Of one that was removed the log says so for each directory that was synced.
            let is_removed = moments[from..].iter().any(|moment| moment.names(id).is_empty());
            let as_then = |moment: &&Moment| {
                let then = moment.names(id);
                (then == names || is_removed && then.is_superset(&names))
                    && moment.explains(id, &paths[0], self.walked)
            };
            let found = &self.walked.snapshot.entries[&paths[0]];
            ensure!(
                moments[from..].iter().any(as_then),
                "{} is found as {}",
                told(moments, from, id),
                one(&names, found)
            );
        }
        synced.iter().try_for_each(|(id, from)| self.check_entries(*id, &moments[*from..]))
    }

    /// Errors: a directory that was synced at the first of the `moments` has an entry that it had at none of them, or lacks one that it
    /// had at all.
    fn check_entries(&self, dir: u64, moments: &[&Moment]) -> Result<()> {
        let Some(path) = self.paths.get(&dir).map(|paths| &paths[0]) else { return Ok(()) };
        let entries: Vec<_> = moments.iter().filter_map(|moment| moment.children(dir)).collect();
        let Some(first) = entries.first() else { return Ok(()) };
        let below = |other: &&Vec<u8>| !other.is_empty() && self.split(other).0 == dir;
        let found: BTreeMap<Vec<u8>, u64> = self
            .ids
            .iter()
            .filter(|(path, _)| below(path))
            .map(|(path, id)| (self.split(path).1, *id))
            .collect();
        let told = || format!("directory {dir}, {}", String::from_utf8_lossy(path));
        for (name, id) in &found {
            let had = entries.iter().any(|entries| entries.get(name) == Some(id));
            ensure!(had, "{} has {} still, inode {id}", told(), String::from_utf8_lossy(name));
        }
        for (name, id) in first.iter().filter(|(name, _)| !found.contains_key(*name)) {
            let always = entries.iter().all(|entries| entries.get(name) == Some(id));
            ensure!(!always, "{} lacks {}, inode {id}", told(), String::from_utf8_lossy(name));
        }
        Ok(())
    }
}

/// What an inode was at the moments from `from` on.
fn told(moments: &[&Moment], from: usize, id: u64) -> String {
    let mut told = format!("inode {id}, from moment {from} of {}", moments.len());
    let mut last = String::new();
    for (number, moment) in moments.iter().enumerate().skip(from) {
        let entry = moment.paths.get(&id).map(|path| &moment.snapshot.entries[path]);
        let now = entry.map_or_else(|| "not there".to_owned(), |entry| one(&moment.names(id), entry));
        if now != last {
            told.push_str(&format!("\n  {number}: {now}"));
            last = now;
        }
    }
    told + "\n "
}

/// An inode in a line.
fn one(names: &BTreeSet<Name>, entry: &Entry) -> String {
    let names: Vec<_> =
        names.iter().map(|(dir, name)| format!("{dir}/{}", String::from_utf8_lossy(name))).collect();
    let Entry { kind, mode, uid, gid, nlink, size, mtime, content, xattrs, first: _ } = entry;
    let xattrs: Vec<_> =
        xattrs.iter().map(|(name, value)| (String::from_utf8_lossy(name), value.len())).collect();
    format!(
        "{names:?} {kind:?} mode {mode:o} owner {uid}:{gid} links {nlink} size {size} mtime {mtime:?} content {content:x} xattrs {xattrs:?}"
    )
}
